// How many steps it takes to come from each number below n to one: half of it if it is even, else 3 i + 1.
__global__ void collatz(unsigned n, unsigned* steps) {
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  if (first >= n) return;
  unsigned count = 0;
  for (unsigned long long i = first; i > 1; count++) i = i % 2 ? 3 * i + 1 : i / 2;
  steps[first] = count;
}
