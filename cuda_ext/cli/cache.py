"""``cuda-ext cache``: show, check and clear the cache of compiled code."""

from __future__ import annotations

import math
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cuda_ext.cache.local_store import LocalStore, StoredFile
from cuda_ext.cache.location import local_directory, read_rights, shared_cache
from cuda_ext.cache.open_store import find_flaw, local_store, why_not_used
from cuda_ext.cli.inspect.tables import show_table
from cuda_ext.cli.terminal import Failure, echo_json
from cuda_ext.errors import shorten
from cuda_ext.formats.quantities import format_count, format_size
from cuda_ext.runtime.jit.entry import BEGINNING, Entry, Reference, decode_entry
from cuda_ext.toolchain.programs.bundled_headers import find_damage, remove_unpacked, unpacked_directories

_DAY = 86400
# Entries in the table of ``cache info``, the most recently used first.
_SHOWN = 20
# Characters of the kernels in a line of that table.
_NAMES = 36


@click.group()
def cache() -> None:
    """Look after the cache of compiled code."""


def _open_store() -> LocalStore:
    """Return the local store, even if it is turned off or does not exist.

    Raises :class:`Failure` if other users may write to it, or if it cannot be read.
    """
    store = local_store(os.environ)
    flaw, remedy = find_flaw(store.directory)
    if flaw:
        raise Failure(f"the cache is left alone: {flaw}", where=store.objects, remedy=remedy)
    return store


def _measure(directory: Path) -> int:
    """The size of all files in `directory`; files that disappear meanwhile do not count."""
    size = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                size += Path(parent, name).lstat().st_size
    return size


# info


@cache.command(
    epilog="""\b
    Examples:
      cuda-ext cache info
      cuda-ext cache info --json | jq .size
    """
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all entries on demand.")
def info(as_json: bool) -> None:
    """Show where the cache is, whether it is used, and what is in it."""
    facts = _examine(local_store(os.environ))
    if as_json:
        echo_json(facts)
        return
    for label, value in _describe(facts):
        click.echo(f"{label:<15}{value}")
    if entries := facts["on_demand"]["records"]:
        _show_entries(entries)


def _examine(store: LocalStore) -> dict[str, Any]:
    """What is known of the cache, as it is printed as JSON."""
    counts: Counter[str] = Counter()
    on_demand: list[tuple[StoredFile, Entry]] = []
    size = references = 0
    for file in store.files():
        counts[file.kind] += 1
        if file.kind == "entry":
            size += file.size
            content = _read_entry(store, file)
            if isinstance(content, Entry):
                on_demand.append((file, content))
            references += isinstance(content, Reference)
    on_demand.sort(key=lambda stored: (-stored[0].modified, stored[0].key))
    directory = store.objects.parent
    reason, rights = why_not_used(os.environ), read_rights(store.objects)
    return {
        "directory": str(directory),
        "used": not reason,
        "reason": reason or None,
        "shared": shared_cache(os.environ) or None,
        "mode": f"{stat.S_IMODE(rights[0]):o}" if rights else None,
        "owner": rights[1] if rights else None,
        "entries": counts["entry"],
        "size": size,
        "bound": store.bound,
        "unfinished": counts["unfinished"],
        "strays": counts["stray"],
        "on_demand": {
            "references": references,
            "records": [
                {
                    "key": file.key,
                    "architecture": entry.architecture,
                    "kernels": [kernel.expression for kernel in entry.kernels],
                    "size": file.size,
                    "last_used": datetime.fromtimestamp(file.modified, UTC).isoformat(timespec="seconds"),
                }
                for file, entry in on_demand
            ],
        },
        "nvrtc_headers": [
            {"path": str(path), "size": _measure(path)} for path in unpacked_directories(directory)
        ],
    }


def _read_entry(store: LocalStore, file: StoredFile) -> Entry | Reference | None:
    """The entry of compilation on demand in `file`, or ``None``: other entries may be large."""
    is_one = store.peek(file, len(BEGINNING)) == BEGINNING
    return decode_entry(store.peek(file)) if is_one else None


def _describe(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines above the table, each with its label."""
    yield "directory", facts["directory"]
    yield "used", "yes" if facts["used"] else f"no: {facts['reason']}"
    if facts["bound"] and facts["shared"]:
        yield "shared cache", f"{facts['shared']}, used by builds; its contents are not listed"
    if facts["used"] and facts["mode"]:
        mode = stat.filemode(stat.S_IFDIR | int(facts["mode"], 8))
        yield "rights", f"{mode}, owner {facts['owner']}"
    elif facts["used"]:
        yield "rights", "the directory is created on first use"
    yield "entries", f"{facts['entries']:,}, {format_size(facts['size'])} of {format_size(facts['bound'])}"
    if facts["unfinished"]:
        yield "unfinished", f"{format_count(facts['unfinished'], 'file')} in tmp, removed after an hour"
    if facts["strays"]:
        yield "strays", f"{facts['strays']:,}; cuda-ext cache verify lists them"
    on_demand, references = facts["on_demand"]["records"], facts["on_demand"]["references"]
    size = format_size(sum(entry["size"] for entry in on_demand))
    suffix = f", and {format_count(references, 'reference')} to them" if references else ""
    yield "on demand", f"{format_count(len(on_demand), 'entry', 'entries')}, {size}{suffix}"
    for headers in facts["nvrtc_headers"]:
        yield "NVRTC headers", f"{Path(headers['path']).name}, {format_size(headers['size'])}"


def _show_entries(entries: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the most recently used entries."""

    def cells(entry: Mapping[str, Any]) -> list[str]:
        used = _format_age(time.time() - datetime.fromisoformat(entry["last_used"]).timestamp())
        names = shorten(", ".join(entry["kernels"]), _NAMES)
        return [names, entry["architecture"], format_size(entry["size"]), used]

    show_table(("kernels", "architecture", ">size", ">last used"), map(cells, entries), _SHOWN)


def _format_age(seconds: float) -> str:
    """The time since the last use, which is recorded to the hour.

    >>> _format_age(100), _format_age(3600), _format_age(200_000)
    ('within the hour', '1 hour ago', '2 days ago')
    """
    hours = int(seconds // 3600)
    if hours < 1:
        return "within the hour"
    return f"{format_count(hours, 'hour') if hours < 48 else format_count(hours // 24, 'day')} ago"


# verify


@cache.command(
    epilog="""\b
    Examples:
      cuda-ext cache verify
      cuda-ext cache verify --remove
    """
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--remove", is_flag=True, help="Remove what is damaged.")
@click.pass_context
def verify(context: click.Context, as_json: bool, remove: bool) -> None:
    """Read the whole cache, and report damaged entries and headers.

    Damage does no harm: what is damaged is not used, and is replaced when it is needed again. The exit code
    is 1 if there is any.
    """
    began = time.perf_counter()
    store = _open_store()
    check: dict[str, Any] = {"entries": 0, "size": 0, "damaged": [], "strays": [], "unfinished": []}
    damaged = check["damaged"]
    for file in store.files():
        if file.kind != "entry":
            check["strays" if file.kind == "stray" else "unfinished"].append(file.path)
            continue
        check["entries"] += 1
        check["size"] += file.size
        if flaw := store.flaw(file):
            is_removed = remove and store.remove(file)
            damaged.append({"path": file.path, "key": file.key, "reason": flaw, "removed": is_removed})
    for headers in unpacked_directories(Path(local_directory(os.environ))):
        if flaw := find_damage(headers, in_files=True):
            is_removed = remove and remove_unpacked(headers)
            damaged.append({"path": str(headers), "key": "", "reason": flaw, "removed": is_removed})
    if as_json:
        echo_json(check)
    elif not store.objects.exists() and not damaged:
        click.echo(f"{local_directory(os.environ)}: there is no cache")
    else:
        _show_check(check, time.perf_counter() - began)
    context.exit(1 if damaged else 0)


def _show_check(check: Mapping[str, Any], seconds: float) -> None:
    damaged = check["damaged"]
    for each in damaged:
        click.echo(f"{each['path']}: damaged: {each['reason']}{'; removed' if each['removed'] else ''}")
    for path in check["strays"]:
        click.echo(f"{path}: stray, not written by the cache")
    for path in check["unfinished"]:
        click.echo(f"{path}: unfinished, removed after an hour")
    entries = f"{format_count(check['entries'], 'entry', 'entries')}, {format_size(check['size'])}"
    click.echo(f"{entries}, read in {seconds:.1f} s: {len(damaged):,} damaged")
    if not all(each["removed"] for each in damaged):
        click.echo("To remove what is damaged: cuda-ext cache verify --remove")


# clear


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
    if older_than is not None and math.isnan(older_than):
        raise click.BadParameter("nan is not a number of days.", param_hint="'--older-than'")
    store = _open_store()
    directory = Path(local_directory(os.environ))
    removed = dict.fromkeys(("entries", "unfinished", "headers", "size", "failed"), 0)

    def count(kind: str, size: int, is_removed: bool) -> None:
        removed[kind if is_removed else "failed"] += 1
        removed["size"] += size if is_removed else 0

    before = math.inf if older_than is None else time.time() - older_than * _DAY
    # Locks stay: they are empty, and may be held.
    for file in store.files():
        if file.kind != "stray" and file.modified < before:
            count("entries" if file.kind == "entry" else "unfinished", file.size, store.remove(file))
    for path in unpacked_directories(directory) if headers else ():
        count("headers", _measure(path), remove_unpacked(path))
    if as_json:
        echo_json(removed)
    elif not store.objects.exists() and not removed["headers"] and not removed["failed"]:
        click.echo(f"{directory}: there is no cache")
    else:
        parts = [format_count(removed["entries"], "entry", "entries")]
        if removed["unfinished"]:
            parts.append(format_count(removed["unfinished"], "unfinished file"))
        if removed["headers"]:
            parts.append(f"{format_count(removed['headers'], 'directory', 'directories')} of NVRTC's headers")
        click.echo(f"{directory}: removed {', '.join(parts)}, {format_size(removed['size'])} in all")
    if removed["failed"]:
        remaining = format_count(removed["failed"], "file or directory", "files or directories")
        remedy = "check the owner and the permissions"
        raise Failure(f"{remaining} could not be removed", where=directory, remedy=remedy)
