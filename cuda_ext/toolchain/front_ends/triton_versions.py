"""The minor versions of Triton that work, and how each differs from the newest."""

from __future__ import annotations

from typing import NamedTuple


class Differences(NamedTuple):
    """Properties of a minor version of Triton.

    ``added`` are the sources of the addresses that it adds to the parameters of each kernel: global scratch
    memory, and profiling scratch memory, which no launch uses.
    """

    added: tuple[str, ...] = ("scratch", "zero")


# As `triton.backends.nvidia.driver` of each version launches kernels.
VERSIONS = {
    "3.4": Differences(added=("scratch",)),
    "3.5": Differences(),
    "3.6": Differences(),
    "3.7": Differences(),
    "3.8": Differences(),
    "3.9": Differences(),
}


def differences_of(version: str) -> Differences:
    """Return the properties of `version`, such as ``3.9.0``."""
    return VERSIONS[".".join(version.split(".")[:2])]
