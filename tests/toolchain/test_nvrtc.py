"""NVRTC: options reach the compiler, results are the same on every machine, and errors have a remedy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cuda_ext.compiler.compile_options import nvcc_only
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats import ptx as ptx_text
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.toolchain import cuda_libraries
from cuda_ext.toolchain.nvrtc import Nvrtc
from cuda_ext.toolchain.programs.nvrtc_program import NvrtcProgram, knows_option
from cuda_ext.toolchain.programs.recorded_commands import recorded_commands
from tests.fixtures.device_code import KERNEL, image, nvrtc, ptx, unit

ROOT = Path(__file__).parents[2]


def entries(source: str, *instantiate: str, architecture: str = "sm_90", **options) -> tuple[str, ...]:
    return image(unit(source, *instantiate, **options), architecture).entries


# ------------------------------------------------------------------------------------------- options


def test_definitions_reach_the_code():
    source = "#ifdef ON\n__global__ void NAME(int* p) { *p = VALUE; }\n#endif"
    code = ptx(unit(source, define={"NAME": "k", "VALUE": "(40 + 1)", "ON": ""}))
    assert ".entry _Z1kPi" in code
    assert ", 41;" in code


FILES = ["--pch", "-pch", "--pch-dir=.", "--create-pch=a.pch", "-use-pch=a.pch", "-time=a", "--time=b.csv"]


@pytest.mark.parametrize("option", [*FILES, "-fdevice-time-trace=t", "--fdevice-time-trace=t"])
def test_options_that_leave_files_are_refused(option):
    with pytest.raises(CompilationError, match=re.escape(f"options: {option!r} leaves files behind; take")):
        image(unit(KERNEL, raw=(option,)))


@pytest.mark.parametrize(
    "source",
    [
        "constexpr int f(int x) { return x + 1; }\n__global__ void k(int* p) { *p = f(*p); }",
        "struct S { int v; constexpr S(int x) : v(x) {} constexpr int g() const { return v; } };\n"
        "__global__ void k(int* p) { *p = S(*p).g(); }",
        "constexpr int plus(int a, int b) { return a + b; }\n"
        "template <class... T> constexpr int sum(T... x) { return (x + ... + 0); }\n"
        "__global__ void k(int* p) { *p = sum(1, plus(*p, 2)); }",
    ],
)
def test_relaxed_constexpr_lets_device_code_call_constexpr_functions(source):
    assert entries(source, relaxed_constexpr=True)
    with pytest.raises(CompilationError, match="is host code, which NVRTC does not compile"):
        image(unit(source))


# ------------------------------------------------------------------------------------------- kernels

KERNELS = {
    'extern "C"': ('extern "C" __global__ void k() {}', {"k"}),
    'in a block of extern "C"': ('extern "C" { namespace n { __global__ void k() {} } }', {"k"}),
    "a plain one": ("__global__ void k(int) {}", {"_Z1ki"}),
    "static": ("static __global__ void k(int) {}", {"_Z1ki"}),
    "from a macro": ("#define K(n) __global__ void n##_k() {}\nK(a) K(b)", {"_Z3a_kv", "_Z3b_kv"}),
    "overloads": ("__global__ void k(int) {} __global__ void k(float) {}", {"_Z1ki", "_Z1kf"}),
    "an explicit instantiation": (
        "template <class T> __global__ void k(T) {} template __global__ void k<int>(int);",
        {"_Z1kIiEvT_"},
    ),
    "with attributes": (
        "[[deprecated]] __global__ void __launch_bounds__(128, 2) a() {}\n"
        "__global__ __launch_bounds__(64) __cluster_dims__(2, 1, 1) void b() {}",
        {"_Z1av", "_Z1bv"},
    ),
    "in a header": ('#include "h.cuh"', {"_Z4heldv"}),
}


@pytest.mark.parametrize("how", KERNELS)
@pytest.mark.parametrize("architecture", ["sm_90", "compute_90"])
def test_kernels_need_not_be_listed(how, architecture):
    source, expected = KERNELS[how]
    headers = {"h.cuh": "__global__ void held() {}"}
    assert set(image(unit(source, headers=headers), architecture).entries) == expected


def test_a_kernel_in_an_anonymous_namespace_is_found():
    (entry,) = entries("namespace n { namespace { __global__ void k() {} } }")
    assert re.fullmatch(r"_ZN1n\d+_GLOBAL__N__\w+", entry)


def test_a_template_without_instantiations_is_no_kernel():
    assert entries("template <class T> __global__ void k(T) {}") == ()


@pytest.mark.parametrize(
    ("source", "expression", "lowered"),
    [
        ("template <class T> __global__ void k(T*) {}", "k<float>", "_Z1kIfEvPT_"),
        ("template <class T> __global__ void k(T*) {}", "k< unsigned  int >", "_Z1kIjEvPT_"),
        ("template <class T = float, int N = 4> __global__ void k(T*) {}", "k<>", "_Z1kIfLi4EEvPT_"),
        (
            "template <bool B, char C, int N> __global__ void k() {}",
            "k<true, 'a', -1>",
            "_Z1kILb1ELc97ELin1EEvv",
        ),
        ("enum class E { A, B };\ntemplate <E e> __global__ void k() {}", "k<(E)1>", "_Z1kIL1E1EEvv"),
        ("enum class E { A, B };\ntemplate <E e> __global__ void k() {}", "k<E::B>", "_Z1kIL1E1EEvv"),
        ("template <auto V> __global__ void k() {}", "k<3ul>", "_Z1kILm3EEvv"),
        ("namespace a::b { template <int N> __global__ void k() {} }", "a::b::k<2>", "_ZN1a1b1kILi2EEEvv"),
        (
            "namespace a { struct S {}; template <class T> __global__ void k(T) {} }",
            "a::k<a::S>",
            "_ZN1a1kINS_1SEEEvT_",
        ),
        (
            "template <class T> struct V {};\ntemplate <class T> __global__ void k(T) {}",
            "k<V<V<int> >>",
            "_Z1kI1VIS0_IiEEEvT_",
        ),
        (
            "template <class T> struct P { using type = T*; };\n"
            "template <class T> __global__ void k(typename P<T>::type) {}",
            "k<double>",
            "_Z1kIdEvN1PIT_E4typeE",
        ),
        (
            "template <class T> struct W { T v; };\n"
            "template <template <class> class C, class T> __global__ void k(C<T>) {}",
            "k<W, float>",
            "_Z1kI1WfEvT_IT0_E",
        ),
        ("template <class... T> __global__ void k(T*...) {}", "k<int, float>", "_Z1kIJifEEvDpPT_"),
        (
            "__device__ int f(int x) { return x; }\n"
            "template <int (*F)(int)> __global__ void k(int* p) { *p = F(1); }",
            "k<&f>",
            "_Z1kIXadL_Z1fiEEEvPi",
        ),
        ("__global__ void k(int*) {} __global__ void k(float*) {}", "(void(*)(float*))k", "_Z1kPf"),
        ("static __global__ void k() {}", "k", "_Z1kv"),
        ('extern "C" __global__ void k() {}', "k", "k"),
    ],
)
def test_name_expressions_are_instantiated_and_lowered(source, expression, lowered):
    compiled = image(unit(source, expression))
    assert compiled.names == {expression: lowered}
    assert lowered in compiled.entries


def test_dynamic_shared_memory_grid_constants_and_inline_assembly_compile():
    source = """
    struct alignas(64) Map { unsigned long long opaque[16]; };
    extern __shared__ float tile[];
    template <int N> __global__ void k(const __grid_constant__ Map map, int* p) {
      asm volatile("mov.u32 %0, %1;" : "=r"(*p) : "n"(N * 2));
      tile[threadIdx.x] = map.opaque[3];
      __syncthreads();
      p[1] = tile[0];
    }"""
    assert "mov.u32" in ptx(unit(source, "k<21>"))


# -------------------------------------------------------------------------------------------- images


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_90a", "sm_100f", "sm_120"])
def test_a_cubin_is_for_its_architecture(architecture):
    assert str(read_cubin(image(KERNEL, architecture).data).target) == architecture


@pytest.mark.parametrize("architecture", ["compute_75", "compute_90", "compute_90a", "compute_100f"])
def test_ptx_is_for_its_architecture_and_ends_with_its_text(architecture):
    data = image(KERNEL, architecture).data
    target = ptx_text.target(data)
    assert target is not None
    assert str(target) == architecture
    assert not data.endswith(b"\0")


def test_supported_architectures_come_from_the_compiler():
    assert {75, 80, 90, 100, 120} <= set(nvrtc().capabilities())
    assert list(nvrtc().capabilities()) == sorted(nvrtc().capabilities())


@pytest.mark.parametrize(
    ("architecture", "supported"),
    [
        *(("sm_80", True), ("compute_90a", True), ("sm_100f", True), ("lto_103a", True)),
        *(("sm_80a", False), ("sm_90f", False), ("sm_12", False), ("sm_999", False)),
    ],
)
def test_suffixes_come_from_the_compiler(architecture, supported):
    assert nvrtc().supports(Architecture.parse(architecture)) == supported


# The compiler would put the time and the process id into names of internal linkage.
UNSTABLE = """
namespace { __global__ void first(int* p) { *p = 1; } }
namespace n { static __device__ int counter; }
namespace { __global__ void second(int* p) { *p = n::counter; } }
__device__ int a_name_long_enough_to_be_hashed_a_name_long_enough_to_be_hashed_a_name_long_enough;
"""


def bytes_from_another_process(architecture: str, directory: Path) -> bytes:
    script = (
        "import sys\n"
        "from tests.fixtures.device_code import image, unit\n"
        "from tests.toolchain.test_nvrtc import UNSTABLE\n"
        f"sys.stdout.buffer.write(image(unit(UNSTABLE), {architecture!r}).data)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=True).stdout


@pytest.mark.parametrize("architecture", ["sm_90", "compute_90", "lto_90"])
def test_the_same_unit_gives_the_same_bytes_in_any_process_and_directory(architecture, tmp_path):
    elsewhere = bytes_from_another_process(architecture, tmp_path)
    assert elsewhere == image(unit(UNSTABLE), architecture).data


# ------------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    "source",
    [
        "#include <cuda_fp16.h>\n__global__ void k(__half* p) { *p = __float2half(1.0f); }",
        "#include <cuda_bf16.h>\n__global__ void k(__nv_bfloat16* p) { *p = __float2bfloat16(1.0f); }",
        "#include <cuda/std/cstdint>\n__global__ void k(cuda::std::int64_t* p) { *p = 1; }",
        "#include <cooperative_groups.h>\n"
        "__global__ void k(int* p) { *p = cooperative_groups::this_grid().thread_rank(); }",
        "#include <math_constants.h>\n__global__ void k(float* p) { *p = CUDART_INF_F; }",
    ],
)
def test_headers_come_with_the_tool_chain(source):
    assert image(source).entries


# ---------------------------------------------------------------------------------------- tool chain


def test_a_missing_nvrtc_is_reported_with_the_remedy():
    script = (
        "import sys\n"
        "from cuda_ext.toolchain.nvrtc import Nvrtc\n"
        "from cuda_ext.errors import ToolchainError\n"
        "sys.modules['cuda.pathfinder'] = None\n"
        "from cuda_ext.toolchain import cuda_libraries\n"
        "cuda_libraries.library_files = lambda name: []\n"
        "try:\n"
        "    Nvrtc().version\n"
        "except ToolchainError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.fullmatch(r'NVRTC cannot be loaded \(.*\); install it with "cuda-ext\[cu13\]".*\n', run.stdout)


@pytest.mark.parametrize("name", ["nvrtc", "nvjitlink", "nvfatbin"])
def test_libraries_of_the_system_are_found(name, monkeypatch):
    monkeypatch.setattr(cuda_libraries, "library_files", lambda name: [])
    assert cuda_libraries.open_library.__wrapped__(name)


def test_libraries_have_their_own_names_on_windows(monkeypatch):
    monkeypatch.setattr(cuda_libraries.sys, "platform", "win32")
    monkeypatch.setattr(cuda_libraries, "_major", lambda: 13)
    monkeypatch.setattr(cuda_libraries.cuda_packages, "library_directories", lambda major: ["bin"])
    names = ["nvJitLink_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_130_0.alt.dll", "nvrtc64_130_0.dll"]
    monkeypatch.setattr(cuda_libraries.os, "listdir", lambda directory: names)
    assert cuda_libraries.library_files("nvrtc") == ["bin/nvrtc64_130_0.dll"]
    assert cuda_libraries.library_files("nvjitlink") == ["bin/nvJitLink_130_0.dll"]


def test_the_names_of_a_missing_library_are_reported_once(monkeypatch):
    def refuse(name):
        raise RuntimeError(
            'Failure finding "libnvrtc.so.13": No such file: libnvrtc.so.13, No such file: lib'
        )

    monkeypatch.setattr(cuda_libraries, "library_files", lambda name: [])
    monkeypatch.setattr(cuda_libraries, "system_library", refuse)
    with pytest.raises(ToolchainError, match=r'loaded \(Failure finding "libnvrtc\.so\.13"\); install it'):
        cuda_libraries.open_library.__wrapped__("nvrtc")


@pytest.mark.parametrize("what", ["a file", "open to all", "a name too long"])
def test_where_the_cache_cannot_be_used_a_process_has_headers_of_its_own(what, tmp_path):
    if Nvrtc().version < "13.3":
        pytest.skip("this NVRTC has no headers of its own")
    place = tmp_path / ("place" if what != "a name too long" else "a" * 300)
    if what == "a file":
        place.touch()
    elif what == "open to all":
        place.mkdir()
        place.chmod(0o777)
    (tmp_path / "temporary").mkdir()
    script = """
from cuda_ext.toolchain.nvrtc import Nvrtc
from cuda_ext.errors import ToolchainError
try:
    print((Nvrtc().header_directories[0] / "cuda_fp16.h").is_file())
except ToolchainError as error:
    print(error)
"""

    def said(temporary: str) -> str:
        environ = {**os.environ, "CUDA_EXT_CACHE": str(place), "TMPDIR": temporary}
        command = [sys.executable, "-c", script]
        return subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True
        ).stdout

    assert said(str(tmp_path / "temporary")) == "True\n"
    assert list((tmp_path / "temporary").iterdir()) == []
    assert what != "open to all" or list(place.iterdir()) == []


@pytest.mark.parametrize("statement", ["", "cuda_ext.toolchain.nvrtc.Nvrtc()"], ids=["import", "instance"])
def test_importing_the_compiler_loads_no_library(statement):
    script = (
        f"import sys, cuda_ext.toolchain.nvrtc\n{statement}\n"
        "assert not [m for m in sys.modules if m.startswith('cuda.')]"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_a_failed_compilation_leaves_no_trace_in_the_working_directory(tmp_path, monkeypatch):
    scratch, here = tmp_path / "scratch", tmp_path / "here"
    scratch.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    compiler = Nvrtc(scratch)
    with pytest.raises(CompilationError):
        compiler.compile(unit('#include "missing.h"\n'), [Architecture.parse("sm_90")])
    compiler.compile(unit("__global__ void kernel(int* x) { *x = 1; }"), [Architecture.parse("sm_90")])
    assert list(here.iterdir()) == []


OF_NVCC = """
-Xcompiler=-Wall --compiler-options=-fPIC -ccbin=g++ -forward-unknown-to-host-compiler -fPIC -Wall -m64
-march=native -O -O0 -O3 --optimize=3 --expt-relaxed-constexpr --extended-lambda -t4 --threads=4 -g
--debug -res-usage --resource-usage --keep -keep-dir=x -v --verbose --dryrun --save-temps -M -MD -MF
--generate-dependencies -Wno-deprecated-gpu-targets -lcublas -L/usr/lib --library=x -cudart=shared -shared
-c --compile -o -x --lib -link --default-stream=per-thread -Xfatbin=-compress-all -no-compress -Xnvlink=-v
"""


def test_options_that_are_refused_as_nvccs_are_unknown_to_nvrtc():
    options = OF_NVCC.split()
    assert [option for option in options if nvcc_only([option]) is None] == []
    for option in options:
        with pytest.raises(CompilationError, match=f"unrecognized option {re.escape(option)} found"):
            image(unit(KERNEL, raw=(option,)))


TEMPLATE_OF_A_STRUCTURE = (
    "struct P { int n; }; template <class T> __global__ void f(P p, T* x) { x[p.n] = 1; }"
)


@pytest.fixture
def options_of(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The options of each compilation."""
    options: list[Sequence[str]] = []
    compile_program = NvrtcProgram.compile

    def record(program: NvrtcProgram, given: Sequence[str]) -> bool:
        options.append(given)
        return compile_program(program, given)

    monkeypatch.setattr(NvrtcProgram, "compile", record)
    return options


@pytest.mark.parametrize(
    ("source", "is_minimal"),
    [
        ("constexpr int n = 1; __global__ void k(int* p) { *p = n; }", True),
        ('#include "own.cuh"\n__global__ void k(int* p) { *p = n; }', True),
        ('#include "own.cuh"\n__global__ void k(cudaTextureObject_t t) {}', False),
        ("#include <cuda_fp16.h>\n__global__ void k(half* p) {}", False),
    ],
)
def test_what_a_unit_does_not_need_is_not_declared(source, is_minimal, options_of):
    own = unit(source, headers={"own.cuh": "constexpr int n = 2;\n"})
    nvrtc().compile(own, [Architecture.parse("sm_90")])
    assert ["--minimal" in options for options in options_of] == [is_minimal]


def test_a_prototype_beside_the_definition_costs_no_second_round(options_of):
    source = 'enum E { a }; extern "C" __global__ void k(E e, float *x); __global__ void k(E, float* y) {}'
    compiled = image(unit(f"{source} __global__ void n(E); __global__ void n(E e) {{}}"))
    assert [p.kind for p in compiled.signatures.kernels["k"].parameters] == ["enum", "pointer"]
    assert len(options_of) == 1


def test_standard_headers_cost_no_second_round(options_of, tmp_path):
    own = unit(f"#include <cstdint>\n{TEMPLATE_OF_A_STRUCTURE}", "f<float>")
    Nvrtc(tmp_path).compile(own, [Architecture.parse("sm_90")])
    assert len(options_of) == 1


def test_a_process_compiles_several_sources_with_line_directives_for_one_gpu(tmp_path):
    """NVRTC 13.5 crashes here if it traces a source with three such directives, for sm_100 and later."""
    script = f"""if True:
        from pathlib import Path
        from tests.toolchain.test_nvrtc import TEMPLATE_OF_A_STRUCTURE, Architecture, Nvrtc, unit
        nvrtc = Nvrtc(Path({os.fspath(tmp_path)!r}))
        for before in ("", '#line 1 "a.h"\\n#line 1 "b.h"\\n'):
            source = f"{{before}}#include <cuda_fp16.h>\\n{{TEMPLATE_OF_A_STRUCTURE}}"
            for _ in range(3):
                nvrtc.compile(unit(source, "f<float>"), [Architecture.parse("sm_100")])
        """
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_types_that_need_a_second_round_are_asked_for_once(options_of):
    source = "enum class E { a }; template <class T> __global__ void k(T) {} template __global__ void k(E);"
    source += " template <class T> __global__ void k(T, int) {} template __global__ void k(E, int);"
    compiled = nvrtc().compile(unit(source), [Architecture.parse(name) for name in ("sm_90", "compute_90")])
    kinds = [kernel.parameters[0].kind for each in compiled for kernel in each.signatures.kernels.values()]
    assert kinds == ["enum"] * 4
    assert ["-fdevice-syntax-only" in options for options in options_of] == [False, True]


def test_options_are_asked_for_without_compiling() -> None:
    with recorded_commands() as commands:
        assert knows_option("--frandom-seed=")
        assert knows_option("--minimal")
        assert not knows_option("--frandom-sead=")
    assert not commands
