"""A virtual environment for each contender, with all that it needs besides a host compiler.

Kept from one run to the next, as PyTorch alone takes minutes and gigabytes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from _environment import ROOT, Environment, step
from bench._processes import CORES, quiet_environment, run

from packages.contenders import Contender

__all__ = ["Place", "prepare"]

_VERSIONS = """
import json, sysconfig
from importlib import metadata
print(json.dumps([sysconfig.get_path("purelib"), {d.name: d.version for d in metadata.distributions()}]))
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A contender's environment: its Python, where packages lie, and which there are."""

    contender: Contender
    python: Path
    site_packages: Path
    versions: dict[str, str]
    megabytes: float

    @property
    def cuda_home(self) -> Path:
        """Where the registry's packages put CUDA 13."""
        return self.site_packages / "nvidia" / "cu13"

    def variables(self, tree: Path, caches: Path) -> dict[str, str]:
        """The environment variables of a build in `tree` whose compiler caches are in `caches`."""
        contender = self.contender
        found = quiet_environment(
            **contender.variables,
            PATH=os.pathsep.join([str(self.python.parent), os.environ.get("PATH", os.defpath)]),
            MAX_JOBS=CORES,
            CMAKE_BUILD_PARALLEL_LEVEL=CORES,
            CUDA_EXT_CACHE=caches / "cuda_ext",
            CCACHE_DIR=caches / "ccache",
            CCACHE_BASEDIR=tree,  # so that clones elsewhere find what this one compiled
            CCACHE_NOHASHDIR=1,
            PIP_DISABLE_PIP_VERSION_CHECK=1,
        )
        if contender.toolkit:
            found |= {"CUDA_HOME": str(self.cuda_home), "CUDACXX": str(self.cuda_home / "bin" / "nvcc")}
        if shutil.which("ccache"):
            found |= dict.fromkeys(contender.launchers, "ccache")
        return found

    def pip(self, *arguments: object) -> None:
        """Run pip. Raises :class:`RuntimeError` with its output if it fails."""
        environment = quiet_environment(PIP_DISABLE_PIP_VERSION_CHECK=1)
        run([self.python, "-m", "pip", "-q", *arguments], environment=environment)


def prepare(contender: Contender, directory: Path, scratch: Path) -> Place:
    """The contender's environment in `directory`. Raises :class:`RuntimeError` if it cannot be had."""
    if contender.host_compiler and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise RuntimeError("there is no host compiler")
    home = directory / contender.key
    marker = home / "requirements.json"
    wanted = json.dumps(contender.requirements)
    reuse = marker.is_file() and marker.read_text(encoding="utf-8") == wanted
    step(f"{contender.title}: {'' if reuse else 'installing '}{', '.join(contender.requirements)}")
    environment = Environment(home, reuse=reuse)
    place = _look(contender, environment)
    ours = [r for r in contender.requirements if r.startswith("cuda-ext")]
    if not reuse:
        place.pip("install", "--upgrade", "pip", *(r for r in contender.requirements if r not in ours))
        if contender.framework == "torch":
            _install_nvcc_for_torch(place)
        if contender.toolkit:
            _complete_toolkit(place)
    for requirement in ours:
        source = _copy_of_this_repository(scratch)
        place.pip("install", requirement.replace("cuda-ext", str(source)))
        place.pip("install", "--no-deps", "--force-reinstall", source)
    marker.write_text(wanted, encoding="utf-8")
    return _look(contender, environment)


def _look(contender: Contender, environment: Environment) -> Place:
    told = run([environment.python, "-c", _VERSIONS], environment=quiet_environment()).output
    purelib, versions = json.loads(told)
    return Place(contender, environment.python, Path(purelib), versions, _megabytes(Path(purelib)))


def _megabytes(site_packages: Path) -> float:
    """All that is installed, without pip and bytecode."""
    total = 0
    for top, directories, files in os.walk(site_packages):
        if Path(top) == site_packages:
            directories[:] = [name for name in directories if name.partition("-")[0] != "pip"]
        directories[:] = [name for name in directories if name != "__pycache__"]
        total += sum(Path(top, name).lstat().st_size for name in files)
    return total / 1e6


def _copy_of_this_repository(scratch: Path) -> Path:
    """What pip needs to install cuda-ext, so that it builds nothing in the working tree."""
    copy = scratch / "cuda-ext"
    copy.mkdir()
    for name in ("cmake", "cuda_ext"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def _install_nvcc_for_torch(place: Place) -> None:
    """The nvcc of the CUDA that PyTorch was built with; the packages that it consists of must be alike."""
    code = "import torch; print(torch.version.cuda or '')"
    cuda = run([place.python, "-c", code], environment=quiet_environment()).output.strip()
    if not cuda.startswith("13."):
        raise RuntimeError(f"PyTorch here is built {f'with CUDA {cuda}' if cuda else 'without CUDA'}")
    place.pip("install", *(f"nvidia-{name}=={cuda}.*" for name in ("cuda-nvcc", "cuda-crt", "nvvm")))


def _complete_toolkit(place: Place) -> None:
    """Links that CMake and PyTorch look for, and the registry's packages lack."""
    libraries = place.cuda_home / "lib"
    if sys.platform != "linux":
        raise RuntimeError("the registry's CUDA packages are laid out for this on Linux only")
    (libraries / "libcudart.so").symlink_to("libcudart.so.13")
    (place.cuda_home / "lib64").symlink_to("lib")
