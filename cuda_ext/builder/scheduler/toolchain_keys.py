"""A compiler as a build knows it: what it said once is remembered, and not asked again.

Loading NVRTC or running nvcc takes longer than finding all images in the cache. So a compiler is told by the
contents of its files, and its answers are kept in the store.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

from cuda_ext.cache.dependencies import FileDigests, Resolve, key_of
from cuda_ext.cache.store import Store
from cuda_ext.compiler.jobs import Job, LinkJob
from cuda_ext.compiler.module_plan import UnitPlan
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Options
from cuda_ext.toolchain import nvjitlink
from cuda_ext.toolchain.bindings import library_files
from cuda_ext.toolchain.header_dependencies import Resolver

__all__ = ["CompilerSpec", "Toolchain", "identity"]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CompilerSpec:
    """How another process gets the same compiler; ``identity`` tells whether it did."""

    name: str
    executable: str | None
    launcher: str | None
    identity: str

    def open(self, scratch: Path, timed: bool) -> Compiler:
        """The compiler. Raises :class:`ToolchainError` if this machine has another one."""
        if self.name == "nvrtc":
            from cuda_ext.toolchain.nvrtc import Nvrtc

            return Nvrtc(scratch=scratch, timed=timed)
        from cuda_ext.toolchain.nvcc import Nvcc

        return Nvcc(Path(self.executable or "nvcc"), os.environ, self.launcher, scratch, timed)


def identity(name: str, files: Sequence[Path], digest: Callable[[str], str | None], version: str) -> str:
    """What tells one tool from another: the contents of its files, or else its version."""
    return (
        key_of("tool", name, *(digest(str(file)) for file in files))
        if files
        else key_of("tool", name, version)
    )


class Toolchain:
    """A compiler, and the linker beside it, for planning; :attr:`spec` is for those who compile.

    It has the planning half of :class:`~cuda_ext.compiler.translation_unit.Compiler`.
    """

    def __init__(self, compiler: Compiler, store: Store, digests: FileDigests) -> None:
        self._compiler = compiler
        self._store = store
        self._digests = digests
        self._resolvers: dict[tuple[Path, ...], Resolver] = {}
        self._headers: dict[int, tuple[Mapping[str, bytes], str]] = {}
        self.name = compiler.name

    @cached_property
    def identity(self) -> str:
        files = self._compiler.files()
        return identity(self.name, files, self._digests, "" if files else self._compiler.version)

    @cached_property
    def linker_identity(self) -> str:
        files = nvjitlink.files()
        return identity("nvjitlink", files, self._digests, self.version)

    @cached_property
    def packer_identity(self) -> str:
        files = library_files("nvfatbin")
        return identity("nvfatbin", files, self._digests, self.version)

    @cached_property
    def version(self) -> str:
        version = self._ask("version", lambda: self._compiler.version, _version)
        self._compiler.remember(version)
        # The first time on this machine, NVRTC's headers are unpacked now.
        self._compiler.search_path(TranslationUnit("", b""))
        self._digests.begin()
        return version

    @cached_property
    def spec(self) -> CompilerSpec:
        executable = getattr(self._compiler, "executable", None)
        launcher = getattr(self._compiler, "launcher", None)
        return CompilerSpec(self.name, str(executable) if executable else None, launcher, self.identity)

    @cache  # noqa: B019 - one instance lives as long as the build
    def capabilities(self) -> tuple[int, ...]:
        return self._ask("capabilities", self._compiler.capabilities, _numbers)

    @cache  # noqa: B019
    def supports(self, architecture: Architecture) -> bool:
        return self._ask(f"supports {architecture}", lambda: self._compiler.supports(architecture), _truth)

    def files(self, units: Sequence[TranslationUnit], names: Iterable[str]) -> set[str]:
        """The compiler's own files, and those that `names`, which compilations of `units` look up, lead to.

        Without headers of the project.
        """
        own = {name for unit in units for name in unit.headers}
        outside = self._outside(units)
        found = {find.file(name) for name in names if name not in own for find in outside}
        return {*map(str, self._compiler.files()), *filter(None, found)}

    def _outside(self, units: Sequence[TranslationUnit]) -> Iterable[Resolver]:
        """What finds the headers of others for `units`."""
        found: dict[Resolver, None] = {}
        for unit in units:
            path = tuple(self._compiler.search_path(unit))
            if path not in self._resolvers:
                self._resolvers[path] = Resolver(path, self._digests)
            found[self._resolvers[path]] = None
        return found

    def resolver(self, units: Sequence[TranslationUnit]) -> Resolve:
        """What the names that compilations of `units` look up lead to now."""
        own: dict[str, str] = {}
        for unit in units:
            own |= unit.header_digests
        outside = self._outside(units)
        if len(units) == 1:
            (find,) = outside
            return lambda name: own.get(name) or find(name)

        def all_of(name: str) -> str | None:
            # One name may lead each unit to another file.
            found = [own.get(name), *(find(name) for find in outside)]
            return " ".join(f or "" for f in found) if any(found) else None

        return all_of

    def key(self, job: Job) -> str:
        """The key of `job`: all that decides on its product, but the headers that it reads."""
        if isinstance(job, LinkJob):
            inputs = (f for i in job.inputs for f in (i.name, i.kind, hashlib.sha256(i.data).digest()))
            return key_of("link", self.linker_identity, str(job.architecture), *inputs)
        return key_of(job.action, str(job.architecture), self._key_of_source(job.unit))

    def key_of_library(self, units: Iterable[UnitPlan], *how: str) -> str:
        """The key of what is made of all of `units`, headers included, in a way that `how` describes."""
        fields = [
            field
            for plan in units
            for field in (
                self._key_of_source(plan.unit),
                self._key_of_headers(plan.unit),
                _spelled(plan.architectures),
                str(plan.part),
            )
        ]
        return key_of("library", self.linker_identity, self.packer_identity, *how, *fields)

    def _key_of_headers(self, unit: TranslationUnit) -> str:
        # Units that begin alike have the same object, and there may be many of them.
        known = self._headers.get(id(unit.headers))
        if known is None or known[0] is not unit.headers:
            digests = sorted(unit.header_digests.items())
            known = unit.headers, key_of("headers", *(field for item in digests for field in item))
            self._headers[id(unit.headers)] = known
        return known[1]

    @cache  # noqa: B019
    def _key_of_source(self, unit: TranslationUnit) -> str:
        options = self._key_of_options(unit.options)
        return key_of("source", options, unit.name, unit.kind, unit.source, *unit.instantiate)

    @cache  # noqa: B019
    def _key_of_options(self, options: Options) -> str:
        fields = asdict(options) | {"define": sorted(options.define.items())}
        return key_of("options", self.identity, json.dumps(fields))

    def _ask(self, question: str, ask: Callable[[], _T], valid: Callable[[object], _T | None]) -> _T:
        """What the compiler says; from the store, if `valid` takes it for an answer."""
        key = key_of("answer", self.identity, question)
        with suppress(ValueError, TypeError):
            known = valid(json.loads(self._store.get(key) or b"null"))
            if known is not None:
                return known
        answer = ask()
        self._store.put(key, json.dumps(answer).encode())
        return answer


def _version(value: object) -> str | None:
    return value if isinstance(value, str) and re.fullmatch(r"\d+\.\d+", value) else None


def _numbers(value: object) -> tuple[int, ...] | None:
    right = isinstance(value, list) and all(type(number) is int for number in value)
    return tuple(value) if isinstance(value, list) and right else None


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


@cache
def _spelled(architectures: tuple[Architecture, ...]) -> str:
    return " ".join(map(str, architectures))
