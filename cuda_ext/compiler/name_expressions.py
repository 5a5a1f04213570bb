"""Names in sources and in template arguments: the kernels and types that a source defines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cuda_ext.errors import closest_name
from cuda_ext.formats.spelling import template_name

__all__ = [
    "DeclaredNames",
    "closest_kernel",
    "code_of",
    "declared_names",
    "kernel_names",
    "split_arguments",
    "template_head",
]

# Brackets and commas, besides literals and operators that hold them.
_BRACKET = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|->|<<|[<>]=|[()<>\[\]{},]"
_KERNEL = rb"__global__[^;{}]*?\b(\w+)\s*\("
_LAUNCH_BOUNDS = rb"__(?:launch_bounds|cluster_dims|block_size|maxnreg)__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
_COMMENT = rb'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")'


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
        depth += (match[0] in "<([{") - (match[0] in ">)]}")
    if text[start:].strip():
        yield text[start:].strip()


def kernel_names(text: bytes) -> set[str]:
    """Find the kernels that `text` defines, except those that macros define.

    >>> kernel_names(b"__global__ void __launch_bounds__(256) k(int* x) {} // __global__ void no()")
    {'k'}
    """
    return {name.decode() for name in re.findall(_KERNEL, code_of(text), re.DOTALL)}


def code_of(text: bytes) -> bytes:
    """`text` without comments and launch bounds."""
    return re.sub(_LAUNCH_BOUNDS, b"", re.sub(_COMMENT, rb"\1", text, flags=re.DOTALL))


class DeclaredNames(NamedTuple):
    """The qualified names of kernels and types."""

    kernels: set[str]
    types: set[str]


_DECLARATION = rb"""
    "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | (?P<transparent> extern \s* "C(?:\+\+)?" \s* \{ | \binline \s+ namespace \s+ \w+ \s* \{)
    | \bnamespace \b (?P<namespace>[\w:\s]*) \{
    | (?P<open>\{) | (?P<close>\})
    | __global__ [^;{}]*? \b (?P<kernel>\w+) \s* \(
    | \b(?:struct|class|union|enum(?:\s+(?:class|struct))?) \s+ (?:alignas\s*\([^()]*\)\s*)? (?P<type>\w+)
      (?=\s*[:;{])
    | \busing \s+ (?P<alias>\w+) \s* =
    | \btypedef \b [^;{}]*? \b (?P<typedef>\w+) \s* ;
"""


def declared_names(texts: Iterable[bytes]) -> DeclaredNames:
    """Find the kernels and types that `texts` declare in namespaces, except those of macros.

    >>> declared_names([b"namespace a::b { struct S {}; template <class T> __global__ void k(T) {} }"])
    DeclaredNames(kernels={'a::b::k'}, types={'a::b::S'})
    """
    names = DeclaredNames(set(), set())
    for text in texts:
        # The namespaces around a declaration; None for the braces of functions and types.
        scopes: list[str | None] = []
        for match in re.finditer(_DECLARATION, code_of(text), re.DOTALL | re.VERBOSE):
            kind = match.lastgroup
            if kind == "transparent":
                scopes.append("")
            elif kind == "namespace":
                scopes.append("".join(match["namespace"].decode().split()))
            elif kind == "open":
                scopes.append(None)
            elif kind == "close":
                del scopes[-1:]
            elif kind and None not in scopes:
                name = "::".join(filter(None, [*scopes, match[kind].decode()]))
                (names.kernels if kind == "kernel" else names.types).add(name)
    return names


def closest_kernel(expression: str, kernels: Iterable[str]) -> str:
    """Return the normalised `expression` with the name that it most likely means, one of `kernels`.

    >>> closest_kernel("sofmax<float, 4>", ["ops::softmax", "ops::sum"])
    'ops::softmax<float, 4>'
    """
    name = template_name(expression)
    plain = name.rpartition("::")[2]
    by_plain: dict[str, list[str]] = {}
    for kernel in sorted(kernels):
        by_plain.setdefault(kernel.rpartition("::")[2], []).append(kernel)
    close = plain if plain in by_plain else closest_name(plain, by_plain)
    return closest_name(name, by_plain[close], 0) + expression[len(name) :] if close else ""


def template_head(kernel: str, texts: Iterable[bytes]) -> str:
    """Return the head of the template `kernel`, a plain name, if one of `texts` declares it.

    >>> template_head("k", [b"template <class T,  int N> __global__ void k(T) {}"])
    'template <class T, int N>'
    """
    pattern = (
        rb"template\s*<((?:[^<>;{}]|<[^<>;{}]*>)*)>[^;{}<>]*__global__[^;{}]*?\b"
        + kernel.encode()
        + rb"\s*\("
    )
    found = (re.search(pattern, code_of(text)) for text in texts)
    return next((f"template <{' '.join(m[1].decode().split())}>" for m in found if m), "")
