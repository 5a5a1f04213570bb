"""The output of ``ptxas -v``: the resources of each kernel, and diagnostics."""

from __future__ import annotations

import re
from dataclasses import replace

from cuda_ext.compiler.translation_unit import CompiledImage

__all__ = ["VERBOSE", "attach_log"]

# Makes ptxas report resources; NVRTC and nvcc pass it on.
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


def attach_log(image: CompiledImage, log: str) -> CompiledImage:
    """Return `image` with the resources that `log` reports, and with the rest of `log` as its diagnostics."""
    usage = dict(image.usage)
    _, *sections = _ENTRY.split(log)
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        if name in usage:
            matches = {key: re.search(pattern, section) for key, pattern in _COUNTS.items()}
            usage[name] = replace(
                usage[name],
                **{key: int(match[1]) if match else 0 for key, match in matches.items()},
                # From sm_90 on, ptxas 13 does not report it.
                constant=sum(map(int, _CONSTANT.findall(section))) or None,
            )
    return replace(image, log=_LINE.sub("", log).strip(), usage=usage)
