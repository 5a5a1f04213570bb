"""Compare the machine code of two builds, or of two ways to compile: ``python scripts/compare_sass.py``.

``compare_sass.py direct nvrtc`` compiles the example project, the gallery, or the named projects in both
ways; ``direct`` is NVRTC without removing unused variables. ``compare_sass.py OLD NEW`` reads wheels or
directories. Prints the kernels that differ, and for each module bytes, bytes of code, and CPU seconds. Needs
nvdisasm: the package nvidia-cuda-nvdisasm, or a toolkit on PATH.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import NamedTuple

from _environment import ROOT

from cuda_ext.builder.project import Project
from cuda_ext.builder.session import plan
from cuda_ext.cli.inspect.places import packages_below, packages_in_wheel
from cuda_ext.compiler.module_plan import ModulePlan
from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.errors import CudaExtError
from cuda_ext.facts.manifest import FILE_NAME, Manifest, loads
from cuda_ext.formats.cubin import read_sizes
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.toolchain.compile_library import compile_module
from cuda_ext.toolchain.compilers import find_nvcc
from cuda_ext.toolchain.nvrtc import Nvrtc

WAYS: dict[str, Callable[[], Compiler]] = {
    "nvrtc": Nvrtc,
    "direct": lambda: Nvrtc(lean=False),
    "nvcc": lambda: find_nvcc(None, os.environ),
}
PROJECTS = [ROOT / "example_project", *sorted(p.parent for p in ROOT.glob("tests/gallery/*/pyproject.toml"))]
_REGISTER = re.compile(r"\b(U?[RP]|B)\d+\b")


class Side(NamedTuple):
    """A module: cubins by unit and architecture; unit and lowered name by kernel and architecture."""

    cubins: Mapping[tuple[int, str], bytes]
    kernels: Mapping[tuple[str, str], tuple[int, str]]
    seconds: float = 0.0  # of CPU time


def read_module(manifest: Manifest, read: Callable[[str], bytes], seconds: float = 0.0) -> Side:
    cubins: dict[tuple[int, str], bytes] = {}
    kernels: dict[tuple[str, str], tuple[int, str]] = {}
    for index, unit in enumerate(manifest.units):
        for image in unit.images:
            entries = {entry.architecture: entry for entry in read_fatbin(read(image.file))}
            if image.kind == "cubin":
                cubins[index, image.architecture] = entries[image.architecture].payload()
                for kernel in (k for k in manifest.kernels if k.unit == index):
                    if lowered := manifest.lowered_name(kernel, image):
                        kernels[kernel.expression, image.architecture] = index, lowered
    return Side(cubins, kernels, seconds)


def compile_plan(module: ModulePlan, compiler: Compiler) -> Side:
    libraries = tuple(replace(library, compress="none") for library in module.libraries)
    before = sum(os.times()[:4])
    compiled = compile_module(replace(module, libraries=libraries, embed=False), lambda _: compiler)
    return read_module(compiled.manifest, compiled.files.__getitem__, sum(os.times()[:4]) - before)


def read_build(path: Path) -> dict[str, Side]:
    """Read the modules of a wheel or of a directory."""
    with nullcontext() if path.is_dir() else zipfile.ZipFile(path) as wheel:
        packages = packages_in_wheel(wheel) if wheel else packages_below(path)
        manifests = [(loads(p.read(FILE_NAME), FILE_NAME), p.read) for p in packages]
        return {manifest.module: read_module(manifest, read) for manifest, read in manifests}


def find_nvdisasm() -> str | None:
    try:
        installed = [f for f in files("nvidia-cuda-nvdisasm") or () if f.stem == "nvdisasm"]
    except PackageNotFoundError:
        installed = []
    return str(installed[0].locate()) if installed else shutil.which("nvdisasm")


def disassemble(cubin: bytes) -> dict[str, list[str]]:
    """The instructions of each function; labels are numbered from its beginning."""
    program = find_nvdisasm() or sys.exit('nvdisasm is missing: install "nvidia-cuda-nvdisasm"')
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "image.cubin")
        file.write_bytes(cubin)
        text = subprocess.run([program, "-c", file], check=True, capture_output=True, text=True).stdout
    functions: dict[str, list[str]] = {}
    for name, body in re.findall(r"(?ms)^\s*\.section\s+\.text\.([^,\s]+),.*?$(.*?)(?=^//---|\Z)", text):
        labels = {label: f".L{n}" for n, label in enumerate(dict.fromkeys(re.findall(r"\.L_\w+", body)))}
        lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", body)
        functions[name] = [re.sub(r"\.L_\w+", lambda m, of=labels: of[m[0]], line) for line in lines]  # type: ignore[misc]
    return functions


def compare(one: list[str], other: list[str]) -> str:
    """Describe how far the instructions of two functions are equal."""
    if one == other:
        return "identical"
    one, other = ([_REGISTER.sub(r"\1", i.replace(".reuse", "")) for i in code] for code in (one, other))
    if one == other:
        return "other registers"
    return "other order" if Counter(one) == Counter(other) else "different"


def compare_sides(one: Side, other: Side, name: str) -> Iterator[str]:
    """A line for each kernel that is not identical, and one for the module."""
    sides = (one, other)
    code = [{key: disassemble(cubin) for key, cubin in side.cubins.items()} for side in sides]
    results: Counter[str] = Counter(missing=len(one.kernels.keys() ^ other.kernels.keys()))
    for kernel, architecture in sorted(one.kernels.keys() & other.kernels.keys()):
        places = [side.kernels[kernel, architecture] for side in sides]
        first, second = (c[i, architecture][name] for c, (i, name) in zip(code, places, strict=True))
        results[result := compare(first, second)] += 1
        if result != "identical":
            yield f"  {kernel} {architecture}: {result}; {len(first)}, {len(second)} instructions"
    sizes = [sum(map(len, side.cubins.values())) for side in sides]
    codes = [sum(read_sizes(cubin)["code"] for cubin in side.cubins.values()) for side in sides]
    counts = ", ".join(f"{count} {result}" for result, count in sorted(results.items()) if count)
    yield f"{name}: {counts}; bytes {sizes}, code {codes}, CPU {one.seconds:.1f}, {other.seconds:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("one", help=f"{', '.join(WAYS)}; or a wheel or directory")
    parser.add_argument("other")
    parser.add_argument("projects", nargs="*", type=Path, default=PROJECTS)
    arguments = parser.parse_args()
    if arguments.one not in WAYS:
        before, after = read_build(Path(arguments.one)), read_build(Path(arguments.other))
        for name in sorted(before.keys() & after.keys()):
            print(*compare_sides(before[name], after[name], name), sep="\n")
        return
    compilers = [WAYS[way]() for way in (arguments.one, arguments.other)]
    for root in arguments.projects:
        try:
            project = Project.load(root)
            for module in plan(project) if project else ():
                one, other = (compile_plan(module, compiler) for compiler in compilers)
                print(*compare_sides(one, other, module.name), sep="\n", flush=True)
        except CudaExtError as error:
            print(f"{root.name}: {error}", flush=True)


if __name__ == "__main__":
    main()
