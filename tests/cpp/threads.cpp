// Sixteen threads that use a module first, all at once, and launch on.

#include "sample.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

int main() {
  namespace kernels = sample::kernels;
  constexpr int count = 16;
  std::atomic<int> waiting{count};
  const auto work = [&waiting](int number) {
    waiting--;
    while (waiting) std::this_thread::yield();
    for (int i = 0; i < 20; i++) {
      kernels::axpy<float>({1, 1}, number, 2.0f, nullptr, nullptr);
      kernels::plain({1, 1});
      kernels::tiled({1, 1, nullptr, static_cast<std::size_t>(10000 + 100 * i + number)});
      kernels::plain({16, 1, nullptr, 0, 16});
      kernels::separate({1, 1});
      kernels::cuda_ext_library().kernel("ov(int)").launch({1, 1}, number);
      (void)kernels::cuda_ext_library().symbol("weights");
      (void)kernels::narrow.try_launch({1, 257}).ok();
    }
  };
  try {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
  } catch (const cuda_ext::Error& error) {
    std::puts(error.what());
    return 1;
  }
}
