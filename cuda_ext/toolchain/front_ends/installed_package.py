"""The installed package of a front-end, without importing it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from cuda_ext.errors import ToolchainError


class InstalledPackage(NamedTuple):
    """A front-end by its title, its module, its distribution, and the extra that requires it.

    ``supported`` are its minor versions that work, from the oldest on. Methods raise
    :class:`~cuda_ext.errors.ToolchainError` if it is missing.
    """

    title: str
    module: str
    distribution: str
    supported: Sequence[str]
    extra: str

    def version(self) -> str:
        """Return its version, ``3.9.0``. Raises :class:`ToolchainError` if it is not supported."""
        from importlib import metadata  # slow to import, and not needed for unchanged sources

        try:
            installed = metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            raise self._missing() from None
        if ".".join(installed.split(".")[:2]) not in self.supported:
            oldest, newest = self.supported[0], self.supported[-1]
            supported = f"{oldest} to {newest} are" if oldest != newest else f"{newest} is"
            raise ToolchainError(
                f"{self.title} {installed} is installed, and {supported} supported", remedy=self._remedy
            )
        return installed

    def files(self, *patterns: str) -> list[Path]:
        """List its files that match one of `patterns`, which are relative to the module."""
        root, *others = self.module.split(".")
        spec = find_spec(self.module) if not others or find_spec(root) else None
        if spec is None or not spec.submodule_search_locations:
            raise self._missing()
        directory = Path(spec.submodule_search_locations[0])
        found = [file for pattern in patterns for file in sorted(directory.glob(pattern))]
        if not found:
            self.version()  # another version may have other files
            raise self._missing()
        return found

    def cannot_be_imported(self, error: ImportError) -> ToolchainError:
        return ToolchainError(f"{self.title} cannot be imported: {error}", remedy=self._remedy)

    def _missing(self) -> ToolchainError:
        return ToolchainError(f"{self.title} is not installed", remedy=self._remedy)

    @property
    def _remedy(self) -> str:
        return f'install "cuda-ext[{self.extra}]"'
