// Functions without an annotation are device code, as relaxed-constexpr has NVRTC take them.

#pragma once
#pragma clang force_cuda_host_device begin
