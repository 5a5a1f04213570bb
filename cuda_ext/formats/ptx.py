"""Read the target, kernels, parameters and variables of PTX."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator

from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Parameter, ParameterKind
from cuda_ext.facts.symbols import Symbol

# Patterns, which the module re compiles at their first use. Lines begin with [ \t]*, since \s* spans
# lines and takes quadratic time over empty ones.
_TARGET = rb"(?m)^[ \t]*\.target\s+sm_([1-9]\d{1,3})([af]?)"
_ENTRY = rb"\.entry\s+([\w$.]+)\s*(?:\(([^()]*)\))?"
_BODY = rb"(?ms)^[^\n]*\.entry\s+([\w$.]+)(.*?)(?:^\}|\Z)"
# Labels contain the number of the function in the file.
_LABEL = rb"\$L_\w*?\d+_"
_PARAMETER = (
    rb"\.param\s+(?:\.align\s+(?P<align>[1-9]\d{0,4})\s+)?\.(?P<type>[a-z]+\d{1,3}|pred)\s*"
    rb"(?P<pointer>\.ptr\b[^,\n]*?)?\s*(?P<name>[\w$]+)\s*(?:\[(?P<count>\d{1,9})\])?\s*(?:,|$)"
)
_DECLARATOR = (
    rb"\.(?P<space>global|const)\s+"
    rb"(?:\.align\s+\d+\s+|\.attribute\([^)]{0,200}\)\s+|\.v(?P<vector>[24])\s+)*"
    rb"\.(?P<type>[a-z]+\d{1,3})\s+(?P<name>[\w$]+)(?P<counts>(?:\[\d{1,15}\])*)"
)
_VARIABLE = rb"(?m)^[ \t]*(?:\.(?:visible|weak|common)[ \t]+)*" + _DECLARATOR
# A variable that no other unit needs: an internal one, or a weak one, which other units define themselves.
# Its initial value ends before the next variable, even if the semicolon is missing.
_INITIAL = rb"\s*=[^;.]*(?:\.(?!global|const)[^;.]*)*"
_DISCARDABLE = rb"(?m)^[ \t]*(?:\.weak\s+)?" + _DECLARATOR + rb"(?:" + _INITIAL + rb")?;[ \t]*\n?"
# A comment with the linkage of a function, its declaration, or its definition.
_FUNCTION = (
    rb"(?m)^[ \t]*// \.(?:globl|weak)[ \t]+(?:NAMES)\n"
    rb"|^[^\n]*\.(?:entry|func)[ \t]+(?:NAMES)\s*\((?s:.*?)^[};][ \t]*\n"
)
_DECLARATION = rb"(?m)^[^\n]*\.entry[ \t]+([\w$]+)\s*\([^()]*\)\s*;[ \t]*\n"
_ADDRESS = rb"(mov\.[ub]64|cvta\.\w+\.u64)\s+(%\w+), ([\w$%]+);|st\.volatile\.\S+\s+\[[^\]]*\], (%\w+);"
_UNDEFINED = rb"\.extern\s+\.func\s+(?:\([^()]*\)\s*)?([\w$]+)"
# Functions that the driver provides when it compiles PTX.
_PROVIDED_BY_THE_DRIVER = {"__assertfail", "free", "malloc", "vprintf"}
_LARGEST = 1 << 40  # the largest size of a variable in bytes, as in a manifest
_COMMENT = rb"(?s)//[^\n]*|/\*.*?(?:\*/|\Z)"


# The types that PTX states reliably. Compilers also write u32 for signed integers, and u64 for addresses.
_KINDS: dict[str, tuple[ParameterKind, str]] = {
    "f32": ("float", "float"),
    "f64": ("float", "double"),
    "s8": ("integer", "signed char"),
    "s16": ("integer", "short"),
    "s32": ("integer", "int"),
    "s64": ("integer", "long long"),
}


def target(ptx: bytes) -> Architecture | None:
    """Return the target of `ptx`."""
    match = re.search(_TARGET, ptx)
    return Architecture("ptx", int(match[1]), match[2].decode()) if match else None


def kernels(ptx: bytes) -> dict[str, tuple[Parameter, ...]]:
    """List the entries by lowered name, with their parameters in order, in the types of PTX."""
    entries = re.findall(_ENTRY, re.sub(_COMMENT, b"", ptx))
    return {name.decode(): tuple(_parameters(declarations.strip())) for name, declarations in entries}


def code(ptx: bytes) -> dict[str, bytes]:
    """List the text of each entry by lowered name, without comments and the numbers of functions."""
    plain = re.sub(_LABEL, b"$L_", re.sub(_COMMENT, b"", ptx))
    return {name.decode(): body for name, body in re.findall(_BODY, plain)}


def variables(ptx: bytes) -> dict[str, Symbol]:
    """List the ``.global`` and ``.const`` variables at module scope, by lowered name. Types are unknown."""
    symbols = {}
    for match in re.finditer(_VARIABLE, re.sub(_COMMENT, b"", ptx)):
        name = match["name"].decode()
        counts = [int(match["vector"] or 1), *map(int, re.findall(rb"\d+", match["counts"]))]
        size = _width(match["type"]) * math.prod(counts)
        if size >= _LARGEST:
            continue  # the driver refuses such a variable
        symbols[name] = Symbol(
            name, name, 0, "constant" if match["space"] == b"const" else "device", "char", size
        )
    return symbols


def discardable_variables(ptx: bytes) -> list[str]:
    """List the internal and weak variables by lowered name."""
    return [match["name"].decode() for match in re.finditer(_DISCARDABLE, ptx)]


def without_variables(ptx: bytes, kept: Collection[str]) -> bytes:
    """Remove the internal and weak variables, except `kept` and those that code or another variable uses."""
    found = {match["name"]: match[0] for match in re.finditer(_DISCARDABLE, ptx)}
    if not found:
        return ptx
    rest = re.sub(_COMMENT, b"", re.sub(_DISCARDABLE, b"", ptx))
    unseen = {name.encode() for name in kept}.union(re.findall(rb"[\w$]+", rest)) & found.keys()
    used: set[bytes] = set()
    while unseen:
        used |= unseen
        initial = b" ".join(found[name] for name in unseen)
        unseen = (found.keys() & re.findall(rb"[\w$]+", initial)) - used
    return re.sub(_DISCARDABLE, lambda match: match[0] if match["name"] in used else b"", ptx)


def undefined(ptx: bytes) -> tuple[str, ...]:
    """List the functions that `ptx` calls and that neither `ptx` nor the driver defines."""
    declared = {name.decode() for name in re.findall(_UNDEFINED, re.sub(_COMMENT, b"", ptx))}
    return tuple(sorted(declared - _PROVIDED_BY_THE_DRIVER))


def stored_addresses(ptx: bytes, entry: str) -> tuple[str, ...]:
    """List the lowered names whose addresses the kernel `entry` stores as ``volatile``, in order."""
    body = re.search(rb"(?s)\.entry %s\(.*?\n\}" % entry.encode(), ptx)
    held: dict[bytes, bytes] = {}  # by register
    stored = []
    for move, register, name, stored_register in re.findall(_ADDRESS, body[0] if body else b""):
        if move:
            held[register] = held.get(name, name)  # variables are converted to generic addresses
        else:
            stored.append(held.get(stored_register, b"").decode())
    return tuple(stored)


def without_functions(ptx: bytes, names: bytes) -> bytes:
    """Remove the kernels and functions whose names match the pattern `names`, and declarations for their use.

    If nothing else refers to a kernel, only its definition remains.
    """
    rest = re.sub(_FUNCTION.replace(b"NAMES", names), b"", ptx)
    if not re.search(_DECLARATION, rest):
        return rest
    text = re.sub(_COMMENT, b"", re.sub(_DECLARATION, b"", rest))
    counts = Counter(re.findall(rb"[\w$]+", text))
    unused = {name for name, _ in re.findall(_ENTRY, text) if counts[name] == 1}
    return re.sub(_DECLARATION, lambda match: b"" if match[1] in unused else match[0], rest)


def _parameters(declarations: bytes) -> Iterator[Parameter]:
    offset = 0
    for index, match in enumerate(re.finditer(_PARAMETER, declarations)):
        width = _width(match["type"])
        size, align = width * int(match["count"] or 1), int(match["align"] or width)
        offset = -(-offset // align) * align
        yield _parameter(match, index, size, offset)
        offset += size


def _parameter(match: re.Match[bytes], index: int, size: int, offset: int) -> Parameter:
    # Compilers number the parameters of a kernel; hand-written PTX names them.
    name, type_ = match["name"].decode(), match["type"].decode()
    name = f"arg{index}" if name.endswith(f"_param_{index}") else name
    if match["pointer"]:
        return Parameter(name, "void*", "pointer", size, offset, element="void")
    if match["count"]:
        return Parameter(name, f".{type_}[{int(match['count'])}]", "opaque", size, offset)
    kind, spelling = _KINDS.get(type_, ("opaque", f".{type_}"))
    return Parameter(name, spelling, kind, size, offset)


def _width(type_: bytes) -> int:
    """Return the size of a PTX type in bytes: 8 for ``u64``, and at least 1."""
    return max(1, int(re.sub(rb"\D", b"", type_) or 8) // 8)
