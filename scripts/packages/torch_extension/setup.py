from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

STABLE_ABI = ["-DTORCH_TARGET_VERSION=0x020a000000000000", "-DUSE_CUDA"]  # of PyTorch 2.10

extension = CUDAExtension(
    "vector_kernels._core",
    ["src/core.cpp", "src/launch_axpy.cu", "src/launch_reduce.cu", "src/launch_softmax.cu"],
    include_dirs=[str(Path(__file__).parent.resolve())],
    extra_compile_args={"cxx": ["-O3", "-g0", *STABLE_ABI], "nvcc": ["-O3"]},
    extra_link_args=["-s"],  # no symbols, as the others
    py_limited_api=True,
)
setup(
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
