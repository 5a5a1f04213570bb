"""NVRTC's images hold no variables that are not used; those that the host may write are kept and read.

Probes leave no trace, and code is that of a compilation without the link.
"""

from __future__ import annotations

import re
import string

import pytest

from cuda_ext.compiler.jobs import LinkInput
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.formats.elf import read_elf
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.toolchain import nvjitlink
from cuda_ext.toolchain.nvjitlink import can_optimise, link
from cuda_ext.toolchain.nvrtc import Nvrtc
from tests.fixtures.device_code import image, module, nvcc, unit

SM_90 = Architecture.parse("sm_90")
HEADER = "#include <cuda/std/utility>\n"
BLOCK_REDUCE = """
#include <cub/block/block_reduce.cuh>
extern "C" __global__ void reduce(const float* x, float* y) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  float sum = Reduce(storage).Sum(x[blockIdx.x * 128 + threadIdx.x]);
  if (!threadIdx.x) y[blockIdx.x] = sum;
}
"""
LOOP = HEADER + (
    'extern "C" __global__ void k(float* x) { float a[9]; for (int i = 0; i < 9; ++i) a[i] = x[i * 99];\n'
    "for (int i = 0; i < 9; ++i) x[i] = sqrtf(a[i]) / a[8 - i] * a[4] + a[i]; }"
)
pytestmark = pytest.mark.skipif(not can_optimise(), reason="this nvJitLink keeps all variables")


def code(data: bytes) -> dict[str, bytes]:
    return {s.name: bytes(s.data) for s in read_elf(data).sections if s.name.startswith(".text.")}


def direct(source: str, architecture: str = "sm_90", **options: object) -> bytes:
    (compiled,) = Nvrtc(lean=False).compile(unit(source, **options), [Architecture.parse(architecture)])
    return compiled.data


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        pytest.param("sm_80", {}, marks=pytest.mark.slow),
        ("sm_90a", {"fast_math": True}),
    ],
)
def test_a_block_reduction_is_its_code_and_the_same(architecture, options):
    lean = image(unit(BLOCK_REDUCE, **options), architecture).data
    plain = direct(BLOCK_REDUCE, architecture, **options)
    assert len(lean) < 6000 < 100_000 < len(plain)
    assert code(lean) == code(plain)
    assert read_cubin(lean).variables == {}


@pytest.mark.parametrize(
    "raw",
    [("--fmad=false",), ("--ftz=true", "--prec-div=false", "--prec-sqrt=false"), ("--maxrregcount=16",)],
)
def test_options_that_decide_on_code_reach_the_link(raw):
    lean, plain = image(unit(LOOP, raw=raw)).data, direct(LOOP, raw=raw)
    assert len(lean) < len(plain)
    assert code(lean) == code(plain)
    assert code(lean) != code(image(unit(LOOP)).data)


def test_an_option_that_the_link_lacks_costs_the_link_and_nothing_else():
    source = f'{HEADER}extern "C" __global__ void k(int* x) {{ *x = 1; }}'
    raw = ("--extra-device-vectorization",)
    assert image(unit(source, raw=raw)).data == direct(source, raw=raw)


WRITABLE = [  # how variables may be declared, and the names for them
    ("__device__ int {} = 3;", "{}"),
    ("static __device__ int {} = 3;", "{}"),
    ("__constant__ int {} = 3;", "{}"),
    ("[[maybe_unused]] static __device__ int {} = 3;", "{}"),
    ("__managed__ int {} = 3;", "{}"),
    ("namespace a {{ namespace {{ __device__ int {} = 3; }} }}", "a::{}"),
    ("namespace a {{ static __device__ int {} = 3; }}", "a::{}"),
    ("#if 1\nnamespace {{ __device__ int {} = 3; }}\n#endif", "{}"),
    ("template <class T> __device__ T {} = 3;", "{}<int>"),
    ("static __device__ struct {{ int x; }} {} = {{3}};", "{}.x"),
    ("static __device__ int {}(3);", "{}"),
    ("#define VARIABLE(name) static __device__ int name##_ = 3;\nVARIABLE({})", "{}_"),
    ("#define NAME(name) name##_\nstatic __device__ int NAME({}) = 3;", "{}_"),
    ("#define MEMORY __device__\nstatic MEMORY int {} = 3;", "{}"),
    # What follows has namespaces that only a compiler knows.
    ("#if 1\nnamespace a {{\n#else\nnamespace a {{\n#endif\nstatic __device__ int {} = 3; }}", "a::{}"),
    ("#define OPEN namespace b {{\nOPEN\nstatic __device__ int {} = 3;\n}}", "b::{}"),
]


@pytest.mark.parametrize("forms", [WRITABLE[:-2], WRITABLE[-2:]], ids=["clear", "unclear"])
@pytest.mark.parametrize("architecture", ["sm_90", "compute_90"])
def test_what_the_host_may_write_is_read_however_it_is_declared(forms, architecture):
    """A linker that is not told that the host writes a variable takes its initial value for it."""
    flags = [f"flag{letter}" for letter in string.ascii_lowercase[: len(forms)]]
    declarations = (form.format(flag) for flag, (form, _) in zip(flags, forms, strict=True))
    sum_of_all = "+".join(name.format(flag) for flag, (_, name) in zip(flags, forms, strict=True))
    source = "\n".join(
        [HEADER, *declarations, f'extern "C" __global__ void read(int* x) {{ *x = {sum_of_all}; }}']
    )
    compiled = image(unit(source), architecture)
    # Lowered names of internal linkage begin with the name of some variable.
    names = " ".join(re.sub(r".*_unit_cu_[a-z]+", "", variable) for variable in compiled.variables)
    assert [flag for flag in flags if flag in names] == flags
    if architecture == "compute_90":
        text = compiled.data.decode()
        assert {f for f in flags if re.search(rf"ld\.(?:global|const)\S*\s+%r\d+, \[\S*{f}", text)} == set(
            flags
        )


def test_a_link_that_fails_leaves_the_image_of_the_compiler(monkeypatch):
    def refuse(*_: object) -> None:
        raise CompilationError("unsupported LTO-IR")

    source = f"{HEADER}__managed__ int unclear;\n__global__ void k() {{}}"
    monkeypatch.setattr(nvjitlink, "_link_here", refuse)
    assert image(unit(source)).data == direct(source)


def test_variables_that_only_the_host_uses_are_kept():
    source = f"{HEADER}__device__ int version = 7;\n__constant__ float weights[9];\n__global__ void k() {{}}"
    assert {"version", "weights"} <= set(image(unit(source)).variables)


def test_variables_that_are_only_declared_are_defined():
    """The link alone would leave them undefined, so that no driver loads the image, or drop them."""
    declarations = 'extern "C" __device__ int used;\nextern __constant__ int unused;\n'
    source = f'{HEADER}{declarations}extern "C" __global__ void k(int* x) {{ *x = used; }}'
    assert {"used", "unused"} <= set(image(unit(source), "compute_90").variables)


def test_constants_of_headers_and_of_the_source_go():
    table = "static constexpr int table[3] = {1, 2, 3};\n"
    source = f"{HEADER}{table}__global__ void k(int* x) {{ *x = table[1]; }}"
    assert image(unit(source)).variables == ()


@pytest.mark.parametrize(
    "raw", [(), ("--fmad=false", "-default-device"), ("--maxrregcount=24",), ("-lineinfo", "-Xptxas=-O1")]
)
def test_a_linked_unit_has_the_same_code_without_unused_variables(raw):
    source = unit(LOOP, relocatable=True, raw=raw)
    lean, plain = (c.compile(source, [SM_90])[0] for c in (Nvrtc(), Nvrtc(lean=False)))
    linked = [link([LinkInput("a", "cubin", i.data, i.text)], SM_90) for i in (lean, plain)]
    assert code(linked[0]) == code(linked[1])
    is_lean = len(linked[0]) < len(linked[1]) / 2
    # Where the assembler has options of its own, its product is linked.
    assert is_lean == (not {"--maxrregcount=24", "-lineinfo"}.intersection(raw))
    assert (read_cubin(linked[0]).variables == {}) == is_lean


def test_a_linked_unit_keeps_what_other_units_and_the_host_may_use():
    source = f"""{HEADER}
    __device__ int of_all; static __device__ int own; inline __device__ int inlined = 2;
    __attribute__((weak)) __device__ int weak; __constant__ float weights[4]; __managed__ int managed;
    template <class T> __device__ T in_template = 3; template __device__ int in_template<int>;
    __device__ int function() {{ static __device__ int counter; return ++counter; }}
    namespace cuda {{ extern __device__ int other; }} __device__ int* pointer = &cuda::other;
    """
    variables = ptx.variables(image(unit(source, relocatable=True)).text)
    names = ("of_all", "own", "inlined", "weak", "weights", "managed", "in_template", "counter", "pointer")
    assert [name for name in names if not any(name in variable for variable in variables)] == []
    assert len(variables) == len(names)


@pytest.mark.host_compiler
@pytest.mark.parametrize("relocatable", [False, True])
def test_nvcc_leaves_tables_of_libraries_out(tmp_path, relocatable):
    (tmp_path / "library.cuh").write_text("static __device__ int unused[1000] = {1}, used[2] = {2, 3};\n")
    source = (
        "#include <library.cuh>\n__constant__ float weights[4];\n__global__ void k(int* x) { *x = used[*x]; }"
    )
    options = {"raw": (f"-I{tmp_path}",), "relocatable": relocatable}
    architectures = [SM_90, SM_90.as_kind("ptx")]
    for compiled in nvcc().compile(unit(source, **options), architectures):
        assert len(compiled.variables) == 2
        assert [v for v in compiled.variables if "used" in v and "unused" not in v]
        assert "weights" in compiled.variables


def test_linked_units_have_no_unused_variables():
    used = "inline __device__ int used = 1; static __device__ int local;"
    call = f"{HEADER}{used} __device__ void f(int*);\n__global__ void run(int* x) {{ f(x); }}"
    define = f"{HEADER}{used} __device__ void f(int* x) {{ *x = used; }}\n__constant__ float weights[4];"
    linked = module(
        unit(call, name="device/a.cu", relocatable=True),
        unit(define, name="device/b.cu", relocatable=True),
        architectures=("sm_90", "compute_90"),
        link=True,
    )
    read = {"sm_90": lambda data: read_cubin(data).variables, "compute_90": ptx.variables}
    for entry in read_fatbin(linked.files["kernels.fatbin"]):
        assert set(read[entry.architecture](entry.payload())) == {"used", "weights", "local", "local$2"}


@pytest.mark.parametrize("raw", [(), ("-lineinfo",), ("-G",), ("-rdc=true",), ("-default-device",)])
@pytest.mark.parametrize("architecture", ["sm_90", "compute_90", "lto_90"])
def test_probes_leave_no_trace(raw, architecture):
    source = (
        'enum E { A };\nextern "C" __global__ void k(int* x, E e) { *x = e; }\n__constant__ float w[4];\n'
    )
    compiled = image(unit(source, raw=raw), architecture)
    assert b"cuda_ext_probe" not in compiled.data
    assert compiled.signatures is not None
    assert [k.signature for k in compiled.signatures.kernels.values()] == ["k(int* x, E e)"]
    assert [s.type for s in compiled.signatures.symbols.values()] == ["float[4]"]
