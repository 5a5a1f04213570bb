"""Generate a library of small kernels: any number, all different, and the same in every run.

They include no header but the library's own, so the cost of building them is that of starting compilers and
generating code. ``cub_kernels`` has the sources with large headers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A CUDA source, and the number of its kernels including instantiations."""

    name: str
    text: str
    kernels: int


COMMON_HEADER = """\
#pragma once

// What the kernels of this library share.
namespace common {

constexpr int WARP = 32;

__device__ inline long long global_index() {
  return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline long long grid_stride() { return static_cast<long long>(gridDim.x) * blockDim.x; }

template <class T>
__device__ T clamp(T x, T low, T high) {
  return x < low ? low : (high < x ? high : x);
}

template <class T>
__device__ T warp_sum(T value) {
  for (int offset = WARP / 2; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

// The sum over a block of BLOCK threads, in thread 0.
template <int BLOCK, class T>
__device__ T block_sum(T value) {
  __shared__ T partial[BLOCK / WARP];
  value = warp_sum(value);
  if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = value;
  __syncthreads();
  value = threadIdx.x < BLOCK / WARP ? partial[threadIdx.x] : T(0);
  return threadIdx.x < WARP ? warp_sum(value) : value;
}

}  // namespace common
"""


def small_kernels(count: int) -> Iterator[Source]:
    """Generate `count` sources that take turns through the families of kernels."""
    for index in range(count):
        family = _FAMILIES[index % len(_FAMILIES)]
        name = f"{family.__name__.strip('_')}_{index:03}"
        text, kernels = family(name, random.Random(index))
        yield Source(f"{name}.cu", text, kernels)


def _number(rng: random.Random) -> str:
    return f"{rng.randint(1, 999) / 100}f"


def _activation(rng: random.Random, x: str) -> str:
    """Generate an expression of the float `x`."""
    a, b = _number(rng), _number(rng)
    return rng.choice(
        [
            f"({x} > 0.0f ? {x} : {a} * {x})",
            f"{x} / (1.0f + expf(-{a} * {x}))",
            f"tanhf({a} * {x} + {b})",
            f"{a} * {x} * {x} + {b} * {x}",
            f"sqrtf(fabsf({x}) + {a})",
            f"({a} * {x} + {b} > 0.0f ? logf({a} * fabsf({x}) + {b}) : 0.0f)",
        ]
    )


def _axpy(name: str, rng: random.Random) -> tuple[str, int]:
    inputs = [f"x{i}" for i in range(rng.randint(1, 4))]
    terms = " + ".join(f"{_number(rng)} * {x}[i]" for x in inputs)
    parameters = ", ".join(f"const float* {x}" for x in inputs)
    return (
        f"""\
// y = alpha * y + a weighted sum of {len(inputs)} vectors.
extern "C" __global__ void {name}(int n, float alpha, {parameters}, float* y) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = alpha * y[i] + {terms};
}}
""",
        1,
    )


def _activate(name: str, rng: random.Random) -> tuple[str, int]:
    return (
        f"""\
#include "common.cuh"

// An activation of the sum of two tensors.
extern "C" __global__ void {name}(long long n, const float* a, const float* b, float* y) {{
  for (long long i = common::global_index(); i < n; i += common::grid_stride()) {{
    const float x = a[i] + b[i];
    y[i] = {_activation(rng, "x")};
  }}
}}
""",
        1,
    )


def _line_stencil(name: str, rng: random.Random) -> tuple[str, int]:
    radius = rng.randint(1, 5)
    block = rng.choice([128, 192, 256])
    weights = ", ".join(_number(rng) for _ in range(2 * radius + 1))
    return (
        f"""\
constexpr int RADIUS = {radius};
constexpr int BLOCK = {block};
__constant__ float {name}_weights[2 * RADIUS + 1] = {{{weights}}};

// A stencil along a line, its input staged in shared memory.
__global__ void __launch_bounds__(BLOCK) {name}(int n, const float* x, float* y) {{
  __shared__ float tile[BLOCK + 2 * RADIUS];
  const int first = blockIdx.x * BLOCK - RADIUS;
  for (int i = threadIdx.x; i < BLOCK + 2 * RADIUS; i += BLOCK) {{
    const int at = first + i;
    tile[i] = at >= 0 && at < n ? x[at] : 0.0f;
  }}
  __syncthreads();
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k <= 2 * RADIUS; ++k) sum += {name}_weights[k] * tile[threadIdx.x + k];
  y[i] = sum;
}}
""",
        1,
    )


def _plane_stencil(name: str, rng: random.Random) -> tuple[str, int]:
    centre, side, corner = (_number(rng) for _ in range(3))
    corners = rng.random() < 0.5
    extra = (
        f"""
  sum += {corner} * (x[at - width - 1] + x[at - width + 1] + x[at + width - 1] + x[at + width + 1]);"""
        if corners
        else ""
    )
    return (
        f"""\
// A step of a {9 if corners else 5}-point stencil on the inside of a plane.
extern "C" __global__ void {name}(int width, int height, const float* x, float* y) {{
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column < 1 || row < 1 || column >= width - 1 || row >= height - 1) return;
  const long long at = 1ll * row * width + column;
  float sum = {centre} * x[at] + {side} * (x[at - 1] + x[at + 1] + x[at - width] + x[at + width]);{extra}
  y[at] = {_activation(rng, "sum")};
}}
""",
        1,
    )


def _clamp(name: str, rng: random.Random) -> tuple[str, int]:
    chosen = rng.choice(["float", "double", "int", "short", "unsigned char"])
    return (
        f"""\
#include "common.cuh"

// Clamps every element, {rng.randint(2, 9)} times as strong below zero.
template <class T>
__global__ void {name}(long long n, const T* x, T low, T high, T* y) {{
  for (long long i = common::global_index(); i < n; i += common::grid_stride()) {{
    const T value = x[i] < T(0) ? T({rng.randint(2, 9)} * x[i]) : x[i];
    y[i] = common::clamp(value, low, high);
  }}
}}

template __global__ void {name}<{chosen}>(long long, const {chosen}*, {chosen}, {chosen}, {chosen}*);
""",
        1,
    )


def _gather(name: str, rng: random.Random) -> tuple[str, int]:
    columns = rng.choice([2, 3, 4, 6, 8, 12, 16])
    index = rng.choice(["int", "long long", "unsigned int"])
    return (
        f"""\
constexpr int COLUMNS = {columns};

// Rows of a table by their numbers.
extern "C" __global__ void {name}(int n, const {index}* rows, const float* table, float* out) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float* from = table + static_cast<long long>(rows[i]) * COLUMNS;
  float* to = out + 1ll * i * COLUMNS;
#pragma unroll
  for (int column = 0; column < COLUMNS; ++column) to[column] = {_number(rng)} * from[column];
}}
""",
        1,
    )


def _reduce(name: str, rng: random.Random) -> tuple[str, int]:
    chosen = rng.choice(["float", "double", "int", "unsigned int"])
    block = rng.choice([64, 128, 256, 512])
    term = rng.choice(["x[i]", "x[i] * x[i]", "x[i] * y[i]", "(x[i] - y[i]) * (x[i] - y[i])"])
    return (
        f"""\
#include "common.cuh"

constexpr int BLOCK = {block};

// partial[b] = the sum of {term} over what block b read.
template <class T>
__global__ void __launch_bounds__(BLOCK) {name}(long long n, const T* x, const T* y, T* partial) {{
  T sum = 0;
  for (long long i = common::global_index(); i < n; i += common::grid_stride()) sum += {term};
  sum = common::block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}}

template __global__ void {name}<{chosen}>(long long, const {chosen}*, const {chosen}*, {chosen}*);
""",
        1,
    )


def _softmax(name: str, rng: random.Random) -> tuple[str, int]:
    block = rng.choice([64, 128, 256])
    return (
        f"""\
#include "common.cuh"

constexpr int BLOCK = {block};

// Softmax of every row at temperature {_number(rng)}; a block for each row.
extern "C" __global__ void __launch_bounds__(BLOCK) {name}(int columns, const float* x, float* y) {{
  __shared__ float total;
  const float* row = x + 1ll * blockIdx.x * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += BLOCK) sum += expf({_number(rng)} * row[i]);
  sum = common::block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) total = sum;
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += BLOCK) {{
    y[1ll * blockIdx.x * columns + i] = expf({_number(rng)} * row[i]) / total;
  }}
}}
""",
        1,
    )


def _transpose(name: str, rng: random.Random) -> tuple[str, int]:
    tile = rng.choice([8, 16, 32])
    rows = rng.choice([4, 8])
    return (
        f"""\
constexpr int TILE = {tile};
constexpr int ROWS = {rows};

// y = transpose(x), scaled, through a padded tile in shared memory.
extern "C" __global__ void {name}(int width, int height, float scale, const float* x, float* y) {{
  __shared__ float tile[TILE][TILE + 1];
  int column = blockIdx.x * TILE + threadIdx.x;
  int row = blockIdx.y * TILE + threadIdx.y;
  for (int i = 0; i < TILE; i += ROWS) {{
    if (column < width && row + i < height) {{
      tile[threadIdx.y + i][threadIdx.x] = x[1ll * (row + i) * width + column];
    }}
  }}
  __syncthreads();
  column = blockIdx.y * TILE + threadIdx.x;
  row = blockIdx.x * TILE + threadIdx.y;
  for (int i = 0; i < TILE; i += ROWS) {{
    if (column < height && row + i < width) {{
      y[1ll * (row + i) * height + column] = {_number(rng)} * scale * tile[threadIdx.x][threadIdx.y + i];
    }}
  }}
}}
""",
        1,
    )


def _matmul(name: str, rng: random.Random) -> tuple[str, int]:
    tile = rng.choice([8, 16])
    return (
        f"""\
constexpr int TILE = {tile};

// c = a * b in tiles, with an activation behind it.
__global__ void __launch_bounds__(TILE * TILE)
    {name}(int m, int n, int k, const float* a, const float* b, float* c) {{
  __shared__ float a_tile[TILE][TILE];
  __shared__ float b_tile[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int column = blockIdx.x * TILE + threadIdx.x;
  float sum = {_number(rng)};
  for (int start = 0; start < k; start += TILE) {{
    const int a_column = start + threadIdx.x;
    const int b_row = start + threadIdx.y;
    a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[1ll * row * k + a_column] : 0.0f;
    b_tile[threadIdx.y][threadIdx.x] = b_row < k && column < n ? b[1ll * b_row * n + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
    __syncthreads();
  }}
  if (row < m && column < n) c[1ll * row * n + column] = {_activation(rng, "sum")};
}}
""",
        1,
    )


_FAMILIES: tuple[Callable[[str, random.Random], tuple[str, int]], ...] = (
    _axpy,
    _activate,
    _line_stencil,
    _plane_stencil,
    _clamp,
    _gather,
    _reduce,
    _softmax,
    _transpose,
    _matmul,
)
