"""``cuda_ext.save`` and ``cuda_ext.load``: store a module of kernels in a directory, and load it."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from cuda_ext.errors import ManifestError
from cuda_ext.facts import manifest as manifest_file
from cuda_ext.filesystem.regular_file import read_file
from cuda_ext.runtime.module import KernelModule, library_of, module_from


def save(module: ModuleType, directory: str | os.PathLike[str]) -> None:
    """Save `module` in `directory`, for :func:`load`. This replaces a module that was saved there before.

    Raises :class:`FileExistsError` if the directory contains other files.
    """
    from cuda_ext.filesystem.atomic_directory import replace_directory

    library = library_of(module)
    manifest = library.manifest
    files = {name: library.read(name) for name in sorted(manifest.files)}
    files[manifest_file.FILE_NAME] = manifest_file.dumps(manifest).encode()
    replace_directory(Path(os.path.abspath(directory)), files, _refuse_others)


def load(directory: str | os.PathLike[str]) -> KernelModule:
    """Load the module that :func:`save` wrote to `directory`.

    Raises :class:`~cuda_ext.errors.ManifestError` if it is missing or damaged.
    """
    folder = os.path.abspath(os.fsdecode(directory))

    def read(name: str) -> bytes:
        return read_file(os.path.join(folder, name))

    file = os.path.join(folder, manifest_file.FILE_NAME)
    try:
        text = read(file)
    except OSError as error:
        raise ManifestError(
            f"{error.strerror}", where=file, remedy="cuda_ext.save puts a module there"
        ) from None
    return module_from(manifest_file.loads(text, file), read)


def _refuse_others(directory: Path) -> None:
    from cuda_ext.filesystem.ownership import foreign

    if file := foreign(directory):
        raise FileExistsError(f"{file}: is not part of a saved module and would be deleted; save elsewhere")
