"""The launches in C, the only part of the package that is compiled.

Everything works without them: they are left out where there is no C compiler, and with ``PURE_PYTHON=1``. In
the wheels of cibuildwheel they must not be missing.
"""

import os
from glob import glob

from setuptools import Extension, setup

NATIVE = "cuda_ext/runtime/launch/native"

launch = Extension(
    "cuda_ext.runtime.launch._launch",
    sources=[f"{NATIVE}/module.c"],
    depends=sorted(glob(f"{NATIVE}/*.h")),  # noqa: PTH207 - as setuptools takes paths
    optional="CIBUILDWHEEL" not in os.environ,
)

setup(ext_modules=[] if os.environ.get("PURE_PYTHON") == "1" else [launch])
