"""``[tool.cuda_ext]``: its keys with their kinds, defaults and documentation.

Each field of the dataclasses is a key, spelled with dashes. The checks, the JSON schema and the reference
page derive from these fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from cuda_ext.builder.config.instantiations import INSTANTIATIONS
from cuda_ext.builder.config.kernel_table import KERNELS
from cuda_ext.builder.config.kinds import (
    CONSTANTS,
    FLAG,
    MACROS,
    OPTIONS,
    PARTS,
    STANDARD,
    TEXT,
    Kind,
    choice,
    strings,
)
from cuda_ext.builder.config.tune_table import TUNE, Tune
from cuda_ext.builder.config.variant_table import VARIANTS
from cuda_ext.compiler.module_plan import Emit
from cuda_ext.facts.candidates import Variants
from cuda_ext.facts.manifest import Compression

TABLE = "tool.cuda_ext"


class Key(NamedTuple):
    """The kind of a key's values, and its default. The documentation is in the schema."""

    kind: Kind
    default: Any


def _key(kind: Kind, default: Any, doc: str) -> Any:
    schema = {**kind.schema, "description": doc}
    if default is not None:
        schema["default"] = list(default) if isinstance(default, tuple) else default
    metadata = {"key": Key(Kind(kind.check, schema), default)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


_ARCHITECTURE = r"^(?:all|all-major|native|(?:sm|compute|lto)_[1-9]\d{1,3}[af]?)$"


@dataclass(frozen=True, eq=False)
class Settings:
    """The keys of a module's table. In ``[tool.cuda_ext]`` itself they are defaults for all modules."""

    sources: tuple[str, ...] = _key(
        strings("device/*.cu"),
        ("device/*.cu",),
        "Device sources, as paths or globs within the project: `.cu`, `.py` with functions of Triton or "
        "cuTile, or already compiled `.ptx`, `.cubin`, `.fatbin` and `.ltoir`.",
    )
    architectures: tuple[str, ...] = _key(
        strings("all-major", 'a string such as "sm_90"', pattern=_ARCHITECTURE),
        ("all-major",),
        "The architectures to compile for, in nvcc's spelling: `sm_90a` for machine code, `compute_90` for "
        "PTX, or `all`, `all-major`, `native`. `CUDAARCHS` replaces these, but not those of an override.",
    )
    include_dirs: tuple[str, ...] = _key(
        strings(), (), "Directories of the project that the compiler searches for headers."
    )
    compiler: Literal["nvrtc", "nvcc"] = _key(
        choice("nvrtc", "nvcc"),
        "nvrtc",
        "The compiler: NVRTC needs neither a CUDA toolkit nor a host compiler; `nvcc` supports code that "
        "includes host headers.",
    )
    nvcc: str | None = _key(
        TEXT,
        None,
        "Path of nvcc. By default the build takes the first nvcc that works: from `CUDA_PATH`, `CUDA_HOME`, "
        'an installed package, or `PATH`. Requires `compiler = "nvcc"`.',
    )
    launcher: str | None = _key(
        TEXT, None, 'A program that runs nvcc, such as `sccache` or `ccache`. Requires `compiler = "nvcc"`.'
    )
    std: str = _key(STANDARD, "c++17", "The C++ standard, such as `c++20`.")
    define: Mapping[str, str] = _key(
        MACROS,
        {},
        'Macros and their values, such as `{ WIDTH = 4, INLINE = "" }`. '
        "Macros with parameters belong in a header of `pre-include`.",
    )
    options: tuple[str, ...] = _key(
        OPTIONS,
        (),
        "Further options, passed to the compiler unchanged. An option with its own key is an error. With "
        "NVRTC, options that only nvcc has are errors, too.",
    )
    pre_include: tuple[str, ...] = _key(
        strings(), (), "Headers that the build includes before the first line of each source."
    )
    fast_math: bool = _key(FLAG, False, "Use faster, less exact floating-point functions.")
    relaxed_constexpr: bool = _key(
        FLAG, False, "Let device code call `constexpr` functions without `__device__`."
    )
    std_headers: bool = _key(
        FLAG,
        True,
        "Headers of the C++ standard library under NVRTC, such as `<cstdint>`, `<cmath>` and `<algorithm>`. "
        "Their names in `std` are those of libcu++. A header of the project or of an include directory with "
        "such a name comes first.",
    )
    host_code: Literal["keep", "skip"] = _key(
        choice("keep", "skip"),
        "keep",
        "With `skip`, the build hides host code in sources and their headers from NVRTC: functions and "
        "variables without a specifier such as `__device__`, and includes such as `<vector>` and "
        "`<torch/extension.h>`. It lists what it left out. nvcc compiles host code anyway.",
    )
    instantiate: tuple[str, ...] = _key(
        INSTANTIATIONS,
        (),
        'Template instantiations to build, as C++ name expressions such as `"axpy<float>"`. A table stands '
        'for all combinations: `{ kernel = "reduce<{T}, {B}>", T = ["float", "double"], B = [128, 256] }`.',
    )
    constants: tuple[str, ...] = _key(
        CONSTANTS,
        (),
        'Constants of the code, as C++ expressions: `["Traits<128, 4>::kSmemSize", "sizeof(Params)"]`. The '
        "build asks the compiler for their values, which may differ by architecture. You read them as "
        '`kernels.constants["..."]` in Python, and as `constexpr` values in C++.',
    )
    split_instantiations: bool | int = _key(
        PARTS,
        False,
        "Compile each instantiation of a source separately and in parallel, into its own fatbin. A number "
        "divides the instantiations into that many parts, each with a fatbin. A new last instantiation "
        "changes one part. Sources with `__device__` or `__constant__` variables do not support this.",
    )
    variants: tuple[Variants, ...] = _key(
        VARIANTS,
        (),
        "Names that stand for several kernels. A launch takes the first kernel whose condition holds. The "
        'last has none: `gemm = [{ kernel = "hopper", when = "sm_90a" }, { kernel = "simple" }]`.',
    )
    tune: tuple[Tune, ...] = _key(
        TUNE,
        (),
        "Kernels with candidates, which differ in constants: "
        '`{ kernel = "gemm<{TILE}, {STAGES}>", TILE = [64, 128], STAGES = [2, 3], key = ["m", "n"], block = '
        '"TILE * 2" }`. The name `gemm` is then one kernel. `cuda-ext tune` measures the candidates and '
        "writes `tuning/gemm.json`, and the next build chooses by this file.",
    )
    compress: Compression = _key(
        choice(*get_args(Compression)),
        "size",
        "Compression of the fatbins. `balance` and `size` require a driver of CUDA 12.4 or newer. "
        "For each MiB of an image, `size` takes about 0.6 s, once. `balance` takes 0.01 s, and files are a "
        "third larger.",
    )
    emit: Emit = _key(
        choice(*get_args(Emit)),
        "fatbin",
        "The output for each source: one fatbin, or cubins, PTX or LTO-IR for other linkers.",
    )
    jit: bool = _key(
        FLAG,
        True,
        "Embed the sources and headers in the package, to compile missing kernels on demand. The build "
        "leaves out sources that NVRTC cannot compile.",
    )
    headers: tuple[str, ...] = _key(
        strings(),
        (),
        "Headers to embed besides those that the sources include: paths or globs within the project.",
    )
    link: bool = _key(
        FLAG,
        False,
        "Compile as relocatable device code, and link all sources of the module into one library.",
    )


@dataclass(frozen=True)
class BuildSettings:
    """The keys of ``[tool.cuda_ext]`` for the build as a whole."""

    report: str | None = _key(
        TEXT,
        None,
        "File within the project for each build's HTML report. The environment variable `CUDA_EXT_REPORT` "
        "replaces it.",
    )
    trace: str | None = _key(
        TEXT,
        None,
        "File within the project for each build's trace, for Chrome or Perfetto. The environment variable "
        "`CUDA_EXT_TRACE` replaces it.",
    )
    editable_rebuild: bool = _key(
        FLAG,
        False,
        "Compile changed sources when you import a module of an editable install. Without this key, the "
        "import warns of them. To compile, the importing environment needs a compiler, such as that of "
        "`cuda-ext[cu13]`. If the compilation fails, the import fails. setuptools and hatchling support the "
        "key; scikit-build-core and meson-python rebuild in their own way, and CMake does not rebuild. On "
        "file systems without locks, the import of changed sources fails until you run `cuda-ext build`.",
    )


def _keys(settings: type[Settings | BuildSettings]) -> dict[str, Key]:
    return {each.name.replace("_", "-"): each.metadata["key"] for each in dataclasses.fields(settings)}


KEYS = _keys(Settings)
BUILD_KEYS = _keys(BuildSettings)

# The documentation of the keys whose values are tables of keys.
TABLES = {
    "modules": "A table for each module, under its import name in quotes. By default one module "
    "with the default settings: `kernels` in the project's package.",
    "overrides": "Settings of single sources, as an array of tables. Later tables take precedence. "
    "`instantiate` adds to a source's instantiations; all other keys replace its settings.",
}

# The keys that an override may set, since they concern a single translation unit.
OVERRIDABLE = (
    "architectures",
    "define",
    "options",
    "std",
    "pre-include",
    "fast-math",
    "relaxed-constexpr",
    "std-headers",
    "host-code",
    "instantiate",
    "split-instantiations",
)

# The keys that only an override has.
OVERRIDE_KEYS = {
    "kernels": KERNELS.described(
        "Descriptions of the kernels in compiled sources, such as cubins. You can launch only described "
        'kernels. Example: `kernels = [{ name = "gemm", symbol = "gemm_0", signature = "(float* a, '
        'float* b, int n)", block = [128, 1, 1], shared = 49152 }]`.',
    ),
    "tuning": TEXT.described(
        "A JSON file with measured configurations of the functions that `instantiate` names, as in "
        '`tuning = "tuning/softmax.json"`. A launch takes the configuration for its GPU and sizes.',
    ),
}
