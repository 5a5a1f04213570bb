"""Checks that a project's build backend builds its kernels, for doctor and ``cuda-ext build``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

from cuda_ext.cli.doctor.findings import Level
from cuda_ext.text.includes import find_includes
from cuda_ext.toolchain.remedies.missing_headers import package_with

OLDEST_SETUPTOOLS = 77
_HOOK = "tool.hatch.build.hooks.cuda-ext"
# The files that tell build programs what to do, how they call this package, and what runs them.
_SCRIPTS = {
    "CMakeLists.txt": ("cuda_ext_add_module", ("cmake", "ninja")),
    "meson.build": ("cuda_ext build", ("meson", "ninja")),
}
_SCRIPT_OF = {"scikit_build_core": "CMakeLists.txt", "mesonpy": "meson.build"}
_NOT_BUILT = "does not build the kernels: wheels lack them"
_REQUIRES = "[build-system] requires"


@dataclass(frozen=True, slots=True)
class Flaw:
    """A flaw in the build of a project, and its remedy. If it is a problem, wheels lack the kernels."""

    level: Level
    subject: str
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}; {self.remedy}"


@dataclass(frozen=True)
class BuildSystem:
    """The build backend of the project in `root`, as pyproject.toml names it."""

    root: Path
    document: Mapping[str, Any]

    @classmethod
    def read(cls, root: Path) -> BuildSystem:
        """Read ``pyproject.toml`` in `root`; what is no table there, the backend refuses."""
        with suppress(OSError, ValueError):
            return cls(root, tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")))
        return cls(root, {})

    @cached_property
    def backend(self) -> str:
        """The top-level module of the backend; empty if the project is no package, or has one of its own."""
        table = self._table("build-system")
        if "backend-path" in table or not (self._table("project") or (self.root / "setup.py").is_file()):
            return ""
        return re.split(r"[.:]", str(table.get("build-backend", "setuptools.build_meta")))[0]

    @cached_property
    def requires(self) -> Mapping[str, str]:
        """The requirements by the normalised names of their packages."""
        listed = self._table("build-system").get("requires", ["setuptools"])
        texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
        names = (re.match(r"\s*([\w.-]*)", text) for text in texts)
        return {_normalise(name[1]): text for name, text in zip(names, texts, strict=True) if name}

    def _table(self, *path: str) -> Mapping[str, Any]:
        """Return the table at `path`; empty if there is none."""
        table: Any = self.document
        for key in path:
            table = table.get(key) if isinstance(table, dict) else None
        return table if isinstance(table, dict) else {}

    def flaws(self, sources: Sequence[Path] = ()) -> Iterator[Flaw]:
        """List the flaws; `sources` are those of the project, relative to its root."""
        if not self.backend:
            return
        yield from self._unserved()
        yield from self._unsuitable_setuptools()
        yield from self._unrequired(sources)

    @property
    def programs(self) -> list[str]:
        """The programs that build kernels with CMake or Meson, in a package or not."""
        runners = (programs for file, (_, programs) in _SCRIPTS.items() if self._is_called_in(file))
        return list(dict.fromkeys(chain(*runners)))

    def _is_called_in(self, file: str) -> bool:
        scripts = [self.root / file, *self.root.glob(f"*/{file}"), *self.root.glob("cmake/*.cmake")]
        call = r"\W+".join(_SCRIPTS[file][0].split())
        return any(re.search(call, _read(script)) for script in scripts)

    def _unserved(self) -> Iterator[Flaw]:
        """Find out whether the backend builds the table ``[tool.cuda_ext]``, which none refuses."""
        if file := _SCRIPT_OF.get(self.backend):
            if not self._is_called_in(file):
                yield Flaw(
                    "problem", file, _NOT_BUILT, f"call {_SCRIPTS[file][0]} there, as cuda-ext init does"
                )
        elif self.backend == "hatchling":
            hooks = (self._table("tool", "hatch", "build", *of, "hooks") for of in ((), ("targets", "wheel")))
            if not any("cuda-ext" in table for table in hooks) and not self._is_in_hatch_toml():
                yield Flaw("problem", "[build-system]", f"hatchling {_NOT_BUILT}", f"add the table [{_HOOK}]")
        elif self.backend != "setuptools":
            text = f"{self.backend} builds no kernels: wheels have those that cuda-ext build put there"
            remedy = "to have them built, use setuptools, hatchling, scikit-build-core or meson-python"
            yield Flaw("warning", "[build-system]", text, remedy)
            return
        if "cuda-ext" not in self.requires:
            remedy = 'add "cuda-ext[cu13]"'
            yield Flaw("problem", _REQUIRES, f"lacks cuda-ext, and so the build {_NOT_BUILT}", remedy)

    def _is_in_hatch_toml(self) -> bool:
        return f"[{_HOOK.removeprefix('tool.hatch.')}]" in _read(self.root / "hatch.toml")

    def _unsuitable_setuptools(self) -> Iterator[Flaw]:
        if self.backend != "setuptools":
            return
        remedy = f'write "setuptools>={OLDEST_SETUPTOOLS}"'
        bounds = re.findall(r"(===?|<=?|~=)\s*(\d+)", self.requires.get("setuptools", ""))
        if any(int(number) < OLDEST_SETUPTOOLS + (bound == "<") for bound, number in bounds):
            yield Flaw("warning", _REQUIRES, f"{self.requires['setuptools']!r} is too old", remedy)
        with suppress(metadata.PackageNotFoundError, ValueError):
            version = metadata.version("setuptools")
            if int(version.partition(".")[0]) < OLDEST_SETUPTOOLS:
                text = f"{version} is too old for builds with --no-build-isolation"
                yield Flaw("note", "setuptools", text, f"upgrade it to {OLDEST_SETUPTOOLS} for these")

    def _unrequired(self, sources: Sequence[Path]) -> Iterator[Flaw]:
        """Find headers in packages that no requirement brings in."""
        known = {name.removesuffix("-cu12") for name in self.requires}
        for source in sources:
            included = find_includes(_read(self.root / source).encode()).named
            for header in (each.name for each in included if not each.is_quoted):
                if (package := package_with(header)) and package not in known:
                    known.add(package)
                    text = f"lacks {package}, which has <{header}> of {source.as_posix()}"
                    remedy = f'add "{package}" ("{package}-cu12" for CUDA 12), or build with a toolkit'
                    yield Flaw("warning", _REQUIRES, text, remedy)


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace")
    return ""
