// Launches the kernels of the sample through its interface in C, as programs in C do.

#include <sample/kernels.h>

#include <stdio.h>

// Prints an error, in a line.
static void print(const struct cuda_ext_error* error) {
  if (error) {
    printf("%d %d ", error->kind, error->code);
    for (const char* letter = error->message; *letter; letter++) putchar(*letter == '\n' ? '|' : *letter);
    putchar('\n');
  }
  sample_kernels_release(error);
}

int main(void) {
  struct cuda_ext_launch launch = {.grid = {2, 3, 1}, .block = {4, 1, 1}, .stream = NULL};
  struct sample_kernels_axpy_float_arguments axpy = {5, 2.0f, NULL, NULL};
  axpy.y = (float*)32;
  print(sample_kernels_launch(sample_kernels_axpy_float, &launch, &axpy));
  struct sample_kernels_ov_float_int_arguments ov = {1.0f, (int32_t*)64};
  print(sample_kernels_launch(sample_kernels_ov_float_int, &launch, &ov));
  launch.cluster[0] = 2;
  launch.cluster[1] = launch.cluster[2] = 1;
  launch.dependent = true;
  print(sample_kernels_launch(sample_kernels_plain, &launch, NULL));
  launch.block[0] = 0;
  print(sample_kernels_launch(sample_kernels_plain, &launch, NULL));
  print(sample_kernels_launch(1000, &launch, NULL));
  void* address = NULL;
  size_t size = 0;
  print(sample_kernels_address(sample_kernels_weights, &address, &size));
  printf("%zu bytes%s\n", size, address ? "" : " nowhere");
  print(sample_kernels_address(1000, &address, &size));
  print(sample_kernels_load());
  return 0;
}
