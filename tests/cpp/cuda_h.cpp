// Our declarations of the driver beside those of cuda.h.

#include <cuda.h>

#include <cuda_ext/interface.hpp>
#include <cuda_ext/loader/driver_api.hpp>

#include <type_traits>

namespace {

namespace api = cuda_ext::driver_api;

static_assert(std::is_same_v<cuda_ext::Stream, CUstream> && std::is_same_v<api::Context, CUcontext>);
static_assert(std::is_same_v<api::Kernel, CUkernel> && std::is_same_v<api::Library, CUlibrary>);
static_assert(std::is_same_v<api::Device, CUdevice> && sizeof(api::Code) == sizeof(CUresult));
static_assert(cuda_ext::is_named<CUtensorMap>("CUtensorMap") && cuda_ext::is_named<CUtensorMap>("CUtensorMap_st"));
static_assert(sizeof(CUfunction) == sizeof(CUkernel) && sizeof(CUdeviceptr) == sizeof(void*));

template <auto ours, auto theirs>
constexpr bool is_same = static_cast<int>(ours) == static_cast<int>(theirs);

static_assert(is_same<api::stub_library, CUDA_ERROR_STUB_LIBRARY>);
static_assert(is_same<api::not_initialized, CUDA_ERROR_NOT_INITIALIZED>);
static_assert(is_same<api::no_device, CUDA_ERROR_NO_DEVICE>);
static_assert(is_same<api::invalid_device, CUDA_ERROR_INVALID_DEVICE>);
static_assert(is_same<api::invalid_context, CUDA_ERROR_INVALID_CONTEXT>);
static_assert(is_same<api::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU>);
static_assert(is_same<api::unsupported_ptx_version, CUDA_ERROR_UNSUPPORTED_PTX_VERSION>);
static_assert(is_same<api::contained, CUDA_ERROR_CONTAINED>);
static_assert(is_same<api::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS>);
static_assert(is_same<api::launch_timeout, CUDA_ERROR_LAUNCH_TIMEOUT>);
static_assert(is_same<api::assertion, CUDA_ERROR_ASSERT>);
static_assert(is_same<api::hardware_stack_error, CUDA_ERROR_HARDWARE_STACK_ERROR>);
static_assert(is_same<api::launch_failed, CUDA_ERROR_LAUNCH_FAILED>);
static_assert(is_same<api::tensor_memory_leak, CUDA_ERROR_TENSOR_MEMORY_LEAK>);
static_assert(is_same<api::system_not_ready, CUDA_ERROR_SYSTEM_NOT_READY>);
static_assert(is_same<api::system_driver_mismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH>);
static_assert(is_same<api::compat_not_supported_on_device, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE>);

using Of = api::DeviceAttribute;
static_assert(is_same<Of::most_threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK>);
static_assert(is_same<Of::block_x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X>);
static_assert(is_same<Of::block_y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y>);
static_assert(is_same<Of::block_z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z>);
static_assert(is_same<Of::grid_x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X>);
static_assert(is_same<Of::grid_y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y>);
static_assert(is_same<Of::grid_z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z>);
static_assert(is_same<Of::multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT>);
static_assert(is_same<Of::capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR>);
static_assert(is_same<Of::capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR>);
static_assert(is_same<Of::cooperative_launch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH>);
static_assert(is_same<Of::shared_memory_per_block, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN>);
static_assert(is_same<Of::cluster_launch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH>);

static_assert(is_same<api::KernelAttribute::most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK>);
static_assert(is_same<api::KernelAttribute::static_shared_memory, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES>);
static_assert(
    is_same<api::KernelAttribute::dynamic_shared_memory, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES>);
static_assert(
    is_same<api::KernelAttribute::large_clusters, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED>);

static_assert(is_same<api::cooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE>);
static_assert(is_same<api::cluster, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION>);
static_assert(is_same<api::programmatic_stream_serialization,
                      CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION>);

static_assert(sizeof(cuda_ext::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(cuda_ext::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(std::is_convertible_v<CUlaunchAttribute, cuda_ext::LaunchAttribute>);
static_assert(std::is_convertible_v<CUdeviceptr, cuda_ext::Pointer<float>>);
static_assert(sizeof(api::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(api::LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(api::LaunchConfig, shared) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(api::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(api::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(api::LaunchConfig, count) == offsetof(CUlaunchConfig, numAttrs));

}  // namespace
