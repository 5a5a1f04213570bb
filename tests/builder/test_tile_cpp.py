"""Kernels of CUDA Tile C++ among the sources: compiled with those of threads, and launched by the grid."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cuda_ext
from cuda_ext.builder.package.generate import Package
from cuda_ext.errors import ToolchainError
from cuda_ext.facts import manifest as manifest_file
from cuda_ext.facts.manifest import Manifest
from cuda_ext.formats.tile_ir import read_tile_ir
from cuda_ext.toolchain.tileiras import Tileiras
from tests.fixtures.loader import run_script
from tests.fixtures.messages import Messages
from tests.fixtures.projects import build, refusal, write_importable, write_project

HEADER = """
#include <cuda_tile.h>
#define TILE 256
__tile__ float factors[3];
__tile__ inline float factor(int i) { return factors[i]; }
"""
SOURCE = """
#include "factor.cuh"
namespace ct = cuda::tiles;
using namespace ct::literals;

namespace ns {
template <class T>
[[cutile::hint(0, occupancy=2)]] __tile_global__ void axpy(int n, T a, const T* __restrict__ x, T* y) {
  auto inputs = ct::partition_view{ct::tensor_span{x, ct::extents{n}}, ct::shape{256_ic}};
  auto outputs = ct::partition_view{ct::tensor_span{y, ct::extents{n}}, ct::shape{256_ic}};
  const int i = ct::bid().x;
  outputs.store_masked(outputs.load_masked(i) + inputs.load_masked(i) * a, i);
}
}
extern "C" __tile_global__ void first(float* y, bool at) { *y = at ? factor(0) : 0.0f; }
__device__ int counter;
__global__ void count(int by) { atomicAdd(&counter, by); }
"""
TABLE = """
[tool.cuda_ext]
architectures = ["sm_90", "compute_80"]
emit = "cubin"
[tool.cuda_ext.modules."p.kernels"]
instantiate = ["ns::axpy<float>"]
"""
FILES = {"device/mixed.cu": SOURCE, "device/factor.cuh": HEADER, "p/__init__.py": ""}
# What compiles in no time, since it includes nothing.
PLAIN = "__tile_global__ void one(int* x) { *x = 1; }\n"


@pytest.fixture(scope="module", autouse=True)
def _tileiras() -> None:
    try:
        Tileiras().version  # noqa: B018 - it shows whether it runs
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Package]:
    """A project that was built."""
    root = write_project(tmp_path_factory.mktemp("tile"), TABLE, FILES)
    return root, build(root)["p.kernels"]


def manifest_of(package: Package) -> Manifest:
    return manifest_file.loads(package.files["manifest.json"], package.name)


def test_kernels_of_threads_and_of_tiles_have_images_of_their_own(project: tuple[Path, Package]) -> None:
    manifest = manifest_of(project[1])
    threads, tiles = manifest.units
    assert [i.file for i in threads.images] == ["mixed.sm_90.cubin"]
    assert [i.file for i in tiles.images] == ["mixed-tile.sm_90a.cubin"]
    assert {s.options.std for unit in manifest.units for s in unit.sources} == {"c++20"}
    signatures = {kernel.signature: kernel.unit for kernel in manifest.kernels}
    assert signatures == {
        "count(int by)": 0,
        "ns::axpy<float>(int n, float a, const float* x, float* y)": 1,
        "first(float* y, bool at)": 1,
    }
    symbols = {(s.name, s.type, s.size, s.unit) for s in manifest.symbols}
    assert symbols == {("counter", "int", 4, 0), ("factors", "float[3]", 12, 1)}


@pytest.mark.host_compiler
def test_a_launch_gives_the_grid_alone(
    project: tuple[Path, Package], tmp_path: Path, fake_driver: Path
) -> None:
    write_importable(project[1], tmp_path)
    script = """
    from p import kernels

    kernels.ns.axpy["float"](1000, 2.0, 4096, 8192, grid=4)
    kernels.first(8192, True, grid=1)
    kernels.count(3, grid=2, block=32)
    caught(kernels.first, 8192, True, grid=1, block=32)
    caught(kernels.first, 8192, 7.5, grid=1)
    caught(lambda: kernels.ns.axpy["double"])
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    starts = [" ".join(each.split()[1:4]) for each in done.launches]
    assert starts == [
        "_ZN2ns4axpyIfEEviT_PKS1_PS1_ grid=4,1,1 block=1,1,1",
        "first grid=1,1,1 block=1,1,1",
        "_Z5counti grid=2,1,1 block=32,1,1",
    ]
    fixed, wrong, missing = done.output
    assert fixed.startswith("ArgumentError: block: the image of this kernel fixes it; give grid alone")
    assert "argument 'at'" in wrong
    assert "jit: no source that can be compiled on demand is embedded" in missing


def test_what_is_unchanged_is_not_compiled_again(project: tuple[Path, Package], tmp_path: Path) -> None:
    root, package = project
    log: list[str] = []
    assert build(root, log)["p.kernels"].files == package.files
    assert "nothing to compile" in "".join(log)
    # In another directory the bytes are the same; what a header has decides.
    for name in ("mixed.cu", "factor.cuh"):
        changed = (root / "device" / name).read_text().replace("factors[i]", "factors[2 - i]")
        write_project(tmp_path, TABLE, {f"device/{name}": changed})
    later = build(tmp_path)["p.kernels"].files
    assert later["mixed.sm_90.cubin"] == package.files["mixed.sm_90.cubin"]
    assert later["mixed-tile.sm_90a.cubin"] != package.files["mixed-tile.sm_90a.cubin"]


def test_tile_ir_alone_has_the_signatures(tmp_path: Path) -> None:
    source = "__tile__ int table[6];\n" + PLAIN.replace("= 1", "= table[5]")
    table = '[tool.cuda_ext.modules."p.kernels"]\narchitectures = ["compute_90"]\nemit = "ptx"\n'
    package = build(write_project(tmp_path, table, {"device/one.cu": source}))["p.kernels"]
    manifest = manifest_of(package)
    (image,) = manifest.units[0].images
    assert (image.architecture, image.kind, image.file) == ("tile_80", "tileir", "one.tile_80.tileir")
    assert [*image.launches] == [kernel.expression for kernel in manifest.kernels] == ["one"]
    assert manifest.kernels[0].signature == "one(int* x)"
    assert [(s.name, s.type, s.size) for s in manifest.symbols] == [("table", "int[6]", 24)]
    assert image.names == {}
    assert read_tile_ir(package.files[image.file]).kernels.keys() == {"_Z3onePi"}


@pytest.mark.parametrize(
    ("keys", "source"),
    [
        ('compiler = "nvcc"', PLAIN),
        ("link = true", PLAIN),
        ('architectures = ["sm_75"]', PLAIN),
        ("", "template <class T>" + PLAIN),
        ("", PLAIN + "__global__ void one(float*) {}"),
        ("", PLAIN.replace("int*", "float4")),
        ('std = "c++17"', "#include <cuda_tile.h>\n" + PLAIN),
        ('options = ["--enable-tile"]', "// only a comment"),
    ],
    ids=str,
)
def test_bad_input_is_one_error(tmp_path: Path, keys: str, source: str, messages: Messages) -> None:
    table = f'[tool.cuda_ext.modules."p.kernels"]\n{keys}\n'
    if "architectures" not in keys:
        table += 'architectures = ["sm_90"]\n'
    messages(refusal(write_project(tmp_path, table, {"device/a.cu": source})))


def test_an_error_in_what_both_sorts_of_kernels_use_is_shown_once(tmp_path: Path) -> None:
    source = f"__device__ int common = unknown;\n{PLAIN}__global__ void two() {{}}\n"
    table = '[tool.cuda_ext.modules."p.kernels"]\narchitectures = ["sm_90"]\n'
    message = refusal(write_project(tmp_path, table, {"device/a.cu": source}))
    assert message.count('"unknown" is undefined') == 1


CONDITIONAL = """
#ifdef TILES
__tile_global__ void one(int* x) { *x = 1; }
#else
__global__ void one(int* x) { *x = 1; }
#endif
"""


@pytest.mark.parametrize(("macros", "architecture"), [("", "sm_90"), ('define = { TILES = "1" }', "sm_90a")])
def test_a_condition_decides_which_kernels_there_are(tmp_path: Path, macros: str, architecture: str) -> None:
    table = f'[tool.cuda_ext.modules."p.kernels"]\narchitectures = ["sm_90"]\n{macros}\n'
    package = build(write_project(tmp_path, table, {"device/a.cu": CONDITIONAL}))["p.kernels"]
    manifest = manifest_of(package)
    assert [image.architecture for unit in manifest.units for image in unit.images] == [architecture]
    assert [kernel.signature for kernel in manifest.kernels] == ["one(int* x)"]


def test_a_missing_assembler_is_an_error_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert refusal(write_project(tmp_path, TABLE, {"device/a.cu": PLAIN})).startswith(
        'device/a.cu: tileiras, which assembles tile kernels, is not installed; install "cuda-ext[tile]"'
    )


def test_an_older_assembler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tileiras, "version", "13.1")
    monkeypatch.setattr(Tileiras, "files", lambda _: [Path(__file__)])  # nothing is known of it
    message = refusal(write_project(tmp_path, TABLE, {"device/a.cu": PLAIN}))
    assert message.startswith("device/a.cu: tileiras 13.1 does not read the Tile IR of NVRTC")


def test_a_string_is_compiled() -> None:
    module = cuda_ext.compile(PLAIN + "__global__ void two() {}", architectures=["sm_90", "compute_90"])
    images = [image.architecture for unit in cuda_ext.describe(module).units for image in unit.images]
    assert images == ["sm_90", "compute_90", "tile_80", "sm_90a"]
    with pytest.raises(cuda_ext.errors.BuildError, match="kernels of CUDA Tile are compiled by NVRTC"):
        cuda_ext.compile(PLAIN, architectures=["sm_90"], compiler="nvcc")
