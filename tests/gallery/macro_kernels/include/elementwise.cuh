#pragma once

// What stands before a kernel.
#define KERNEL __global__ void __launch_bounds__(256)

// Declares the kernel `name`: y[i] = expression, of x = x[i].
#define ELEMENTWISE(name, type, expression)                        \
  extern "C" KERNEL name(int n, const type* input, type* output) { \
    const int i = blockIdx.x * blockDim.x + threadIdx.x;           \
    if (i >= n) return;                                            \
    const type x = input[i];                                       \
    output[i] = expression;                                        \
  }
