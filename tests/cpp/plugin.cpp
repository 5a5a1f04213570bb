// A shared object with a module, as an application loads several. What it throws, the application catches.

#include "sample.h"

extern "C" __attribute__((visibility("default"))) void launch(int count) {
  for (int i = 0; i < count; i++) sample::kernels::plain({1, 1});
}

// Exported, since its types are visible.
cuda_ext::Result<void> attempt(const cuda_ext::LaunchConfig& config) {
  return sample::kernels::plain.try_launch(config);
}

extern "C" __attribute__((visibility("default"))) void fail() { sample::kernels::plain({0, 1}); }
