"""Compiled sources, with the options that they were compiled with."""

from collections.abc import Mapping
from typing import NamedTuple


class Options(NamedTuple):
    """The compile options of a translation unit, independent of the compiler.

    ``raw`` options are passed on unchanged, after all others. ``pre_include`` names headers that are
    included before the first line. ``relocatable`` requests device code that is linked later. With
    ``std_headers``, NVRTC finds the headers of the C++ standard library that libcu++ has. With
    ``skip_host_code``, it sees no host code.
    """

    std: str = "c++17"
    define: Mapping[str, str] = {}
    raw: tuple[str, ...] = ()
    pre_include: tuple[str, ...] = ()
    fast_math: bool = False
    relaxed_constexpr: bool = False
    relocatable: bool = False
    std_headers: bool = True
    skip_host_code: bool = False

    def __hash__(self) -> int:
        return hash((self.std, self.raw, self.pre_include))  # a mapping has no hash


class Source(NamedTuple):
    """A compiled source: its path within the project, its options, and the requested name expressions.

    ``sha256`` is the digest of its text, and of the project's headers that it can include, with their names.
    """

    name: str
    sha256: str = ""
    options: Options = Options()
    instantiate: tuple[str, ...] = ()
