"""Compilation on demand from C++: real NVRTC, the fake driver, and the cache that Python shares."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cuda_ext.builder.cpp import source_name
from cuda_ext.cache.local_store import LocalStore
from cuda_ext.facts.codec import decode_fields
from cuda_ext.toolchain.cuda_packages import library_directories
from tests.fixtures.cpp_modules import INCLUDE, LOADER, MINGW, ON_DEMAND, takes_mingw, write_cpp
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.environments import Environment
from tests.fixtures.loader import CHECKOUT, Run
from tests.fixtures.messages import Messages
from tests.fixtures.projects import build, write_project
from tests.include.test_cpp_loader import (
    compiled,
    exported_besides_exceptions,
    printed,
    runs_code_at_start,
)

LIBRARIES = [d for d in map(Path, library_directories(13)) if (d / "libnvrtc.so.13").is_file()]

pytestmark = [
    pytest.mark.xdist_group("cpp_on_demand"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the fake driver takes Linux"),
    pytest.mark.skipif(
        not any(directory.is_relative_to(sys.prefix) for directory in LIBRARIES),
        reason="takes NVRTC 13 from the registry, in this environment",
    ),
]

CPP = CHECKOUT / "tests" / "cpp"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes a user who may give files away")

VARIABLES = """
namespace ns {
struct Particle { float x, y, z; };
template <class T, int N> __global__ void fill(T* x, T v, const Particle* p) { x[0] = v; }
namespace {
__global__ void hidden(int (*rows)[4], const float* const* q) {}
}
__device__ volatile unsigned long long counter;
}
extern "C" __global__ void plain(unsigned n, bool b, double d, ns::Particle p) {}
static __global__ void internal(void* p, float4 v) {}
__global__ void overloaded(int) {}
__global__ void overloaded(float, int*) {}
"""
BLOCK = """
#include <cub/block/block_reduce.cuh>
template <class T> __global__ void reduce(const T* x, T* y) {
  typedef cub::BlockReduce<T, 128> Reduce;
  __shared__ typename Reduce::TempStorage storage;
  T sum = Reduce(storage).Sum(x[threadIdx.x]);
  if (!threadIdx.x) *y = sum;
}
"""
SCALE = (
    '#include "by.cuh"\ntemplate <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by + BY; }\n'
)
# Nothing of these is built ahead but one kernel, or for another GPU.
TEMPLATES = """
#include <type_traits>
template <class T> __global__ void lonely(T* x) { *x = std::decay_t<T>(); }
template <class T> __global__ void ambiguous(T* x) {}
namespace ns { template <class T, int N = 2> __global__ void sized(T x, int y) {} }
template <int... many> __global__ void packed() {}
__global__ void companion(int n) {}
"""
AMBIGUOUS = "template <class T> __global__ void ambiguous(T* x) {}\n__global__ void special(int n) {}\n"
NEWER = "__global__ void newer(float* x) { *x = 1; }\n"
FILES = {
    "device/types.cu": VARIABLES,
    "device/block.cu": BLOCK,
    "device/scale.cu": SCALE,
    "device/by.cuh": "#define BY 3\n",
    "device/templates.cu": TEMPLATES,
    "device/special.cu": AMBIGUOUS,
    "device/newer.cu": NEWER,
}
TABLE = """
[tool.cuda_ext]
architectures = ["sm_80"]
[tool.cuda_ext.modules."p.kernels"]
include-dirs = ["device"]
instantiate = ["ns::fill<double, 256>", "reduce<float>", "scale<float>"]
define = { UNUSED = "1 + 1" }
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/special.cu"]
architectures = ["sm_100a"]
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/newer.cu"]
architectures = ["compute_80"]
"""
# Those that the loader is asked for by name.
MADE = ["scale<double>", "scale<unsigned char>", "reduce<int>", "lonely<float const *>"]


@dataclass(frozen=True)
class OnDemand:
    """A program with a module and its sources."""

    program: Path
    driver: Path

    def environment(self, cache: Path, **settings: object) -> dict[str, str]:
        fake = {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items() if name.islower()}
        others = {name: str(value) for name, value in settings.items() if not name.islower()}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "FAKE_"))}
        return {
            **inherited,
            "LD_LIBRARY_PATH": str(self.driver),
            "CUDA_EXT_CACHE": str(cache),
            "VIRTUAL_ENV": sys.prefix,
            # What NVRTC keeps until the process ends.
            "ASAN_OPTIONS": "detect_leaks=0",
            **fake,
            **others,
        }

    def cpp(
        self, *commands: str, cache: Path, said: str = "", errors: tuple[str, ...] = (), **settings: object
    ) -> Run:
        """Run commands of the program, which may print `said` to standard error.

        The driver must give these `errors`.
        """
        log = cache.with_name(f"calls of {cache.name}")
        log.write_text("")
        done = subprocess.run(
            [self.program, *commands],
            env={**self.environment(cache, **settings), "FAKE_CUDA_LOG": str(log)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(said, done.stderr), done.stderr
        return Run.of(done.stdout, log, errors)


SOURCE = source_name("p.kernels")


@pytest.fixture(scope="module")
def on_demand(tmp_path_factory: pytest.TempPathFactory, fake_driver: Path) -> OnDemand:
    """The loader and what compiles are there twice, as in two static libraries that are linked whole."""
    root = tmp_path_factory.mktemp("on_demand")
    (package,) = build(write_project(root / "project", TABLE, FILES)).values()
    write_cpp(package, root / "cpp", include_dirs=["device"], jit=True)
    objects = [root / f"{source.stem}.o" for source in (LOADER, ON_DEMAND)]
    for source, output in zip((LOADER, ON_DEMAND), objects, strict=True):
        compiled("-std=c++17", "-g0", "-fPIC", "-c", source, "-o", output)
    compile_program(root / "cpp", root / "program", *objects, *objects)
    return OnDemand(root / "program", fake_driver)


def compile_program(directory: Path, program: Path, *others: str | Path) -> None:
    sources = CPP / "on_demand.cpp", directory / SOURCE
    where = f"-I{INCLUDE}", f"-I{directory / 'include'}"
    compiled("-std=c++17", "-g0", *where, *sources, *others, "-o", program, "-ldl", "-pthread")


def entries(cache: Path) -> dict[str, bytes]:
    """Return the entries of the cache by key."""
    shards = (d for d in (cache / "objects").iterdir() if re.fullmatch("[0-9a-f]{2}", d.name))
    return {shard.name + file.name: file.read_bytes() for shard in shards for file in shard.iterdir()}


@pytest.fixture(scope="module")
def cache_of_cpp(on_demand: OnDemand, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with all entries of C++ for sm_90."""
    cache = tmp_path_factory.mktemp("cache of cpp") / "cache"
    done = on_demand.cpp("all", *(f"launch:{each}" for each in MADE), "opened", cache=cache)
    assert done.output == ["yes"]
    return cache


ADD = '; add "{}" to `instantiate` and build again'


def test_entries_lie_in_the_cache_of_python(on_demand: OnDemand, cache_of_cpp: Path) -> None:
    store = LocalStore(cache_of_cpp, 1 << 30, pytest.fail)
    assert [file.is_entry for file in store.files()] == [True] * 10
    made = [decode_fields(store.get(key) or b"") for key in entries(cache_of_cpp)]
    assert all(image and image.startswith(b"\x7fELF") for _, image, *_ in made)
    names = {(entry[n], entry[n + 1]) for entry in made for n in range(3, len(entry), 2)}
    assert (b"scale<double>", b"_Z5scaleIdEvPT_S0_") in names
    assert (b"lonely<float const *>", b"_Z6lonelyIPKfEvPT_") in names
    again = on_demand.cpp("all", *(f"launch:{each}" for each in MADE), "opened", cache=cache_of_cpp)
    assert again.output == ["no"]


def test_a_kernel_is_the_requested_one(on_demand: OnDemand, cache_of_cpp: Path, messages: Messages) -> None:
    done = on_demand.cpp(
        *("signature:scale<double>", "same:scale<double>", "signature:plain"),
        *("launch:scale<double>", "launch:scale<float>", "symbol:ns::counter", "launch:ns::fill<double,256>"),
        cache=cache_of_cpp,
    )
    messages(*done.output)
    assert [launch.split()[1] for launch in done.launches] == [
        "_Z5scaleIdEvPT_S0_",
        "_Z5scaleIfEvPT_S0_",
        "_ZN2ns4fillIdLi256EEEvPT_S1_PKNS_8ParticleE",
    ]


@pytest.mark.slow
@pytest.mark.network
def test_the_oldest_nvrtc_compiles(
    on_demand: OnDemand, environment_with: Callable[..., Environment], tmp_path: Path
) -> None:
    oldest = environment_with("cuda-toolkit[nvrtc]==12.0.*", "cu12")
    commands = ("launch:scale<double>", "launch:reduce<int>")
    done = on_demand.cpp(*commands, cache=tmp_path / "cache", VIRTUAL_ENV=oldest.prefix)
    assert [launch.split()[1] for launch in done.launches] == ["_Z5scaleIdEvPT_S0_", "_Z6reduceIiEvPKT_PS0_"]


def test_a_wrapper_compiles_an_instantiation_that_was_not_built(
    on_demand: OnDemand, cache_of_cpp: Path
) -> None:
    done = on_demand.cpp("typed", "narrow", "converted", "variable", cache=cache_of_cpp)
    assert done.output == [
        "Error: argument 2: 300 is out of the range of the parameter|  in a launch of scale<unsigned char>",
        "KernelNotFoundError: p.kernels: ns::fill<unsigned int,7> was not built ahead and cannot be compiled "
        "on demand: device/types.cu has the variable 'ns::counter', of which the kernel would have a "
        "separate copy" + ADD.format("ns::fill<unsigned int,7>"),
    ]
    assert [launch.split()[1] for launch in done.launches] == ["_Z5scaleIdEvPT_S0_"] * 2
    # A launch looks for its kernel once, and after a failure the next one does again.
    done = on_demand.cpp("typed", "typed", cache=cache_of_cpp, fail="cuDevicePrimaryCtxRetain=2")
    assert len(done.output) == 2
    assert done.calls.count("cuDevicePrimaryCtxRetain 0") == 2


def test_templates_without_built_instantiations_are_declared(on_demand: OnDemand, cache_of_cpp: Path) -> None:
    done = on_demand.cpp("unbuilt", cache=cache_of_cpp)
    assert done.output == []
    assert [launch.split()[1] for launch in done.launches] == [
        "_Z6lonelyIiEvPT_",
        "_ZN2ns5sizedIfLi3EEEvT_i",
    ]
    header = on_demand.program.with_name("cpp") / "include" / "p" / "kernels.h"
    text = header.read_text(encoding="utf-8")
    assert "// template <class T> lonely(T* x)\ntemplate <class T0>\ninline constexpr" in text
    assert "packed" not in text
    assert "ambiguous" not in text


def test_a_source_is_compiled_when_the_program_runs(on_demand: OnDemand, tmp_path: Path) -> None:
    commands = ("compile:", "times", "compiled:times<double>", "compiled:plain", "unload")
    for nvrtc in "yes", "no":
        done = on_demand.cpp(*commands, "opened", cache=tmp_path / "cache")
        assert done.output == [nvrtc]
        assert [launch.split()[1] for launch in done.launches] == [
            "_Z5timesIfEviPT_S0_",
            "_Z5timesIdEviPT_S0_",
            "plain",
        ]
        assert done.calls.count("cuLibraryLoadData") == done.calls.count("cuLibraryUnload") == 1
    assert len(entries(tmp_path / "cache")) == 1
    # On another GPU, it is compiled at the first launch there.
    done = on_demand.cpp(
        *("compile:", "times", "context:1", "times", "times"),
        cache=tmp_path / "cache",
        devices=2,
        capability="90,100",
    )
    assert [launch.split()[6] for launch in done.launches] == ["device=0", "device=1", "device=1"]
    # The GPU of the stream is the only one that is used, also in threads without a context.
    commands = "context:1", "compile:", "threads:times:1005"
    done = on_demand.cpp(*commands, cache=tmp_path / "cache", devices=2, capability="60,90")
    assert done.output == []
    assert [launch.split()[6] for launch in done.launches] == ["device=1"] * 8
    assert len(entries(tmp_path / "cache")) == 2


OF_PROGRAM = ["z::tv<double>", "z::x", "z::y", "sg", "hidden", "z::Fixed::v"]


def test_what_is_compiled_has_its_variables(on_demand: OnDemand, cache_of_cpp: Path) -> None:
    sizes = [f"size:{name}" for name in OF_PROGRAM]
    for program in "program:", "program:sm_90":
        done = on_demand.cpp(program, *sizes, "values", "compiled:use<double>", cache=cache_of_cpp)
        assert done.output == [
            *("8", "4", "4", "2", "4", "4", "41"),
            "Error: variable 'z::x': expected 4 bytes, found 8",
        ]
        assert [launch.split()[1] for launch in done.launches] == ["_Z3useIdEvPT_"]
    other = on_demand.cpp("program:", "context:1", *sizes, cache=cache_of_cpp, devices=2, capability="90,100")
    assert other.output == ["8", "4", "4", "2", "4", "4"]
    # The fake driver reads no PTX, but is asked for the variables that it has.
    refused = ("error 500 of cuLibraryGetGlobal",) * 2
    ptx = on_demand.cpp("program:compute_80", *sizes[:2], cache=cache_of_cpp, errors=refused)
    assert [" cuLibraryGetGlobal failed" in line for line in ptx.output] == [True, True]


def test_an_image_is_compiled_without_a_gpu(on_demand: OnDemand, cache_of_cpp: Path) -> None:
    commands = [f"image:{architecture}" for architecture in ("sm_80", "sm_90a", "compute_90", "lto_90")]
    for _ in "compiled", "cached":
        done = on_demand.cpp(*commands, cache=cache_of_cpp, fail="cuInit=100")
        rest = "_Z3useIdEvPT_ _ZN1z2tvIdEE and a log"
        assert done.output == [
            f"{image} {rest}" for image in ("sm_80 cubin", "sm_90a cubin", "compute_90 PTX", "lto_90 else")
        ]


def test_images_of_all_kinds_are_linked(on_demand: OnDemand, cache_of_cpp: Path) -> None:
    pairs = ("lto+lto:", "rdc+rdc:sm_90", "ptx+ptx:", "lto+ptx:sm_90", "lto+rdc:", "ptx+rdc:")
    done = on_demand.cpp(*(f"link:{pair}" for pair in pairs), cache=cache_of_cpp)
    assert done.output == ["sm_90"] * len(pairs)
    assert [launch.split()[1] for launch in done.launches] == ["_Z3useIdEvPT_"] * len(pairs)
    again = on_demand.cpp(*(f"link:{pair}" for pair in pairs), "opened", cache=cache_of_cpp)
    assert again.output == [*done.output, "no"]


def test_images_from_elsewhere_are_loaded(on_demand: OnDemand, cache_of_cpp: Path) -> None:
    done = on_demand.cpp("load:sm", cache=cache_of_cpp)
    assert (done.output, [launch.split()[1] for launch in done.launches]) == ([], ["k"])
    # The fake driver reads no PTX, but gets it.
    refused = ("error 500 of cuLibraryGetKernel",)
    done = on_demand.cpp("load:ptx", cache=cache_of_cpp, errors=refused)
    assert " cuLibraryGetKernel failed" in done.output[0]


def test_headers_in_memory_are_found_beside_their_includers(on_demand: OnDemand, cache_of_cpp: Path) -> None:
    """So are headers of the standard library, and functions without annotation are for the device."""
    done = on_demand.cpp("headers", "compiled:five", cache=cache_of_cpp)
    assert done.output == []
    assert len(done.launches) == 1


def test_only_libstdcxx_has_symbols_that_keep_a_plugin_loaded(on_demand: OnDemand, tmp_path: Path) -> None:
    objects = [on_demand.program.with_name(f"{source.stem}.o") for source in (LOADER, ON_DEMAND)]
    compiled("-shared", *objects, "-o", tmp_path / "plugin.so", "-ldl")
    listed = subprocess.run(["nm", "-C", tmp_path / "plugin.so"], capture_output=True, text=True, check=True)
    unique = [line.partition(" u ")[2] for line in listed.stdout.splitlines() if " u " in line]
    assert [name for name in unique if not name.startswith("std::")] == []


def test_standard_headers_are_those_of_python() -> None:
    script = runpy.run_path(str(CHECKOUT / "scripts" / "make_standard_headers.py"))
    assert script["TARGET"].read_text(encoding="utf-8") == script["render"]()


def test_without_nvjitlink_the_error_says_what_to_install(on_demand: OnDemand, tmp_path: Path) -> None:
    libraries = tmp_path / "cuda" / "lib64"
    libraries.mkdir(parents=True)
    for library in (file for directory in LIBRARIES for file in directory.glob("libnvrtc*")):
        (libraries / library.name).symlink_to(library)
    settings = {"CUDA_PATH": libraries.parent, "VIRTUAL_ENV": ""}
    done = on_demand.cpp("link:rdc+rdc:", cache=tmp_path / "cache", **settings)
    assert done.output == [
        "ToolchainError: nvJitLink cannot be loaded (it is not beside NVRTC); install it with "
        '"cuda-ext[cu13]" (or "cuda-ext[cu12]"), or set CUDA_PATH to a CUDA toolkit'
    ]


def test_texts_replace_embedded_headers(on_demand: OnDemand, tmp_path: Path) -> None:
    done = on_demand.cpp("texts:other.h", "compiled:five", cache=tmp_path / "cache")
    assert done.output == []
    assert len(done.launches) == 1


def test_files_of_include_directories_are_part_of_the_key(on_demand: OnDemand, tmp_path: Path) -> None:
    include = tmp_path / "include"
    include.mkdir()
    for text in "#define A 1", "#define A 12":
        (include / "file.h").write_text(text)
        done = on_demand.cpp(f"compile:{include}", "times", "opened", cache=tmp_path / "cache")
        assert done.output == ["yes"]
    assert len(entries(tmp_path / "cache")) == 2


@pytest.mark.parametrize(
    ("commands", "settings"),
    [
        (("compile:", "mistaken"), {}),
        (("compile:", "few"), {}),
        (("compile:", "few"), {"capability": "250"}),
        (("compile:", "mistaken"), {"capability": "250"}),
        (("compile:", "compiled:pliant"), {}),
        (("wrong:timse<int>",), {}),
        (("wrong:",), {}),
        (("options:name",), {}),
        *(((f"options:{option}",), {}) for option in ("-arch=sm_80", "-dlto", "-rdc=true")),
        *(((f"image:{architecture}",), {}) for architecture in ("sm90", "sm_35", "sm_999")),
        (("image:",), {"fail": "cuInit=100"}),
        (("program:lto_90",), {}),
        (("program:", "size:z::tv<int>", "compiled:sg", "size:use<double>"), {}),
        (("program:sm_100", "compiled:use<double>"), {}),
        *(((f"load:{image}",), {}) for image in ("cut", "c3", "none", "lto", "rdc")),
        *(((f"unlinked:{wrong}",), {}) for wrong in ("none", "empty", "garbage", "option", "sm")),
        (("link:rdc+rdc:lto_90",), {}),
        (("options:-Iinclude",), {}),
        (("options:/nowhere",), {}),
        (("options:",), {}),
        (("compile:", "compiled:times<int>"), {}),
        (("texts:by.cuh",), {}),
        (("nul",), {}),
        (("compile:",), {"VIRTUAL_ENV": ""}),
        (("compile:",), {"fail": "cuInit=100"}),
    ],
    ids=str,
)
def test_mistakes_with_a_source(
    on_demand: OnDemand,
    cache_of_cpp: Path,
    commands: tuple[str],
    settings: Mapping[str, str],
    messages: Messages,
) -> None:
    done = on_demand.cpp(*commands, cache=cache_of_cpp, **settings)
    messages(*done.output)
    assert done.launches == []


def test_toolkit_directories_are_those_of_python(on_demand: OnDemand, tmp_path: Path) -> None:
    root = tmp_path / "cuda"
    (root / "include" / "cccl").mkdir(parents=True)
    done = on_demand.cpp("directories", cache=tmp_path / "cache", CUDA_PATH=root)
    assert done.output[-2:] == [str(root / "include"), str(root / "include" / "cccl")]
    assert any(Path(directory, "cuda_fp16.h").is_file() for directory in done.output)
    (missing,) = on_demand.cpp("directories", cache=tmp_path / "cache", VIRTUAL_ENV="").output
    assert missing.startswith("ToolchainError: NVRTC cannot be loaded (it is neither in the active")
    (nowhere,) = on_demand.cpp(
        "directories", cache=tmp_path / "cache", CUDA_EXT_CACHE="/proc/nowhere", TMPDIR="."
    ).output
    assert nowhere.startswith("ToolchainError: NVRTC's headers cannot be unpacked: neither the cache nor the")


def test_nvrtc_is_found_in_the_site_packages_around_a_program(on_demand: OnDemand, tmp_path: Path) -> None:
    """In no other directory above it, to which other users may write."""
    (packages,) = {directory.parents[1] for directory in LIBRARIES if directory.is_relative_to(sys.prefix)}
    for name, found in ("site-packages", True), ("tmp", False):
        site = tmp_path / name
        (site / "app").mkdir(parents=True)
        (site / "nvidia").symlink_to(packages)
        program = shutil.copy(on_demand.program, site / "app" / "program")
        done = OnDemand(program, on_demand.driver).cpp("compile:", cache=tmp_path / "cache", VIRTUAL_ENV="")
        assert done.output == [] if found else done.output[0].startswith("ToolchainError: own.cu cannot be")


def test_each_gpu_gets_its_own(on_demand: OnDemand, tmp_path: Path) -> None:
    commands = ("launch:scale<double>", "launch:overloaded(int)")
    done = on_demand.cpp(
        *(*commands, "context:1", *commands, "context:2", *commands, "context:0", *commands),
        cache=tmp_path / "cache",
        devices=3,
        capability="90,100,90",
    )
    assert done.output == []
    assert [launch.split()[6] for launch in done.launches] == [
        f"device={device}" for device in (0, 0, 1, 1, 2, 2, 0, 0)
    ]
    assert len(entries(tmp_path / "cache")) == 4
    assert done.calls.count("cuLibraryLoadData") == 4


def test_threads_compile_once(on_demand: OnDemand, tmp_path: Path) -> None:
    done = on_demand.cpp(
        "threads:launch:scale<double>", "threads:launch:plain", cache=tmp_path / "cache", loading=20
    )
    assert done.output == []
    assert done.calls.count("cuLibraryLoadData") == 2
    assert len(done.launches) == 16
    assert len(entries(tmp_path / "cache")) == 2


def test_threads_without_a_cache(on_demand: OnDemand, tmp_path: Path) -> None:
    done = on_demand.cpp(
        "threads:launch:scale<double>", cache=tmp_path / "cache", CUDA_EXT_CACHE_SIZE=0, loading=20
    )
    assert done.output == []
    assert done.calls.count("cuLibraryLoadData") == 1
    assert not (tmp_path / "cache" / "objects").exists()


def test_processes_compile_once(on_demand: OnDemand, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = on_demand.environment(cache)
    command = [on_demand.program, "launch:reduce<double>", "opened"]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert sorted(outputs) == ["no\n", "no\n", "no\n", "yes\n"]
    assert len(entries(cache)) == 1


def test_a_child_of_a_process_that_used_cuda_gets_an_error(on_demand: OnDemand, cache_of_cpp: Path) -> None:
    done = on_demand.cpp("launch:scale<double>", "fork:launch:scale<unsigned char>", cache=cache_of_cpp)
    assert len(done.output) == 1
    assert done.output[0].startswith("Error: CUDA was used before this process was forked")
    assert on_demand.cpp("fork:launch:scale<double>", "launch:plain", cache=cache_of_cpp).output == []


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("launch:scale<double>", {"CUDA_EXT_JIT": "0"}),
        ("launch:plain", {"CUDA_EXT_JIT": "0"}),
        ("launch:newer", {"CUDA_EXT_JIT": "0"}),
        ("launch:scale<double>", {"VIRTUAL_ENV": ""}),
        ("launch:plain", {"VIRTUAL_ENV": "", "CUDA_PATH": "/nowhere"}),
        ("launch:ns::fill<int,3>", {}),
        ("launch:ambiguous<int>", {}),
        ("launch:sacle<int>", {}),
        ("launch:plain<int>", {}),
        ("launch:scale<int", {}),
        ("launch:scale<double>", {"fail": "cuInit=100"}),
        ("launch:scale<double>", {"capability": 35}),
    ],
    ids=str,
)
def test_why_something_is_not_compiled(
    on_demand: OnDemand, tmp_path: Path, command: str, settings: Mapping[str, object], messages: Messages
) -> None:
    done = on_demand.cpp(command, command, cache=tmp_path / "cache", **settings)
    first, second = done.output
    assert first == second
    messages(first)
    assert done.launches == []


def test_the_compiler_is_quoted(on_demand: OnDemand, tmp_path: Path) -> None:
    done = on_demand.cpp("launch:scale<nobody>", cache=tmp_path / "cache")
    assert done.output == [
        "CompilationError: 'scale<nobody>': error: identifier \"nobody\" is undefined"
        "|(compiling device/scale.cu for sm_90)"
    ]
    assert entries(tmp_path / "cache") == {}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"CUDA_EXT_CACHE": "/proc/nowhere"}, "/proc/nowhere: compiling goes on without a cache: No"),
        ({"CUDA_EXT_CACHE": "", "HOME": "/proc/nowhere"}, "/proc/nowhere/.cache/cuda_ext: compiling"),
        ({"CUDA_EXT_CACHE": "/dev/null"}, "/dev/null: compiling goes on without a cache: "),
        (
            {"CUDA_EXT_CACHE_SIZE": "5_0 "},
            "CUDA_EXT_CACHE_SIZE: compiling goes on without a cache: '5_0 ' is not a size; write bytes, or a",
        ),
    ],
    ids=str,
)
def test_a_cache_that_cannot_be_used_costs_a_warning(
    on_demand: OnDemand, tmp_path: Path, settings: Mapping[str, str], said: str
) -> None:
    done = on_demand.cpp(
        *("launch:scale<double>", "launch:scale<double>", "launch:scale<int>"),
        cache=tmp_path / "cache",
        said=f"cuda-ext: warning: {re.escape(said)}[^\n]*\n",
        **{"XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path), **settings},
    )
    assert done.output == []
    assert len(done.launches) == 3
    for directory in tmp_path.glob("cuda_ext-*"):  # where NVRTC's headers are
        assert directory.name == f"cuda_ext-{os.geteuid()}"
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@needs_mount
def test_a_full_disk_costs_a_warning(on_demand: OnDemand, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4k", "tmpfs") as disk:
        said = f"cuda-ext: warning: {disk}: [^\n]*No space left on device[^\n]*\n"
        done = on_demand.cpp("launch:lonely<int>", "launch:lonely<int>", cache=disk, said=said)
        assert (done.output, len(done.launches)) == ([], 2)


def test_vanished_headers_are_unpacked_again(on_demand: OnDemand, tmp_path: Path) -> None:
    """NVRTC itself looks for its mark alone."""
    for element in "int", "float":
        for header in tmp_path.glob("cache/nvrtc-headers-*/cuda_fp16.h"):
            header.unlink()
        assert on_demand.cpp(f"launch:scale<{element}>", cache=tmp_path / "cache").output == []
        assert len(list(tmp_path.glob("cache/nvrtc-headers-*/cuda_fp16.h"))) == 1
    # What is behind a link is not touched.
    (headers,) = tmp_path.glob("cache/nvrtc-headers-*")
    (headers.rename(tmp_path / "elsewhere") / "mine").touch()
    headers.symlink_to(tmp_path / "elsewhere")
    assert on_demand.cpp("launch:scale<char>", cache=tmp_path / "cache", TMPDIR=tmp_path).output == []
    assert (tmp_path / "elsewhere" / "mine").is_file()
    (temporary,) = tmp_path.glob("cuda_ext-*")
    assert len(list(temporary.glob("nvrtc-headers-*/cuda_fp16.h"))) == 1
    # Nor are headers behind one that another user may have put among temporary files.
    temporary.rename(tmp_path / "theirs")
    temporary.symlink_to(tmp_path / "theirs")
    refused = on_demand.cpp("launch:scale<short>", cache=tmp_path / "cache", TMPDIR=tmp_path).output
    assert len(refused) == 1
    assert f"{temporary}/nvrtc-headers-" in refused[0]
    assert " is a link" in refused[0]


@pytest.mark.parametrize(
    ("owner", "mode", "reason"),
    [
        (None, 0o777, "other users may write there"),
        pytest.param(12345, 0o700, "it belongs to another user (uid 12345)", marks=needs_root),
    ],
    ids=["open", "of another user"],
)
def test_a_cache_of_others_is_left_alone(
    on_demand: OnDemand, tmp_path: Path, owner: int | None, mode: int, reason: str
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    if owner:
        os.chown(cache, owner, -1)
    said = re.escape(f"{cache}: compiling goes on without a cache: {reason}; set")
    warning = f"cuda-ext: warning: {said}[^\n]*\n"
    assert on_demand.cpp("launch:lonely<int>", cache=cache, said=warning).output == []
    assert list(cache.iterdir()) == []


def test_python_counts_the_sizes_of_entries(on_demand: OnDemand, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    on_demand.cpp("launch:lonely<int>", cache=cache)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    (key,) = entries(cache)
    (cache / "objects" / "total").write_text("0 0 ")
    on_demand.cpp("launch:lonely<float>", cache=cache)
    (other,) = entries(cache).keys() - {key}
    assert (cache / "objects" / "total").read_text() == f"0 0 {len(entries(cache)[other])} "


@pytest.mark.slow
def test_damaged_entries_are_compiled_again(on_demand: OnDemand, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    on_demand.cpp("launch:lonely<int>", cache=cache)
    expected = entries(cache)
    for key, content in expected.items():
        (cache / "objects" / key[:2] / key[2:]).write_bytes(content[:-1] + b"!")
    assert on_demand.cpp("launch:lonely<int>", "opened", cache=cache).output == ["yes"]
    assert entries(cache) == expected


@pytest.mark.slow
def test_the_cache_survives_damage_and_is_kept_within_its_bound(tmp_path: Path) -> None:
    sanitizers = "-O0", "-g0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
    program = tmp_path / "store"
    compiled("-std=c++20", *sanitizers, "-Wno-unused-function", CPP / "store.cpp", "-o", program, "-ldl")
    done = subprocess.run(
        [program],
        env={**os.environ, "CUDA_EXT_CACHE": str(tmp_path / "cache"), "CUDA_EXT_CACHE_SIZE": "10000"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_threads_do_not_race(on_demand: OnDemand, cache_of_cpp: Path, tmp_path: Path) -> None:
    """All entries are cached, so that NVRTC, which is built without sanitizers, does not run."""
    directory = on_demand.program.with_name("cpp")
    program = tmp_path / "program"
    compile_program(directory, program, LOADER, ON_DEMAND, "-fsanitize=thread")
    raced = OnDemand(program, on_demand.driver)
    for devices in 1, 3:
        done = raced.cpp(
            *("threads:launch:scale<double>", "threads:launch:plain", "threads:launch:reduce<int>"),
            cache=cache_of_cpp,
            devices=devices,
            loading=20,
        )
        assert done.output == []
        assert len(done.launches) == 24
        assert done.calls.count("cuLibraryLoadData") == 3


def test_projects_without_exceptions() -> None:
    for source in LOADER, ON_DEMAND:
        compiled("-std=c++20", "-fno-exceptions", "-fno-rtti", "-fsyntax-only", source)


@takes_mingw
def test_it_compiles_for_windows() -> None:
    assert MINGW is not None
    for source in LOADER, ON_DEMAND:
        subprocess.run(
            [MINGW, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", source], check=True
        )


@pytest.mark.slow
def test_generated_sources_export_exceptions_and_run_no_code(on_demand: OnDemand, tmp_path: Path) -> None:
    directory = on_demand.program.with_name("cpp")
    where = f"-I{INCLUDE}", f"-I{directory / 'include'}"
    sources = [directory / SOURCE, LOADER, ON_DEMAND]
    objects = [tmp_path / f"{source.name}.o" for source in sources]
    for source, output in zip(sources, objects, strict=True):
        compiled("-std=c++17", "-O1", "-fPIC", "-c", *where, source, "-o", output)
    compiled("-shared", *objects, "-o", tmp_path / "lib.so", "-ldl")

    shown = printed("nm", "-DC", "--defined-only", tmp_path / "lib.so")
    assert exported_besides_exceptions(shown) == []
    assert not any(map(runs_code_at_start, objects))


def test_sources_that_include_the_header_compile_none_of_it(on_demand: OnDemand) -> None:
    directory = on_demand.program.with_name("cpp")
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None
    header = directory / "include" / "p" / "kernels.h"
    read = printed(compiler, "-std=c++17", f"-I{INCLUDE}", "-M", header)
    assert str(INCLUDE) not in read
    # Nor are there containers in it.
    assert not re.search(r"stl_(vector|map|set|deque)\.h", read)
