"""The compiler of a build, with its answers remembered in the cache.

Loading NVRTC or running nvcc takes longer than finding all images in the cache, so a compiler is asked once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from cuda_ext import __version__
from cuda_ext.cache.dependencies import FileDigests
from cuda_ext.cache.store import Store
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import DecodingError, decode, encode, key_of
from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler
from cuda_ext.toolchain.identity import identity_of


class CompilerSpec(NamedTuple):
    """The data with which another process opens the same compiler, and checks that it is the same."""

    choice: CompilerChoice
    identity: str
    version: str


class _Answers(NamedTuple):
    """A compiler's remembered answers; ``supports`` has the architectures that were asked for, as text."""

    version: str
    capabilities: tuple[int, ...]
    supports: Mapping[str, bool] = {}


class RememberedCompiler:
    """The planning half of a :class:`~cuda_ext.compiler.translation_unit.Compiler`."""

    def __init__(
        self, compiler: Compiler, choice: CompilerChoice, store: Store, digests: FileDigests
    ) -> None:
        self.name = compiler.name
        self._compiler = compiler
        self._choice = choice
        self._store = store
        self._digests = digests

    @classmethod
    def open(
        cls, choice: CompilerChoice, environ: Mapping[str, str], store: Store, digests: FileDigests
    ) -> RememberedCompiler:
        """Open the compiler of `choice`. Raises :class:`~cuda_ext.errors.ToolchainError`."""
        compiler = open_compiler(
            choice, environ, check=lambda nvcc: cls(nvcc, choice, store, digests).version
        )
        return cls(compiler, choice, store, digests)

    @cached_property
    def identity(self) -> str:
        version = "" if self.files else self._compiler.version
        return identity_of(self.name, self.files, version, self._digests)

    @property
    def spec(self) -> CompilerSpec:
        executable = getattr(self._compiler, "executable", None)
        choice = self._choice._replace(executable=str(executable) if executable else None)
        return CompilerSpec(choice, self.identity, self.version)

    @property
    def version(self) -> str:
        return self._answers.version

    def capabilities(self) -> tuple[int, ...]:
        return self._answers.capabilities

    def supports(self, architecture: Architecture) -> bool:
        if not architecture.suffix:
            return architecture.number in self.capabilities()
        name = str(architecture)
        if name not in self._answers.supports:
            supports = {**self._answers.supports, name: self._compiler.supports(architecture)}
            self._answers = self._answers._replace(supports=supports)
            self._store.put(self._key, encode(self._answers))
        return self._answers.supports[name]

    @cached_property
    def files(self) -> Sequence[Path]:
        """The compiler's own files."""
        return self._compiler.files()

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:
        """Return the directories in which the compiler looks up headers that are not the project's."""
        vars(self._compiler)["version"] = self.version  # a cached property, which would load the compiler
        return self._compiler.search_path(unit)

    @property
    def _key(self) -> str:
        return key_of("compiler", __version__, self.identity)

    @cached_property
    def _answers(self) -> _Answers:
        with suppress(DecodingError):
            return decode(_Answers, self._store.get(self._key) or b"")
        answers = _Answers(self._compiler.version, self._compiler.capabilities())
        self._store.put(self._key, encode(answers))
        return answers
