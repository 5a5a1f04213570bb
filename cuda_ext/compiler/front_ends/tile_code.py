"""Sources of CUDA Tile C++: which of their kernels are tile kernels, and the units that they make.

A source may have kernels of both sorts. They share neither images nor variables, so it makes two units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cuda_ext.compiler.compile_options import enables_tile
from cuda_ext.compiler.signatures.declarations import Declaration, find_declarations
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.formats.spelling import base_name, normalise, plain_name

_SPECIFIER = b"__tile_global__"
# What CUDA's header of tiles needs.
_STANDARD = "c++20"


def enable_tile(unit: TranslationUnit, *, keep_standard: bool) -> TranslationUnit:
    """Return `unit` with the options that its tile kernels need, if it has some."""
    options = unit.options
    if not enables_tile(options):
        if not any(kernel.is_tile for kernel in _kernels(unit)):
            return unit
        options = options._replace(raw=(*options.raw, "--enable-tile"))
    return unit.replace(options=options if keep_standard else options._replace(std=_STANDARD))


class Part(NamedTuple):
    """A unit of a source. Its files are named after the source and the ``suffix``.

    It ``may_be_empty`` if the source alone does not tell whether it has kernels: others of the source have.
    """

    unit: TranslationUnit
    suffix: str = ""
    may_be_empty: bool = False


def divide(unit: TranslationUnit, instantiate: Iterable[str]) -> list[Part]:
    """Return the parts of a source with its instantiations; that of its tile kernels comes last.

    There is none that would have templates alone which nothing instantiates, unless all are.
    """
    if unit.kind != "cu":
        return [Part(unit.replace(instantiate=tuple(instantiate)))]
    requested = {normalise(expression): expression for expression in instantiate}
    kernels = _kernels(unit) if enables_tile(unit.options) else ()
    of_tiles = {name: written for name, written in requested.items() if _is_tile(name, kernels)}
    others = {name: written for name, written in requested.items() if name not in of_tiles}
    if not any(kernel.is_tile for kernel in kernels):
        return [Part(unit.replace(instantiate=tuple(others.values())))]
    parts: list[Part] = []
    for is_tile, requests in ((False, others), (True, of_tiles)):
        functions = [k for k in kernels if k.is_tile == is_tile and not k.template]
        if requests or functions:
            own = unit.replace(kind="tile" if is_tile else "cu", instantiate=tuple(requests.values()))
            is_certain = requests or any(k.is_plain and k.is_definition for k in functions)
            parts.append(Part(own, "-tile" if parts else "", not is_certain))
    if len(parts) == 2:
        return parts
    return [part._replace(may_be_empty=False) for part in parts] or [Part(unit.replace(kind="tile"))]


def _kernels(unit: TranslationUnit) -> Sequence[Declaration]:
    """The kernels of a unit that may have tile kernels; none of others, to save the time."""
    texts = (unit.source, *unit.headers.values())
    return find_declarations(texts).kernels if any(_SPECIFIER in text for text in texts) else ()


def _is_tile(expression: str, kernels: Sequence[Declaration]) -> bool:
    """Whether `expression` names one of the tile kernels among `kernels`."""
    name = plain_name(expression)
    alike = [kernel for kernel in kernels if base_name(kernel.name) == base_name(name)]
    exact = [kernel for kernel in alike if kernel.name == name]
    return any(kernel.is_tile for kernel in exact or alike)
