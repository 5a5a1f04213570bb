from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="scanning",
    version="0.1.0",
    packages=["scanning"],
    ext_modules=[CUDAExtension("scanning._C", ["scan.cpp", "scan_kernels.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
