// Functions without an annotation are device code, as for NVRTC with relaxed-constexpr.

#pragma once
#pragma clang force_cuda_host_device begin
