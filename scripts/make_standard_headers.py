"""Write the headers of the standard library into ``on_demand/standard.hpp``, for programs in C++.

These have no files. A test compares both.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path

INCLUDE = Path(__file__).parents[1] / "cuda_ext" / "include" / "cuda_ext"
TARGET = INCLUDE / "on_demand" / "standard.hpp"

_FRAME = """\
// The headers of ../standard, written by scripts/make_standard_headers.py.

#pragma once

#include "../loader/failure.hpp"

#include <string>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {{
inline namespace CUDA_EXT_ABI {{
namespace {{

// Lists their names and texts.
std::vector<std::pair<std::string, std::string>> standard_headers() {{
  std::vector<std::pair<std::string, std::string>> all{{
{others}}};
  for (const char* name : {{
{of_libcuxx}}}) {{
    all.emplace_back(name, joined({{"#include \\"in_std.hpp\\"\\n\\n#include <cuda/std/", name, ">\\n"}}));
  }}
  for (const char* name : {{
{of_c}}}) {{
    all.emplace_back(joined({{name, ".h"}}), joined({{"#include \\"c", name, "\\"\\n"}}));
  }}
  return all;
}}

}}  // namespace
}}  // namespace CUDA_EXT_ABI
}}  // namespace cuda_ext
"""


def _list(names: Iterable[str]) -> str:
    return textwrap.fill(
        ", ".join(f'"{name}"' for name in names), 112, initial_indent=" " * 11, subsequent_indent=" " * 11
    )


def render() -> str:
    """Return the content of the file. The headers for code of nvcc and of PyTorch are Python's alone."""
    files = (
        path for path in INCLUDE.joinpath("standard").iterdir() if not path.name.startswith("implied_by_")
    )
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(files)}
    libcuxx = [
        n for n, text in texts.items() if text == f'#include "in_std.hpp"\n\n#include <cuda/std/{n}>\n'
    ]
    c = [n for n, text in texts.items() if text == f'#include "c{n.removesuffix(".h")}"\n']
    others = (f'      {{"{n}", {json.dumps(texts[n])}}},' for n in sorted(texts.keys() - {*libcuxx, *c}))
    return _FRAME.format(
        others="\n".join(others).removesuffix(","),
        of_libcuxx=_list(libcuxx),
        of_c=_list(name.removesuffix(".h") for name in c),
    )


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
