"""The gallery of real code on a real GPU: every kernel, compiled by either compiler, compared with numpy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.runtime.driver.driver import open_driver
from tests.fixtures.gallery import COMPILERS, build_gallery_project

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),  # of torch
    pytest.mark.xdist_group("gallery"),
]

Gallery = Callable[[str], Any]
SIZES = [1, 31, 256, 1000, 100_003]
DTYPES = {
    "signed char": "i1",
    "unsigned char": "u1",
    "short": "i2",
    "unsigned short": "u2",
    "int": "i4",
    "unsigned int": "u4",
    "long long": "i8",
    "__half": "f2",
    "float": "f4",
    "double": "f8",
}
random = np.random.default_rng(seed=0)


@pytest.fixture(params=COMPILERS, scope="module")
def gallery(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """Builds and imports a project of the gallery."""
    directory = tmp_path_factory.mktemp("gallery")

    @cache
    def gallery(name: str) -> Any:
        package = build_gallery_project(name, request.param)
        package.write(directory.joinpath(*package.name.split(".")))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", [str(directory), *sys.path])
            return import_module(package.name)

    return gallery


def normal(shape: Any, dtype: str = "f4") -> np.ndarray[Any, Any]:
    return random.standard_normal(shape).astype(dtype)


def assert_close(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], tolerance: float) -> None:
    """Compare with a tolerance relative to the largest expected value."""
    difference = np.abs(found.astype("f8") - expected.astype("f8")).max()
    assert difference <= tolerance * max(np.abs(expected).max(), 1e-30)


# ---------------------------------------------------------------------------------------- names_as_strings


@pytest.mark.parametrize("n", SIZES)
def test_names_as_strings(gallery: Gallery, n: int) -> None:
    kernels = gallery("names_as_strings")
    x = normal(n)
    for factor, array in (
        (1.5, x.copy()),
        (3, random.integers(80, size=n, dtype="u1")),
        (2 - 1j, (x + 1j * x).astype("c8")),
    ):
        expected = array * array.dtype.type(factor)
        kernels.scale(n, factor, array, threads=n)
        np.testing.assert_allclose(array, expected, rtol=1e-6)
    for type_, taps in (("float", 5), ("double", 3)):
        x, y = normal(n, DTYPES[type_]), np.zeros(n, DTYPES[type_])
        window = normal(taps, DTYPES[type_])
        kernels.signal.filter[type_, taps](n, window.tobytes(), x, y, threads=n)
        assert_close(y, np.convolve(x, window[::-1], "full")[taps // 2 :][:n], 1e-5)
    x, y = normal(n), np.zeros(n, "f4")
    for edge, before in (("Zero", 0), ("Wrap", x[-1])):
        kernels.signal.difference[f"signal::Edge::{edge}"](n, x, y, threads=n)
        np.testing.assert_array_equal(y, np.diff(x, prepend=np.float32(before)))
    for value, dtype in ((7, "i4"), (2.5, "f4")):
        filled = np.zeros(n, dtype)
        kernels.fill(n, value, filled, threads=n)
        assert (filled == value).all()


# ---------------------------------------------------------------------------------------- block_primitives


@pytest.mark.parametrize("n", SIZES)
def test_block_primitives(gallery: Gallery, n: int) -> None:
    kernels = gallery("block_primitives")

    def tiles(x: np.ndarray[Any, Any], size: int) -> list[np.ndarray[Any, Any]]:
        return [x[start : start + size] for start in range(0, n, size)]

    for x in (normal(n), random.integers(-(2**40), 2**40, n)):
        sums = np.zeros(-(-n // 256), x.dtype)
        kernels.block_sum(n, x, sums, grid=sums.size, block=256)
        np.testing.assert_allclose(sums, [tile.sum() for tile in tiles(x, 256)], rtol=1e-4, atol=1e-4)
    x, y = random.integers(-1000, 1000, n, dtype="i4"), np.zeros(n, "i4")
    kernels.block_prefix_sum(n, x, y, grid=-(-n // 128), block=128)
    np.testing.assert_array_equal(y, np.concatenate([tile.cumsum(dtype="i4") for tile in tiles(x, 128)]))
    for keys, items in ((random.integers(2**32, size=n, dtype="u4"), 4), (normal(n), 2)):
        expected = np.concatenate([np.sort(tile) for tile in tiles(keys, 128 * items)])
        kernels.block_sort(n, keys, grid=-(-n // (128 * items)), block=128)
        np.testing.assert_array_equal(keys, expected)


# ----------------------------------------------------------------------------------------------- grid_sync


@pytest.mark.parametrize("n", SIZES)
def test_grid_sync(gallery: Gallery, n: int) -> None:
    kernels = gallery("grid_sync")
    for steps in (0, 1, 20):
        cells, scratch = normal(n), np.zeros(n, "f4")
        expected = cells.astype("f8")
        for _ in range(steps):
            expected = expected + 0.2 * (np.roll(expected, 1) - 2 * expected + np.roll(expected, -1))
        kernels.diffuse(n, steps, 0.2, cells, scratch, grid=16, block=128, cooperative=True)
        assert_close(scratch if steps % 2 else cells, expected, 1e-5)
    x = normal(n) + 3
    expected = x - x.mean(dtype="f8")
    kernels.subtract_mean(n, x, np.zeros(1, "f4"), grid=8, block=256, cooperative=True)
    np.testing.assert_allclose(x, expected, atol=1e-4)


# ------------------------------------------------------------------------------------- dynamic_parallelism


@pytest.mark.parametrize("segments", [1, 3, 300])
def test_dynamic_parallelism(gallery: Gallery, segments: int) -> None:
    kernels = gallery("dynamic_parallelism")
    lengths = random.integers(1000, size=segments)
    lengths[::3] = 0
    offsets = np.concatenate([[0], lengths.cumsum()]).astype("i4")
    factors, x = normal(segments), normal(max(1, offsets[-1]))
    expected = x.copy()
    expected[: offsets[-1]] *= np.repeat(factors, lengths)
    kernels.launches.copy_from(np.zeros(1, "i4"))
    kernels.scale_segments(segments, offsets, factors, x, threads=segments)
    np.testing.assert_array_equal(x, expected)
    assert kernels.launches.numpy() == np.count_nonzero(lengths)


# --------------------------------------------------------------------------------------------- hopper_gemm


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (1, 1, 8), (65, 130, 200), (512, 384, 1000)])
def test_hopper_gemm(gallery: Gallery, m: int, n: int, k: int) -> None:
    torch = pytest.importorskip("torch")
    if open_driver().device(0).capability != 90:
        pytest.skip("the kernel is for Hopper")
    kernels = gallery("hopper_gemm")
    a, b = (torch.from_numpy(normal((rows, k), "f2")).cuda() for rows in (m, n))
    c = torch.zeros(m, n, device="cuda")
    grid = (-(-n // 64), -(-m // 64))
    kernels.hopper_gemm(m, n, k, tensor_map(a), tensor_map(b), c, grid=grid, block=128)
    assert_close(c.cpu().numpy(), a.cpu().numpy().astype("f8") @ b.cpu().numpy().astype("f8").T, 1e-4)


def tensor_map(matrix: Any) -> Any:
    """Describe a matrix of halves for copies of 64 x 64 elements into tiles with the 128-byte swizzle."""
    from cuda.bindings import driver

    rows, columns = matrix.shape
    error, map_ = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2,
        matrix.data_ptr(),
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
        [driver.cuuint64_t(2 * columns)],
        [driver.cuuint32_t(64)] * 2,
        [driver.cuuint32_t(1)] * 2,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    assert error == driver.CUresult.CUDA_SUCCESS
    return map_


# --------------------------------------------------------------------------------------------- conversions


@pytest.mark.parametrize("n", SIZES)
def test_conversions(gallery: Gallery, n: int) -> None:
    kernels = gallery("conversions")
    for one, dtype in DTYPES.items():
        x = random.integers(100, size=n).astype(dtype)
        for other, into in DTYPES.items():
            y = np.zeros(n, into)
            kernels.convert[one, other](n, x, y, threads=n)
            np.testing.assert_array_equal(y, x.astype(into))


# --------------------------------------------------------------------------------------- function_pointers


@pytest.mark.parametrize("n", SIZES)
def test_function_pointers(gallery: Gallery, n: int) -> None:
    kernels = gallery("function_pointers")
    x, y, z = normal(n), normal(n), np.zeros(n, "f4")
    for functions, expected in {
        "relu": np.maximum(x, 0),
        "&square": x * x,
        "square, relu, minus_one": x * x - 1,
    }.items():
        kernels.map[functions](n, x, z, threads=n)
        np.testing.assert_allclose(z, expected, rtol=1e-6, atol=1e-6)
    kernels.combine(n, x, y, z, threads=n)
    np.testing.assert_array_equal(z, np.maximum(x, y))
    i, j, k = (random.integers(-1000, 1000, n, dtype="i4") for _ in range(3))
    kernels.combine(n, i, j, k, threads=n)
    np.testing.assert_array_equal(k, i + j)


# ------------------------------------------------------------------------------------------- macro_kernels


@pytest.mark.parametrize("n", SIZES)
def test_macro_kernels(gallery: Gallery, n: int) -> None:
    kernels = gallery("macro_kernels")
    x = (1 + random.random(n)).astype("f4")
    double, integers = x.astype("f8"), random.integers(-1000, 1000, n, dtype="i4")
    for kernel, source, expected in (
        (kernels.half_of, x, x / 2),
        (kernels.root_of, x, np.sqrt(x)),
        (kernels.third_of, integers, np.trunc(integers / 3)),
        (kernels.inverse_root_of, double, 1 / np.sqrt(double)),
        (kernels.powers.power[2], double, double**2),
        (kernels.powers.power[3], double, double**3),
    ):
        result = np.zeros_like(source)
        kernel(n, source, result, threads=n)
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    y, z = normal(n), np.zeros(n, "f4")
    kernels.hypotenuse(n, x, y, z, threads=n)
    np.testing.assert_allclose(z, np.hypot(x, y), rtol=1e-6)


# ---------------------------------------------------------------------------------------- parameter_struct

LAYER = np.dtype([("weights", "f4", (8, 8)), ("bias", "f4", 8), ("activation", "i4")])
NETWORK = np.dtype([("depth", "i4"), ("layers", LAYER, 7)])


@pytest.mark.parametrize("depth", [0, 1, 7])
@pytest.mark.parametrize("n", [1, 31, 1000])
def test_parameter_struct(gallery: Gallery, n: int, depth: int) -> None:
    kernels = gallery("parameter_struct")
    network = np.zeros((), NETWORK)
    network["depth"] = depth
    layers = network["layers"]
    layers["weights"], layers["bias"], layers["activation"] = (
        normal((7, 8, 8)),
        normal((7, 8)),
        [1, 0] * 3 + [1],
    )
    x, y = normal((n, 8)), np.zeros((n, 8), "f4")
    kernels.network.forward(n, network[()], x, y, threads=n)
    expected = x.astype("f8")
    for layer in layers[:depth]:
        expected = expected @ layer["weights"].T.astype("f8") + layer["bias"]
        if layer["activation"]:
            expected = np.maximum(expected, 0)
    assert_close(y, expected, 1e-5)
    sums = np.zeros(7)
    kernels.sum_biases(network[()], 2.0, sums, grid=1, block=32)
    np.testing.assert_allclose(sums[:depth], 2 * layers["bias"][:depth].sum(axis=1, dtype="f8"))
    assert (sums[depth:] == 0).all()
    table, indices, found = normal(4000), random.integers(4000, size=n, dtype="i4"), np.zeros(n, "f4")
    kernels.look_up(table.tobytes(), n, indices, found, threads=n)
    np.testing.assert_array_equal(found, table[indices])


# ------------------------------------------------------------------------------------------- vendored_tree


@pytest.mark.parametrize("n", SIZES)
def test_vendored_tree(gallery: Gallery, n: int) -> None:
    kernels = gallery("vendored_tree")
    x = random.integers(-(2**31), 2**31, n).astype("i4")
    largest, total = np.zeros(1, "i4"), np.zeros(1, "i8")
    kernels.extrema.reduce(n, x, largest, grid=1, block=32)
    kernels.sums.reduce(n, x, total, grid=1, block=32)
    assert (largest[0], total[0]) == (x.max(), x.sum(dtype="i8"))


# ------------------------------------------------------------------------------------------ random_numbers


def philox(seed: int, n: int) -> np.ndarray[Any, Any]:
    """The first four numbers of each of n sequences of cuRAND's Philox4x32-10."""
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    sequence = np.arange(n, dtype="u8")
    x, y, z, w = np.zeros(n, "u8"), np.zeros(n, "u8"), sequence & mask, sequence >> shift
    low, high = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        a, b = x * np.uint64(0xD2511F53), z * np.uint64(0xCD9E8D57)
        x, y, z, w = b >> shift ^ y ^ np.uint64(low), b & mask, a >> shift ^ w ^ np.uint64(high), a & mask
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([x, y, z, w], axis=1).astype("u4")


@pytest.mark.parametrize("n", SIZES)
def test_random_bits(gallery: Gallery, n: int) -> None:
    kernels = gallery("random_numbers")
    for seed in (0, 1234, 2**64 - 1):
        bits = np.zeros((n, 4), "u4")
        kernels.random_bits(n, seed, bits, threads=n)
        np.testing.assert_array_equal(bits, philox(seed, n))


@pytest.mark.parametrize("state", ["curandStateXORWOW_t", "curandStatePhilox4_32_10_t"])
def test_random_numbers_are_uniform(gallery: Gallery, state: str) -> None:
    n = 1_000_000
    x, again = np.zeros(n, "f4"), np.zeros(n, "f4")
    for array in (x, again):
        gallery("random_numbers").uniform[state](n, 7, array, grid=8, block=128)
    np.testing.assert_array_equal(x, again)
    assert 0 < x.min() < x.max() <= 1
    counts, _ = np.histogram(x, 100, (0, 1))
    assert np.abs(counts - n / 100).max() < 600  # six standard deviations
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.01


# --------------------------------------------------------------------------------------- row_normalization


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 31), (64, 1000), (17, 4096)])
@pytest.mark.parametrize(("type_", "tolerance"), [("float", 1e-5), ("__half", 2e-3)])
def test_row_normalization(gallery: Gallery, rows: int, columns: int, type_: str, tolerance: float) -> None:
    kernels = gallery("row_normalization").rows
    x = 3 * normal((rows, columns), DTYPES[type_]) + 80  # exp(80) is close to the largest float
    y = np.zeros_like(x)
    kernels.softmax[type_](columns, x, y, grid=rows, block=256)
    powers = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
    assert_close(y, powers / powers.sum(axis=1, keepdims=True), tolerance)
    gamma, beta = normal(columns), normal(columns)
    kernels.layer_norm[type_](columns, 1e-3, x, gamma, beta, y, grid=rows, block=256)
    centred = x - x.mean(axis=1, keepdims=True, dtype="f8")
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-3)
    assert_close(y, centred / deviation * gamma + beta, tolerance)


# ------------------------------------------------------------------------------------------ matrix_product


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (64, 64, 64), (65, 130, 200), (300, 5, 1001)])
def test_matrix_product(gallery: Gallery, m: int, n: int, k: int) -> None:
    kernels = gallery("matrix_product")
    for type_, tile, tolerance in (("float", 64, 1e-5), ("double", 32, 1e-13)):
        a, b = normal((m, k), DTYPES[type_]), normal((k, n), DTYPES[type_])
        c = np.zeros((m, n), DTYPES[type_])
        kernels.gemm[type_, tile](m, n, k, a, b, c, grid=(-(-n // tile), -(-m // tile)), block=(16, 16))
        assert_close(c, a.astype("f8") @ b.astype("f8"), tolerance)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (64, 128, 32), (160, 48, 1024)])
def test_matrix_product_on_tensor_cores(gallery: Gallery, m: int, n: int, k: int) -> None:
    a, b, c = normal((m, k), "f2"), normal((k, n), "f2"), np.zeros((m, n), "f4")
    gallery("matrix_product").gemm_tensor_cores(m, n, k, a, b, c, threads=m * n // 256 * 32, block=128)
    assert_close(c, a.astype("f8") @ b.astype("f8"), 1e-4)
