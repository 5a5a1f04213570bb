"""Modules as C++: written below a directory, and compiled there with all warnings as errors."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cuda_ext import manifest
from cuda_ext.build import cpp
from cuda_ext.build.generate import Package
from cuda_ext.manifest import Kernel, Manifest, Symbol, Variants
from tests.loader_fixtures import unit

INCLUDE = Path(__file__).parent.parent / "cuda_ext" / "include"
WARNINGS = "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wundef -Werror"


def package_of(
    *kernels: Kernel,
    name: str = "pkg.kernels",
    symbols: Sequence[Symbol] = (),
    variants: Sequence[Variants] = (),
) -> Package:
    """A module with one unit, ``device/axpy.cu``."""
    made = Manifest(
        schema=manifest.SCHEMA,
        module=name,
        compiler="nvrtc",
        version="13.5",
        compress="size",
        units=(unit("device/axpy.cu", "sm_90"),),
        kernels=kernels,
        symbols=tuple(symbols),
        variants=tuple(variants),
    )
    return Package(name, {manifest.FILE_NAME: manifest.dumps(made).encode(), "axpy.fatbin": b"fatbin"})


def write_cpp(package: Package, directory: Path, embed: cpp.Embed = "incbin") -> cpp.CppModule:
    """Write the package and its C++ below `directory`."""
    place = directory / "python" / package.name
    package.write(place)
    module = cpp.render(package, (), place, embed)
    for name, content in module.files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return module


def without_compiler(directory: Path, module: cpp.CppModule) -> list[Path]:
    """The sources of `module` below `directory`, without what compiles on demand and takes long itself."""
    sources = [directory / name for name in module.sources]
    text = sources[1].read_text(encoding="utf-8").replace("on_demand.hpp", "data.hpp")
    sources[1].write_text(re.sub(r"demand\) \{.*\}", ") {}", text), encoding="utf-8")
    return sources


def compile_cpp(*arguments: str | Path, check: bool = True) -> str:
    """Run the compiler; what it said."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    command = [compiler, "-std=c++17", *WARNINGS.split(), f"-I{INCLUDE}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode == 0) == check, done.stderr
    return done.stderr
