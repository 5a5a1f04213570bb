"""Launch a kernel through tvm-ffi's cubin launcher, in an extension that is compiled here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from launching.kernels import NAME

# As a careful author writes it: dtype, device, size and range are checked.
_SOURCE = """
#define TVM_FFI_CUBIN_LAUNCHER_USE_DRIVER_API 1
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/cuda/cubin_launcher.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <limits>

TVM_FFI_EMBED_CUBIN(kernels);

void check(const tvm::ffi::TensorView& array) {
  if (array.device().device_type != kDLCUDA) TVM_FFI_THROW(TypeError) << "expected an array on a GPU";
  const DLDataType type = array.dtype();
  if (type.code != kDLFloat || type.bits != 32) TVM_FFI_THROW(TypeError) << "expected float32";
}

void axpy(int64_t n, double a, tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  static auto kernel = TVM_FFI_EMBED_CUBIN_GET_KERNEL(kernels, "axpy_c");
  check(x);
  check(y);
  const DLDevice device = x.device();
  if (device.device_id != y.device().device_id) TVM_FFI_THROW(ValueError) << "arrays on two GPUs";
  if (n < 0 || n > std::numeric_limits<int>::max()) TVM_FFI_THROW(ValueError) << "n is out of range";
  int count = static_cast<int>(n);
  float factor = static_cast<float>(a);
  void *from = x.data_ptr(), *to = y.data_ptr();
  void* arguments[] = {&count, &factor, &from, &to};
  auto stream = static_cast<CUstream>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const auto blocks = static_cast<uint32_t>((n + 31) / 32);
  TVM_FFI_CHECK_CUBIN_LAUNCHER_CUDA_ERROR(
      kernel.Launch(arguments, tvm::ffi::dim3(blocks), tvm::ffi::dim3(32), stream));
}
"""


def load_axpy(package: Path, directory: Path) -> Any:
    """Compile the extension with the fatbin of `package`; return its function ``axpy(n, a, x, y)``."""
    import tvm_ffi.cpp

    fatbin = next(package.joinpath(*NAME.split(".")).rglob("*.fatbin")).read_bytes()
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    extension: Any = tvm_ffi.cpp.load_inline(
        "bench_tvm_ffi",
        cpp_sources=_SOURCE,
        functions="axpy",
        embed_cubin={"kernels": fatbin},
        extra_include_paths=[str(toolkit / "include")],
        extra_ldflags=[f"-L{toolkit / 'lib64' / 'stubs'}", "-lcuda"],
        build_directory=str(directory / "tvm_ffi"),
    )
    return extension.axpy
