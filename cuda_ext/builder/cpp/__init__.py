"""A module in C++: its header and its sources."""

from __future__ import annotations

__all__ = ["source_names"]


def source_names(module: str, jit: bool) -> tuple[str, ...]:
    """The sources of `module`: one with its data and, with `jit`, one that compiles on demand."""
    stem = module.rpartition(".")[2]
    return f"{stem}.cpp", *([f"{stem}.on_demand.cpp"] if jit else [])
