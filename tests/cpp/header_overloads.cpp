// Which of several overloads a call is of, where more than one could take the arguments.

#include <pkg/kernels.h>

#include "takes.hpp"

#include <cstdio>

namespace k = pkg::kernels;

static_assert(takes<float>(k::num) && takes<double>(k::num) && !takes<int>(k::num));
static_assert(takes<int>(k::count) && takes<long>(k::count) && takes<long long>(k::count));
static_assert(!takes<short>(k::count), "no better than one as the other");
static_assert(takes<float*>(k::copy) && takes<const float*>(k::copy) && !takes<double*>(k::copy));
static_assert(takes<float*>(k::any) && takes<void*>(k::any) && takes<int*>(k::any));

template <class... Arguments, class Kernel>
void tell(const Kernel&) {
  std::puts(Kernel::template Chosen<Arguments...>::kernel().data().expression);
}

int main() {
  tell<float>(k::num);
  tell<double>(k::num);
  tell<int>(k::count);
  tell<long long>(k::count);
  tell<float*>(k::copy);
  tell<const float*>(k::copy);
  tell<float[3]>(k::copy);
  tell<float*>(k::any);
  tell<void*>(k::any);
  if (k::num.try_launch({1, 1}, 1.0f).ok()) return 1;
  return k::num.try_launch({1, 1}, 1.0).ok();
}
