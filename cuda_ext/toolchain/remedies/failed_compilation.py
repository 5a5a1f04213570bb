"""Write the text of a failed compilation: the compiler's errors, and remedies for known causes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cuda_ext.compiler.compile_options import nvcc_only
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError, join_names
from cuda_ext.toolchain.diagnostics import shorten_output, split_messages
from cuda_ext.toolchain.remedies.bad_instantiations import HEADERS, explain_instantiations
from cuda_ext.toolchain.remedies.missing_headers import (
    CUDA_H,
    explain_missing_headers,
    fill_in,
    leave_out_host_code,
)


class _Remedy(NamedTuple):
    """The sentence about messages that match ``pattern``; ``instead`` takes the place of the matched text.

    Groups of the pattern are the subject of the sentence: a name. Without a group, this is the place of the
    message.
    """

    pattern: str
    sentence: str
    instead: str = ""

    @property
    def is_cause(self) -> bool:
        """True for messages about an unknown name: others follow from it, be it in other lines."""
        return bool(self.sentence and not self.instead)


# The first remedy that matches a message counts.
_REMEDIES = (
    # NVRTC finds such a function at its definition, and nvcc at the call in a kernel.
    _Remedy(
        r"error: A function without execution space annotations.*(?=\n.*\bconstexpr\b)",
        "set {relaxed}, or write __host__ __device__ before constexpr functions",
        "error: a constexpr function without __device__ is host code, which NVRTC does not compile",
    ),
    _Remedy(
        r" is not allowed\..*--expt-relaxed-constexpr.*",
        "set {relaxed}, or write __host__ __device__ before constexpr functions",
        " is not allowed",
    ),
    *(
        _Remedy(rf'error: identifier "({"|".join(names)})" is undefined', f"add #include <{header}>")
        for header, names in HEADERS.items()
    ),
    _Remedy(
        "uses too much shared data",
        "__shared__ arrays of a fixed size have 48 KiB together; declare a larger one extern __shared__, "
        "and give its size to the launch as shared=",
    ),
    _Remedy(
        r"Unresolved extern function '(\S+)'",
        "this source does not define it; if another one does, set {link}",
    ),
    _Remedy(
        r"kernel launch from __device__ or __global__ functions requires separate compilation mode"
        r"|device-side kernel launch could not be processed as the required runtime APIs are not declared",
        "kernels that launch kernels are linked with the device runtime library: set {link}",
    ),
)
# Host code. NVRTC itself speaks of a JIT mode, and of an option that is a key here.
_FOR_NVRTC = (
    _Remedy(
        "A function (?:without execution space annotations|explicitly marked as a __host__ function).*",
        "write __device__ before functions that kernels call; for others {move}",
        "a function without __device__ or __global__ is host code, which NVRTC does not compile",
    ),
    _Remedy(
        "A namespace scope variable without memory space annotations.*",
        "write constexpr, __device__ or __constant__ before variables that kernels read; for others {move}",
        "a variable without __device__ or __constant__ is host data, which NVRTC does not compile",
    ),
    _Remedy(
        r'namespace "(std)" has no member "(\w+)"',
        "add the standard header that declares it, such as <cstdint> or <algorithm>; the names of std are "
        "those of libcu++, and what it lacks is for host code: {move}",
    ),
    _Remedy(
        r'"cuda::std::(?:__\d+::)?(\w+)<.*" cannot be specialized in the current scope',
        "the names of std are those of libcu++; specialize them outside of std, as in "
        "template <> struct std::hash<Key>",
    ),
    _Remedy(
        r'identifier "(cuda[A-Z]\w+)" is undefined',
        "this name of the CUDA runtime is for host code; {move}",
    ),
)
_IN_TOOL_CHAIN = _Remedy(
    "(?<=error: ).*",
    "this header of the tool chain is for host code; leave it out, or set {nvcc}, which leaves host code out "
    "of the images",
    "this is host code, which NVRTC does not compile",
)
_IN_CUDA_H = _IN_TOOL_CHAIN._replace(sentence=CUDA_H)
_UNKNOWN = _Remedy("(?s)(.+)", "")
_PLACE = re.compile(r"(\S.*\(\d+\)): error: ")
_MESSAGES_SHOWN = 2  # of each remedy, and of those without one
_NAMES_SHOWN = 3

# Lines that are not about the failure: hints about warnings, and counts of errors, some of which are removed.
_ASIDES = (
    r"(?m)^(?:Remark: The warnings can be suppressed .*\n?|"
    r".*\berrors? detected in the compilation of .*|[Cc]ompilation terminated\.|Error limit reached\.)\n?"
)
_OPTION = r"nvrtc: error: unrecognized option (?P<nvrtc>\S+) found|nvrtc: error|Command-line error|nvcc fatal"


def explain(
    log: str,
    unit: TranslationUnit,
    nvrtc_headers: Callable[[], Sequence[Path]] | None = None,
    compile_again: Callable[[TranslationUnit], str] = lambda _: "",
) -> CompilationError:
    """Make the error of a failed compilation: its `log` with remedies, and without unrelated lines.

    `compile_again` returns the compiler's text about a changed unit. With `nvrtc_headers`, NVRTC's header
    directories, the log is NVRTC's, which compiles no host code; otherwise it is nvcc's. If an option is at
    fault, the error's ``where`` is ``options``.
    """
    log, notes = explain_instantiations(re.sub(_ASIDES, "", log), unit, by_nvrtc=nvrtc_headers is not None)
    log, about_headers = explain_missing_headers(log, unit, nvrtc_headers, compile_again)
    log, about_messages = _explain_messages(log.strip(), nvrtc_headers)
    notes += about_headers + about_messages
    if option := re.match(_OPTION, log):
        notes.append(_about_option(option["nvrtc"]))
    remedies = "\n".join(dict.fromkeys(notes))
    if unit.options.skip_host_code:
        remedies = remedies.replace(leave_out_host_code(), "")
    text = f"{shorten_output(log)}\n{shorten_output(remedies)}".strip()
    return CompilationError(text, where="options" if option and unit.options.raw else "")


def _explain_messages(log: str, nvrtc_headers: Callable[[], Sequence[Path]] | None) -> tuple[str, list[str]]:
    """Return `log` with the first messages of each known cause and few others, and the remedies."""
    table = (*_REMEDIES, *_FOR_NVRTC) if nvrtc_headers else _REMEDIES
    is_in_header = re.search(r"(?m)^(?:/|\w:).*: error: ", log)
    tool_chain = tuple(f"{each}/" for each in nvrtc_headers()) if nvrtc_headers and is_in_header else ()
    messages = [(text, _remedy_of(text, table, tool_chain)) for text in split_messages(log)]
    if all(remedy is _UNKNOWN for _, remedy in messages):
        return log, []
    causes = {_place_of(text) for text, remedy in messages if remedy.is_cause}
    subjects: dict[_Remedy, list[str]] = {}
    shown: list[str] = []
    left_out = 0
    for text, own_remedy in messages:
        remedy = own_remedy if own_remedy.is_cause or not causes else _UNKNOWN
        place = _place_of(text)
        if place in causes and not remedy.is_cause:
            continue
        own = ["::".join(match.groups()) or place for match in re.finditer(remedy.pattern, text)]
        known = subjects.setdefault(remedy, [])
        new = [each for each in dict.fromkeys(own) if each not in known]
        if new and len(known) < _MESSAGES_SHOWN:
            shown.append(re.sub(remedy.pattern, remedy.instead, text) if remedy.instead else text)
        else:
            left_out += 1
        known += new
    if left_out:
        shown.append(f"... and {left_out} more messages")
    notes = [_note(remedy.sentence, about) for remedy, about in subjects.items() if remedy.sentence]
    return "\n\n".join(shown), notes


def _remedy_of(message: str, table: Iterable[_Remedy], tool_chain: tuple[str, ...]) -> _Remedy:
    remedy = next((remedy for remedy in table if re.search(remedy.pattern, message)), _UNKNOWN)
    is_known = remedy is not _UNKNOWN
    if not is_known or not message.startswith(tool_chain):
        return remedy
    return _IN_CUDA_H if _place_of(message).rpartition("(")[0].endswith("/cuda.h") else _IN_TOOL_CHAIN


def _place_of(message: str) -> str:
    match = re.match(_PLACE, message)
    return match[1] if match else ""


def _note(sentence: str, subjects: Sequence[str]) -> str:
    """Return the remedy `sentence` about `subjects`: names, or places, of which the first is enough."""
    remedy = fill_in(sentence)
    most = 1 if subjects[0].endswith(")") else _NAMES_SHOWN
    about = subjects[0] if most == 1 else join_names(subjects, most)
    return f"{about}: {remedy}" if about else remedy


def _about_option(unknown_to_nvrtc: str | None) -> str:
    if unknown_to_nvrtc and (found := nvcc_only([unknown_to_nvrtc])):
        return f"{unknown_to_nvrtc} is an option of nvcc; {found[1]}"
    if unknown_to_nvrtc:
        return fill_in("correct {name}, or take it out; for options of nvcc, set {nvcc}", unknown_to_nvrtc)
    return fill_in("this is about the options: see {std}, {options}, {define}, {pre_include} of the module")
