"""The types of record fields: bounded texts and numbers, architectures, launches that images fix."""

# Python evaluates the annotations of records.

import posixpath

from cuda_ext.records import Annotated, Literal, Mapping, NamedTuple
from cuda_ext.records import Lines as Lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set

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


def _is_version(text: str) -> bool:
    numbers = text.split(".")
    return len(numbers) == 2 and all(number.isascii() and number.isdigit() for number in numbers)


def is_digest(text: str) -> bool:
    """Return True if `text` is a SHA-256 in hexadecimal digits."""
    return len(text) == 64 and not text.strip("0123456789abcdef")


# The types of fields with bounds: a range, or a function that is true for valid values.
Text = Annotated[str, len]
Size = Annotated[int, range(1 << 40)]
Extent = Annotated[int, range(1, 1 << 31)]
Alignment = Annotated[int, (0, *(1 << exponent for exponent in range(17)))]
Digest = Annotated[str, is_digest]
FileName = Annotated[str, is_file_name]
InnerPath = Annotated[str, is_inner_path]
Version = Annotated[str, _is_version]


# Architectures, and the launch settings that images for them fix.

ImageKind = Literal["cubin", "ptx", "ltoir", "tileir"]

# The prefixes of architectures, for each kind of image.
PREFIXES: Mapping[ImageKind, str] = {"cubin": "sm", "ptx": "compute", "ltoir": "lto", "tileir": "tile"}


def split_architecture(text: str) -> tuple[str, int, str] | None:
    """Split ``sm_90a`` into prefix, number and suffix; ``None`` if it is not an architecture."""
    prefix, _, target = text.partition("_")
    suffix = target[-1:] if target.endswith(("a", "f")) else ""
    digits = target.removesuffix(suffix)
    is_number = digits.isascii() and digits.isdigit() and not digits.startswith("0")
    if prefix not in PREFIXES.values() or not 2 <= len(digits) <= 4 or not is_number:
        return None
    return prefix, int(digits), suffix


LARGEST_PARAMETERS = 32_764  # the largest size of all parameters of a kernel, in bytes
_ADDRESS = 8
# The kinds and sizes of types that are the same on every system.
_FUNDAMENTAL = {
    "bool": ("bool", 1),
    "signed char": ("integer", 1),
    "unsigned char": ("unsigned", 1),
    "short": ("integer", 2),
    "unsigned short": ("unsigned", 2),
    "int": ("integer", 4),
    "unsigned int": ("unsigned", 4),
    "long long": ("integer", 8),
    "unsigned long long": ("unsigned", 8),
    "float": ("float", 4),
    "double": ("float", 8),
}


def is_kind(type_: str, kind: str, size: int) -> bool:
    """Return True if `type_` does not contradict this kind and size. Pointers to members are structures."""
    if type_ in _FUNDAMENTAL:
        return _FUNDAMENTAL[type_] == (kind, size)
    if kind == "pointer":
        return "*" in type_ or "&" in type_
    return not type_.endswith("*") or type_.endswith("::*")


def array_size(type_: str) -> int | None:
    """Return the bytes of an array of a fundamental type; ``None`` for other types."""
    element, *counts = type_.removeprefix("const ").replace("]", "").split("[")
    if element not in _FUNDAMENTAL or not all(len(n) < 16 and n.isascii() and n.isdigit() for n in counts):
        return None
    size = _FUNDAMENTAL[element][1]
    for count in counts:
        size *= int(count)
    return size if counts else None


class HiddenParameter(NamedTuple):
    """A kernel parameter that is not an argument of a call, since a launch derives its value.

    ``position`` is its position among all parameters of the kernel, ``size`` is in bytes. ``source`` is
    ``zero``, ``scratch`` for the address of the memory of :class:`FixedLaunch`, or ``x.shape[0]`` or
    ``x.stride[0]`` of the array argument ``x``. A stride counts elements.
    """

    position: Annotated[int, range(LARGEST_PARAMETERS)]
    size: Annotated[int, range(1, LARGEST_PARAMETERS + 1)]
    source: Text

    def is_derivable(self, arrays: "Set[str]") -> bool:
        """Return True if a launch can derive the value from arguments with the names `arrays`."""
        if self.source in ("zero", "scratch"):
            return self.source == "zero" or self.size == _ADDRESS
        return self.extent is not None and self.extent[0] in arrays

    @property
    def extent(self) -> tuple[str, str, int] | None:
        """For ``x.shape[0]``: the argument, ``shape`` or ``stride``, and the axis; else ``None``."""
        name, _, extent = self.source.partition(".")
        what, _, axis = extent.partition("[")
        digits = axis.removesuffix("]")
        is_axis = len(digits) == len(axis) - 1 < 3 and digits.isascii() and digits.isdecimal()
        return (name, what, int(digits)) if what in ("shape", "stride") and is_axis else None


class TensorMap(NamedTuple):
    """The settings of a ``CUtensorMap`` that an image fixes; a launch makes the map of an array.

    ``data_type`` and ``swizzle`` have the values of cuda.h, ``item`` is the size of an element in bytes, and
    ``box`` are the elements on each axis that are copied at once.
    """

    data_type: Annotated[int, range(16)]
    item: Annotated[int, (1, 2, 4, 8)]
    box: Annotated[tuple[Extent, ...], lambda box: 1 <= len(box) <= 5]
    swizzle: Annotated[int, range(8)] = 0


class FixedLaunch(NamedTuple):
    """The launch configuration that a kernel was compiled for, which leaves only the grid to a call.

    ``shared`` is the dynamic shared memory of a block, and ``scratch`` the global memory that a launch
    allocates for each block, in bytes. The grid of a call counts clusters if ``cluster`` is not empty.
    ``tensor_maps`` are the maps that a launch makes, by parameter.
    """

    block: Annotated[tuple[Extent, ...], lambda extents: 1 <= len(extents) <= 3]
    shared: Annotated[int, range(1 << 31)] = 0
    cluster: Annotated[tuple[Extent, ...], lambda extents: len(extents) <= 3] = ()
    cooperative: bool = False
    dependent: bool = False
    scratch: Size = 0
    tensor_maps: Mapping[Text, TensorMap] = {}

    def __str__(self) -> str:
        extents = [*self.block]
        while len(extents) > 1 and extents[-1] == 1:
            extents.pop()
        parts = [f"{' x '.join(map(str, extents))} {'thread' if extents == [1] else 'threads'}"]
        parts += [f"{self.shared:,} bytes of shared memory"] if self.shared else []
        parts += [f"clusters of {' x '.join(map(str, self.cluster))}"] if self.cluster else []
        parts += [word for word in ("cooperative", "dependent") if getattr(self, word)]
        parts += [f"{self.scratch:,} bytes of scratch memory"] if self.scratch else []
        return ", ".join(parts)
