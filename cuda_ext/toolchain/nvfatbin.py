"""Pack images into fatbins with nvFatbin. :mod:`cuda_ext.formats.fatbin` reads fatbins."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

from cuda_ext.errors import BuildError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.manifest import Compression
from cuda_ext.formats.fatbin import join_fatbins
from cuda_ext.toolchain.cuda_libraries import open_library

# The size of images in bytes from which starting threads pays off.
_LARGE = 1 << 16


# :func:`write_image`, or a function that remembers its output.
WriteImage: TypeAlias = Callable[[Architecture, bytes, Compression], bytes]


def write_fatbin(
    images: Sequence[tuple[Architecture, bytes]], compress: Compression, write: WriteImage | None = None
) -> bytes:
    """Write `images` into one fatbin, in their order. The same images give the same bytes on all machines.

    ``"speed"`` compresses with LZ4, which every driver reads; ``"balance"`` and ``"size"`` with
    zstd, which requires a driver of CUDA 12.4 or newer. Cubins and LTO-IR are stored unchanged; nvFatbin
    drops comments and indentation from PTX.
    """
    write = write or write_image
    if len(images) == 1 or sum(len(image) for _, image in images) < _LARGE:
        return join_fatbins([write(architecture, image, compress) for architecture, image in images])
    from concurrent.futures import ThreadPoolExecutor

    # nvFatbin compresses without holding the GIL.
    with ThreadPoolExecutor(min(len(images), os.cpu_count() or 1)) as threads:
        return join_fatbins(list(threads.map(lambda each: write(each[0], each[1], compress), images)))


def write_image(architecture: Architecture, image: bytes, compress: Compression) -> bytes:
    """Write a fatbin of one `image`. Raises :class:`~cuda_ext.errors.BuildError`."""
    import ctypes  # slow to import

    nvfatbin = open_library("nvfatbin")
    # An entry names a host, by default this machine. Of the modes, only "size" compresses cubins
    # without -compress-all.
    options = [b"-host=linux", b"-compress-all", f"-compress-mode={compress}".encode()]
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()

    def check(status: int) -> None:
        if status:
            nvfatbin.nvFatbinGetErrorString.restype = ctypes.c_char_p
            reason = nvfatbin.nvFatbinGetErrorString(status).decode()
            raise BuildError(
                f"nvFatbin refuses {architecture}: {reason}",
                remedy="install an nvFatbin that is as new as the compiler",
            )

    count = ctypes.c_size_t(len(options))
    check(nvfatbin.nvFatbinCreate(ctypes.byref(handle), (ctypes.c_char_p * len(options))(*options), count))
    try:
        add = getattr(nvfatbin, f"nvFatbinAdd{_KINDS[architecture.kind]}")
        target = [] if architecture.kind == "tileir" else [architecture.target.encode()]
        texts = [b""] if architecture.kind == "cubin" else [b"", b""]  # identifier, and options
        check(add(handle, image, ctypes.c_size_t(len(image)), *target, *texts))
        check(nvfatbin.nvFatbinSize(handle, ctypes.byref(size)))
        fatbin = ctypes.create_string_buffer(size.value)
        check(nvfatbin.nvFatbinGet(handle, fatbin))
        return fatbin.raw
    finally:
        nvfatbin.nvFatbinDestroy(ctypes.byref(handle))


_KINDS = {"cubin": "Cubin", "ptx": "PTX", "ltoir": "LTOIR", "tileir": "TileIR"}
