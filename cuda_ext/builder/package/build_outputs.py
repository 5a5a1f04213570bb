"""Files that builds leave in a source tree. None of them belongs into a source distribution."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from cuda_ext.builder.package.depfile import is_depfile
from cuda_ext.builder.report.chrome_trace import is_trace
from cuda_ext.builder.report.html_page import is_report
from cuda_ext.filesystem.ownership import find_package

_HEAD = 1 << 16  # the number of bytes that show the kind of a file
_KINDS = {".html": is_report, ".json": is_trace, ".d": is_depfile}


def build_output_filter() -> Callable[[Path], bool]:
    """Return a predicate that is true for existing files that this package wrote.

    These are generated packages, reports, traces, depfiles, and all compilation databases, which name
    directories of this machine.
    """
    is_in_package = cache(lambda directory: find_package(directory.resolve()) is not None)

    def is_build_output(file: Path) -> bool:
        if file.name == "compile_commands.json" or is_in_package(file.parent):
            return True
        if file.suffix not in _KINDS:
            return False
        try:
            with file.open("rb") as stream:
                return _KINDS[file.suffix](stream.read(_HEAD))
        except OSError:
            return False

    return is_build_output
