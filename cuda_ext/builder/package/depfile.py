"""Dependency files for Make and Ninja."""

from __future__ import annotations

import os
from collections.abc import Iterable


def render_depfile(targets: Iterable[str], dependencies: Iterable[str]) -> str:
    """Write the rule that `targets` are out of date when any of `dependencies` is newer.

    >>> print(render_depfile(["a"], ["b c", "d"]), end="")
    a: b\\ c \\
     d
    """
    outputs, inputs = " ".join(map(_escape, targets)), " \\\n ".join(map(_escape, dependencies))
    return f"{outputs}: {inputs}\n"


def is_depfile(content: bytes) -> bool:
    """Return True if `content` begins with a rule of ours, whose first dependency is this package."""
    line, end, _ = content.partition(b"\n")
    is_rule = line.find(b": ", 1) > 0 and line.removesuffix(b" \\").endswith(b"cuda_ext/__init__.py")
    return bool(end) and is_rule


def _escape(path: str) -> str:
    path = path.replace("\\", "/") if os.name == "nt" else path
    for special in "\\ #":
        path = path.replace(special, f"\\{special}")
    return path.replace("$", "$$")
