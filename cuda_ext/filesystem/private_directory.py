"""Directories that only this user can write to, held open: what is used is what was checked.

Other users may be able to replace a directory, but not by one that belongs to this user. No link in it is
followed. Windows has no descriptors of directories: paths are used there, and nothing is checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys

from cuda_ext.filesystem.regular_file import LARGEST, check_regular, check_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

_FLAGS = sum(getattr(os, name, 0) for name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40


class PrivateDirectory:
    """The directory `name`, in `parent` if there is one; with `create`, it is created if it is missing.

    Raises :class:`OSError`, as its methods do: for a link in place of the directory or of a file in it, and
    for what other users could have written.
    """

    def __init__(self, name: str, parent: PrivateDirectory | None = None, *, create: bool = False) -> None:
        self.path = parent.path_of(name) if parent else name
        self.descriptor: int | None = None
        place = parent.place_of(name) if parent else (name, None)
        if create:
            _create(*place)
        if sys.platform != "win32":
            path, within = place
            try:
                self.descriptor = os.open(path, _FLAGS | os.O_RDONLY | os.O_DIRECTORY, dir_fd=within)
                _check(os.fstat(self.descriptor), self.path)
            except OSError as error:
                self.close()
                if error.errno == errno.ENOTDIR and os.path.islink(self.path):
                    raise PermissionError(errno.EPERM, "it is a link", self.path) from None
                raise

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def place_of(self, name: str) -> tuple[str, int | None]:
        """The path of `name`, and the descriptor of the directory that it is relative to."""
        return (self.path_of(name), None) if self.descriptor is None else (name, self.descriptor)

    def open(self, name: str, flags: int = os.O_RDONLY) -> tuple[int, os.stat_result]:
        """Open a regular file, or create it; return its descriptor and status."""
        path, within = self.place_of(name)
        descriptor = os.open(path, flags | _FLAGS, 0o600, dir_fd=within)
        try:
            status = os.fstat(descriptor)
            check_regular(status, self.path_of(name))
            _check(status, self.path_of(name))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor, status

    def read(self, name: str, most: int = LARGEST) -> tuple[bytes, float]:
        """The content of a file of at most `most` bytes, and its time of modification.

        Twice as fast as with a file object.
        """
        descriptor, status = self.open(name)
        try:
            check_size(status, self.path_of(name), most)
            return os.read(descriptor, status.st_size), status.st_mtime
        finally:
            os.close(descriptor)

    def write(self, name: str, content: bytes) -> None:
        """Create a file; it must not exist."""
        descriptor, _ = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(descriptor, "wb", 0) as file:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]

    def append(self, name: str, content: bytes) -> None:
        """Append to a file that exists."""
        descriptor, _ = self.open(name, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)

    def move(self, name: str, to: PrivateDirectory, new_name: str) -> None:
        """Rename a file to one in the directory `to`, which it replaces."""
        path, within = self.place_of(name)
        new_path, new_within = to.place_of(new_name)
        os.replace(path, new_path, src_dir_fd=within, dst_dir_fd=new_within)

    def touch(self, name: str) -> None:
        """Set a file's time of modification to now."""
        path, within = self.place_of(name)
        os.utime(path, dir_fd=within)

    def remove(self, name: str) -> bool:
        """Remove a file; return whether it is gone."""
        path, within = self.place_of(name)
        try:
            os.unlink(path, dir_fd=within)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True

    def list(self) -> list[tuple[str, os.stat_result]]:
        """All names in the directory with their status, sorted; links are not followed."""
        found = []
        with os.scandir(self.path if self.descriptor is None else self.descriptor) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # it is gone
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
        return sorted(found, key=lambda item: item[0])


def create_directories(path: str) -> None:
    """Create the directory `path` and its missing parents, each for its owner alone, whatever the umask."""
    missing: list[str] = []
    while True:
        try:
            os.stat(path)  # a name that is too long is an error before anything is created
            break
        except FileNotFoundError:
            missing.append(path)
            if (parent := os.path.dirname(path)) == path:
                raise
            path = parent
    for directory in reversed(missing):
        _create(directory, None)


def _create(path: str, within: int | None) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=within)
        os.chmod(path, 0o700, dir_fd=within)


def distrust(status: os.stat_result) -> str:
    """Explain why users other than this one and root could have written what has that `status`, if so."""
    if sys.platform == "win32":
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_mode & _OTHERS:
        return f"other users may write there (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def exposure(path: str) -> str:
    """Explain why other users could replace what lies in the directory `path`; empty if they could not.

    It must belong to this user or root. Nobody else may write to it, nor all users to a directory on the way,
    except where a sticky bit keeps them from replacing entries. A link may be followed unless another user
    could have created it. What does not exist will be created for this user alone. Raises :class:`OSError`.
    """
    if sys.platform == "win32":
        return ""
    place, status, links = "/", os.stat("/"), 0
    left = os.path.abspath(path).split("/")[::-1]
    while left:
        name = left.pop()
        if name in ("", os.curdir):
            continue
        if name == os.pardir:
            place = os.path.dirname(place)
            status = os.stat(place)
            continue
        inner = os.path.join(place, name)
        try:
            found = os.lstat(inner)
        except FileNotFoundError:
            return ""
        if stat.S_ISLNK(found.st_mode):
            if status.st_mode & _OTHERS and found.st_uid not in (os.geteuid(), 0):
                return f"the link {inner} belongs to another user (uid {found.st_uid})"
            if (links := links + 1) > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(inner)
            left += target.split("/")[::-1]
            if target.startswith("/"):
                place, status = "/", os.stat("/")
            continue
        place, status = inner, found
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"all users may write to {place} (mode {stat.S_IMODE(status.st_mode):o})"
    if status.st_uid not in (os.geteuid(), 0):
        return f"{place} belongs to another user (uid {status.st_uid})"
    if status.st_mode & stat.S_IWGRP and not status.st_mode & stat.S_ISVTX:
        return f"other users may write to {place} (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def _check(status: os.stat_result, path: str) -> None:
    if why := distrust(status):
        raise PermissionError(errno.EPERM, why, path)
