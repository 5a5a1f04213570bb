"""Compile a translation unit to the manifest and files of a module, on any machine, and cache them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cuda_ext import manifest as manifest_file
from cuda_ext.compiler.compile_options import nvrtc_options, option_with_path
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import ManifestError, ToolchainError
from cuda_ext.formats import codec
from cuda_ext.manifest import Compression, Manifest
from cuda_ext.runtime.jit.user_cache import lock_key, read_cache, write_cache
from cuda_ext.toolchain.identity import installed_nvrtc

__all__ = ["CompiledSource", "compile_source"]

_FORMAT = "cuda-ext compiled 2"
# Includes of files that the digest of a unit does not cover: by a macro, or by an absolute path.
_UNKNOWN_INCLUDE = re.compile(rb'#[ \t]*include[ \t]*(?:[A-Za-z_]|[<"](?:/|[A-Za-z]:))')


class CompiledSource(NamedTuple):
    """A module: its manifest, the files that it names, and the compiler's messages."""

    manifest: Manifest
    files: Mapping[str, bytes]
    log: tuple[str, ...]


class _Entry(NamedTuple):
    """A :class:`CompiledSource` in the cache."""

    format: str
    manifest: str
    log: tuple[str, ...]
    files: Mapping[str, bytes]


def compile_source(
    unit: TranslationUnit,
    name: str,
    architectures: Sequence[str],
    native: Sequence[int],
    compress: Compression,
    compiler: str,
) -> CompiledSource:
    """Compile `unit` to the module `name`, unless the cache has it.

    `architectures` are spelled as in the configuration; `native` are the capabilities of the local GPUs.
    `compiler` is ``nvrtc``, whose output is cached, or ``nvcc``.
    """

    def compile_unit() -> CompiledSource:
        # Imported here, since a cached module needs no compiler.
        from cuda_ext.compiler.architectures import expand
        from cuda_ext.compiler.module_plan import LibraryPlan, ModulePlan
        from cuda_ext.toolchain.compile_library import compile_module
        from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

        tool = open_compiler(CompilerChoice(compiler), os.environ)
        targets = expand(architectures, tool, "architectures", native)
        library = LibraryPlan(name, (unit,), targets, compress)
        return CompiledSource(*compile_module(ModulePlan(name, (library,), compress), tool))

    key = _key(unit, name, architectures, native, compress) if compiler == "nvrtc" else None
    if key is None:
        return compile_unit()
    if cached := _read(key):
        return cached
    with lock_key(key):
        if cached := _read(key):
            return cached
        compiled = compile_unit()
        entry = _Entry(_FORMAT, manifest_file.dumps(compiled.manifest), compiled.log, compiled.files)
        write_cache(key, codec.encode(entry))
        return compiled


def _key(
    unit: TranslationUnit, name: str, architectures: Sequence[str], native: Sequence[int], compress: str
) -> str | None:
    """The cache key, or ``None`` if the result depends on files that cannot be part of it."""
    texts = (unit.source, *unit.headers.values())
    if option_with_path(unit.options) or any(map(_UNKNOWN_INCLUDE.search, texts)):
        return None
    try:
        identity = installed_nvrtc().identity
    except ToolchainError:
        return None  # opening the compiler reports it
    options = nvrtc_options(unit.name, unit.options)
    lists = (options, unit.instantiate, architectures, list(map(str, native)))
    counted = (field for each in lists for field in (str(len(each)), *each))
    return codec.key_of(_FORMAT, identity, name, unit.name, unit.sha256, compress, *counted)


def _read(key: str) -> CompiledSource | None:
    """The module under `key` in the cache; ``None`` if there is none, or a damaged one."""
    try:
        entry = codec.decode(_Entry, read_cache(key) or b"")
        if entry.format != _FORMAT:
            return None
        return CompiledSource(manifest_file.loads(entry.manifest, "the cache"), entry.files, entry.log)
    except (codec.DecodingError, ManifestError):
        return None
