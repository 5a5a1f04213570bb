"""Names of files below a directory, which are valid on every system."""

from __future__ import annotations

import posixpath

_LONGEST_FILE_NAME = 200  # characters; file systems have 255 bytes
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10))}


def is_file_name(text: str) -> bool:
    """Return True if `text` is a valid file name on every system; Windows reserves names of devices."""
    is_name = is_inner_path(text) and "/" not in text and ":" not in text
    return is_name and len(text) <= _LONGEST_FILE_NAME and text.casefold() not in _DEVICES


def is_inner_path(text: str) -> bool:
    """Return True if `text` is a normal path that stays within a directory, with forward slashes.

    On Windows, a letter and a colon are a drive.
    """
    is_inside = text.split("/")[0] not in ("", ".", "..") and "\\" not in text and text[1:2] != ":"
    return is_inside and text == posixpath.normpath(text)
