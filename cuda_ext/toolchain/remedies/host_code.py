"""Remedies for host code, which NVRTC does not compile: functions, variables, and the host's library."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.toolchain.diagnostics import split_messages
from cuda_ext.toolchain.remedies.missing_types import HEADER_OF

# The beginnings of NVRTC's messages about host code, with our texts and remedies. NVRTC itself speaks of a
# JIT mode, and of an option that is a key here.
_KINDS = (
    (
        "A function without execution space annotations",
        "a function without __device__ or __global__ is host code, which NVRTC does not compile",
        "write __device__ before functions that kernels call; {move}",
    ),
    (
        "A function explicitly marked as a __host__ function",
        "a __host__ function is host code, which NVRTC does not compile",
        "write __host__ __device__ before functions that kernels call; {move}",
    ),
    (
        "A namespace scope variable without memory space annotations",
        "a variable without __device__ or __constant__ is host data, which NVRTC does not compile",
        "write constexpr, __device__ or __constant__ before variables that kernels read; set {nvcc} for "
        "sources with variables of the host",
    ),
    (
        "__host__ or __device__ annotation on lambda",
        "a lambda with __device__ or __host__ is not allowed under NVRTC",
        "leave the annotation out: within a kernel, a lambda is device code without it",
    ),
)
_SHOWN = 3  # the number of names of a kind
_NO_MEMBER = 'namespace "std" has no member'
_CONSTEXPR = "a constexpr function without __device__ is host code, which NVRTC does not compile"
# NVRTC finds such a function at its definition, and nvcc at the call in a kernel.
_HOST_CONSTEXPR = (
    r"\S.*: error: (?:A function without execution space annotations.*\n.*\bconstexpr\b"
    r"|calling a constexpr __host__ function)"
)


def explain_host_code(log: str, nvrtc_headers: Callable[[], Sequence[Path]]) -> tuple[str, list[str]]:
    """Reword NVRTC's `log` about host code, and return it with a remedy for each kind of it."""
    notes = []
    nvcc = spell_setting("compiler", "nvcc")
    move = f"move host code to another file, or set {nvcc}, which leaves host code out of the images"
    log, header = _without_tool_chain(_without_consequences(log), nvrtc_headers)
    log, about_constexpr = explain_host_constexpr(log)
    notes += about_constexpr
    if header:
        notes.append(
            f"{header}: this header of the tool chain is for host code; leave it out, or set {nvcc}, which "
            "leaves host code out of the images"
        )
    for beginning, problem, remedy in _KINDS:
        places = re.findall(rf"(?m)^(.+\(\d+\)): error: {beginning}", log)
        log = re.sub(rf"error: {beginning}.*", f"error: {problem}", log)
        if places and places[0] != header:
            notes.append(f"{places[0]}: {remedy.format(nvcc=nvcc, move=move)}")
    if members := _names(rf'{_NO_MEMBER} "(\w+)"', log):
        header = HEADER_OF.get(members[0], "cuda/std/algorithm")
        notes.append(
            f"{_listed('std::', members)}: of the host's C++ library, which NVRTC does not have; use "
            f"cuda::std and its headers, such as <{header}>, or set {nvcc}"
        )
    if functions := _names(r'identifier "(cuda[A-Z]\w+)" is undefined', log):
        remedy = "" if notes else f"; {move}"
        notes.append(f"{_listed('', functions)}: of the CUDA runtime, for host code{remedy}")
    return log, notes


def explain_host_constexpr(log: str) -> tuple[str, list[str]]:
    """Reword `log` about constexpr host functions that kernels call, and return it with the remedy."""
    blocks = split_messages(log)
    found = [block for block in blocks if re.match(_HOST_CONSTEXPR, block)]
    if not found:
        return log, []
    for block in found[_SHOWN:]:
        blocks.remove(block)
    more = [f"... and {len(found) - _SHOWN} more of that kind"] if len(found) > _SHOWN else []
    log = "\n\n".join([*blocks, *more])
    log = re.sub(r"error: A function without execution .*(?=\n.*\bconstexpr\b)", f"error: {_CONSTEXPR}", log)
    log = re.sub(r"(error: calling a constexpr __host__ function.* is not allowed)\..*", r"\1", log)
    place = found[0].partition(": error: ")[0]
    relaxed = spell_setting("relaxed-constexpr", True)
    return log, [f"{place}: set {relaxed}, or write __host__ __device__ before constexpr functions"]


def _without_consequences(log: str) -> str:
    """Remove further errors of lines that name missing parts of the C++ library from `log`."""
    places = set(re.findall(rf"(?m)^(.+\(\d+\)): error: {_NO_MEMBER}", log))
    blocks = split_messages(log)
    causes = re.compile(f'{_NO_MEMBER}|identifier "cuda')
    kept = [each for each in blocks if causes.search(each) or each.partition(": error: ")[0] not in places]
    return "\n\n".join(kept)


def _without_tool_chain(log: str, nvrtc_headers: Callable[[], Sequence[Path]]) -> tuple[str, str]:
    """Keep only the first of the errors in `log` that lie in headers for host code; also return its place."""
    if not any(re.search(rf"(?m)^/.+\): error: {beginning}", log) for beginning, *_ in _KINDS):
        return log, ""
    directories = tuple(f"{directory}/" for directory in nvrtc_headers())
    blocks = split_messages(log)
    inside = [block for block in blocks if block.startswith(directories)]
    if not inside:
        return log, ""
    kept = [block for block in blocks if block is inside[0] or not block.startswith(directories)]
    return "\n\n".join(kept), inside[0].partition("): ")[0] + ")"


def _names(pattern: str, log: str) -> list[str]:
    return list(dict.fromkeys(re.findall(pattern, log)))


def _listed(prefix: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(prefix + name for name in names[:_SHOWN]) + more
