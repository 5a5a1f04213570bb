from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

# PyTorch turns these off.
CONVERSIONS = ["-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__"]

setup(
    name="scanning",
    version="0.1.0",
    packages=["scanning"],
    ext_modules=[
        CUDAExtension(
            "scanning._C", ["scan.cpp", "scan_kernels.cu"], extra_compile_args={"nvcc": CONVERSIONS}
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
