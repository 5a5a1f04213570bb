template <class T>
__global__ void fill(int n, T value, T* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;
}
