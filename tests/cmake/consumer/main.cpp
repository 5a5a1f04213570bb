#include <filters/filters.h>
#include <filters/smoothing.h>

#include <cstdio>

int main() {
  std::puts(filters::try_window().c_str());
  const auto result = filters::smoothing::smooth<float>.try_launch({1, 32}, 0, nullptr, nullptr);
  std::printf("smooth: %s\n", result ? "launched" : result.error().message);
}
