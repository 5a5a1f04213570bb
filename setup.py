"""What pyproject.toml cannot say: the two modules in C, and links that hold on the registry's page.

Everything works without the launches and the driver's calls in C: they are left out where there is no C
compiler, and with ``PURE_PYTHON=1``. In the wheels of cibuildwheel they must not be missing.
"""

import os
import re
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

SOURCES = {
    "cuda_ext.runtime.driver._calls": "cuda_ext/runtime/driver/native/calls.c",
    "cuda_ext.runtime.launch._launch": "cuda_ext/runtime/launch/native/module.c",
}
PROJECT = "cuda-ext/cuda_ext"

extensions = [
    Extension(
        name,
        sources=[source],
        depends=sorted(glob(f"{os.path.dirname(source)}/*.h")),  # noqa: PTH120, PTH207 - as setuptools takes paths
        extra_compile_args=[] if os.name == "nt" else ["-g0"],  # Python's own flags have -g
        optional="CIBUILDWHEEL" not in os.environ,
    )
    for name, source in SOURCES.items()
]


def readme() -> str:
    """Return README.md with links to the tag of this version in place of relative ones."""
    text = Path("cuda_ext/__init__.py").read_text(encoding="utf-8")
    tag = "v" + re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]
    sites = {"!": f"raw.githubusercontent.com/{PROJECT}/{tag}", "": f"github.com/{PROJECT}/blob/{tag}"}
    return re.sub(
        r"(?<!\w)(!?)(\[[^]\[]*\])\((?!\w+:|#)([^)\s]+)\)",  # not kernels["float"](n)
        lambda link: f"{link[1]}{link[2]}(https://{sites[link[1]]}/{link[3]})",
        Path("README.md").read_text(encoding="utf-8"),
    )


setup(
    ext_modules=[] if os.environ.get("PURE_PYTHON") == "1" else extensions,
    long_description=readme(),
    long_description_content_type="text/markdown",
)
