"""Names in sources and in template arguments, as far as a glance at the text shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator

# Brackets and commas, besides literals and operators that hold them. An open quote is not searched for long.
_BRACKET = r"\d(?:'?[\w.])*|'(?:\\.|[^'\\]){0,64}'|\"(?:\\.|[^\"\\]){0,999}\"|->|<<|[<>]=|[()<>\[\]{},]"
_KERNEL = rb"__(?:tile_)?global__[^;{}]{0,2000}?\b(\w+)\s*\("
_LAUNCH_BOUNDS = (
    rb"__(?:launch_bounds|cluster_dims|block_size|maxnreg)__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
    rb"|\[\[[^\[\]]{0,1000}\]\]"
)
_COMMENT = rb'//[^\n]*|/\*.*?(?:\*/|\Z)|("(?:\\.|[^"\\\n])*")'


def split_arguments(text: str) -> Iterator[str]:
    """Split `text`, a list of arguments or declarators, at the commas outside of brackets.

    >>> list(split_arguments("pair<int, float>, 256"))
    ['pair<int, float>', '256']
    """
    depth, start = 0, 0
    for match in re.finditer(_BRACKET, text, re.DOTALL):
        if match[0] == "," and not depth:
            yield text[start : match.start()].strip()
            start = match.end()
        depth += _step(match[0])
    if text[start:].strip():
        yield text[start:].strip()


def take_parentheses(text: str) -> tuple[str, str] | None:
    """Divide `text` into what the parentheses at its start enclose, and what follows them.

    >>> take_parentheses("(pair<int, float>) const")
    ('pair<int, float>', 'const')
    """
    depth = 0
    for match in re.finditer(_BRACKET, text, re.DOTALL):
        depth += _step(match[0])
        if not depth and match[0] != ",":
            break
    if depth or not text.startswith("("):
        return None
    return text[1 : match.start()].strip(), text[match.end() :].strip()


def _step(token: str) -> int:
    """How much deeper in brackets what follows `token` is."""
    return (token in "<([{") - (token in ">)]}")


def kernel_names(text: bytes) -> set[str]:
    """Find the kernels that `text` defines, except those that macros define.

    >>> kernel_names(b"__global__ void __launch_bounds__(256) k(int* x) {} // __global__ void no()")
    {'k'}
    """
    return {name.decode() for name in re.findall(_KERNEL, code_of(text), re.DOTALL)}


def code_of(text: bytes) -> bytes:
    """`text` without comments, launch bounds and attributes."""
    return re.sub(_LAUNCH_BOUNDS, b"", re.sub(_COMMENT, rb"\1", text, flags=re.DOTALL))


def choose_sources(
    kernel: str,
    sources: Iterable[str],
    built: Collection[str],
    texts_of: Callable[[str], Iterable[tuple[str, Collection[str]]]],
    can_compile: Callable[[str], bool],
) -> list[str]:
    """Choose the source from which the template `kernel`, a plain name, is instantiated on demand.

    `texts_of` lists a source and its headers, each with the kernels that it defines. Of the sources that have
    the template from the same headers it is the first: of those that `can_compile`, and of the `built` ones,
    which have instantiations of it. Several are returned if each has a template of its own.
    """
    groups: dict[object, list[str]] = {}
    for source in sources:
        own, *headers = texts_of(source)
        if kernel in own[1]:
            groups[source] = [source]
        elif defining := frozenset(name for name, kernels in headers if kernel in kernels):
            groups.setdefault(defining, []).append(source)
    candidates = [group for key, group in groups.items() if isinstance(key, str)] or list(groups.values())
    with_built = [group for group in candidates if not set(built).isdisjoint(group)]
    return [min(g, key=lambda s: (not can_compile(s), s not in built)) for g in with_built or candidates]
