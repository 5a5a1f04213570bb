"""What each kernel takes of a multiprocessor, out of what ``ptxas -v`` says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cuda_ext.compiler.translation_unit import Usage

__all__ = ["VERBOSE", "split_usage"]

# How ptxas is made to tell; both compilers hand it on.
VERBOSE = ("-Xptxas", "-v")

_ENTRY = re.compile(r"^ptxas info\s*: Compiling entry function '([^']+)' for ", re.MULTILINE)
_LINE = re.compile(
    r"^(?:ptxas info\s*: .*|(?:ptxas\s+\.)?\s+\d+ bytes (?:stack frame, .*|cumulative stack size.*))$\n?",
    re.MULTILINE,
)
_COUNTS = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "shared": r"(\d+) bytes smem",
}
_CONSTANT = re.compile(r"(\d+) bytes cmem\[")


def split_usage(log: str, code: Mapping[str, int]) -> tuple[str, dict[str, Usage]]:
    """Divide a compilation's text into what is for people, and the usage of each kernel by lowered name.

    `code` has the kernels and the size of their code.
    """
    told = {}
    _, *sections = _ENTRY.split(log)
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        counts = {key: re.search(pattern, section) for key, pattern in _COUNTS.items()}
        told[name] = {key: int(found[1]) if found else 0 for key, found in counts.items()}
        told[name]["constant"] = sum(map(int, _CONSTANT.findall(section)))
    usage = {name: Usage(size, **told.get(name, {})) for name, size in code.items()}
    return _LINE.sub("", log).strip(), usage
