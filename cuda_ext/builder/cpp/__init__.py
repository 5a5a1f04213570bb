"""A module in C++: its header and its source."""

from __future__ import annotations


def source_name(module: str) -> str:
    """The source of `module`."""
    return f"{module.rpartition('.')[2]}.cpp"
