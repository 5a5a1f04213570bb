// Instantiations that the sample does not have.

#include <sample/kernels.h>

namespace k = sample::kernels;

const auto& wrong_type = k::axpy<int>;
const auto& wrong_value = k::ns::fill<int, 128>;

void launch() { k::axpy<long>({1, 1}, 1); }
