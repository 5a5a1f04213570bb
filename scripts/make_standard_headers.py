"""Write the headers of the standard library into ``on_demand/standard.hpp``, for programs in C++.

These have no files. A test compares both.
"""

from __future__ import annotations

import json
from pathlib import Path

INCLUDE = Path(__file__).parents[1] / "cuda_ext" / "include" / "cuda_ext"
TARGET = INCLUDE / "on_demand" / "standard.hpp"

_FRAME = """\
// The headers of ../standard, written by scripts/make_standard_headers.py.

#pragma once

#include "../interface.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {{
inline namespace CUDA_EXT_ABI {{
namespace {{

constexpr SourceData standard_headers[] = {{
{texts}
}};

}}  // namespace
}}  // namespace CUDA_EXT_ABI
}}  // namespace cuda_ext
"""


def render() -> str:
    """Return the content of the file. The headers for code of nvcc and of PyTorch are Python's alone."""
    files = sorted(INCLUDE.joinpath("standard").iterdir())
    texts = (
        f'    {{"{file.name}", {json.dumps(file.read_text(encoding="utf-8"))}}},'
        for file in files
        if not file.name.startswith("implied_by_")
    )
    return _FRAME.format(texts="\n".join(texts))


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
