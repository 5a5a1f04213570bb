#pragma once

// Gives each thread the sum of `value` over itself and the block's threads before it, and all of
// them the block's total. Every thread calls it; blocks are made of whole warps.
__device__ int block_scan(int value, int& total);
