// The declarations of cuda.h that the loader needs, so that it includes no CUDA header.

#pragma once

#include "../interface.hpp"

#include <cstddef>

#if defined(_WIN32)
#define CUDA_EXT_CALL __stdcall
#else
#define CUDA_EXT_CALL
#endif

// As CUDA's headers declare them, which may be included too.
struct CUctx_st;
struct CUlib_st;

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

namespace driver_api {

using Context = ::CUctx_st*;
using Kernel = ::CUkern_st*;
using Library = ::CUlib_st*;
using Device = int;
using Code = int;  // CUresult

enum : Code {
  success = 0,
  invalid_value = 1,
  not_initialized = 3,
  stub_library = 34,
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  unsupported_ptx_version = 222,
  contained = 226,
  not_found = 500,
  illegal_address = 700,
  launch_timeout = 702,
  assertion = 710,
  hardware_stack_error = 714,
  launch_failed = 719,
  tensor_memory_leak = 721,
  system_not_ready = 802,
  system_driver_mismatch = 803,
  compat_not_supported_on_device = 804,
};

enum class DeviceAttribute : int {
  most_threads = 1,
  block_x = 2,
  block_y = 3,
  block_z = 4,
  grid_x = 5,
  grid_y = 6,
  grid_z = 7,
  multiprocessors = 16,
  capability_major = 75,
  capability_minor = 76,
  cooperative_launch = 95,
  shared_memory_per_block = 97,  // for a kernel that opts in
  memory_pools = 115,
  cluster_launch = 120,
};

// Values of CUfunction_attribute.
enum class KernelAttribute : int {
  most_threads = 0,
  static_shared_memory = 1,
  dynamic_shared_memory = 8,
  large_clusters = 14,
};

enum AttributeId : int { cooperative = 2, cluster = 4, programmatic_stream_serialization = 6 };

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned count;
};

static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8);
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

// The driver's functions: name here and in CUDA, the version of CUDA that introduced them with these parameters, and
// these. None is newer than the oldest driver, since asking for one that a driver lacks is an error, which tools such
// as compute-sanitizer report. Functions that take a CUfunction also take a CUkernel, which belongs to no context.
#define CUDA_EXT_FIRST_FUNCTIONS(F) \
  F(error_name, "cuGetErrorName", 6000, Code code, const char** name) \
  F(error_string, "cuGetErrorString", 6000, Code code, const char** description) \
  F(init, "cuInit", 2000, unsigned flags) \
  F(driver_version, "cuDriverGetVersion", 2020, int* version)
#define CUDA_EXT_OTHER_FUNCTIONS(F) \
  F(device_count, "cuDeviceGetCount", 2000, int* count) \
  F(device_attribute, "cuDeviceGetAttribute", 2000, int* value, DeviceAttribute attribute, Device device) \
  F(device_name, "cuDeviceGetName", 2000, char* name, int size, Device device) \
  F(retain_primary_context, "cuDevicePrimaryCtxRetain", 7000, Context* context, Device device) \
  F(current_context, "cuCtxGetCurrent", 4000, Context* context) \
  F(set_current_context, "cuCtxSetCurrent", 4000, Context context) \
  F(push_context, "cuCtxPushCurrent", 4000, Context context) \
  F(pop_context, "cuCtxPopCurrent", 4000, Context* context) \
  F(current_device, "cuCtxGetDevice", 2000, Device* device) \
  F(context_of_stream, "cuStreamGetCtx", 9020, Stream stream, Context* context) \
  F(load_library, "cuLibraryLoadData", 12000, Library* library, const void* image, int* jit_options, \
     void** jit_values, unsigned jit_count, int* options, void** values, unsigned count) \
  F(unload_library, "cuLibraryUnload", 12000, Library library) \
  F(kernel_of_library, "cuLibraryGetKernel", 12000, Kernel* kernel, Library library, const char* name) \
  F(global_of_library, "cuLibraryGetGlobal", 12000, void** address, std::size_t* size, Library library, \
     const char* name) \
  F(kernel_attribute, "cuKernelGetAttribute", 12000, int* value, KernelAttribute attribute, Kernel kernel, \
     Device device) \
  F(set_kernel_attribute, "cuKernelSetAttribute", 12000, KernelAttribute attribute, int value, Kernel kernel, \
     Device device) \
  F(blocks_per_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050, int* blocks, Kernel kernel, \
     int threads, std::size_t shared) \
  F(best_block, "cuOccupancyMaxPotentialBlockSize", 6050, int* grid, int* block, Kernel kernel, \
     std::size_t(CUDA_EXT_CALL* shared_of_block)(int threads), std::size_t shared, int most_threads) \
  F(copy_to_gpu, "cuMemcpyHtoDAsync", 3020, void* to, const void* from, std::size_t size, Stream stream) \
  F(copy_from_gpu, "cuMemcpyDtoHAsync", 3020, void* to, const void* from, std::size_t size, Stream stream) \
  F(allocate_in_stream, "cuMemAllocAsync", 11020, void** address, std::size_t size, Stream stream) \
  F(free_in_stream, "cuMemFreeAsync", 11020, void* address, Stream stream) \
  F(largest_cluster, "cuOccupancyMaxPotentialClusterSize", 11070, int* blocks, Kernel kernel, \
     const LaunchConfig* config) \
  F(launch, "cuLaunchKernel", 4000, Kernel kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, Stream stream, void** arguments, void** extra) \
  F(launch_configured, "cuLaunchKernelEx", 11060, const LaunchConfig* config, Kernel kernel, void** arguments, \
     void** extra)

struct Functions {
#define CUDA_EXT_DECLARE(function, name, since, ...) Code(CUDA_EXT_CALL* function)(__VA_ARGS__);
  CUDA_EXT_FIRST_FUNCTIONS(CUDA_EXT_DECLARE) CUDA_EXT_OTHER_FUNCTIONS(CUDA_EXT_DECLARE)
#undef CUDA_EXT_DECLARE
};

}  // namespace driver_api
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
