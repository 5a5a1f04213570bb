"""The location of the cache."""

from __future__ import annotations

import os
import re
import sys

from cuda_ext.errors import StoreError, ToolchainError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def local_directory(environ: Mapping[str, str]) -> str:
    """Return this machine's cache: ``CUDA_EXT_CACHE`` unless that is a URL, else the user's cache directory.

    Raises :class:`StoreError` for a user without a home directory.
    """
    configured = environ.get("CUDA_EXT_CACHE", "")
    if configured and "://" not in configured:
        configured = os.path.expanduser(configured)
        return _absolute(configured) if configured.startswith("~") else os.path.abspath(configured)
    if sys.platform == "linux":  # as platformdirs has it, which is slow to import
        place = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
        return _absolute(os.path.join(place, "cuda_ext"))
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise ToolchainError(
            f"compiling needs platformdirs ({error})", remedy='install "cuda-ext[cu13]" (or "cuda-ext[cu12]")'
        ) from None
    try:
        return _absolute(str(user_cache_path("cuda_ext")))
    except RuntimeError:
        return _absolute("")


def _absolute(directory: str) -> str:
    """`directory`, which is relative where there is no home directory. Raises :class:`StoreError` then."""
    if not os.path.isabs(directory):
        raise StoreError(
            "there is no home directory", remedy="set CUDA_EXT_CACHE to a directory that can be written"
        )
    return directory


def shared_cache(environ: Mapping[str, str]) -> str:
    """The URL of the cache that machines share, without a password; empty if there is none."""
    location = environ.get("CUDA_EXT_CACHE", "")
    return hide_password(location) if "://" in location else ""


def hide_password(text: str) -> str:
    """`text` without the user names and passwords of its URLs."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)
