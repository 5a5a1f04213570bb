from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="depthwise",
    version="0.1.0",
    packages=["depthwise"],
    ext_modules=[CUDAExtension("depthwise._C", ["conv.cpp", "conv_kernels.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
