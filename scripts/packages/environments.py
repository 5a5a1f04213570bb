"""Create a virtual environment for each contender, with its requirements besides a host compiler.

Environments are kept between runs: installing PyTorch alone takes minutes and gigabytes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from _environment import ROOT, Environment, step
from bench.processes import CORES, benchmark_environment, run

from packages.contenders import Contender

__all__ = ["Place", "prepare", "running_environment"]

_VERSIONS = """
import json, sysconfig
from importlib import metadata
print(json.dumps([sysconfig.get_path("purelib"), {d.name: d.version for d in metadata.distributions()}]))
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A contender's environment: its Python, its directory of packages, and their versions."""

    contender: Contender
    python: Path
    site_packages: Path
    versions: dict[str, str]
    mebibytes: float

    @property
    def cuda_home(self) -> Path:
        """The directory in which the packages of CUDA 13 install the toolkit."""
        return self.site_packages / "nvidia" / "cu13"

    def variables(self, tree: Path, caches: Path) -> dict[str, str]:
        """Return the environment variables of a build in `tree` with its compiler caches in `caches`."""
        contender = self.contender
        variables = benchmark_environment(
            **contender.variables,
            PATH=os.pathsep.join([str(self.python.parent), os.environ.get("PATH", os.defpath)]),
            MAX_JOBS=CORES,
            CMAKE_BUILD_PARALLEL_LEVEL=CORES,
            CUDA_EXT_CACHE=caches / "cuda_ext",
            CCACHE_DIR=caches / "ccache",
            CCACHE_BASEDIR=tree,  # makes the cache valid for clones in other directories
            CCACHE_NOHASHDIR=1,
            PIP_DISABLE_PIP_VERSION_CHECK=1,
        )
        if contender.toolkit:
            variables |= {"CUDA_HOME": str(self.cuda_home), "CUDACXX": str(self.cuda_home / "bin" / "nvcc")}
        if shutil.which("ccache"):
            variables |= dict.fromkeys(contender.launchers, "ccache")
        return variables

    def pip(self, *arguments: object) -> None:
        """Run pip. Raises :class:`RuntimeError` with its output if it fails."""
        environment = benchmark_environment(PIP_DISABLE_PIP_VERSION_CHECK=1)
        run([self.python, "-m", "pip", "-q", *arguments], environment=environment)


def prepare(contender: Contender, directory: Path, scratch: Path) -> Place:
    """Create or reuse the contender's environment in `directory`. Raises :class:`RuntimeError`."""
    if contender.host_compiler and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise RuntimeError("no host compiler is installed")
    home = directory / contender.key
    marker = home / "requirements.json"
    requirements = json.dumps(contender.requirements)
    reuse = marker.is_file() and marker.read_text(encoding="utf-8") == requirements
    step(f"{contender.title}: {'' if reuse else 'installing '}{', '.join(contender.requirements)}")
    environment = Environment(home, reuse=reuse)
    place = _inspect(contender, environment.python)
    cuda_ext = [r for r in contender.requirements if r.startswith("cuda-ext")]
    if not reuse:
        place.pip("install", "--upgrade", "pip", *(r for r in contender.requirements if r not in cuda_ext))
        if contender.framework == "torch":
            _install_nvcc_for_torch(place)
        if contender.toolkit:
            _complete_toolkit(place)
    for requirement in cuda_ext:
        source = _copy_repository(scratch)
        place.pip("install", requirement.replace("cuda-ext", str(source)))
        place.pip("install", "--no-deps", "--force-reinstall", source)
    marker.write_text(requirements, encoding="utf-8")
    return _inspect(contender, environment.python)


def running_environment(contender: Contender) -> Place:
    """Return the environment of this process, which must have what the contender requires."""
    return _inspect(contender, Path(sys.executable))


def _inspect(contender: Contender, python: Path) -> Place:
    output = run([python, "-c", _VERSIONS], environment=benchmark_environment()).output
    purelib, versions = json.loads(output)
    return Place(contender, python, Path(purelib), versions, _mebibytes(Path(purelib)))


def _mebibytes(site_packages: Path) -> float:
    """Sum the sizes of the installed files, without pip and bytecode."""
    total = 0
    for top, directories, files in os.walk(site_packages):
        if Path(top) == site_packages:
            directories[:] = [name for name in directories if name.partition("-")[0] != "pip"]
        directories[:] = [name for name in directories if name != "__pycache__"]
        total += sum(Path(top, name).lstat().st_size for name in files)
    return total / (1 << 20)


def _copy_repository(scratch: Path) -> Path:
    """Copy what pip needs to install cuda-ext, so that it does not build in the working tree."""
    copy = scratch / "cuda-ext"
    copy.mkdir()
    for name in ("cmake", "cuda_ext"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def _install_nvcc_for_torch(place: Place) -> None:
    """Install the nvcc of PyTorch's CUDA version; all its packages must have the same version."""
    code = "import torch; print(torch.version.cuda or '')"
    cuda = run([place.python, "-c", code], environment=benchmark_environment()).output.strip()
    if not cuda.startswith("13."):
        raise RuntimeError(
            f"CUDA 13 is required, and PyTorch is built {f'with CUDA {cuda}' if cuda else 'without CUDA'}"
        )
    place.pip("install", *(f"nvidia-{name}=={cuda}.*" for name in ("cuda-nvcc", "cuda-crt", "nvvm")))


def _complete_toolkit(place: Place) -> None:
    """Create the links that CMake and PyTorch need and the CUDA packages lack."""
    libraries = place.cuda_home / "lib"
    if sys.platform != "linux":
        raise RuntimeError("the CUDA packages have the required layout on Linux only")
    (libraries / "libcudart.so").symlink_to("libcudart.so.13")
    (place.cuda_home / "lib64").symlink_to("lib")
