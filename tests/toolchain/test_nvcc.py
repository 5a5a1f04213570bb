"""nvcc: its discovery, compilation as a pure function, and signatures like those of NVRTC."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from cuda_ext.compiler.jobs import LinkInput
from cuda_ext.compiler.products import CompiledImage, Signatures
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Options
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.toolchain import process
from cuda_ext.toolchain.compilers import find_nvcc
from cuda_ext.toolchain.nvcc import Nvcc, ignored_variables
from cuda_ext.toolchain.nvjitlink import link
from cuda_ext.toolchain.nvrtc import Nvrtc
from tests.fixtures.device_code import library
from tests.fixtures.projects import KERNELS, build, write_project

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SM_90 = Architecture.parse("sm_90")
COMPUTE_90 = Architecture.parse("compute_90")
LTO_90 = Architecture.parse("lto_90")
BOTH = (SM_90, COMPUTE_90)  # which one pass makes

HEADER = b"""#pragma once
#ifndef __CUDACC_RTC__
#include <cassert>
#endif
namespace ns {
enum Mode { CLAMP, WRAP };
struct Pair { int a; double b; };
}
struct Box { float low[3], high[3]; };
enum class Side : unsigned char { LEFT, RIGHT };
__device__ int from_header;
__device__ inline void check(const void* p) { assert(p != nullptr); }
"""

SOURCE = b"""#include "device/types.cuh"
#include <cuda_fp16.h>

#define COPY(name, T) __global__ void name(T* p, const T* q) { *p = *q; }
COPY(made_by_macro, float)

extern "C" __global__ void plain(int n, const float* __restrict__ x, float* y) { check(y); y[n] = *x; }

template <class T, int N>
__global__ void axpy(T a, T (*p)[N], bool on) { if (on) (*p)[0] = a; }

namespace ns {
namespace inner {
__device__ float table[3][4];
__constant__ Pair pair;
static __device__ int hidden_count;
template <class T>
__global__ void deep(T* p, Mode mode, Pair s, __half h) { *p = s.a + mode + hidden_count; }
}
}

namespace {
__constant__ int coefficients[4];
__global__ void anonymous(float* x) { *x = coefficients[1]; }
template <class T> __global__ void anonymous_template(T* x) { *x = 2; }
}
static __global__ void internal(void* p, float4 v, dim3 d) { *(int*)p = d.x; }

__global__ void overloaded(int a) {}
__global__ void overloaded(double a) {}
__global__ void user_types(Box box, Side side, unsigned char c, unsigned long long n) {}
__device__ __half half_value;
__device__ unsigned char bytes[7];
"""

UNIT = TranslationUnit(
    "device/unit.cu",
    SOURCE,
    headers={"device/types.cuh": HEADER},
    instantiate=("axpy<float, 4>", "ns::inner::deep<double>", "anonymous_template<int>", "internal"),
)


def unit(source: str, *instantiate: str, **options: object) -> TranslationUnit:
    return TranslationUnit(
        "device/k.cu",
        source.encode(),
        instantiate=instantiate,
        options=Options(**options),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="session")
def nvcc() -> Nvcc:
    try:
        return find_nvcc(None, os.environ)
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nvrtc() -> Nvrtc:
    return Nvrtc()


@cache
def of_unit(nvcc: Nvcc, relocatable: bool, *architectures: Architecture) -> tuple[CompiledImage, ...]:
    """The images of UNIT, which is compiled once."""
    return nvcc.compile(UNIT.replace(options=Options(relocatable=relocatable)), architectures)


def compiled(compiler: Compiler, unit: TranslationUnit, architecture: Architecture) -> CompiledImage:
    (image,) = compiler.compile(unit, [architecture])
    return image


def parameters(signatures: Signatures, kernel: str) -> list[str]:
    (found,) = (k for k in signatures.kernels.values() if k.expression == kernel)
    return [str(p) for p in found.parameters]


def error_of(nvcc: Nvcc, unit: TranslationUnit, architecture: Architecture = COMPUTE_90) -> str:
    with pytest.raises(CompilationError) as caught:
        compiled(nvcc, unit, architecture)
    return str(caught.value)


def described(signatures: Signatures) -> tuple[object, ...]:
    """Return the signatures without lowered names, which contain other names of the translation unit."""
    kernels = sorted(((k.expression, k.parameters) for k in signatures.kernels.values()), key=str)
    return kernels, sorted((s.name, s.space, s.type, s.size) for s in signatures.symbols.values())


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], T]) -> T:
    """Wait until `condition` returns a true value, and return it."""
    for _ in range(3000):
        try:
            if found := condition():
                return found
        except FileNotFoundError:
            pass
        time.sleep(0.1)
    raise AssertionError("waited for five minutes")


# Where nvcc is


@pytest.fixture
def fake(tmp_path: Path):
    """Creates an nvcc that prints `version` and preprocesses, or runs `script`."""

    def make(place: str, version: str = "13.1", script: str = "exit 0") -> Path:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#!/bin/sh\nif [ $1 = --version ]; then echo release {version}, V{version}; exit; fi\n{script}\n"
        )
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def no_wheels(monkeypatch):
    """Hides the installed CUDA wheels."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not Path(p, "nvidia").is_dir()])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)


NO_HOST_COMPILER = "echo 'gcc: No such file or directory' >&2; exit 1"


def test_an_nvcc_that_lists_no_architectures_is_an_error(fake):
    with pytest.raises(ToolchainError, match="nvcc lists no architectures; reinstall it"):
        Nvcc(fake("nvcc"), os.environ).supports(SM_90)


def test_the_configured_nvcc_comes_before_variables_the_wheel_and_path(
    fake, tmp_path, no_wheels, monkeypatch
):
    configured = str(fake("own/nvcc", "13.9"))
    places = ("path/bin/nvcc", "home/bin/nvcc", "site/nvidia/cu13/bin/nvcc", "search/nvcc")
    present = [fake(place, f"13.{number}") for number, place in enumerate(places)]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    variables = {
        "CUDA_PATH": f"{tmp_path}/path",
        "CUDA_HOME": f"{tmp_path}/home",
        "PATH": f"{tmp_path}/search",
    }
    assert find_nvcc(configured, variables).version == "13.9"
    for number, path in enumerate(present):
        assert find_nvcc(None, variables).version == f"13.{number}"
        path.unlink()
    fake("search/nvcc-13.8", "13.8")
    assert find_nvcc("nvcc-13.8", variables).version == "13.8"


def test_a_configured_nvcc_is_never_replaced_by_another(fake, tmp_path):
    places = {"CUDA_PATH": str(fake("path/bin/nvcc").parent.parent)}
    with pytest.raises(ToolchainError, match=r"configured: .*/own/nvcc cannot be run: No such file"):
        find_nvcc(f"{tmp_path}/own/nvcc", places)


def test_a_candidate_that_does_not_work_is_passed_over(fake, tmp_path):
    fake("path/bin/nvcc", script=NO_HOST_COMPILER), fake("home/bin/nvcc", "13.2")
    places = {"CUDA_PATH": f"{tmp_path}/path", "CUDA_HOME": f"{tmp_path}/home"}
    assert find_nvcc(None, places).version == "13.2"


def test_the_error_tells_why_each_candidate_was_passed_over(fake, tmp_path, no_wheels, monkeypatch, messages):
    fake("home/bin/nvcc").chmod(0o644)
    fake("site/nvidia/cu13/bin/nvcc", "13.4", NO_HOST_COMPILER)
    fake("search/nvcc").write_text("#!/bin/sh\necho hello\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    places = {"CUDA_PATH": f"{tmp_path}/path", "CUDA_HOME": f"{tmp_path}/home", "PATH": f"{tmp_path}/search"}
    with pytest.raises(ToolchainError) as caught:
        find_nvcc(None, places)
    messages(str(caught.value).replace(str(tmp_path), ""))


def test_the_error_lists_the_places_without_nvcc(no_wheels, messages):
    with pytest.raises(ToolchainError) as caught:
        find_nvcc(None, {"PATH": "/nowhere"})
    messages(*str(caught.value).splitlines()[1:-1])


def test_the_nvcc_that_is_configured_is_the_one_to_mend(no_wheels):
    with pytest.raises(
        ToolchainError, match=r"\ncorrect the key nvcc, or remove it so that others are tried; "
    ):
        find_nvcc("/nowhere/nvcc", {"PATH": "/nowhere"})


@pytest.mark.host_compiler
def test_a_real_nvcc_without_a_host_compiler_is_refused(nvcc):
    with pytest.raises(ToolchainError, match=r"has no usable host compiler \(.*\); put g\+\+ or clang"):
        find_nvcc(str(nvcc.executable), {"PATH": "/nowhere"})


# What it can do


@pytest.mark.host_compiler
def test_version_and_capabilities_are_its_own(nvcc):
    assert f"release {nvcc.version}," in process.run([str(nvcc.executable), "-V"], environ=os.environ).output
    assert {80, 90, 120} <= set(nvcc.capabilities())
    assert list(nvcc.capabilities()) == sorted(nvcc.capabilities())


@pytest.mark.host_compiler
@pytest.mark.parametrize("kind", ["sm", "compute", "lto"])
def test_supports_counts_the_suffix(nvcc, kind):
    supported = {target: nvcc.supports(Architecture.parse(f"{kind}_{target}")) for target in TARGETS}
    assert supported == TARGETS


TARGETS = {"90": True, "90a": True, "90f": False, "91": False, "100f": True, "20": False, "80a": False}


# Images


@pytest.mark.host_compiler
def test_lto_ir_links_to_a_cubin_with_the_reported_names(nvcc):
    (image,) = of_unit(nvcc, True, LTO_90)
    linked = link([LinkInput("unit", "ltoir", image.data)], SM_90)
    assert tuple(image.names) == UNIT.instantiate
    assert set(image.names.values()) <= set(read_cubin(linked).kernels)


@pytest.mark.host_compiler
def test_host_headers_can_be_read(nvcc):
    image = compiled(nvcc, unit("#include <cstdint>\n__global__ void k(std::int64_t* x) {}"), COMPUTE_90)
    assert image.entries == ("_Z1kPl",)


@pytest.mark.host_compiler
def test_definitions_are_passed_on_unchanged(nvcc):
    values = ['"a b"', "'x'", "(1, 2)", "$HOME", "`id`", r'"\\n"', "ns::f<1>", "a;b"]
    # The definitions as the preprocessor spells them.
    source = "#define TEXT_(x) #x\n#define TEXT(x) TEXT_((x))\n"
    source += "".join(f"__device__ const char* text{i} = TEXT(V{i});\n" for i in range(len(values)))
    image = compiled(nvcc, unit(source, define={f"V{i}": v for i, v in enumerate(values)}), COMPUTE_90)
    literals = re.findall(rb"\.b8 \$str\S*\[\d+\] = \{([^}]*)\}", image.data)
    found = {bytes(map(int, literal.split(b","))).decode() for literal in literals}
    assert found == {f"({value})" for value in values}


@pytest.mark.host_compiler
def test_headers_of_other_installed_packages_come_after_nvcc_s_own(nvcc, tmp_path, monkeypatch):
    include = tmp_path / "a toolkit" / "include"
    include.mkdir(parents=True)
    (include / "library.h").write_text("using T = short;\n")
    (include / "cuda_fp16.h").write_text("#error of another version\n")
    monkeypatch.setenv("CUDA_HOME", str(include.parent))
    ours = Nvcc(nvcc.executable, os.environ)
    source = "#include <cuda_fp16.h>\n#include <library.h>\n__global__ void k(T* x) {}"
    assert compiled(ours, unit(source), COMPUTE_90).entries == ("_Z1kPs",)


LOCAL_ARRAY = "__global__ void k(int* x) { volatile int a[99]; a[*x] = 1; *x = a[x[1]]; }"


@pytest.mark.host_compiler
def test_raw_options_reach_the_assembler(nvcc):
    log = compiled(nvcc, unit(LOCAL_ARRAY, raw=("-Xptxas", "-warn-lmem-usage")), SM_90).log
    assert "Local memory used" in log


# Names


@pytest.mark.host_compiler
@pytest.mark.parametrize("relocatable", [False, True])
def test_each_expression_is_mapped_to_an_entry_of_the_image(nvcc, relocatable):
    for image in of_unit(nvcc, relocatable, *BOTH):
        names = image.names
        assert tuple(names) == UNIT.instantiate
        assert names["axpy<float, 4>"] == "_Z4axpyIfLi4EEvT_PAT0__S0_b"
        assert set(names.values()) <= set(image.entries)
        assert len(set(names.values())) == len(UNIT.instantiate)


@pytest.mark.host_compiler
@pytest.mark.parametrize("architectures", [BOTH, (LTO_90,)], ids=str)
def test_asking_for_names_leaves_no_trace_in_the_image(nvcc, architectures):
    source = unit('extern "C" __global__ void k(float* x) { *x = 1; }\n__device__ int v;')
    plain, named = (
        nvcc.compile(each, architectures) for each in (source, source.replace(instantiate=("k",)))
    )
    assert [image.data for image in named] == [image.data for image in plain]


@pytest.mark.host_compiler
def test_the_pass_for_a_target_describes_its_images(nvcc, fake, tmp_path):
    fake("bin/nvcc").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\nexec {nvcc.executable} "$@"\n')
    counted = find_nvcc(str(tmp_path / "bin/nvcc"), os.environ)
    source = unit("template <class T> __global__ void k(T* x) {}", "k<float>")
    architectures = [Architecture.parse(a) for a in ("sm_80", "sm_90", "compute_90")]
    images, _ = library(source, architectures, counted)
    assert [image.names for image in images] == [{"k<float>": "_Z1kIfEvPT_"}] * 3
    assert [image.entries for image in images] == [("_Z1kIfEvPT_",)] * 3
    passes = [line for line in (tmp_path / "calls").read_text().splitlines() if "device/k.cu" in line]
    assert [line.partition(" -ptx -arch=")[2][:10] for line in passes] == ["compute_80", "compute_90"]


# Purity


IMPURE = b"""#include "device/types.cuh"
#include <cuda_fp16.h>
namespace { __global__ void anonymous(const void* x) { check(x); } __constant__ int c; }
static __global__ void internal(const char** x) {
  x[0] = __FILE__; x[1] = __BASE_FILE__; x[2] = __DATE__ __TIME__; x[3] = __TIMESTAMP__;
  x[4] = here(); x[5] = __builtin_FILE(); *(__half*)x[6] = __float2half(c);
}
"""


@pytest.mark.host_compiler
@pytest.mark.parametrize(
    ("architectures", "raw"),
    [
        (BOTH, ()),
        *(pytest.param(BOTH, raw, marks=pytest.mark.slow) for raw in (("-lineinfo",), ("-G",))),
        *(pytest.param((LTO_90,), raw, marks=pytest.mark.slow) for raw in (("-lineinfo",), ())),
    ],
    ids=str,
)
def test_the_same_input_gives_the_same_bytes_anywhere(nvcc, tmp_path, monkeypatch, architectures, raw):
    # Nothing here has external linkage: left alone, nvcc puts the number of its process into names then.
    source = TranslationUnit(
        "device/unit.cu",
        IMPURE,
        headers={"device/types.cuh": HEADER + b"static __device__ const char* here() { return __FILE__; }"},
        options=Options(raw=raw),
        instantiate=("anonymous", "internal"),
    )
    images = []
    for place, zone in (("a", "UTC"), ("b/c", "Asia/Tokyo")):
        (tmp_path / place).mkdir(parents=True)
        monkeypatch.setenv("TMPDIR", str(tmp_path / place))
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.setenv("TZ", zone)
        monkeypatch.chdir(tmp_path / place)
        ours = Nvcc(nvcc.executable, os.environ)
        images.append(ours.compile(source, architectures))
    assert images[0] == images[1]
    assert not [image for image in images[0] if str(tmp_path).encode() in image.data]


@pytest.mark.host_compiler
def test_relocatable_units_of_one_name_in_two_directories_do_not_collide(nvcc):
    source = b"static __global__ void k(float* x) { *x = 1; }"
    units = [TranslationUnit(n, source, options=Options(relocatable=True)) for n in ("a/k.cu", "b/k.cu")]
    objects = [LinkInput(u.name, "cubin", compiled(nvcc, u, SM_90).data) for u in units]
    assert len(read_cubin(link(objects, SM_90)).kernels) == 2


@pytest.mark.host_compiler
def test_files_are_named_as_the_project_names_them(nvcc):
    source = TranslationUnit(
        "device/k.cu",
        b'#include "device/h.cuh"\n__device__ const char* files[] = {__FILE__, __BASE_FILE__};',
        headers={"device/h.cuh": b"__device__ const char* in_header = __FILE__;"},
    )
    literals = re.findall(rb"\$str\S* = \{([^}]*)\}", compiled(nvcc, source, COMPUTE_90).data)
    strings = {bytes(map(int, literal.split(b","))) for literal in literals}
    assert strings == {b"device/k.cu", b"device/h.cuh"}


@pytest.mark.host_compiler
def test_flags_from_the_environment_do_not_reach_the_image(nvcc):
    source = unit("#ifdef SURPRISE\n#error surprise\n#endif\n__global__ void k() {}")
    variables = dict.fromkeys(("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"), "-DSURPRISE -lineinfo")
    surprised = Nvcc(nvcc.executable, {**os.environ, **variables})
    assert compiled(surprised, source, COMPUTE_90) == compiled(nvcc, source, COMPUTE_90)


def test_variables_without_effect_are_listed():
    environ = {"NVCC_PREPEND_FLAGS": "-ccbin=/usr/bin/g++ ", "NVCC_APPEND_FLAGS": "-G", "CPATH": "/opt"}
    assert ignored_variables(environ) == ["NVCC_APPEND_FLAGS", "CPATH"]


@pytest.mark.host_compiler
def test_a_build_warns_once_of_variables_without_effect(tmp_path, monkeypatch):
    table = f'{KERNELS}compiler = "nvcc"\n[tool.cuda_ext.modules."p.others"]\ncompiler = "nvcc"\n'
    project = write_project(tmp_path, table)
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    monkeypatch.setenv("CPATH", "/opt")
    log: list[str] = []
    build(project, log)
    warning = (
        "NVCC_APPEND_FLAGS, CPATH in the environment: builds do not use these; put options into options,"
    )
    assert len([line for line in log if line.startswith(warning)]) == 1


@pytest.mark.host_compiler
@pytest.mark.parametrize("flags", ["-ccbin={}", "-lineinfo --compiler-bindir {}"])
def test_the_host_compiler_that_the_flags_name_is_used(nvcc, tmp_path, flags):
    host = tmp_path / "g++"
    host.write_text(f'#!/bin/sh\ntouch {tmp_path}/used\nexec /usr/bin/env g++ "$@"\n')
    host.chmod(0o755)
    _ = Nvcc(nvcc.executable, {**os.environ, "NVCC_PREPEND_FLAGS": flags.format(host)}).version
    assert (tmp_path / "used").exists()


# Errors


@pytest.mark.host_compiler
def test_errors_of_the_assembler_have_no_temporary_paths(nvcc):
    text = error_of(nvcc, unit('__global__ void k() { asm("no such instruction;"); }'), SM_90)
    assert text.startswith("ptxas k.ptx, line ")
    assert "tmp" not in text


AXPY = "template <class T> __global__ void axpy(T a, T* x) { *x = a; }\n__global__ void scale(int) {}\n"


@pytest.mark.host_compiler
def test_an_error_within_an_instantiation_is_reported_with_its_location(nvcc):
    text = error_of(nvcc, unit("struct S {};\n" + AXPY.replace("*x = a", "*x = a + 1"), "axpy<S>"))
    assert text.startswith('device/k.cu(2): error: no operator "+" matches these operands')
    assert "does not exist" not in text


@pytest.mark.host_compiler
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("__global__ void k(int) {\n", r'At end of source: error: expected a "}"'),
        ("__global__ void k(int\n", r'device/k\.cu\(3\): error: expected a "\)"'),
        ("#if 1\n__global__ void k(int) {}\n", r"device/k\.cu:1:.* error: unterminated #if"),
    ],
)
def test_a_source_that_breaks_off_is_not_blamed_on_an_instantiation(nvcc, source, message):
    text = error_of(nvcc, unit(source, "k"))
    assert re.match(message, text)
    assert "instantiation" not in text


@pytest.mark.host_compiler
def test_an_option_that_nvcc_does_not_know_is_reported(nvcc):
    fatal, remedy = error_of(nvcc, unit("", raw=("--no-such",))).splitlines()
    assert fatal == "options: nvcc fatal   : Unknown option '--no-such'"
    assert remedy.startswith("this is about the options: see std, options, define")


@pytest.mark.host_compiler
def test_an_option_that_leaves_no_image_is_reported(nvcc):
    text = error_of(nvcc, unit("__global__ void k() {}", raw=("--dryrun",)))
    assert "cicc" in text


# Signatures


@pytest.mark.host_compiler
@pytest.mark.parametrize("architectures", [BOTH, (LTO_90,)], ids=str)
def test_signatures_and_the_image_use_the_same_lowered_names(nvcc, architectures):
    image, *_ = of_unit(nvcc, True, *architectures)
    assert tuple(image.names) == UNIT.instantiate
    assert set(image.names.values()) <= set(image.signatures.kernels)
    assert set(image.entries) <= set(image.signatures.kernels)


@pytest.mark.host_compiler
@pytest.mark.parametrize("relocatable", [False, True])
def test_signatures_are_those_of_nvrtc(nvcc, nvrtc, relocatable):
    ours, _ = of_unit(nvcc, relocatable, *BOTH)
    theirs = compiled(nvrtc, UNIT.replace(options=Options(relocatable=relocatable)), SM_90)
    assert described(ours.signatures) == described(theirs.signatures)


@pytest.mark.host_compiler
def test_int64_is_another_type_under_nvrtc(nvcc, nvrtc):
    # The host's <cstdint> says long, libcu++ without a host says long long: the name map of each differs.
    source = unit("#include <cuda/std/cstdint>\n__global__ void k(cuda::std::int64_t* x) {}", "k")
    for compiler, lowered in ((nvcc, "_Z1kPl"), (nvrtc, "_Z1kPx")):
        image = compiled(compiler, source, COMPUTE_90)
        assert image.names == {"k": lowered}
        assert image.entries == (lowered,)


@pytest.mark.host_compiler
def test_probes_of_types_with_internal_linkage_leave_no_trace(nvcc):
    source = "namespace { struct S { int n; double d; }; __global__ void k(S s, int* x) { *x = s.n; } }"
    image = compiled(nvcc, unit(source), COMPUTE_90)
    assert parameters(image.signatures, "k") == ["S s", "int* x"]
    assert b"cuda_ext_probe" not in image.data


@pytest.mark.host_compiler
@pytest.mark.parametrize(
    ("architecture", "raw"),
    [
        (LTO_90, ()),
        (SM_90, ("-lineinfo",)),
        (SM_90, ("-G",)),
        (SM_90, ("--generate-line-info", "-Xptxas", "-v")),
    ],
    ids=str,
)
def test_probes_leave_no_trace_in_line_tables_debug_information_and_lto_ir(nvcc, architecture, raw):
    image = compiled(nvcc, unit("__global__ void k(int n) {}", raw=raw), architecture)
    assert parameters(image.signatures, "k") == ["int n"]
    assert b"cuda_ext_probe" not in image.data
    assert b"name_map" not in image.data


# Processes


@pytest.mark.host_compiler
def test_the_temporary_directory_is_left_empty(nvcc, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = Nvcc(nvcc.executable, {**os.environ, "TMPDIR": str(tmp_path)})
    compiled(ours, unit("__global__ void k() {}"), SM_90)
    error_of(ours, unit("broken"))
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_compiler_with_everything_it_started(fake, tmp_path):
    slow = fake(
        "slow/nvcc", script=f"case $1 in -E) exit;; -MD) sleep 600 & echo $! >{tmp_path}/pid; wait;; esac"
    )
    (tmp_path / "temporary").mkdir()
    script = f"""
import os
from cuda_ext.facts.architecture import Architecture
from cuda_ext.toolchain.compilers import find_nvcc
from cuda_ext.compiler.translation_unit import TranslationUnit
find_nvcc({str(slow)!r}, os.environ).compile(TranslationUnit("k.cu", b""), [Architecture.parse("sm_90")])
"""
    environ = {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": str(ROOT)}
    build = subprocess.Popen([sys.executable, "-c", script], env=environ, stderr=subprocess.DEVNULL)
    grandchild = int(wait_for(lambda: (tmp_path / "pid").read_text()))
    build.send_signal(signal.SIGINT)
    assert build.wait(timeout=300) != 0
    wait_for(lambda: not is_running(grandchild))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_program_that_fails_without_output_is_reported(fake):
    silent = fake("silent/nvcc", script="[ $1 = -MD ] && exit 3; exit 0")
    text = error_of(find_nvcc(str(silent), os.environ), unit(""))
    assert "silent/nvcc -MD " in text
    assert text.endswith("ended with exit code 3: no output")
