#pragma once

// <cuda.h> declares this type, but includes headers of the host, which NVRTC does not have.
#ifdef __CUDACC_RTC__
struct alignas(64) CUtensorMap_st {
  unsigned long long opaque[16];
};
using CUtensorMap = CUtensorMap_st;
#else
#include <cuda.h>
#endif
