"""``cuda-ext cache``: show, check and clear the cache of compiled code."""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import click

from cuda_ext.cache.local_store import LocalStore, StoredFile
from cuda_ext.cache.location import local_directory
from cuda_ext.cache.open_store import local_store, why_not_used
from cuda_ext.cli.cache_contents import (
    find_headers,
    measure_directory,
    open_store,
    read_rights,
    remove_headers,
    shared_cache,
    walk_files,
)
from cuda_ext.cli.terminal import Failure, echo_json
from cuda_ext.formats.quantities import format_count, format_size
from cuda_ext.runtime.jit.entry import BEGINNING, Entry, decode_entry

__all__ = ["cache"]

_DAY = 86400
# Records in the table of ``cache info``, the most recently used first.
_SHOWN = 20


@click.group()
def cache() -> None:
    """Look after the cache of compiled code."""


# info


@dataclass(frozen=True, slots=True)
class _CachedRecord:
    """An entry with kernels that were compiled on demand, by name expression."""

    entry: StoredFile
    architecture: str
    kernels: tuple[str, ...]


@dataclass(slots=True)
class _Contents:
    """The number of files of each kind; ``size`` is that of all entries, ``references`` point to records."""

    records: list[_CachedRecord] = field(default_factory=list)
    entries: int = 0
    size: int = 0
    references: int = 0
    unfinished: int = 0
    strays: int = 0


@cache.command(
    epilog="""\b
    Examples:
      cuda-ext cache info
      cuda-ext cache info --json | jq .size
    """
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all records.")
def info(as_json: bool) -> None:
    """Show where the cache is, whether it is used, and what is in it."""
    store = local_store(os.environ)
    contents = _read_contents(store)
    headers = {path: measure_directory(path) for path in find_headers(store.objects.parent)}
    if as_json:
        echo_json(_info_as_json(store, contents, headers))
        return
    for label, value in _describe(store, contents, headers):
        click.echo(f"{label:<15}{value}")
    if contents.records:
        _show_records(contents.records)


def _read_contents(store: LocalStore) -> _Contents:
    contents = _Contents()
    for file in walk_files(store, "looking at entries"):
        match file.kind:
            case "stray":
                contents.strays += 1
            case "unfinished":
                contents.unfinished += 1
            case "entry":
                contents.entries += 1
                contents.size += file.size
                _add_record(contents, store, file)
    contents.records.sort(key=lambda record: (-record.entry.modified, record.entry.key))
    return contents


def _add_record(contents: _Contents, store: LocalStore, entry: StoredFile) -> None:
    if store.peek(entry, len(BEGINNING)) != BEGINNING:  # without reading all of a large entry
        return
    record = decode_entry(store.peek(entry))
    if isinstance(record, Entry):
        kernels = tuple(kernel.expression for kernel in record.kernels)
        contents.records.append(_CachedRecord(entry, record.architecture, kernels))
    elif record is not None:
        contents.references += 1


def _describe(
    store: LocalStore, contents: _Contents, headers: Mapping[Path, int]
) -> Iterator[tuple[str, str]]:
    reason = why_not_used(os.environ)
    yield "directory", str(store.objects.parent)
    yield "used", f"no: {reason}" if reason else "yes"
    if store.bound and (shared := shared_cache(os.environ)):
        yield "shared cache", f"{shared}, used by builds; its contents are not listed"
    if rights := read_rights(store.objects):
        yield "rights", f"{stat.filemode(rights[0])}, owner {rights[1]}"
    elif not reason:
        yield "rights", "the directory is created on first use"
    yield "entries", f"{contents.entries:,}, {format_size(contents.size)} of {format_size(store.bound)}"
    if contents.unfinished:
        yield "unfinished", f"{format_count(contents.unfinished, 'file')} in tmp, removed after an hour"
    if contents.strays:
        yield "strays", f"{contents.strays:,}; cuda-ext cache verify lists them"
    size = format_size(sum(record.entry.size for record in contents.records))
    references = f", and {format_count(contents.references, 'reference')} to them"
    records = format_count(len(contents.records), "record")
    yield "on demand", f"{records}, {size}{references if contents.references else ''}"
    for path, headers_size in headers.items():
        yield "NVRTC headers", f"{path.name}, {format_size(headers_size)}"


def _show_records(records: Sequence[_CachedRecord]) -> None:
    """Print a table of the most recently used records, as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("architecture", no_wrap=True)
    table.add_column("kernels")
    table.add_column("size", no_wrap=True, justify="right")
    table.add_column("last used", no_wrap=True)
    now = time.time()
    for record in records[:_SHOWN]:
        # The only column that is shortened.
        kernels = Text(", ".join(record.kernels), no_wrap=True, overflow="ellipsis")
        used = _format_age(now - record.entry.modified)
        table.add_row(record.architecture, kernels, format_size(record.entry.size), used)
    click.echo()
    Console(highlight=False, markup=False, emoji=False).print(table)
    if len(records) > _SHOWN:
        click.echo(f"and {len(records) - _SHOWN:,} more, which --json lists")


def _format_age(seconds: float) -> str:
    """The time since the last use, which is recorded to the hour.

    >>> _format_age(100), _format_age(3600), _format_age(200_000)
    ('within the hour', '1 hour ago', '2 days ago')
    """
    hours = int(seconds // 3600)
    if hours < 1:
        return "within the hour"
    return f"{format_count(hours, 'hour') if hours < 48 else format_count(hours // 24, 'day')} ago"


def _info_as_json(store: LocalStore, contents: _Contents, headers: Mapping[Path, int]) -> dict[str, object]:
    reason, rights = why_not_used(os.environ), read_rights(store.objects)
    return {
        "directory": str(store.objects.parent),
        "used": not reason,
        "reason": reason or None,
        "shared": shared_cache(os.environ) or None,
        "mode": f"{stat.S_IMODE(rights[0]):o}" if rights else None,
        "owner": rights[1] if rights else None,
        "entries": contents.entries,
        "size": contents.size,
        "bound": store.bound,
        "unfinished": contents.unfinished,
        "strays": contents.strays,
        "on_demand": {
            "references": contents.references,
            "records": [_record_as_json(record) for record in contents.records],
        },
        "nvrtc_headers": [{"path": str(path), "size": size} for path, size in headers.items()],
    }


def _record_as_json(record: _CachedRecord) -> dict[str, object]:
    return {
        "key": record.entry.key,
        "architecture": record.architecture,
        "kernels": record.kernels,
        "size": record.entry.size,
        "last_used": datetime.fromtimestamp(record.entry.modified, UTC).isoformat(timespec="seconds"),
    }


# verify


@dataclass(frozen=True, slots=True)
class _Damaged:
    path: str
    key: str
    reason: str
    removed: bool


@dataclass(slots=True)
class _Check:
    """What was read, with the fields of the JSON output."""

    entries: int = 0
    size: int = 0
    damaged: list[_Damaged] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


@cache.command(
    epilog="""\b
    Examples:
      cuda-ext cache verify
      cuda-ext cache verify --remove
    """
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--remove", is_flag=True, help="Remove the damaged entries.")
@click.pass_context
def verify(context: click.Context, as_json: bool, remove: bool) -> None:
    """Read the whole cache, and report damaged entries.

    A damaged entry does no harm: it is not used, and is replaced when it is needed again. The exit code is 1
    if there is any.
    """
    began = time.perf_counter()
    store = open_store(os.environ)
    check = _check_entries(store, remove) if store else _Check()
    if as_json:
        echo_json(asdict(check))
    elif store is None:
        click.echo(f"{local_directory(os.environ)}: there is no cache")
    else:
        _show_check(check, time.perf_counter() - began)
    context.exit(1 if check.damaged else 0)


def _check_entries(store: LocalStore, remove: bool) -> _Check:
    check = _Check()
    for file in walk_files(store, "reading entries"):
        match file.kind:
            case "stray":
                check.strays.append(file.path)
            case "unfinished":
                check.unfinished.append(file.path)
            case "entry":
                check.entries += 1
                check.size += file.size
                if flaw := store.flaw(file):
                    is_removed = remove and store.remove(file)
                    check.damaged.append(_Damaged(file.path, file.key, flaw, is_removed))
    return check


def _show_check(check: _Check, seconds: float) -> None:
    for damaged in check.damaged:
        click.echo(f"{damaged.path}: damaged: {damaged.reason}{'; removed' if damaged.removed else ''}")
    for path in check.strays:
        click.echo(f"{path}: stray, not written by the cache")
    for path in check.unfinished:
        click.echo(f"{path}: unfinished, removed after an hour")
    entries = f"{format_count(check.entries, 'entry', 'entries')}, {format_size(check.size)}"
    click.echo(f"{entries}, read in {seconds:.1f} s: {len(check.damaged):,} damaged")
    if not all(damaged.removed for damaged in check.damaged):
        click.echo("To remove damaged entries: cuda-ext cache verify --remove")


# clear


@dataclass(slots=True)
class _Removed:
    """The number of removed files and directories, and of those that could not be removed."""

    entries: int = 0
    unfinished: int = 0
    headers: int = 0
    size: int = 0
    failed: int = 0

    def __str__(self) -> str:
        parts = [format_count(self.entries, "entry", "entries")]
        if self.unfinished:
            parts.append(format_count(self.unfinished, "unfinished file"))
        if self.headers:
            parts.append(f"{format_count(self.headers, 'directory', 'directories')} of NVRTC's headers")
        return f"{', '.join(parts)}, {format_size(self.size)} in all"


@cache.command(
    epilog="""\b
    Examples:
      cuda-ext cache clear
      cuda-ext cache clear --older-than 30
    """
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--headers",
    is_flag=True,
    help="Remove NVRTC's unpacked headers too. No other process may be compiling with them.",
)
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Remove only entries that were last used so many days ago.",
)
def clear(as_json: bool, headers: bool, older_than: float | None) -> None:
    """Remove compiled code from the cache of this machine.

    Other processes may be using it: at worst, they compile again. Files that do not belong to the cache stay.
    """
    store = open_store(os.environ)
    directory = local_directory(os.environ)
    removed = _Removed()
    if store is not None:
        _remove_files(store, math.inf if older_than is None else time.time() - older_than * _DAY, removed)
    for path in find_headers(directory) if headers else ():
        size = measure_directory(path)
        if remove_headers(path):
            removed.headers, removed.size = removed.headers + 1, removed.size + size
        else:
            removed.failed += 1
    if as_json:
        echo_json(asdict(removed))
    elif store is None and not removed.headers and not removed.failed:
        click.echo(f"{directory}: there is no cache")
    else:
        click.echo(f"{directory}: removed {removed}")
    if removed.failed:
        remaining = format_count(removed.failed, "file or directory", "files or directories")
        remedy = "check the owner and the permissions"
        raise Failure(f"{remaining} could not be removed", where=str(directory), remedy=remedy)


def _remove_files(store: LocalStore, before: float, removed: _Removed) -> None:
    """Remove entries and unfinished files last used `before`. Locks stay: they are empty, and may be held."""
    for file in store.files():
        if file.kind != "stray" and file.modified < before:
            if store.remove(file):
                removed.entries += file.kind == "entry"
                removed.unfinished += file.kind == "unfinished"
                removed.size += file.size
            else:
                removed.failed += 1
