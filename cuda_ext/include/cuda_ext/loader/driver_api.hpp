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

// The driver's functions. Functions that take a CUfunction also take a CUkernel, which belongs to no context.
struct Functions {
  Code(CUDA_EXT_CALL* init)(unsigned flags);
  Code(CUDA_EXT_CALL* driver_version)(int* version);
  Code(CUDA_EXT_CALL* error_name)(Code code, const char** name);
  Code(CUDA_EXT_CALL* error_string)(Code code, const char** description);
  Code(CUDA_EXT_CALL* device_count)(int* count);
  Code(CUDA_EXT_CALL* device_attribute)(int* value, DeviceAttribute attribute, Device device);
  Code(CUDA_EXT_CALL* device_name)(char* name, int size, Device device);
  Code(CUDA_EXT_CALL* retain_primary_context)(Context* context, Device device);
  Code(CUDA_EXT_CALL* current_context)(Context* context);
  Code(CUDA_EXT_CALL* set_current_context)(Context context);
  Code(CUDA_EXT_CALL* push_context)(Context context);
  Code(CUDA_EXT_CALL* pop_context)(Context* context);
  Code(CUDA_EXT_CALL* current_device)(Device* device);
  Code(CUDA_EXT_CALL* context_of_stream)(Stream stream, Context* context);
  Code(CUDA_EXT_CALL* load_library)(Library* library, const void* image, int* jit_options, void** jit_values,
                                    unsigned jit_count, int* options, void** values, unsigned count);
  Code(CUDA_EXT_CALL* unload_library)(Library library);
  Code(CUDA_EXT_CALL* kernel_of_library)(Kernel* kernel, Library library, const char* name);
  Code(CUDA_EXT_CALL* global_of_library)(void** address, std::size_t* size, Library library,
                                         const char* name);
  Code(CUDA_EXT_CALL* kernel_attribute)(int* value, KernelAttribute attribute, Kernel kernel, Device device);
  Code(CUDA_EXT_CALL* set_kernel_attribute)(KernelAttribute attribute, int value, Kernel kernel,
                                            Device device);
  Code(CUDA_EXT_CALL* blocks_per_multiprocessor)(int* blocks, Kernel kernel, int threads, std::size_t shared);
  Code(CUDA_EXT_CALL* best_block)(int* grid, int* block, Kernel kernel,
                                  std::size_t(CUDA_EXT_CALL* shared_of_block)(int threads),
                                  std::size_t shared, int most_threads);
  Code(CUDA_EXT_CALL* copy_to_gpu)(void* to, const void* from, std::size_t size, Stream stream);
  Code(CUDA_EXT_CALL* copy_from_gpu)(void* to, const void* from, std::size_t size, Stream stream);
  Code(CUDA_EXT_CALL* allocate_in_stream)(void** address, std::size_t size, Stream stream);
  Code(CUDA_EXT_CALL* free_in_stream)(void* address, Stream stream);
  Code(CUDA_EXT_CALL* largest_cluster)(int* blocks, Kernel kernel, const LaunchConfig* config);
  Code(CUDA_EXT_CALL* launch)(Kernel kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                              Stream stream, void** arguments, void** extra);
  Code(CUDA_EXT_CALL* launch_configured)(const LaunchConfig* config, Kernel kernel, void** arguments,
                                         void** extra);
};

}  // namespace driver_api
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
