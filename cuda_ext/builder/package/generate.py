"""Generate the importable package of a compiled module: ``__init__.py``, stubs, manifest, images, sources."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuda_ext import manifest as manifest_file
from cuda_ext.builder.package import stubs
from cuda_ext.builder.rendering import render
from cuda_ext.compiler.module_plan import CompiledModule
from cuda_ext.errors import BuildError
from cuda_ext.filesystem.atomic_directory import replace_directory
from cuda_ext.filesystem.ownership import foreign

__all__ = ["Package", "generate", "render_init", "obstacle"]


@dataclass(frozen=True, slots=True)
class Package:
    """A generated package: its import name, and its files by path within it.

    ``compiler`` is the compiler's name and version (``nvrtc 13.5``), and ``log`` its output.
    """

    name: str
    files: Mapping[str, bytes]
    compiler: str = ""
    log: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """All of it as bytes: a line of JSON, then the files."""
        sizes = {name: len(content) for name, content in self.files.items()}
        head = json.dumps([self.name, sizes, self.compiler, self.log])
        return b"".join([head.encode(), b"\n", *self.files.values()])

    @classmethod
    def decode(cls, content: bytes) -> Package:
        """What :meth:`encode` wrote. Raises :class:`BuildError` for anything else."""
        head, _, data = content.partition(b"\n")
        try:
            name, sizes, compiler, log = json.loads(head)
            files, position = {}, 0
            for file, size in sizes.items():
                files[file] = data[position : position + size]
                position += size
            return cls(name, files, compiler, tuple(log))
        except (AttributeError, TypeError, ValueError) as error:
            raise BuildError(f"not the record of a package: {error}", remedy="build again") from None

    def write(self, directory: Path) -> list[Path]:
        """Replace `directory` by one with exactly these files; return their paths.

        The files appear at once: a build that is killed or runs out of space leaves what was there before.
        Raises :class:`BuildError` if that fails, or if `directory` holds files that no build generated.
        """
        try:
            replace_directory(directory, self.files, self._check)
        except OSError as error:
            raise BuildError(
                f"cannot write the generated package {self.name}: {error.strerror}",
                where=directory,
                remedy=_REMEDIES.get(error.errno or 0, "correct that, and build again"),
            ) from None
        return [directory / name for name in self.files]

    def _check(self, directory: Path) -> None:
        if found := obstacle(directory):
            raise BuildError(
                f"is where the generated package {self.name} goes, and was not generated",
                where=found,
                remedy="move it, or rename the module",
            )


def obstacle(directory: Path) -> Path | None:
    """Return a file of the author's that a package in `directory` would replace or hide from imports."""
    module = directory.with_name(f"{directory.name}.py")
    return module if module.exists() else foreign(directory)


_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space and build again"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "a file is where a directory must be: move it"),
}


def generate(module: CompiledModule, log: tuple[str, ...] = ()) -> Package:
    """Render the package of `module`; `log` is the compiler's output.

    The same module gives the same bytes.
    """
    manifest = module.manifest
    files = {
        "__init__.py": render_init(manifest.module),
        "__init__.pyi": render(__package__, "__init__.pyi.j2", {"stub": stubs.describe(manifest)}).encode(),
        manifest_file.FILE_NAME: manifest_file.dumps(manifest).encode(),
    }
    return Package(
        manifest.module,
        dict(sorted({**files, **module.files}.items())),
        f"{manifest.compiler} {manifest.version}",
        log,
    )


def render_init(module: str, editable: bool = False) -> bytes:
    """Render the ``__init__.py`` of the package of `module`; an `editable` one first checks for changes."""
    return render(__package__, "__init__.py.j2", {"module": module, "editable": editable}).encode()
