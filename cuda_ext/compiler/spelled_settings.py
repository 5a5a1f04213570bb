"""Spell a module's settings for messages: as in pyproject.toml, or in a call of a function.

The CMake steps put ``IN_CMAKE`` into the environment, which the worker processes of a build inherit.
``IN_PYTHON`` is set while ``cuda_ext.compile`` compiles.
"""

from __future__ import annotations

import os
from contextvars import ContextVar

IN_CMAKE = "_CUDA_EXT_IN_CMAKE"
IN_PYTHON: ContextVar[bool] = ContextVar("cuda_ext_in_python", default=False)
_KEYWORDS = {"include-dirs": "INCLUDE_DIRECTORIES", "headers": "EMBED_SOURCES", "overrides": "OVERRIDE"}


def cmake_keyword(key: str) -> str:
    """Return the keyword of the CMake function for `key`."""
    return _KEYWORDS.get(key, key.upper().replace("-", "_"))


def spell_setting(key: str, value: str | bool | None = None) -> str:
    """Spell `key`, or the setting of it to `value`.

    >>> spell_setting("compiler", "nvcc")  # in CMake: COMPILER nvcc
    'compiler = "nvcc"'
    """
    if IN_CMAKE in os.environ:
        words = {True: "", False: " OFF", None: ""}
        return cmake_keyword(key) + (f" {value}" if isinstance(value, str) else words[value])
    if IN_PYTHON.get():
        argument = key.replace("-", "_")
        quoted = f'"{value}"' if isinstance(value, str) else str(value)
        return argument if value is None else f"{argument}={quoted}"
    if isinstance(value, str):
        return f'{key} = "{value}"'
    return key if value is None else f"{key} = {str(value).lower()}"


def spell_override(module: str = "") -> str:
    """Spell the place for settings of single sources, in the table `module` if that key path is known."""
    if IN_CMAKE in os.environ:
        return "an OVERRIDE"
    return f"[[{module}.overrides]]" if module else "an override"
