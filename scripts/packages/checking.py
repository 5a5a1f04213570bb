"""Check that a wheel is complete, so that no contender is fast because it leaves work out."""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.fatbin import read_fatbin
from packages.contenders import ARCHITECTURES, KERNELS, Contender

__all__ = ["check_wheel"]

_MAGIC = 0xBA55ED50


def check_wheel(contender: Contender, wheel: Path) -> None:
    """Check the tag, and that each architecture has all kernels. Raises :class:`RuntimeError`."""
    if f"-{contender.tag}-" not in f"-{wheel.stem.split('-', 2)[2]}-":
        raise RuntimeError(f"{wheel.name}: the tag is not {contender.tag}")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        if not contender.compiles:
            if sum(name.endswith(".cu") for name in names) != KERNELS // 2:
                raise RuntimeError(f"{wheel.name}: sources are missing")
            return
        files = [archive.read(name) for name in names if name.endswith((".so", ".fatbin"))]
    kernels: Counter[str] = Counter()
    for fatbin in (fatbin for file in files for fatbin in _fatbins(file)):
        for entry in read_fatbin(fatbin):
            image = read_image(Architecture.parse(entry.architecture), entry.payload())
            kernels[entry.architecture] += len(image.entries)
    if kernels != dict.fromkeys(ARCHITECTURES, KERNELS):
        raise RuntimeError(f"{wheel.name}: kernels by architecture are {dict(kernels)}")


def _fatbins(file: bytes) -> Iterator[bytes]:
    """Yield the fatbins in `file`: the file itself, or those that nvcc embedded into a shared object."""
    if not file.startswith(b"\x7fELF"):
        yield file
        return
    from elftools.elf.elffile import ELFFile

    section = ELFFile(io.BytesIO(file)).get_section_by_name(".nv_fatbin")
    data = section.data() if section else b""
    at = 0
    while (at := data.find(struct.pack("<I", _MAGIC), at)) >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        yield data[at : at + header + size]
        at += header + size
