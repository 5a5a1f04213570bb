"""A module in C++: its header and its sources."""

from __future__ import annotations

__all__ = ["source_names"]


def source_names(module: str) -> tuple[str, ...]:
    """The sources of `module`."""
    return (f"{module.rpartition('.')[2]}.cpp",)
