"""Sources of CUDA Tile C++: find their tile kernels, and divide a source into units.

A source may have kernels of both kinds. They share neither images nor variables, so it becomes two units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cuda_ext.compiler.compile_options import enables_tile
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.formats.spelling import base_name, normalise, plain_name
from cuda_ext.text.declarations import Declaration, find_declarations

_SPECIFIER = b"__tile_global__"
# The oldest C++ standard of CUDA's header for tiles.
_STANDARD = "c++20"


def enable_tile(unit: TranslationUnit, *, keep_standard: bool) -> TranslationUnit:
    """Return `unit`, with the options for tile kernels if it has some."""
    options = unit.options
    if not enables_tile(options):
        if not any(kernel.is_tile for kernel in _kernels(unit)):
            return unit
        options = options._replace(raw=(*options.raw, "--enable-tile"))
    return unit.replace(options=options if keep_standard else options._replace(std=_STANDARD))


class Part(NamedTuple):
    """A unit of a source. Its files are named after the source and the ``suffix``.

    ``may_be_empty`` is true if the unit may define no kernel. Another unit of the source then does.
    """

    unit: TranslationUnit
    suffix: str = ""
    may_be_empty: bool = False


def divide(unit: TranslationUnit, instantiate: Iterable[str]) -> list[Part]:
    """Return the parts of a source with its instantiations; the part of its tile kernels comes last.

    A part with nothing but uninstantiated templates is left out, unless all parts are such.
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
    """Find the kernels of a unit that may have tile kernels; return none for other units, to save time."""
    texts = (unit.source, *unit.headers.values())
    return find_declarations(texts).kernels if any(_SPECIFIER in text for text in texts) else ()


def _is_tile(expression: str, kernels: Sequence[Declaration]) -> bool:
    """Return True if `expression` names one of the tile kernels among `kernels`."""
    name = plain_name(expression)
    alike = [kernel for kernel in kernels if base_name(kernel.name) == base_name(name)]
    exact = [kernel for kernel in alike if kernel.name == name]
    return any(kernel.is_tile for kernel in exact or alike)
