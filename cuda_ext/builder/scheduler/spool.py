"""Where products wait for their library, so that memory does not grow with the number of units."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import NamedTuple

from cuda_ext.errors import BuildError

__all__ = ["Place", "Spool"]


class Place(NamedTuple):
    """Bytes in a :class:`Spool`."""

    offset: int
    size: int


class Spool:
    """Bytes in a file without a name, which is gone with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="cuda_ext-")  # noqa: SIM115 - close() closes
        self._end = 0

    def put(self, content: bytes) -> Place:
        """Raises :class:`BuildError` if the disk is full."""
        place = Place(self._end, len(content))
        try:
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            raise BuildError(
                f"{tempfile.gettempdir()}: cannot be written: {error.strerror}; free some space, or set "
                "TMPDIR to a directory with more"
            ) from None
        self._end += len(content)
        return place

    def get(self, place: Place) -> bytes:
        self._file.seek(place.offset)
        content = self._file.read(place.size)
        self._file.seek(self._end)
        return content

    def close(self) -> None:
        with suppress(OSError):  # what a full disk did not take
            self._file.close()
