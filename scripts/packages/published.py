"""Write figures into the tables of README.md and docs/why.md, with the date and the versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from statistics import median

from _environment import ROOT

from packages.building import count_other_lines
from packages.results import Results

__all__ = ["DATE", "PAGES", "ROWS", "replace_cells", "write_tables"]

PAGES = ("README.md", "docs/why.md")
# The heads of the columns, by the keys of contenders.
_COLUMNS = {
    "cuda_ext": "cuda_ext",
    "scikit_build_core": "scikit-build-core, CUDA",
    "torch_extension": "PyTorch `CUDAExtension`",
    "cupy_raw_module": "CuPy `RawModule`",
}
# How the rows, by their first cells, spell the figures.
ROWS: Mapping[str, Callable[[Results], str]] = {
    "installed to build and use it": lambda r: _memory(r.place.mebibytes),
    "lines besides the kernels": lambda r: str(count_other_lines(r.place.contender)),
    "wheel, clean build": lambda r: f"{median(r.seconds('clean')):.1f} s",
    "after an edit of one kernel": lambda r: f"{median(r.seconds('edited')):.1f} s",
    "in a new clone, with the compiler's cache": lambda r: f"{median(r.seconds('clone')):.1f} s",
    "size of the wheel": lambda r: f"{r.built[0].size / 1024:.0f} KiB",
    "import, without the framework": lambda r: f"{median(i.package for i in r.imported):.1f} ms",
}
DATE = re.compile(r"(?<=\bon )\d{4}-\d\d-\d\d")


def write_tables(results: Sequence[Results]) -> None:
    """Replace the cells of the measured contenders, and the date of the measurement."""
    figures = {
        each.place.contender.key: {row: spell(each) for row, spell in ROWS.items()} for each in results
    }
    for name in PAGES:
        page = ROOT / name
        text = replace_cells(page.read_text(encoding="utf-8"), figures)
        page.write_text(DATE.sub(date.today().isoformat(), text, count=1), encoding="utf-8")


def replace_cells(text: str, figures: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page `text` with `figures`, which are by the keys of contenders and the names of rows."""
    columns: dict[int, Mapping[str, str]] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines):
        cells = line.split("|")
        if len(cells) < len(_COLUMNS):
            columns = {}
        for at, cell in enumerate(cells):
            for key, head in _COLUMNS.items():
                if cell.strip() == head and key in figures:
                    columns[at] = figures[key]
        for at, own in columns.items():
            if figure := own.get(cells[1].strip()):
                cells[at] = f" {figure} "
        lines[number] = "|".join(cells)
    return "\n".join(lines)


def _memory(mebibytes: float) -> str:
    return f"{mebibytes / 1024:.1f} GiB" if mebibytes >= 1024 else f"{mebibytes:.0f} MiB"
