#include <cuda/ptx>
#include <cuda_fp16.h>

#include "tensor_map.cuh"

namespace ptx = cuda::ptx;

constexpr int TILE = 64;   // a block computes 64 x 64 values of c from 64 columns of a and b at a time
constexpr int DEPTH = 16;  // columns that one wgmma multiplies

// Descriptor of a tile for wgmma, in units of 16 bytes: bits 0-13 are its address, bits 32-45 the
// stride between groups of eight rows. Bit 62 selects the 128-byte swizzle, with which bits 16-29 are 1.
__device__ unsigned long long describe_tile(const __half* tile) {
  const unsigned long long address = __cvta_generic_to_shared(tile);
  return (address & 0x3ffff) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

// d += a * transpose(b), 64 x 16 by 16 x 64, on the tensor cores, by the 128 threads together.
__device__ void multiply_add(float (&d)[32], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;\n"
      "wgmma.commit_group.sync.aligned;\n"
      "wgmma.wait_group.sync.aligned 0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b)
      : "memory");
}

// c = a * transpose(b). The tensor maps have boxes of TILE x TILE elements with the 128-byte swizzle;
// what lies outside of the matrices is zero. A block is one warpgroup of 128 threads.
extern "C" __global__ void __launch_bounds__(128)
    hopper_gemm(int m, int n, int k, const __grid_constant__ CUtensorMap a,
                const __grid_constant__ CUtensorMap b, float* c) {
  __shared__ alignas(1024) __half a_tile[TILE * TILE];  // the swizzle counts rows from here
  __shared__ alignas(1024) __half b_tile[TILE * TILE];
  __shared__ uint64_t barrier;
  const int first_row = blockIdx.y * TILE;
  const int first_column = blockIdx.x * TILE;

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&barrier, 1);
    ptx::fence_proxy_async(ptx::space_shared);  // the copies see the initialized barrier
  }
  __syncthreads();

  float d[32] = {};
  unsigned phase = 0;
  for (int start = 0; start < k; start += TILE) {
    if (threadIdx.x == 0) {  // one thread starts the copies of both tiles
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                     sizeof a_tile + sizeof b_tile);
      const int32_t from_a[] = {start, first_row};
      const int32_t from_b[] = {start, first_column};
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, a_tile, &a, from_a, &barrier);
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, b_tile, &b, from_b, &barrier);
    }
    while (!ptx::mbarrier_try_wait_parity(&barrier, phase)) {
    }
    phase ^= 1;
    for (int depth = 0; depth < TILE; depth += DEPTH) {
      multiply_add(d, describe_tile(a_tile + depth), describe_tile(b_tile + depth));
    }
    __syncthreads();  // all have read the tiles
  }

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 32; ++i) {  // warp w holds rows 16w to 16w + 15; a thread, pairs of columns
    const int row = first_row + warp * 16 + i / 2 % 2 * 8 + lane / 4;
    const int column = first_column + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (row < m && column < n) c[1ll * row * n + column] = d[i];
  }
}
