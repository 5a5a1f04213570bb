"""The launches and the driver's calls in C, the only parts of the package that are compiled.

Everything works without them: they are left out where there is no C compiler, and with ``PURE_PYTHON=1``. In
the wheels of cibuildwheel they must not be missing.
"""

import os
from glob import glob

from setuptools import Extension, setup

SOURCES = {
    "cuda_ext.runtime.driver._calls": "cuda_ext/runtime/driver/native/calls.c",
    "cuda_ext.runtime.launch._launch": "cuda_ext/runtime/launch/native/module.c",
}

extensions = [
    Extension(
        name,
        sources=[source],
        depends=sorted(glob(f"{os.path.dirname(source)}/*.h")),  # noqa: PTH120, PTH207 - as setuptools takes paths
        optional="CIBUILDWHEEL" not in os.environ,
    )
    for name, source in SOURCES.items()
]

setup(ext_modules=[] if os.environ.get("PURE_PYTHON") == "1" else extensions)
