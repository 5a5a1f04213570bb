"""nvFatbin: puts images into fatbins. :mod:`cuda_ext.formats.fatbin` reads them."""

from __future__ import annotations

from collections.abc import Iterable

from cuda_ext.errors import BuildError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Compression
from cuda_ext.toolchain.bindings import binding

__all__ = ["write_fatbin"]


def write_fatbin(images: Iterable[tuple[Architecture, bytes]], compress: Compression) -> bytes:
    """Write `images` into one fatbin, in their order. The same images give the same bytes on all machines.

    ``"speed"`` compresses with LZ4, which every driver reads; ``"balance"`` and ``"size"`` with
    zstd, which requires a driver of CUDA 12.4 or newer. Cubins and LTO-IR are stored unchanged; nvFatbin
    drops comments and indentation from PTX.
    """
    nvfatbin = binding("nvfatbin")
    # An entry names a host, by default that of the machine. Of the modes, only "size" compresses cubins
    # without -compress-all.
    options = ["-host=linux", "-compress-all", f"-compress-mode={compress}"]
    handle = nvfatbin.create(options, len(options))
    try:
        for architecture, image in images:
            add = getattr(nvfatbin, f"add_{architecture.kind}")
            texts = [""] if architecture.kind == "cubin" else ["", ""]  # identifier, and options
            try:
                add(handle, image, len(image), architecture.target, *texts)
            except nvfatbin.nvFatbinError as error:
                reason = nvfatbin.get_error_string(error.status)
                raise BuildError(
                    f"nvFatbin refuses {architecture}: {reason}",
                    remedy='install nvFatbin and the compiler of one CUDA, as "cuda-ext[cu13]" does',
                ) from None
        fatbin = bytearray(nvfatbin.size(handle))
        nvfatbin.get(handle, fatbin)
        return bytes(fatbin)
    finally:
        nvfatbin.destroy(handle)
