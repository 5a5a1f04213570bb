"""``cuda_ext.compile`` and ``cuda_ext.prepare``: compile at run time when the program asks for it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from cuda_ext.compiler.compile_options import (
    enables_tile,
    nvrtc_options,
    option_with_path,
    setting_of,
)
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.headers import Headers
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import (
    BuildError,
    CompilationError,
    ToolchainError,
    join_names,
    without_frames,
)
from cuda_ext.facts import codec
from cuda_ext.facts.manifest import Compression, Manifest
from cuda_ext.facts.sources import Options
from cuda_ext.runtime.jit.user_cache import compile_once, read_cache
from cuda_ext.runtime.module import KernelModule, library_of, module_from
from cuda_ext.runtime.text_arguments import (
    quote,
    read_choice,
    read_items,
    read_mapping,
    read_path,
    read_source,
    read_text,
    read_texts,
)
from cuda_ext.text.directives import definitions_of, has_directives
from cuda_ext.toolchain.cuda_libraries import gpu_capabilities
from cuda_ext.toolchain.identity import installed_nvrtc

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from cuda_ext.compiler.module_plan import CompiledModule, ModulePlan
    from cuda_ext.compiler.translation_unit import Compiler, SourceKind
    from cuda_ext.runtime.jit.preparation import Preparation

_FORMAT = "cuda-ext compiled 5"
_STANDARD = "c++17"


@without_frames
def compile(  # noqa: A001 - reads as cuda_ext.compile
    source: str | os.PathLike[str],
    *,
    architectures: Sequence[str] | None = None,
    instantiate: Sequence[str] = (),
    name: str = "kernels",
    compiler: Literal["nvrtc", "nvcc"] = "nvrtc",
    std: str = _STANDARD,
    define: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    headers: Mapping[str, str] | None = None,
    fast_math: bool = False,
    relaxed_constexpr: bool = False,
    std_headers: bool = True,
    host_code: Literal["keep", "skip"] = "keep",
    compress: Compression = "size",
    report: Callable[[str], None] = lambda _: None,
) -> KernelModule:
    """Compile `source`, which is CUDA C++ text or the path of a ``.cu`` file, to a module of kernels.

    Compiling needs no GPU and no driver. The module lists its kernels and images like any other module, can
    be saved, and launches on a machine with a GPU.

    `architectures` are spelled as in the configuration (``sm_90a``, ``compute_90``, ``all-major``). The
    default is the GPUs of this machine, or ``all-major`` if it has none. `instantiate` lists C++ name
    expressions; kernels that are not templates need no listing. On a machine with a GPU, templates need none
    either: ``module.fill["float"]`` is compiled when it is used. `headers` maps names to the text of headers
    that the source may include besides those in `include_dirs`. With ``host_code="skip"``, host code is left
    out. `report` receives the compiler's warnings.

    NVRTC's output is kept in the user's cache, and taken from there while the source, all headers, the
    options and the tool chain are unchanged. If `options` name files or directories, it is not kept, since
    their content is not part of the cache key; name directories under `include_dirs` instead.

    >>> import cuda_ext
    >>> module = cuda_ext.compile(
    ...     "template <class T> __global__ void fill(T* x, T value) { x[threadIdx.x] = value; }",
    ...     instantiate=["fill<float>"], architectures=["sm_90"])
    >>> [kernel.signature for kernel in cuda_ext.describe(module).kernels]
    ['fill<float>(float* x, float value)']

    Raises :class:`~cuda_ext.errors.BuildError`: :class:`~cuda_ext.errors.CompilationError` with the
    compiler's text, :class:`~cuda_ext.errors.ToolchainError` if there is no compiler.
    """
    read_choice("compress", compress, get_args(Compression))
    read_choice("compiler", compiler, ("nvrtc", "nvcc"))
    read_choice("host_code", host_code, ("keep", "skip"))
    if not all(map(str.isidentifier, read_text("name", name).split("."))):
        raise ValueError(f"name: {quote(name)} is not an import name; write it as in 'package.kernels'")
    targets = None if architectures is None else read_texts("architectures", architectures)
    if targets == ():
        raise BuildError(
            "is empty", where="architectures", remedy='name at least one, such as "sm_90" or "all-major"'
        )
    texts = read_mapping("headers", headers or {})
    given = {header: read_source(f"headers[{quote(header)}]", content) for header, content in texts.items()}
    macros = read_mapping("define", define or {})
    unit_options = Options(
        std=read_text("std", std),
        define={
            macro: str(value) if type(value) is int else read_text(f"define[{quote(macro)}]", value)
            for macro, value in sorted(macros.items())
        },
        raw=read_texts("options", options),
        fast_math=bool(fast_math),
        relaxed_constexpr=bool(relaxed_constexpr),
        std_headers=bool(std_headers),
        skip_host_code=host_code == "skip",
    )
    _check_options(unit_options.raw)
    expressions = read_texts("instantiate", instantiate)
    given_macros = definitions_of(unit_options.define, unit_options.raw)
    file, text, included = _gather(source, f"{name}.cu", include_dirs, given_macros)
    unit = TranslationUnit(file, text, "cu", {**included, **given}, unit_options, expressions)
    if any(b"__tile_global__" in each for each in (text, *unit.headers.values())):
        unit = _with_tiles(unit, compiler)
    native = gpu_capabilities() if targets is None or "native" in targets else []
    names = targets or (["native"] if native else ["all-major"])
    wanted = _Wanted(unit, name, names, native, compress)
    key = wanted.key() if compiler == "nvrtc" else None
    compile_new = partial(wanted.compile, compiler)
    if key is None:
        from cuda_ext.time_limit import compile_within  # cached modules need no threads

        compiled = compile_within(file, compile_new)
    else:
        compiled = compile_once(key, file, partial(_find, key), compile_new, codec.encode)
    for line in compiled.log:
        report(line)
    return module_from(compiled.manifest, compiled.files.__getitem__)


def _check_options(options: Sequence[str]) -> None:
    """Refuse `options` that the other arguments or the module decide."""
    for index, option in enumerate(options):
        if setting := setting_of(option):
            problem = "has an argument of its own"
            remedy = f"pass {setting} instead"
            if setting not in ("architectures", "std"):
                problem = "changes the form of the images, and `compile` packs complete images into a fatbin"
                remedy = "take it out"
            raise BuildError(f"{quote(option)} {problem}", where=f"options[{index}]", remedy=remedy)


def prepare(
    module: ModuleType,
    expressions: Sequence[str] | None = None,
    *,
    architectures: Sequence[str] | None = None,
) -> Preparation:
    """Compile kernels that would be compiled on demand, and keep them in the user's cache.

    This prepares container images and clusters: afterwards, no process compiles at its first call. With
    `architectures`, no GPU is needed.

    `expressions` are C++ name expressions of kernels of `module`; those of one source are compiled together.
    The default is everything that was built, for GPUs without an image. `architectures`, spelled ``sm_90``,
    stand for GPUs; the default is the GPUs of this machine.

    Raises :class:`~cuda_ext.errors.BuildError` if nothing can be compiled, and
    :class:`~cuda_ext.errors.KernelNotFoundError` for an expression that no source defines.
    """
    from cuda_ext.runtime.jit.preparation import prepare_entries

    return prepare_entries(
        library_of(module).on_demand,
        None if expressions is None else read_texts("expressions", expressions),
        None if architectures is None else read_texts("architectures", architectures),
    )


class _Compiled(NamedTuple):
    """A compiled module, and the compiler's messages."""

    manifest: Manifest
    log: tuple[str, ...]
    files: Mapping[str, bytes]


class _Wanted(NamedTuple):
    """The module `name` of `unit`, for architectures that are spelled as in the configuration.

    ``native`` are the capabilities of the local GPUs.
    """

    unit: TranslationUnit
    name: str
    architectures: Sequence[str]
    native: Sequence[int]
    compress: Compression

    def key(self) -> str | None:
        """Return the cache key, or ``None`` if the result depends on files that the key cannot cover."""
        unit = self.unit
        if option_with_path(unit.options) or not _names_its_includes(unit):
            return None
        try:
            identity = installed_nvrtc().identity
            own = [_tileiras_identity()] if enables_tile(unit.options) else []
        except ToolchainError:
            return None  # opening the compiler reports the error
        options = nvrtc_options(unit.name, unit.options)
        lists = (options, unit.instantiate, self.architectures, list(map(str, self.native)), own)
        counted = (field for each in lists for field in (str(len(each)), *each))
        return codec.key_of(_FORMAT, identity, self.name, unit.name, unit.sha256, self.compress, *counted)

    def compile(self, compiler: str) -> _Compiled:
        # Imported here, since a cached module needs no compiler.
        from dataclasses import replace

        from cuda_ext.compiler.architectures import expand, targets_of
        from cuda_ext.compiler.front_ends.tile_code import divide
        from cuda_ext.compiler.module_plan import LibraryPlan, ModulePlan, NoKernelError
        from cuda_ext.compiler.spelled_settings import IN_PYTHON
        from cuda_ext.toolchain.compile_library import compile_module
        from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

        @cache
        def compiler_of(kind: SourceKind) -> Compiler:
            return open_compiler(CompilerChoice("tile" if kind == "tile" else compiler), os.environ)

        libraries = []
        for unit, suffix, may_be_empty in divide(self.unit, self.unit.instantiate):
            found = expand(self.architectures, compiler_of(unit.kind), "architectures", self.native)
            plan = LibraryPlan(
                self.name,
                (unit,),
                targets_of(unit.kind, found),
                self.compress,
                may_be_empty=may_be_empty,
            )
            libraries.append(replace(plan, file_stem=f"{plan.stem}{suffix}"))
        module = ModulePlan(self.name, tuple(libraries), self.compress)
        IN_PYTHON.set(True)
        try:
            compiled = compile_module(module, compiler_of)
        except NoKernelError:
            compiled = self._of_templates(module, compiler_of(self.unit.kind))
        return _Compiled(compiled.manifest, compiled.log, compiled.files)

    def _of_templates(self, module: ModulePlan, compiler: Compiler) -> CompiledModule:
        """Return the module of a source with templates alone: a machine with a GPU compiles them on demand.

        Raises :class:`~cuda_ext.errors.CompilationError` on others, and without a template.
        """
        from cuda_ext.compiler.module_plan import assemble_sources, templates_of

        if not (names := templates_of(self.unit)):
            raise CompilationError(
                "defines no kernel",
                where=self.unit.name,
                remedy="a source needs at least one __global__ or __tile_global__ function",
            )
        if compiler.name != "nvrtc" or not gpu_capabilities():
            raise CompilationError(
                f"defines only templates: {join_names(names)}",
                where=self.unit.name,
                remedy=f'list instantiations, as in instantiate=["{names[0]}<float>"]; on a machine with '
                "a GPU, NVRTC compiles them when they are used",
            )
        return assemble_sources(module, compiler)


def _names_its_includes(unit: TranslationUnit) -> bool:
    """Return True if all includes of `unit` name files of the project or the tool chain."""
    texts = [text for text in (unit.source, *unit.headers.values()) if has_directives(text)]
    if not texts:
        return True
    from cuda_ext.text.includes import names_its_includes  # a slow import

    return all(map(names_its_includes, texts))


def _with_tiles(unit: TranslationUnit, compiler: str) -> TranslationUnit:
    """Return `unit`, with the options for tile kernels if it has some."""
    from cuda_ext.compiler.front_ends.tile_code import enable_tile  # most sources have no tile kernels

    enabled = enable_tile(unit, keep_standard=unit.options.std != _STANDARD)
    if enables_tile(enabled.options) and compiler != "nvrtc":
        raise BuildError(
            "kernels of CUDA Tile are compiled by NVRTC", where="compiler", remedy='pass "nvrtc", or nothing'
        )
    return enabled


def _tileiras_identity() -> str:
    from cuda_ext.toolchain.identity import identity_of
    from cuda_ext.toolchain.tileiras import Tileiras

    # As NVRTC, it is known by the ends of its files: to read them whole takes longer than to use the cache.
    return identity_of("tileiras", Tileiras().files(), digest=lambda _: None)


def _find(key: str) -> _Compiled | None:
    """Find the module under `key` in the cache; ``None`` if it is absent or damaged."""
    with suppress(codec.DecodingError):
        return codec.decode(_Compiled, read_cache(key) or b"")
    return None


def _gather(
    source: str | os.PathLike[str],
    name: str,
    include_dirs: Sequence[str | os.PathLike[str]],
    definitions: bytes,
) -> tuple[str, bytes, dict[str, bytes]]:
    """Return the name, text and headers of `source`. Names are relative to the parent of all directories."""
    listed = read_items("include_dirs", include_dirs, "a list of directories")
    directories = [
        os.path.realpath(read_path(f"include_dirs[{i}]", directory)) for i, directory in enumerate(listed)
    ]
    for directory in directories:
        if not os.path.isdir(directory):
            raise BuildError(
                f"{directory!r} is not a directory", where="include_dirs", remedy="correct the path"
            )
    text: bytes | None = None
    if isinstance(source, str):
        if source.endswith(".cu") and "\n" not in source:
            raise TypeError(
                "source: expected CUDA C++ text, found what looks like a path; "
                f"pass pathlib.Path({quote(source)})"
            )
        # A text includes headers like a file in the first directory.
        path = os.path.join(directories[0] if directories else _current_directory(), name)
        text = read_source("source", source)
    else:
        path = os.path.realpath(read_path("source", source))
        if not os.path.isfile(path):
            raise BuildError("is not a file", where=os.fspath(source), remedy="correct the path")
    root = os.path.commonpath([os.path.dirname(path), *directories])
    file = os.path.relpath(path, root).replace(os.sep, "/")
    return file, *Headers(FileTree(root), directories).gather(file, text=text, definitions=definitions)


def _current_directory() -> str:
    """Return the current directory; if it was removed, a path below which there can be no headers."""
    try:
        return os.path.realpath(os.curdir)
    except FileNotFoundError:
        return os.devnull
