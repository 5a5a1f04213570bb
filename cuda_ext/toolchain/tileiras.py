"""Assemble Tile IR for a GPU with tileiras. :mod:`cuda_ext.formats.tile_ir` reads Tile IR."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from cuda_ext.errors import BuildError, CompilationError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.toolchain import cuda_packages, process
from cuda_ext.toolchain.diagnostics import shorten_output

_INSTALL = 'install "cuda-ext[tile]", or set CUDA_PATH to a toolkit of CUDA 13.1 or newer'
# The beginning of an error: the file, the line, and the function.
_LOCATION = r'#cuda_tile\.di_loc<loc\("([^"\n]*)":(\d+):\d+\)[^\n]*?>>: '
_INPUT, _OUTPUT = "cuda_ext.tileir", "cuda_ext.cubin"
# Variables that name ptxas. Without them, tileiras uses the ptxas beside it, which is in its identity.
_TOOLKITS = ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH")


class Tileiras:
    """The first tileiras in the registry's wheel, in ``CUDA_PATH`` or ``CUDA_HOME``, or on ``PATH``.

    Every method raises :class:`~cuda_ext.errors.ToolchainError` if it is missing or does not run.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    @cached_property
    def executable(self) -> Path:
        toolkits = [f"{root}/bin" for name in ("CUDA_PATH", "CUDA_HOME") if (root := self._environ.get(name))]
        path = [*cuda_packages.wheel_programs(), *toolkits, self._environ.get("PATH", "")]
        found = shutil.which("tileiras", path=os.pathsep.join(path))
        if found is None:
            raise ToolchainError("tileiras, which assembles tile kernels, is not installed", remedy=_INSTALL)
        return Path(found).absolute()

    @cached_property
    def version(self) -> str:
        """Its CUDA version, ``13.5``."""
        match = re.search(r"release (\d+\.\d+)", self._ask("--version"))
        if match is None:
            raise ToolchainError(f"{self.executable} does not print its version", remedy="reinstall it")
        return match[1]

    @cached_property
    def formats(self) -> tuple[str, ...]:
        """The versions of Tile IR that it reads, ``("13.1", "13.2", ...)``."""
        return tuple(self._ask("--list-versions").split())

    def files(self) -> list[Path]:
        """List the files that determine its output."""
        root = self.executable.resolve().parent.parent
        libraries = [*root.glob("lib*/libnvvm.so.*"), *root.glob("nvvm/lib*/libnvvm.so.*")]
        ptxas = [root / "bin/ptxas"] if (root / "bin/ptxas").is_file() else []
        return [self.executable, *ptxas, *sorted(libraries)]

    @cached_property
    def capabilities(self) -> tuple[int, ...]:
        """Return the compute capabilities that it assembles for."""
        return tuple(sorted(int(number) for number in re.findall(r"=sm_(\d+)\b", self._ask("--help"))))

    def make_image(self, bytecode: bytes, architecture: Architecture, where: str, level: int = 3) -> bytes:
        """Make an image of the Tile IR of the source `where`: a cubin, or the Tile IR itself for later GPUs.

        A cubin has no line numbers, since these contain paths. From 9.0 on, it is for exactly one capability.
        `level` is the optimization level, from 0 to 3. Raises :class:`~cuda_ext.errors.CompilationError`.
        """
        if architecture.kind == "tileir":
            return bytecode
        command = [
            *(str(self.executable), _INPUT, "-o", _OUTPUT),
            *(f"--gpu-name=sm_{architecture.number}", f"--opt-level={level}"),
        ]
        try:
            with tempfile.TemporaryDirectory(prefix="cuda_ext-") as name:
                Path(name, _INPUT).write_bytes(bytecode)
                environ = {n: v for n, v in self._environ.items() if n not in _TOOLKITS} | {"TMPDIR": name}
                ended = process.run(command, environ=environ, directory=Path(name), compiles=where)
                if ended.exit_code == 0:
                    return Path(name, _OUTPUT).read_bytes()
        except OSError as error:
            raise self._cannot_run(error) from None
        output = re.sub(_LOCATION, r"\1:\2: ", ended.output.strip())
        raise CompilationError(f"tileiras: {shorten_output(output)}", where=where)

    def _ask(self, option: str) -> str:
        try:
            return process.run([str(self.executable), option], environ=self._environ).output
        except OSError as error:
            raise self._cannot_run(error) from None

    def _cannot_run(self, error: OSError) -> BuildError:
        return ToolchainError(f"{self.executable} cannot be run: {error}", remedy="reinstall it")
