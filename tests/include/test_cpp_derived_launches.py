"""Launches in C++ of kernels whose images fix configurations, add parameters, or are for some arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cuda_ext.builder.package.generate import Package
from cuda_ext.facts import manifest
from tests.fixtures.cpp_modules import LOADER, compile_cpp, write_cpp
from tests.fixtures.device_code import image
from tests.fixtures.loader import Run
from tests.fixtures.projects import build, write_project
from tests.include.test_cpp_loader import run_program

pytestmark = [pytest.mark.xdist_group("cpp_loader"), pytest.mark.host_compiler]

SCALE = """
extern "C" __global__ void raw_scale(const float* x, int rows, int step, float* y, char factor,
                                     unsigned long long zero, void* memory) {
  if (factor) y[0] = x[rows * step] + *(float*)memory + zero;
}
"""
SIMPLE = """
extern "C" __global__ void {name}(float* x, int n, void* memory, unsigned long long zero) {{ x[n] = zero; }}
"""
SIGNATURE = "(float* x, int n, void* m = scratch, uint64_t z = 0)"
OF_SCALE = (
    "(const float* x, int rows = x.shape[0], int step = x.stride[0], float* y, signed char factor, "
    "uint64_t reserved = 0, void* memory = scratch)"
)
ALIGNED = f'name = "k<1>", symbol = "aligned", when = "x % 16 == 0 and n % 4 == 0", signature = "{SIGNATURE}"'
WHEN = 'sm >= 80 and gpu == "Fake GPU" and n < -2'
NEGATIVE = f'name = "k<2>", symbol = "negative", when = \'{WHEN}\', signature = "{SIGNATURE}"'
TABLE = f"""
[tool.cuda_ext.modules."p.kernels"]
sources = ["images/*.cubin"]
emit = "cubin"
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["images/scale.cubin"]
[[tool.cuda_ext.modules."p.kernels".overrides.kernels]]
name = "ns::scale"
symbol = "raw_scale"
signature = "{OF_SCALE}"
block = [64, 2]
shared = 60000
cluster = 2
scratch = 256
dependent = true
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["images/hinted.*"]
kernels = [{{ {ALIGNED}, block = 32, scratch = 16 }}, {{ {NEGATIVE}, block = 1, scratch = 16 }}]
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["images/generic.*"]
kernels = [{{ name = "k<1>", symbol = "any", signature = "{SIGNATURE}", block = 64, scratch = 32 }}]
"""
PROGRAM = r"""
#include <p/kernels.h>

#include <cstdio>
#include <cstring>
#include <type_traits>

namespace kernels = p::kernels;
using cuda_ext::LaunchGrid;

// A configuration with a block does not compile.
static_assert(std::is_invocable_v<decltype(kernels::k<1>), LaunchGrid, float*, int>);
static_assert(!std::is_invocable_v<decltype(kernels::k<1>), cuda_ext::LaunchConfig, float*, int>);

static void tell(const cuda_ext::Result<void>& result) {
  std::puts(result ? "launched" : result.error().message);
}

int main(int, char** arguments) {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<float*>(address); };
  float* const x = at(4096);
  float* const y = at(8192);
  const auto choose = [&](float* of, int n) { tell(kernels::k<1>.try_launch(3, of, n)); };
  if (!std::strcmp(arguments[1], "fixed")) {
    kernels::ns::scale({{10, 3}}, x, 7, 20, y, -3);
    cuda_ext::Kernel scale = kernels::cuda_ext_library().kernel("ns::scale");
    scale.launch(LaunchGrid(5), x, 7, 20, y, static_cast<signed char>(1));
    tell(scale.try_launch({1, 64}, x, 7, 20, y, static_cast<signed char>(1)));
    tell(scale.try_launch(cuda_ext::threads(64), x, 7, 20, y, static_cast<signed char>(1)));
    tell(scale.try_launch(LaunchGrid(1), x, 7));
    tell(kernels::ns::scale.try_launch(1 << 30, x, 7, 20, y, 1));
    tell(kernels::ns::scale.try_launch(1, x, 1LL << 31, 20, y, 1));
    std::printf("%d\n", scale.attribute(1));
  } else {
    kernels::k<1>.kernel().prepare(LaunchGrid(1));
    std::puts("prepared");
    for (const int n : {8, 3}) {
      choose(x, n);
      choose(at(4100), n);
    }
    for (const int n : {-3, -2}) tell(kernels::k<2>.try_launch({3}, x, n));
    const auto grid = [](const cuda_ext::Configuration& given) {
      return cuda_ext::Dim(given["BLOCK"] + 1, given["none"] + 2);
    };
    if (!std::strcmp(arguments[1], "grid")) kernels::k<1>({grid, nullptr}, x, 8);
    if (!std::strcmp(arguments[1], "unload")) {
      const cuda_ext::Library library(kernels::cuda_ext_library().data());
      for (const int n : {8, 3}) library.kernel("k<1>").launch(LaunchGrid(1), x, n);
    }
  }
}
"""


def configured(package: Package) -> Package:
    """The package with values of a configuration, as measured tables have."""
    made = manifest.loads(package.files[manifest.FILE_NAME], "")
    kernels = (each._replace(configuration={"BLOCK": "64", "MODE": "fast"}) for each in made.kernels)
    text = manifest.dumps(made._replace(kernels=tuple(kernels)))
    return replace(package, files={**package.files, manifest.FILE_NAME: text.encode()})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("derived")
    files: dict[str, str | bytes] = {"p/__init__.py": "", "images/scale.cubin": image(SCALE).data}
    hinted = SIMPLE.format(name="aligned") + SIMPLE.format(name="negative")
    for architecture in ("sm_80", "sm_90"):
        files[f"images/hinted.{architecture}.cubin"] = image(hinted, architecture).data
    files["images/generic.sm_90.cubin"] = image(SIMPLE.format(name="any")).data
    package = configured(build(write_project(root / "project", TABLE, files))["p.kernels"])
    module = write_cpp(package, root)
    (root / "program.cpp").write_text(PROGRAM)
    sources = [root / name for name in ("program.cpp", module.source)]
    compile_cpp(f"-I{root / 'include'}", *sources, LOADER, "-o", root / "program", "-ldl", "-pthread")
    return root / "program"


@pytest.fixture
def run(program: Path, fake_driver: Path, tmp_path: Path) -> Callable[..., Run]:
    def run(command: str, **settings: object) -> Run:
        variables = {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}
        variables["LD_LIBRARY_PATH"] = str(fake_driver)
        return run_program(program, command, directory=tmp_path, **variables)

    return run


@pytest.mark.parametrize("devices", [1, 2])
def test_a_launch_has_what_the_image_fixes(run: Callable[..., Run], devices: int) -> None:
    done = run("fixed", devices=devices)
    assert "cuKernelSetAttribute raw_scale 8 60000 0" in done.calls
    first, second = (launch.split() for launch in done.launches)
    expected = "grid=20,3,1 block=64,2,1 shared=60000 stream=0 device=0 dependent=1 cluster=2,1,1"
    assert first[2:9] == expected.split()
    assert first[9:-1] == ["0010000000000000", "07000000", "14000000", "0020000000000000", "fd", "0" * 16]
    assert int(first[-1], 16)
    assert second[2] == "grid=10,1,1"
    at = done.calls.index(done.launches[0])
    assert done.calls[at - 1 : at + 2 : 2] == ["cuMemAllocAsync 15360 stream=0", "cuMemFreeAsync stream=0"]
    *errors, shared = [line for line in done.output if not line.startswith("  in a launch")]
    fixed = "the image of this kernel fixes it; give the"
    assert errors == [
        f"block: {fixed} grid alone, as a LaunchGrid",
        f"threads: {fixed} grid alone, as a LaunchGrid",
        "expected 5 arguments, found 2",
        "grid: expected at least 1 and at most (2147483647, 65535, 65535), found (2147483648, 1, 1)",
        "argument 'x_shape_0': 2147483648 is out of the range of int",
    ]
    assert shared == "0"


def test_a_launch_takes_the_image_for_its_arguments(run: Callable[..., Run]) -> None:
    done = run("choose")
    taken = [tuple(launch.split()[1:4]) for launch in done.launches]
    grid = "grid=3,1,1"
    hinted, generic = ("aligned", grid, "block=32,1,1"), ("any", grid, "block=64,1,1")
    assert taken == [hinted, generic, generic, generic, ("negative", grid, "block=1,1,1")]
    assert done.output[:6] == ["prepared", *["launched"] * 5]
    assert done.output[6].startswith("this kernel was compiled for other arguments: if sm >= 80 and gpu == ")
    # On another GPU, other images are there, and conditions hold.
    done = run("choose", capability=80)
    assert [launch.split()[1] for launch in done.launches] == ["aligned", "negative"]
    assert "generic.sm_90.cubin has no image for this GPU" in done.output[2]


def test_a_function_returns_the_grid_for_a_configuration(run: Callable[..., Run]) -> None:
    assert run("grid").launches[-1].split()[1:3] == ["aligned", "grid=65,2,1"]


def test_images_of_tile_kernels_are_not_unloaded(run: Callable[..., Run]) -> None:
    """The block of these is one thread."""
    done = run("unload")
    assert [launch.split()[1] for launch in done.launches[-2:]] == ["aligned", "any"]
    assert (done.calls.count("cuLibraryLoadData"), done.calls.count("cuLibraryUnload")) == (4, 1)


def test_without_memory_pools_there_is_no_memory_for_a_launch(run: Callable[..., Run]) -> None:
    done = run("choose", pools=0)
    assert not done.launches
    assert done.output[1].startswith("this kernel takes 16 bytes of memory for each block, which a launch")
    assert "cuMemAllocAsync failed" in run("choose", fail="cuMemAllocAsync=2").output[1]
