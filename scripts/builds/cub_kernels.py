"""Generate sources that instantiate CUB templates, for NVRTC and nvcc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from builds.small_kernels import Source


@dataclass(frozen=True, slots=True)
class _Template:
    """A kernel template with an element type T and a block size, and the arguments to instantiate it with."""

    headers: tuple[str, ...]
    parameters: str
    body: str
    types: tuple[str, ...] = ("float", "int")
    blocks: tuple[int, ...] = (128, 256)


def cub_kernels(count: int, common: bool = False) -> Iterator[Source]:
    """Generate the first `count` of the ten sources. With `common`, each includes the headers of all."""
    templates = list(_TEMPLATES.items())[:count]
    all_headers = tuple(sorted({header for _, template in templates for header in template.headers}))
    for name, template in templates:
        instances = list(product(template.types, template.blocks))
        text = _text(name, template, all_headers if common else template.headers, instances)
        yield Source(f"{name}.cu", text, len(instances))


def block_sums(count: int, first: str = "") -> Iterator[Source]:
    """Generate `count` sources of one kernel that begin with `first` and the same three headers."""
    includes = "".join(
        f"#include <cub/block/block_{name}.cuh>\n" for name in ("reduce", "scan", "radix_sort")
    )
    for index in range(count):
        text = f"""\
{first}{includes}
extern "C" __global__ void sum_{index}(float* x) {{
  using Reduce = cub::BlockReduce<float, 256>;
  __shared__ typename Reduce::TempStorage storage;
  const float sum = Reduce(storage).Sum(x[threadIdx.x] * {index});
  if (threadIdx.x == 0) x[0] = sum;
}}
"""
        yield Source(f"sum_{index}.cu", text, 1)


def _text(name: str, template: _Template, headers: Sequence[str], instances: list[tuple[str, int]]) -> str:
    includes = "\n".join(f"#include <{header}>" for header in headers)
    explicit = "\n".join(
        f"template __global__ void {name}<{t}, {block}>({template.parameters.replace('T', t)});"
        for t, block in instances
    )
    return f"""\
{includes}

template <class T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) {name}({template.parameters}) {{
{template.body.strip(chr(10))}
}}

{explicit}
"""


_TEMPLATES = {
    "block_reduce": _Template(
        headers=("cub/block/block_load.cuh", "cub/block/block_reduce.cuh", "cuda/std/functional"),
        parameters="const T* in, T* out, int n",
        body="""
  using Load = cub::BlockLoad<T, BLOCK, 4, cub::BLOCK_LOAD_VECTORIZE>;
  using Reduce = cub::BlockReduce<T, BLOCK>;
  using Ordered = cub::BlockReduce<T, BLOCK, cub::BLOCK_REDUCE_RAKING>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Reduce::TempStorage reduce;
    typename Ordered::TempStorage ordered;
  } storage;
  T items[4];
  Load(storage.load).Load(in + blockIdx.x * BLOCK * 4, items, n, T(0));
  __syncthreads();
  const T sum = Reduce(storage.reduce).Sum(items);
  __syncthreads();
  const T largest = Ordered(storage.ordered).Reduce(items, ::cuda::maximum<>{});
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = sum;
    out[2 * blockIdx.x + 1] = largest;
  }
""",
    ),
    "block_scan": _Template(
        headers=("cub/block/block_load.cuh", "cub/block/block_scan.cuh", "cub/block/block_store.cuh"),
        parameters="const T* in, T* out, int n",
        body="""
  using Load = cub::BlockLoad<T, BLOCK, 8, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<T, BLOCK, 8, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<T, BLOCK, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
  } storage;
  T items[8];
  Load(storage.load).Load(in + blockIdx.x * BLOCK * 8, items, n, T(0));
  __syncthreads();
  T total;
  Scan(storage.scan).ExclusiveSum(items, items, total);
  __syncthreads();
  Store(storage.store).Store(out + blockIdx.x * BLOCK * 8, items, n);
""",
    ),
    "radix_sort": _Template(
        headers=("cub/block/block_load.cuh", "cub/block/block_radix_sort.cuh", "cub/block/block_store.cuh"),
        parameters="const T* in, T* out, int n",
        body="""
  using Load = cub::BlockLoad<T, BLOCK, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<T, BLOCK, 4>;
  using Sort = cub::BlockRadixSort<T, BLOCK, 4>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Sort::TempStorage sort;
  } storage;
  T items[4];
  Load(storage.load).Load(in + blockIdx.x * BLOCK * 4, items, n, T(0));
  __syncthreads();
  Sort(storage.sort).SortBlockedToStriped(items);
  __syncthreads();
  Store(storage.store).Store(out + blockIdx.x * BLOCK * 4, items, n);
""",
    ),
    "sort_pairs": _Template(
        headers=("cub/block/block_radix_sort.cuh",),
        parameters="T* keys, int* values",
        body="""
  using Sort = cub::BlockRadixSort<T, BLOCK, 2, int>;
  __shared__ typename Sort::TempStorage storage;
  const int first = (blockIdx.x * BLOCK + threadIdx.x) * 2;
  T key[2] = {keys[first], keys[first + 1]};
  int value[2] = {values[first], values[first + 1]};
  Sort(storage).SortDescending(key, value);
  for (int i = 0; i < 2; ++i) {
    keys[first + i] = key[i];
    values[first + i] = value[i];
  }
""",
        types=("float", "unsigned long long"),
    ),
    "histogram": _Template(
        headers=("cub/block/block_histogram.cuh", "cub/block/block_load.cuh"),
        parameters="const T* samples, unsigned int* bins, int n",
        body="""
  using Load = cub::BlockLoad<T, BLOCK, 4>;
  using Atomic = cub::BlockHistogram<T, BLOCK, 4, 256, cub::BLOCK_HISTO_ATOMIC>;
  using Sorted = cub::BlockHistogram<T, BLOCK, 4, 256, cub::BLOCK_HISTO_SORT>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Atomic::TempStorage atomic;
    typename Sorted::TempStorage sorted;
  } storage;
  __shared__ unsigned int counts[256];
  T items[4];
  Load(storage.load).Load(samples + blockIdx.x * BLOCK * 4, items, n, T(0));
  __syncthreads();
  Atomic(storage.atomic).Histogram(items, counts);
  __syncthreads();
  Sorted(storage.sorted).Composite(items, counts);
  __syncthreads();
  for (int bin = threadIdx.x; bin < 256; bin += BLOCK) atomicAdd(&bins[bin], counts[bin]);
""",
        types=("unsigned char", "unsigned short"),
    ),
    "merge_sort": _Template(
        headers=(
            "cub/block/block_merge_sort.cuh",
            "cub/block/block_load.cuh",
            "cub/block/block_store.cuh",
            "cuda/std/functional",
        ),
        parameters="const T* in, T* out, int n",
        body="""
  using Load = cub::BlockLoad<T, BLOCK, 4>;
  using Store = cub::BlockStore<T, BLOCK, 4>;
  using Sort = cub::BlockMergeSort<T, BLOCK, 4>;
  __shared__ typename Sort::TempStorage storage;
  __shared__ typename Load::TempStorage load;
  __shared__ typename Store::TempStorage store;
  T items[4];
  Load(load).Load(in + blockIdx.x * BLOCK * 4, items, n, T(0));
  Sort(storage).Sort(items, ::cuda::std::less<>{});
  Store(store).Store(out + blockIdx.x * BLOCK * 4, items, n);
""",
    ),
    "warp_collectives": _Template(
        headers=(
            "cub/warp/warp_reduce.cuh",
            "cub/warp/warp_scan.cuh",
            "cub/warp/warp_merge_sort.cuh",
            "cuda/std/functional",
        ),
        parameters="T* data",
        body="""
  constexpr int WARPS = BLOCK / 32;
  using Reduce = cub::WarpReduce<T>;
  using Scan = cub::WarpScan<T>;
  using Sort = cub::WarpMergeSort<T, 4>;
  __shared__ typename Reduce::TempStorage reduce[WARPS];
  __shared__ typename Scan::TempStorage scan[WARPS];
  __shared__ typename Sort::TempStorage sort[WARPS];
  const int warp = threadIdx.x / 32;
  T* mine = data + (blockIdx.x * BLOCK + threadIdx.x) * 4;
  T items[4] = {mine[0], mine[1], mine[2], mine[3]};
  Sort(sort[warp]).Sort(items, ::cuda::std::greater<>{});
  T prefix;
  Scan(scan[warp]).InclusiveSum(items[0], prefix);
  const T sum = Reduce(reduce[warp]).Sum(items[3]);
  for (int i = 0; i < 4; ++i) mine[i] = items[i] + prefix + sum;
""",
    ),
    "run_lengths": _Template(
        headers=(
            "cub/block/block_discontinuity.cuh",
            "cub/block/block_scan.cuh",
            "cub/block/block_adjacent_difference.cuh",
            "cuda/std/functional",
        ),
        parameters="const T* in, T* differences, int* runs",
        body="""
  using Discontinuity = cub::BlockDiscontinuity<T, BLOCK>;
  using Difference = cub::BlockAdjacentDifference<T, BLOCK>;
  using Scan = cub::BlockScan<int, BLOCK>;
  __shared__ union {
    typename Discontinuity::TempStorage discontinuity;
    typename Difference::TempStorage difference;
    typename Scan::TempStorage scan;
  } storage;
  const int first = (blockIdx.x * BLOCK + threadIdx.x) * 4;
  T items[4];
  int heads[4];
  T result[4];
  for (int i = 0; i < 4; ++i) items[i] = in[first + i];
  Discontinuity(storage.discontinuity).FlagHeads(heads, items, ::cuda::std::not_equal_to<>{});
  __syncthreads();
  Difference(storage.difference).SubtractLeft(items, result, ::cuda::std::minus<>{});
  __syncthreads();
  Scan(storage.scan).InclusiveSum(heads, heads);
  for (int i = 0; i < 4; ++i) {
    differences[first + i] = result[i];
    runs[first + i] = heads[i];
  }
""",
    ),
    "exchange": _Template(
        headers=("cub/block/block_exchange.cuh", "cub/block/block_shuffle.cuh", "cub/block/block_store.cuh"),
        parameters="const T* in, T* out, const int* ranks",
        body="""
  using Exchange = cub::BlockExchange<T, BLOCK, 4>;
  using Shuffle = cub::BlockShuffle<T, BLOCK>;
  using Store = cub::BlockStore<T, BLOCK, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  __shared__ union {
    typename Exchange::TempStorage exchange;
    typename Shuffle::TempStorage shuffle;
    typename Store::TempStorage store;
  } storage;
  const int first = (blockIdx.x * BLOCK + threadIdx.x) * 4;
  T items[4];
  int rank[4];
  for (int i = 0; i < 4; ++i) {
    items[i] = in[first + i];
    rank[i] = ranks[first + i];
  }
  Exchange(storage.exchange).ScatterToBlocked(items, items, rank);
  __syncthreads();
  T last;
  Shuffle(storage.shuffle).Up(items, items, last);
  __syncthreads();
  Store(storage.store).Store(out + blockIdx.x * BLOCK * 4, items);
""",
    ),
    "top_of_block": _Template(
        headers=(
            "cub/block/block_load.cuh",
            "cub/block/block_radix_rank.cuh",
            "cub/block/block_reduce.cuh",
            "cub/block/block_scan.cuh",
            "cuda/std/functional",
        ),
        parameters="const T* in, T* best, int* place",
        body="""
  using Pair = cub::KeyValuePair<int, T>;
  using Load = cub::BlockLoad<T, BLOCK, 4, cub::BLOCK_LOAD_STRIPED>;
  using Reduce = cub::BlockReduce<Pair, BLOCK>;
  using Scan = cub::BlockScan<T, BLOCK>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
  } storage;
  T items[4];
  Load(storage.load).Load(in + blockIdx.x * BLOCK * 4, items);
  __syncthreads();
  Scan(storage.scan).InclusiveScan(items, items, ::cuda::maximum<>{});
  __syncthreads();
  Pair pair(threadIdx.x, items[3]);
  pair = Reduce(storage.reduce).Reduce(pair, cub::ArgMax{});
  if (threadIdx.x == 0) {
    best[blockIdx.x] = pair.value;
    place[blockIdx.x] = pair.key;
  }
""",
    ),
}
