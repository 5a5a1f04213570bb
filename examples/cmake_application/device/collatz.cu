// The number of steps from each number below n to 1: i / 2 if i is even, else 3 i + 1.
__global__ void collatz(unsigned n, unsigned* steps) {
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  if (first >= n) return;
  unsigned count = 0;
  for (unsigned long long i = first; i > 1; count++) i = i % 2 ? 3 * i + 1 : i / 2;
  steps[first] = count;
}
