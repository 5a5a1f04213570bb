"""Architectures in nvcc's spelling: ``sm_90a`` is a cubin, ``compute_90`` PTX, ``lto_90`` LTO-IR.

``tile_80`` is Tile IR; one image serves all GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import total_ordering
from typing import Literal, TypeAlias

ImageKind: TypeAlias = Literal["cubin", "ptx", "ltoir", "tileir"]

# The prefixes of architectures, for each kind of image.
PREFIXES: Mapping[ImageKind, str] = {"cubin": "sm", "ptx": "compute", "ltoir": "lto", "tileir": "tile"}
_KIND_OF_PREFIX: dict[str, ImageKind] = {prefix: kind for kind, prefix in PREFIXES.items()}


@total_ordering
class Architecture:
    """A target: the kind of image, the compute capability (``90`` for 9.0), and nvcc's suffix.

    The suffix ``a`` restricts an image to that compute capability, ``f`` to its family. Architectures sort by
    number, then suffix, then kind: cubins before PTX before LTO-IR before Tile IR.
    """

    __slots__ = __match_args__ = ("kind", "number", "suffix")

    kind: ImageKind
    number: int
    suffix: str

    def __init__(self, kind: ImageKind, number: int, suffix: str = "") -> None:
        self.kind = kind
        self.number = number
        self.suffix = suffix

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Parse ``sm_90a``, ``compute_90`` or ``lto_90``. Raises :class:`ValueError` for anything else."""
        prefix, _, target = text.partition("_")
        number = target.removesuffix("a").removesuffix("f")
        is_number = number.isascii() and number.isdecimal() and number[0] != "0" and 2 <= len(number) <= 4
        if prefix not in _KIND_OF_PREFIX or not is_number or len(target) > len(number) + 1:
            raise ValueError(text)
        return cls(_KIND_OF_PREFIX[prefix], int(number), target.removeprefix(number))

    def __str__(self) -> str:
        return f"{PREFIXES[self.kind]}_{self.target}"

    @property
    def target(self) -> str:
        """The number with its suffix: ``90a``."""
        return f"{self.number}{self.suffix}"

    @property
    def major(self) -> int:
        return self.number // 10

    def as_kind(self, kind: ImageKind) -> Architecture:
        """Return the same target for another kind of image."""
        return Architecture(kind, self.number, self.suffix)

    def serves(self, other: Architecture) -> bool:
        """Return True if PTX or LTO-IR for this target can be compiled for `other`."""
        match self.suffix:
            case "a":
                return self.target == other.target
            case "f":
                return self.major == other.major and self.number <= other.number
            case _:
                return self.number <= other.number

    @property
    def gpus(self) -> range:
        """The compute capabilities of the GPUs that run an image for this target. None runs LTO-IR."""
        if self.kind == "ltoir":
            return range(0)
        if self.suffix == "a":
            return range(self.number, self.number + 1)
        is_limited = self.kind == "cubin" or self.suffix
        return range(self.number, 10 * self.major + 10 if is_limited else 1 << 31)

    @property
    def preference(self) -> tuple[bool, int, int]:
        """A key by which the driver chooses among images that run on its GPU: it takes the greatest."""
        return self.kind == "cubin", self.number, ("", "f", "a").index(self.suffix)

    def __repr__(self) -> str:
        return f"<Architecture {self}>"

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Architecture) and self._key == other._key

    def __lt__(self, other: Architecture) -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[int, str, int]:
        return self.number, self.suffix, list(PREFIXES).index(self.kind)


# Tile IR runs on all GPUs that support tile kernels; fatbins store it under the oldest of them.
TILE_IR = Architecture("tileir", 80)
