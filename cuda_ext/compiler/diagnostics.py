"""The compiler's own text, with what an author needs to know besides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cuda_ext.compiler.names import normalise, split_template

__all__ = ["explain"]

_MISSING_HEADER = re.compile(
    r'^(?P<place>.+?\(\d+\)): (?:catastrophic|fatal) error: '
    r'(?:cannot open source file "(?P<name>[^"]+)"|(?P<name2>\S+): No such file or directory)',
    re.MULTILINE,
)
_BAD_EXPRESSION = re.compile(r'Input name expression was: "\s*(.*?)\s*"')
_NAME_MAP = re.compile(
    r"^__nv_name_map\(\d+\): (?:error|note).*?(?=^\S+\(\d+\): |^\d+ errors? detected|\Z)",
    re.MULTILINE | re.DOTALL,
)
_KERNEL = re.compile(rb"__global__[^;{]*?\b(\w+)\s*\(", re.DOTALL)


def explain(
    log: str, *, source: bytes, header_directories: Iterable[Path], host_headers: bool
) -> str:
    """Append remedies to `log`, a failed compilation's text.

    `host_headers` says whether the compiler can read the host's C++ library; NVRTC cannot.
    """
    notes = []
    bad_expressions = dict.fromkeys(map(normalise, _BAD_EXPRESSION.findall(log)))
    reasons = _NAME_MAP.findall(log)
    log = _NAME_MAP.sub("", log)
    for expression in bad_expressions:
        reason = next((r for r in reasons if _first_name(expression) in r), "")
        notes.append(_about_instantiation(expression, reason, source))
    if bad_expressions:
        # The compiler's count includes the lines that were taken out.
        log = re.sub(r"^\d+ errors? detected in the compilation of .*\n?", "", log, flags=re.MULTILINE)
    for match in _MISSING_HEADER.finditer(log):
        name = match["name"] or match["name2"]
        if not host_headers:
            notes.append(_about_header(match["place"], name, header_directories))
    return "\n".join([log.strip(), *notes]).strip()


def _about_instantiation(expression: str, reason: str, source: bytes) -> str:
    name, _ = split_template(expression)
    plain = name.rpartition("::")[2]
    kernels = sorted({k.decode() for k in _KERNEL.findall(source)} - {"__launch_bounds__"})
    close = difflib.get_close_matches(plain, kernels, n=1)
    text = f"instantiation {expression!r} does not exist"
    if match := re.search(r"error: (.*)", reason):
        text += f": {match[1]}"
    if close and close[0] != plain:
        text += f"; did you mean {expression.replace(plain, close[0], 1)!r}?"
    elif kernels and not close:
        text += f"; this source defines {', '.join(kernels)}"
    return text


def _first_name(expression: str) -> str:
    return split_template(expression)[0].rpartition("::")[2]


def _about_header(place: str, name: str, directories: Iterable[Path]) -> str:
    equivalent: Sequence[str] = [f"cuda/std/{name}", f"cuda/std/{name.removesuffix('.h')}"]
    if name.endswith(".h"):
        equivalent = [f"cuda/std/c{name.removesuffix('.h')}", *equivalent]
    for directory in directories:
        for candidate in equivalent:
            if (directory / candidate).is_file():
                return (
                    f"{place}: NVRTC has no host headers; include <{candidate}> instead of <{name}> "
                    '(its names are in cuda::std), or set compiler = "nvcc"'
                )
    return (
        f'{place}: "{name}" is neither in the include-dirs nor among the headers of NVRTC; if it is a header '
        'of the host compiler, keep it out of device code or set compiler = "nvcc"'
    )
