"""Find the headers and libraries of the tool chain.

The registry's wheels come first, then the toolkit that ``CUDA_PATH`` or ``CUDA_HOME`` names. Paths are texts
here: a launch that finds its kernel in the cache asks for them, and pathlib is slow to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cuda_ext.facts.sources import Options

_known_packages: dict[tuple[str, ...], list[str]] = {}


def header_directories(major: int, library: str | None = None) -> list[str]:
    """List the include directories of the installed CUDA packages of this major version, with CCCL's.

    The directories of the toolkit of `library` come last.
    """
    toolkit = [os.path.dirname(os.path.dirname(library))] if library else []
    includes = [
        f"{root}/{name}" for root in (*_roots(major), *toolkit) for name in ("include", "include/cccl")
    ]
    return [include for include in dict.fromkeys(includes) if os.path.isdir(include)]


def standard_headers(options: Options) -> list[Path]:
    """Return the directory of the standard library's headers, which lead to libcu++, if `options` have it."""
    from pathlib import Path

    package = Path(__file__).parents[1]
    return [package / "include" / "cuda_ext" / "standard"] if options.std_headers else []


def library_directories(major: int) -> list[str]:
    """List the directories of libraries of the CUDA packages and toolkits of this major version, in order."""
    places: list[str] = []
    for root in _roots(major):
        places += (f"{root}/{place}" for place in ("lib64", "lib", "bin", "bin/x86_64", "bin/x64", "lib/x64"))
        places += (f"{root}/targets/{target}/lib" for target in _listed(f"{root}/targets"))
    return [place for place in places if os.path.isdir(place)]


def wheel_programs() -> list[str]:
    """List the directories of the programs in the registry's wheels, the newest first."""
    return [
        f"{nvidia}/{name}/bin"
        for nvidia in nvidia_packages()
        for name in reversed(_listed(nvidia))
        if name.startswith("cu") and name[2:].isdecimal()
    ]


def cudadevrt(major: int, library: str | None = None) -> str | None:
    """Find the device runtime library, to link device code that launches kernels.

    The library beside `library`, or in its toolkit, comes last.
    """
    directories = library_directories(major)
    if library:
        beside = os.path.dirname(library)
        directories += [beside, f"{os.path.dirname(beside)}/lib/x64"]
    files = (f"{each}/{name}" for each in directories for name in ("libcudadevrt.a", "cudadevrt.lib"))
    return next(filter(os.path.isfile, files), None)


def _roots(major: int) -> Iterator[str]:
    for nvidia in nvidia_packages():
        if major >= 13:
            yield f"{nvidia}/cu{major}"
        else:
            yield from (f"{nvidia}/cuda_runtime", f"{nvidia}/cuda_cccl")
            # Before 13, each package has a directory of its own; cu13 belongs to the next version.
            for name in _listed(nvidia):
                is_next = name.startswith("cu") and name[2:].isdecimal()
                if os.path.isdir(f"{nvidia}/{name}/include") and not is_next:
                    yield f"{nvidia}/{name}"
    yield from _configured()


def _configured() -> list[str]:
    """List the toolkits that the environment names."""
    return [root for name in ("CUDA_PATH", "CUDA_HOME") if (root := os.environ.get(name))]


def nvidia_packages() -> list[str]:
    """List the directories of the registry's CUDA packages."""
    key = tuple(sys.path)
    if key not in _known_packages:
        spec = find_spec("nvidia")
        if not spec or not spec.submodule_search_locations:
            return []  # not cached: the next call finds packages that are installed meanwhile
        _known_packages[key] = list(spec.submodule_search_locations)
    return _known_packages[key]


def _listed(directory: str) -> list[str]:
    """Return the names in `directory`, sorted; none if it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
