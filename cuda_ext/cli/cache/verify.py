"""``cuda-ext cache verify``."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import click

from cuda_ext.cache.store import LocalStore, StoredFile, local_directory
from cuda_ext.cli.cache.place import store_to_tend
from cuda_ext.cli.output import counted, echo_json, progress, size

__all__ = ["verify"]


@dataclass(frozen=True, slots=True)
class _Damaged:
    file: StoredFile
    reason: str
    is_removed: bool


@dataclass
class _Findings:
    entries: int = 0
    size: int = 0
    damaged: list[_Damaged] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


@click.command(
    epilog="""\b
    Examples:
      cuda-ext cache verify
      cuda-ext cache verify --remove
    """
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--remove", is_flag=True, help="Remove the entries that are damaged.")
@click.pass_context
def verify(context: click.Context, as_json: bool, remove: bool) -> None:
    """Read all of the cache, and say what is damaged.

    A damaged entry does no harm: it is not used, and is written anew when it is needed. The exit code is 1 if
    there is any.
    """
    began = time.perf_counter()
    store = store_to_tend(os.environ)
    found = _read_all(store, remove) if store else _Findings()
    if as_json:
        echo_json(_as_json(found))
    elif store is None:
        click.echo(f"{local_directory(os.environ)}: there is no cache")
    else:
        _show(found, time.perf_counter() - began)
    context.exit(1 if found.damaged else 0)


def _read_all(store: LocalStore, remove: bool) -> _Findings:
    found = _Findings()
    with progress("reading entries") as show:
        for file in store.files():
            if file.kind == "stray":
                found.strays.append(file.path)
            elif file.kind == "unfinished":
                found.unfinished.append(file.path)
            else:
                show(file.share)
                found.entries += 1
                found.size += file.size
                if reason := store.flaw(file):
                    found.damaged.append(_Damaged(file, reason, remove and store.remove(file)))
    return found


def _show(found: _Findings, seconds: float) -> None:
    for damaged in found.damaged:
        removed = "; it is removed" if damaged.is_removed else ""
        click.echo(f"{damaged.file.path}: damaged: {damaged.reason}{removed}")
    for path in found.strays:
        click.echo(f"{path}: a stray, which the cache has not made")
    for path in found.unfinished:
        click.echo(f"{path}: unfinished; what is left goes after an hour")
    read = f"{counted(found.entries, 'entry', 'entries')}, {size(found.size)}, read in {seconds:.1f} s"
    click.echo(f"{read}: {len(found.damaged):,} damaged")
    if not all(damaged.is_removed for damaged in found.damaged):
        click.echo("cuda-ext cache verify --remove removes what is damaged")


def _as_json(found: _Findings) -> dict[str, object]:
    damaged = [
        {"path": each.file.path, "key": each.file.key, "reason": each.reason, "removed": each.is_removed}
        for each in found.damaged
    ]
    return {
        "entries": found.entries,
        "size": found.size,
        "damaged": damaged,
        "strays": found.strays,
        "unfinished": found.unfinished,
    }
