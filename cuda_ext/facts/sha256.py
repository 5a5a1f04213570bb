"""Compute SHA-256 without importing OpenSSL, which takes longer than hashing some megabytes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256 as _in_c
else:
    try:
        if sys.version_info >= (3, 12):  # as the standard library's random does
            from _sha2 import sha256 as _in_c
        else:
            from _sha256 import sha256 as _in_c
    except ImportError:  # a Python without it, which some distributions have
        from hashlib import sha256 as _in_c

# Larger contents are worth the import of OpenSSL, which is several times as fast.
_LARGE = 4 << 20


def sha256(content: bytes | memoryview) -> bytes:
    """Return the SHA-256 of `content`, 32 bytes."""
    if len(content) <= _LARGE and "hashlib" not in sys.modules:
        return _in_c(content).digest()
    import hashlib

    return hashlib.sha256(content).digest()
