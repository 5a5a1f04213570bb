"""Remedies for types whose header is not included."""

from __future__ import annotations

import re

from cuda_ext.toolchain.diagnostics import split_messages

HEADER_OF = {
    **dict.fromkeys(("half", "half2", "__half", "__half2"), "cuda_fp16.h"),
    **dict.fromkeys(("nv_bfloat16", "__nv_bfloat16", "nv_bfloat162", "__nv_bfloat162"), "cuda_bf16.h"),
    **dict.fromkeys(("__nv_fp8_e4m3", "__nv_fp8_e5m2", "__nv_fp8_e8m0"), "cuda_fp8.h"),
    **dict.fromkeys(("cuFloatComplex", "cuDoubleComplex", "cuComplex"), "cuComplex.h"),
    **{f"{sign}int{bits}_t": "cuda/std/cstdint" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_UNKNOWN = r'^(\S.*\(\d+\)): error: identifier "(\w+)" is undefined'
_TYPES_SHOWN, _OTHERS_SHOWN = 3, 2


def explain_missing_types(log: str, by_nvrtc: bool) -> tuple[str, list[str]]:
    """Keep only the first error in `log` about each type that a header declares; return also these headers.

    An unknown type causes errors about everything that follows. So few other errors are left.
    """
    blocks = split_messages(log.strip("\n"))
    unknown: dict[str, str] = {}
    places = set()
    for block in blocks:
        if (match := re.match(_UNKNOWN, block)) and match[2] in HEADER_OF:
            unknown.setdefault(match[2], block)
            places.add(match[1])
    if not unknown:
        return log, []
    others = [b for b in blocks if b.partition(": error: ")[0] not in places]
    more = len(others) - _OTHERS_SHOWN
    counted = [f"... and {more} more, which these may have caused"] if more > 0 else []
    headers: dict[str, list[str]] = {}
    for name in unknown:
        header = HEADER_OF[name] if by_nvrtc else HEADER_OF[name].removeprefix("cuda/std/")
        headers.setdefault(header, []).append(name)
    notes = [f"{', '.join(names)}: add #include <{header}>" for header, names in headers.items()]
    return "\n\n".join([*[*unknown.values()][:_TYPES_SHOWN], *others[:_OTHERS_SHOWN], *counted]), notes
