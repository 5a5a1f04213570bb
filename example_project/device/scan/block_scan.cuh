#pragma once

// Return to each thread the sum of `value` over itself and the preceding threads of the block, and
// to all of them the block's total. Every thread must call it; blocks consist of whole warps.
__device__ int block_scan(int value, int& total);
