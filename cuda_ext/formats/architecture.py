"""Architectures in nvcc's spelling: ``sm_90a`` is a cubin, ``compute_90`` PTX, ``lto_90`` LTO-IR."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

from cuda_ext.manifest import ImageKind

__all__ = ["Architecture"]

_PREFIX_OF_KIND: dict[ImageKind, str] = {"cubin": "sm", "ptx": "compute", "ltoir": "lto"}
_KIND_OF_PREFIX: dict[str, ImageKind] = {p: k for k, p in _PREFIX_OF_KIND.items()}
_SPELLING = re.compile(r"(sm|compute|lto)_(\d{2,4})([af]?)")


@total_ordering
@dataclass(frozen=True, slots=True)
class Architecture:
    """A target: the kind of image, the compute capability (``90`` for 9.0), and nvcc's suffix.

    The suffix ``a`` restricts an image to that compute capability, ``f`` to its family. Architectures sort by
    number, then suffix, then kind: cubins before PTX before LTO-IR.
    """

    kind: ImageKind
    number: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Parse ``sm_90a``, ``compute_90`` or ``lto_90``. Raises :class:`ValueError` for anything else."""
        match = _SPELLING.fullmatch(text)
        if match is None:
            raise ValueError(text)
        return cls(_KIND_OF_PREFIX[match[1]], int(match[2]), match[3])

    def __str__(self) -> str:
        return f"{_PREFIX_OF_KIND[self.kind]}_{self.target}"

    @property
    def target(self) -> str:
        """The number with its suffix: ``90a``."""
        return f"{self.number}{self.suffix}"

    @property
    def major(self) -> int:
        return self.number // 10

    def as_kind(self, kind: ImageKind) -> Architecture:
        """The same target for another kind of image."""
        return Architecture(kind, self.number, self.suffix)

    def serves(self, other: Architecture) -> bool:
        """Whether PTX or LTO-IR for this target can be compiled for `other`."""
        match self.suffix:
            case "a":
                return self.target == other.target
            case "f":
                return self.major == other.major and self.number <= other.number
            case _:
                return self.number <= other.number

    def __lt__(self, other: Architecture) -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[int, str, int]:
        return self.number, self.suffix, list(_PREFIX_OF_KIND).index(self.kind)
