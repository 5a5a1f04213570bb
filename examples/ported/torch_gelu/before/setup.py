from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="activations",
    version="0.1.0",
    packages=["activations"],
    ext_modules=[CUDAExtension("activations._C", ["gelu.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
