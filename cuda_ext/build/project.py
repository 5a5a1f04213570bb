"""A project with a ``[tool.cuda_ext]`` table: the one door through which every build tool comes in."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from cuda_ext.build.config import ModuleConfig
    from cuda_ext.build.generate import Package
    from cuda_ext.compiler.translation_unit import Compiler

__all__ = ["Project"]


@dataclass(frozen=True)
class Project:
    """The modules that a project's configuration describes."""

    root: Path
    modules: tuple[ModuleConfig, ...]

    @classmethod
    def load(cls, root: Path, packages: Sequence[str] = ()) -> Project | None:
        """Read ``pyproject.toml`` in `root`; ``None`` if it has no ``[tool.cuda_ext]``.

        `packages` are the import packages that the build tool knows of; they name the module where the
        configuration does not. Raises :class:`ConfigError`.
        """
        file = root / "pyproject.toml"
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"pyproject.toml: cannot be read: {error}") from None
        if "cuda_ext" not in text:
            return None
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"pyproject.toml: {error}") from None
        table = document.get("tool", {}).get("cuda_ext")
        if table is None:
            return None
        from cuda_ext.build.config import default_module_name, parse_table

        real = Path(os.path.realpath(root))
        project_name = document.get("project", {}).get("name")
        return cls(real, parse_table(table, default_module_name(real, project_name, tuple(packages))))

    def source_files(self) -> list[Path]:
        """Every device source and header, relative to the root: what an sdist must hold.

        No compiler is needed. Raises :class:`BuildError` for what cannot be found or read.
        """
        from cuda_ext.build.plan import find_sources, gather_unit

        found: set[Path] = set()
        for module in self.modules:
            for source in find_sources(module, self.root):
                found.add(source.relative_to(self.root))
                found.update(map(Path, gather_unit(module, source, self.root).headers))
        return sorted(found)

    def build(self, report: Callable[[str], None] = lambda _: None) -> Iterator[Package]:
        """Compile all modules, one generated package after the other.

        `report` receives a line for each thing done. Raises :class:`BuildError`.
        """
        from cuda_ext.build.generate import generate
        from cuda_ext.build.plan import plan_module
        from cuda_ext.compiler.module import compile_module

        compilers: dict[tuple[str, str | None], Compiler] = {}
        for module in self.modules:
            settings = module.settings
            chosen = (settings.compiler, settings.nvcc)
            if chosen not in compilers:
                compilers[chosen] = _compiler(module, self.root)
            plan = plan_module(module, self.root, compilers[chosen], _native(module))
            report(f"{module.name}: {plan.name} with {settings.compiler} {compilers[chosen].version}")
            try:
                yield generate(compile_module(plan, compilers[chosen], report))
            except BuildError as error:
                raise type(error)(f"{module.name}:\n{error}") from None


def _compiler(module: ModuleConfig, root: Path) -> Compiler:
    if module.settings.compiler == "nvcc":
        from cuda_ext.compiler.nvcc import find_nvcc

        configured = module.settings.nvcc
        return find_nvcc(str(root / configured) if configured else None, os.environ)
    from cuda_ext.compiler.nvrtc import Nvrtc

    return Nvrtc()


def _native(module: ModuleConfig) -> list[int]:
    """The compute capabilities of the GPUs in this machine, if the module asks for them."""
    asked = {*module.settings.architectures}
    for override in module.overrides:
        asked.update(override.settings.get("architectures", ()))
    if "native" not in asked and "native" not in os.environ.get("CUDAARCHS", ""):
        return []
    from cuda_ext.build.devices import capabilities

    return capabilities()
