"""CUDA Tile C++: NVRTC compiles tile kernels to Tile IR, and tileiras assembles it for each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from cuda_ext.compiler.products import CompiledImage
from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.toolchain.cuda_libraries import open_library
from cuda_ext.toolchain.nvrtc import Nvrtc
from cuda_ext.toolchain.tileiras import Tileiras

if TYPE_CHECKING:
    from pathlib import Path

# tileiras chooses the number of threads.
_LAUNCH = FixedLaunch(block=(1,))


class TileCpp:
    """The :class:`~cuda_ext.compiler.translation_unit.Compiler` of tile kernels in sources of CUDA C++.

    With a `scratch` directory it records the headers that it reads; if `timed`, it measures each phase.
    """

    name = "tile"

    def __init__(self, scratch: Path | None = None, timed: bool = False) -> None:
        self._nvrtc = Nvrtc(scratch, timed)
        self._tileiras = Tileiras()

    @cached_property
    def version(self) -> str:
        """The version of NVRTC. Raises :class:`ToolchainError` if NVRTC or tileiras is missing or too old."""
        version = self._nvrtc.version
        if not hasattr(open_library("nvrtc"), "nvrtcGetTileIR"):
            raise ToolchainError(
                f"NVRTC {version} does not compile tile kernels",
                remedy='install "nvidia-cuda-nvrtc>=13.3"',
            )
        if _number(self._tileiras.version) < _number(version):
            raise ToolchainError(
                f"tileiras {self._tileiras.version} does not read the Tile IR of NVRTC {version}",
                remedy=f'install "nvidia-cuda-tileiras>={version}"',
            )
        return version

    def files(self) -> Sequence[Path]:
        return [*self._nvrtc.files(), *self._tileiras.files()]

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:
        self._nvrtc.version = self.version
        return self._nvrtc.search_path(unit)

    def capabilities(self) -> tuple[int, ...]:
        known = self._nvrtc.capabilities()
        return tuple(number for number in self._tileiras.capabilities if number in known)

    def supports(self, architecture: Architecture) -> bool:
        return architecture.number in self.capabilities() and self._nvrtc.supports(architecture)

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        program, trace = self._nvrtc.compile_tiles(unit, architectures[0])
        bytecode = program.image("tileir")
        images = []
        for architecture in architectures:
            data = self._tileiras.make_image(bytecode, architecture, unit.name)
            image = read_image(architecture, data)
            described = replace(
                image,
                log=program.log,
                names=program.answers.names,
                signatures=self._nvrtc.describe(unit, image, program),
                launches=dict.fromkeys(image.entries, _LAUNCH),
                trace=trace,
            )
            images.append(described)
        return tuple(images)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
