// Uses the kernels of two modules. Compiled twice, under two names, into one program.

#include <one/kernels.h>
#include <two/kernels.h>

const void* USE() {
  one::kernels::axpy<float>.try_launch({1, 1}, 1).ok();
  two::kernels::axpy<float>.try_launch({1, 1}, 1.0f).ok();
  two::kernels::plain.try_launch({1, 1}, 1).ok();
  return &one::kernels::axpy<float>;
}

#if defined(OTHER)
const void* OTHER();
int main() { return USE() == OTHER() ? 0 : 1; }
#endif
