#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// Explicit steps of the heat equation on a ring of n cells. The grid synchronizes between steps, so one
// launch makes them all. The result is in `cells` after an even number of steps, otherwise in `scratch`.
extern "C" __global__ void diffuse(int n, int steps, float rate, float* cells, float* scratch) {
  const cg::grid_group grid = cg::this_grid();
  float* from = cells;
  float* to = scratch;
  for (int step = 0; step < steps; ++step) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
      const float left = from[i > 0 ? i - 1 : n - 1];
      const float right = from[i < n - 1 ? i + 1 : 0];
      to[i] = from[i] + rate * (left - 2 * from[i] + right);
    }
    grid.sync();
    float* const last = from;
    from = to;
    to = last;
  }
}

// Subtracts the mean of x from x. `sum` is 0 before.
extern "C" __global__ void subtract_mean(int n, float* x, float* sum) {
  const cg::grid_group grid = cg::this_grid();
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  float own = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) own += x[i];
  const float of_warp = cg::reduce(warp, own, cg::plus<float>());
  if (warp.thread_rank() == 0) atomicAdd(sum, of_warp);
  grid.sync();
  const float mean = *sum / n;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] -= mean;
}
