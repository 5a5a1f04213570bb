"""``cuda-ext compile-commands``, and clangd's diagnostics of device code with it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cuda_ext.builder.config.keys import BuildSettings
from cuda_ext.builder.config.modules import parse_module
from cuda_ext.builder.project import Project
from cuda_ext.builder.sources.compilation_database import (
    FILE_NAME,
    Command,
    choose_place,
    list_commands,
    write,
)
from cuda_ext.errors import ConfigError
from cuda_ext.toolchain.nvrtc import Nvrtc
from tests.fixtures.command_line import run
from tests.fixtures.environments import CHECKOUT, PACKAGES, Environment
from tests.fixtures.projects import FILL, KERNELS, build, load, write_project

pytestmark = pytest.mark.xdist_group("clangd")

with_headers_of_its_own = pytest.mark.skipif(
    Nvrtc().version < "13.3", reason="this NVRTC brings no headers within itself"
)
EDITOR = CHECKOUT / "cuda_ext" / "include" / "cuda_ext" / "editor"
EXAMPLE = CHECKOUT / "example_project"

# What comes with NVRTC and no header declares.
BUILT_IN = r"""
#include <cuda_runtime.h>

struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };

__constant__ float weights[4];
__device__ unsigned int counter;

extern "C" __global__ void __launch_bounds__(128, 2) all(const float* __restrict__ x, float* y, int n,
                                                         const __grid_constant__ int4 four) {
  extern __shared__ float tile[];
  __shared__ __align__(16) float4 block[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
  dim3 size = gridDim;
  uint3 place = blockIdx;
  assert(size.x > place.x && n > 0);
  tile[lane] = __ldg(x + i) + __ldcg(&x[i]) + sinf(x[i]) + exp(2.0) + sqrt(x[i]) + fmaf(x[i], 2.0f, 3.0f);
  tile[lane] += pow(2.0f, 3.0f) + rsqrtf(x[i]) + __fdividef(1.0f, 2.0f) + __expf(1.0f) + max(1, 2);
  tile[lane] += min(1u, 2u) + max(1.0f, 2.0f) + abs(-3) + fabs(x[i]) + floorf(x[i]) + __fadd_rn(1.0f, 2.0f);
  __syncthreads();
  float total = Sum{}(tile[lane], weights[lane % 4]);
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
  total += __shfl_down_sync(__activemask(), total, 1, 16) + __int_as_float(__float_as_int(total));
  if (isnan(total) || isinf(total) || __any_sync(0xffffffff, lane == 3)) __trap();
  counter += __popc(__ballot_sync(0xffffffff, total > 0)) + __clz(n) + __ffs(n) + __brev(4u) + __mulhi(n, n);
  counter += __byte_perm(n, n, n) + __funnelshift_l(n, n, n) + __vadd4(n, n);
  atomicAdd(y, total);
  atomicAdd_block(&counter, 1u);
  atomicMax(&counter, atomicCAS(&counter, 1u, 2u));
  float2 pair = make_float2(1.0f, 2.0f);
  block[lane] = make_float4(pair.x, pair.y, 0.0f, static_cast<float>(four.w));
  __stcs(reinterpret_cast<float4*>(y) + i, block[lane]);
  __threadfence();
  __syncwarp();
  __nanosleep(20);
  const unsigned int address = static_cast<unsigned int>(__cvta_generic_to_shared(tile));
  asm volatile("// %0" ::"r"(address) : "memory");
  float* heap = static_cast<float*>(malloc(16));
  memcpy(heap, x, 16);
  free(heap);
  int* list = new int[4];
  delete[] list;
  new (block) float4{1, 2, 3, 4};
  y[0] += std::move(total) + static_cast<float>(clock64()) + __float2int_rn(total);
  printf("%d %p\n", static_cast<int>(counter), static_cast<void*>(y));
}
"""

LIBRARIES = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda_fp8.h>
#include <mma.h>

using Sort = cub::BlockRadixSort<unsigned int, 128, 4>;
extern "C" __global__ void sort(unsigned int* keys, cuda::std::array<int, 3> shape) {
  __shared__ typename Sort::TempStorage storage;
  unsigned int own[4] = {keys[0], keys[1], keys[2], static_cast<unsigned int>(shape[0])};
  Sort(storage).Sort(own);
  auto tile = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  own[0] = cooperative_groups::reduce(tile, own[0], cooperative_groups::plus<unsigned int>());
  cuda::atomic_ref<unsigned int, cuda::thread_scope_device>(keys[0]).fetch_add(own[0]);
}
"""

TILES = r"""
#include <cuda_tile.h>
namespace ct = cuda::tiles;
using namespace ct::literals;

__tile__ float factors[3];
__tile__ inline float factor(int i) { return factors[i]; }
[[cutile::hint(0, occupancy=2)]] __tile_global__ void scale(int n, const float* __restrict__ x, float* y) {
  auto input = ct::partition_view{ct::tensor_span{x, ct::extents{n}}, ct::shape{256_ic}};
  auto output = ct::partition_view{ct::tensor_span{y, ct::extents{n}}, ct::shape{256_ic}};
  output.store_masked(input.load_masked(ct::bid().x) * factor(0), ct::bid().x);
}
"""


@pytest.fixture(scope="module")
def clangd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clangd of the Python package."""
    prefix = tmp_path_factory.mktemp("clangd")
    return Environment.make(prefix, "clangd==22.*").python.with_name("clangd")


def errors(clangd: Path, files: Iterable[Path]) -> list[str]:
    """Return clangd's reports about `files`, as ``name:line: message``."""
    found: list[str] = []
    for file in files:
        command = [clangd, f"--check={file}", "--check-completion=false", "--check-locations=false"]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
        assert "from CDB" in done.stderr or "inferred from" in done.stderr, done.stderr
        errors = re.findall(r"^E\S* \[\S+\] Line (\d+): (.*)", done.stderr, re.MULTILINE)
        found += [f"{file.name}:{line}: {message}" for line, message in errors]
        assert bool(errors) == bool(done.returncode), done.stderr
    return found


def commands_of(root: Path) -> dict[str, list[str]]:
    """The arguments for each source of the project in `root`."""
    return {command["file"]: command["arguments"] for command in list_commands(load(root))}


def device_files(root: Path) -> list[Path]:
    return sorted(file for suffix in ("cu", "cuh") for file in root.rglob(f"*.{suffix}"))


def module_project(root: Path) -> Project:
    """A project with a module that CMake configures."""
    module = parse_module("p.kernels", {"sources": ["device/*.cu"]}, "cuda_ext_add_module(p)")
    return Project(root.resolve(), (module,), BuildSettings(), "p")


# --------------------------------------------------------------------------------------- what clangd says


@pytest.mark.network
@pytest.mark.slow
def test_clangd_reports_no_error_on_the_example(clangd: Path, tmp_path: Path) -> None:
    root = shutil.copytree(EXAMPLE, tmp_path / "example")
    assert run("compile-commands", root)[0] == 0
    files = device_files(root / "device")
    assert len(files) == 11
    assert errors(clangd, files) == []


@pytest.mark.network
@pytest.mark.parametrize("name", ["headers", "späße und mehr"])
def test_headers_are_understood_like_the_source_that_includes_them(
    clangd: Path, name: str, tmp_path: Path
) -> None:
    root = shutil.copytree(PACKAGES / name, tmp_path / name)
    assert run("compile-commands", root)[0] == 0
    assert errors(clangd, (f for f in device_files(root) if f.name != "unused.cuh")) == []


@pytest.mark.network
def test_modules_of_cmake_are_understood(clangd: Path, tmp_path: Path) -> None:
    root = shutil.copytree(CHECKOUT / "examples" / "scikit_build_core", tmp_path / "example")
    project = module_project(root)
    write(choose_place(project), list_commands(project))
    assert errors(clangd, device_files(root / "device")) == []


@pytest.mark.network
def test_clangd_knows_builtins_and_libraries_of_nvrtc(clangd: Path, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", KERNELS, {"device/built_in.cu": BUILT_IN})
    build(root)  # NVRTC takes it
    (root / "device/libraries.cu").write_text(LIBRARIES)
    (root / "device/tiles.cu").write_text(TILES)
    assert run("compile-commands", root)[0] == 0
    assert errors(clangd, device_files(root)) == []


@pytest.mark.network
def test_clangd_reports_the_errors_of_the_build(clangd: Path, tmp_path: Path) -> None:
    broken = """
#include <vector>
int host(int n) { return n; }
constexpr int twice(int n) { return 2 * n; }
__global__ void fill(float* x) {
  x[threadIdx.y] = 1.0f;
  y = 2;
  x[0] = host(3);
  x[1] = twice(4);
  __synchthreads();
  atomicAdd(x, x);
}
"""
    right = "__device__ int annotated() { return 1; }\n__global__ void f(int* x) { x[0] = annotated(); }\n"
    root = write_project(tmp_path / "p", KERNELS, {"device/broken.cu": broken, "device/right.cu": right})
    assert run("compile-commands", root)[0] == 0
    assert errors(clangd, [root / "device/right.cu"]) == []
    found = errors(clangd, [root / "device/broken.cu"])
    assert [int(error.split(":")[1]) for error in found[:1]] == [2]
    assert "'vector' file not found" in found[0]
    (root / "device/broken.cu").write_text(broken.replace("#include <vector>", "", 1))
    found = errors(clangd, [root / "device/broken.cu"])
    assert sorted({int(error.split(":")[1]) for error in found}) == [7, 8, 9, 10, 11]


@pytest.mark.network
def test_clangd_sees_macros_and_headers_as_the_build_does(clangd: Path, tmp_path: Path) -> None:
    source = """
#if WIDTH != 4 || !defined(FLAG) || defined(GONE) || !defined(__USE_FAST_MATH__) || __CUDA_ARCH__ < 750
#error "a macro is missing"
#endif
int unannotated(int n) { return n * FROM_BEFORE; }
constexpr int twice(int n) { return 2 * n; }
__global__ void f(int* x) { x[0] = unannotated(1) + twice(2) + in_header(3); if (__func__[0] == FLAG[0]) ; }
"""
    table = f"""{KERNELS}include-dirs = ["include"]
define = {{ WIDTH = "4", FLAG = '"a b"' }}
options = ["-D", "GONE=1", "-UGONE"]
pre-include = ["before.h", "cuda_fp16.h"]
fast-math = true
relaxed-constexpr = true
std = "c++20"
"""
    before = "#define FROM_BEFORE 3\n__device__ int in_header(int n) { return n; }\n"
    files = {
        "device/f.cu": source,
        "include/before.h": before,
    }
    root = write_project(tmp_path / "p", table, files)
    build(root)
    assert run("compile-commands", root)[0] == 0
    assert errors(clangd, [root / "device/f.cu"]) == []


@pytest.mark.network
def test_clangd_reads_sources_with_host_code(clangd: Path, tmp_path: Path) -> None:
    source = """
static int launches = 0;
constexpr int twice(int n) { return 2 * n; }
int blocks(int n) { return (n + 255) / 256; }
__global__ void f(int* x) { *x = twice(*x); }
int count(int n) { launches++; return blocks(n); }
__global__ void g(int* x) { *x = blocks(*x); }
"""
    root = write_project(tmp_path / "p", f'{KERNELS}host-code = "skip"\n', {"device/f.cu": source})
    assert run("compile-commands", root)[0] == 0
    (error,) = errors(clangd, [root / "device/f.cu"])
    assert error.startswith("f.cu:7: ")
    assert "blocks" in error


@pytest.mark.network
@pytest.mark.host_compiler
def test_with_nvcc_clangd_sees_the_headers_of_the_host(clangd: Path, tmp_path: Path) -> None:
    source = "#include <cstdint>\n#include <cuda/std/array>\n" + FILL
    source += "__global__ void wide(std::uint64_t* x) { x[threadIdx.x] = sinf(2.0f); }\n"
    root = write_project(tmp_path / "p", f'{KERNELS}compiler = "nvcc"\n', {"device/fill.cu": source})
    assert run("compile-commands", root)[0] == 0
    assert errors(clangd, [root / "device/fill.cu"]) == []


# ------------------------------------------------------------------------------------------- the commands


def test_commands_say_how_each_source_is_compiled(tmp_path: Path) -> None:
    table = f"""{KERNELS}include-dirs = ["device", "my include"]
sources = ["device/*.cu", "device/*.ptx"]
std = "c++20"
define = {{ WIDTH = "4", TEXT = '"a b"', EMPTY = "" }}
options = ["-DLATER=1", "--define-macro=LONG", "-U", "OTHER", "-lineinfo"]
link = true
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/fast.cu"]
fast-math = true
define = {{ WIDTH = "8" }}
"""
    files = {"device/fill.cu": FILL, "device/fast.cu": FILL, "device/c.ptx": "", "my include/a.h": ""}
    commands = commands_of(write_project(tmp_path, table, files))
    assert list(commands) == ["device/fast.cu", "device/fill.cu"]
    fill, fast = commands["device/fill.cu"], commands["device/fast.cu"]
    assert fill[0] == "clang++"
    assert fill[-1] == "device/fill.cu"
    assert {"-xcuda", "-std=c++20", "-Idevice", "-Imy include", "-fgpu-rdc"} <= set(fill)
    assert [a for a in fill if re.match(r"-[DU](?!__)", a)] == [
        *("-DEMPTY", '-DTEXT="a b"', "-DWIDTH=4", "-DLATER=1", "-DLONG", "-UOTHER"),
    ]
    assert set(fast) - set(fill) == {"-DWIDTH=8", "-D__USE_FAST_MATH__", "device/fast.cu"}


@pytest.mark.parametrize(
    ("architectures", "seen"),
    [
        (["sm_75", "sm_80"], "sm_80"),
        (["all-major", "compute_120"], "sm_90"),
        (["native"], "sm_90"),
        (["all-major", "sm_90a"], "sm_90a"),
        (["sm_90a", "sm_100a"], "sm_90a"),
        (["compute_80"], "sm_80"),
        (["sm_120", "sm_100a"], "sm_100a"),
    ],
)
def test_clangd_gets_an_architecture_that_it_supports(
    architectures: list[str], seen: str, tmp_path: Path
) -> None:
    table = f'[tool.cuda_ext.modules."p.kernels"]\narchitectures = {json.dumps(architectures)}\n'
    (arguments,) = commands_of(write_project(tmp_path, table)).values()
    assert f"--cuda-gpu-arch={seen}" in arguments


def test_a_source_of_several_modules_has_a_command_for_each(tmp_path: Path) -> None:
    table = '[tool.cuda_ext.modules."p.one"]\n[tool.cuda_ext.modules."p.two"]\nstd = "c++20"\n'
    commands = list_commands(load(write_project(tmp_path, table)))
    assert [command["file"] for command in commands] == ["device/fill.cu", "device/fill.cu"]


def test_all_files_of_the_commands_exist(tmp_path: Path) -> None:
    (arguments,) = commands_of(write_project(tmp_path)).values()
    named = [Path(a) for a in arguments if Path(a).is_absolute()]
    assert EDITOR / "nvrtc.hpp" in named
    assert [path for path in named if not path.exists()] == []


@with_headers_of_its_own
def test_without_a_directory_for_headers_no_file_is_written(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p")
    (tmp_path / "file").touch()
    status, _, error = run("compile-commands", root, CUDA_EXT_CACHE=tmp_path / "file" / "cache")
    assert status == 1
    assert "cannot be kept; set CUDA_EXT_CACHE to a directory that you can write" in error
    assert list(root.rglob(FILE_NAME)) == []


# ------------------------------------------------------------------------------------------------ the file


def test_the_file_lies_with_the_device_code(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", KERNELS, {"device/deep/fill.cu": FILL, "device/top.cu": FILL})
    (root / "pyproject.toml").write_text(f'{KERNELS}sources = ["device/**/*.cu"]\n')
    status, output, _ = run("compile-commands", root)
    assert status == 0
    assert f"{FILE_NAME}: 2 device sources" in output
    assert ".gitignore" in output
    assert [path.relative_to(root) for path in root.rglob(FILE_NAME)] == [Path("device", FILE_NAME)]


def test_the_file_lies_above_headers_too(tmp_path: Path) -> None:
    files = {"device/fill.cu": '#include "a.h"\n' + FILL, "include/a.h": "\n"}
    root = write_project(tmp_path, f'{KERNELS}include-dirs = ["include"]\n', files)
    assert choose_place(load(root)) == root.resolve() / FILE_NAME


def test_commands_of_cmake_stay_visible_to_clangd(tmp_path: Path) -> None:
    root = write_project(
        tmp_path, f'{KERNELS}sources = ["*.cu"]\n', {"fill.cu": FILL, f"build/{FILE_NAME}": "[]"}
    )
    status, _, error = run("compile-commands", root)
    assert status == 1
    assert f"clangd would no longer read {root.resolve() / 'build' / FILE_NAME}" in error
    assert "--output" in error
    assert not (root / FILE_NAME).exists()
    assert run("compile-commands", root, "--output", root / FILE_NAME)[0] == 0


def test_entries_for_other_files_stay(tmp_path: Path) -> None:
    root = write_project(tmp_path, KERNELS, {"device/fill.cu": FILL, "device/gone.cu": FILL})
    place = root / FILE_NAME
    theirs = [
        {"directory": f"{root}/build", "command": "c++ -c ../main.cpp", "file": f"{root}/main.cpp"},
        {"directory": f"{root}/build", "command": "nvcc ../device/fill.cu", "file": "../device/fill.cu"},
    ]
    place.write_text(json.dumps(theirs))
    for _ in range(2):
        assert run("compile-commands", root, "-o", place)[0] == 0
        entries = json.loads(place.read_text())
        assert [entry["file"] for entry in entries] == [theirs[0]["file"], "device/fill.cu", "device/gone.cu"]
        assert entries[0] == theirs[0]
    (root / "device/gone.cu").unlink()
    assert run("compile-commands", root, "-o", place)[0] == 0
    assert [entry["file"] for entry in json.loads(place.read_text())] == [theirs[0]["file"], "device/fill.cu"]


def test_the_file_of_another_program_is_not_written_through_a_link(tmp_path: Path) -> None:
    theirs = tmp_path / "build.json"
    theirs.write_text("[]")
    (tmp_path / FILE_NAME).symlink_to(theirs)
    command: Command = {"directory": "/p", "file": "a.cu", "arguments": []}
    with pytest.raises(ConfigError, match="is a link to a file of another program; name another file"):
        write(tmp_path / FILE_NAME, [command])
    assert theirs.read_text() == "[]"


def test_a_path_that_json_cannot_have_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    command: Command = {"directory": "/p\udcff", "file": "a.cu", "arguments": []}
    with pytest.raises(ConfigError, match=r'JSON cannot have "directory": "/p\\udcff", which is not UTF-8'):
        write(tmp_path / "new" / FILE_NAME, [command])
    assert list(tmp_path.iterdir()) == []


def test_concurrent_writers_lose_no_commands(tmp_path: Path) -> None:
    commands: list[Command] = [{"directory": f"/p{i}", "file": "a.cu", "arguments": []} for i in range(16)]
    place = tmp_path / "new" / FILE_NAME
    with ThreadPoolExecutor(len(commands)) as threads:
        list(threads.map(lambda command: write(place, [command]), commands))
    assert sorted(entry["directory"] for entry in json.loads(place.read_text())) == sorted(
        command["directory"] for command in commands
    )


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[1]", "[", "\xff", "[" * 100_000),
        '[{"directory": "/p", "file": "a.cu", "arguments": null}]',
        '[{"directory": ["a"], "file": "a.cu", "command": "c++"}]',
        '[{"directory": "/p"}]',
    ],
    ids=lambda content: content[:60],
)
def test_other_files_of_that_name_are_left_alone(content: str, tmp_path: Path) -> None:
    root = write_project(tmp_path)
    place = root / "device" / FILE_NAME
    place.write_bytes(content.encode("latin-1"))
    status, _, error = run("compile-commands", root)
    assert status == 1
    assert f"{place.resolve()}: is not a list of compile commands; remove it" in error
    assert place.read_bytes() == content.encode("latin-1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file; name the directory of a project"),
        ('[project]\nname = "p"\n', "has no [tool.cuda_ext] table; add it"),
        (f'{KERNELS}sources = ["*.cu"]\n', 'tool.cuda_ext.modules."p.kernels".sources: nothing matches'),
    ],
)
def test_mistakes_are_one_message(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    status, output, error = run("compile-commands", tmp_path)
    assert (status, output) == (1, "")
    assert message in error
    assert list(tmp_path.rglob(FILE_NAME)) == []
