"""A module in C++: its header and its source."""

from __future__ import annotations


def source_name(module: str) -> str:
    """Return the file name of the C++ source of `module`."""
    return f"{module.rpartition('.')[2]}.cpp"
