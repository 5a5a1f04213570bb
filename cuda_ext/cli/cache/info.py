"""``cuda-ext cache info``."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from cuda_ext.cache.store import LocalStore, local_store, why_not_used
from cuda_ext.cli.cache.headers import size_of, unpacked
from cuda_ext.cli.cache.place import rights_of, shared_cache
from cuda_ext.cli.cache.survey import KeptRecord, Survey, survey
from cuda_ext.cli.output import ago, counted, echo_json, size

__all__ = ["info"]

# Records that a terminal has room for; those that were used last come first.
_SHOWN = 20


@click.command(
    epilog="""\b
    Examples:
      cuda-ext cache info
      cuda-ext cache info --json | jq .size
    """
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all records.")
def info(as_json: bool) -> None:
    """Say where the cache is, whether it is used, and what is in it."""
    store = local_store(os.environ)
    found = survey(store)
    headers = {path: size_of(path) for path in unpacked(store.objects.parent)}
    if as_json:
        echo_json(_as_json(store, found, headers))
    else:
        for label, value in _facts(store, found, headers):
            click.echo(f"{label:<15}{value}")
        _show(found.records)


def _facts(store: LocalStore, found: Survey, headers: Mapping[Path, int]) -> Iterator[tuple[str, str]]:
    reason = why_not_used(os.environ)
    yield "directory", str(store.objects.parent)
    yield "used", f"no: {reason}" if reason else "yes"
    if store.bound and (shared := shared_cache(os.environ)):
        yield "shared cache", f"{shared}, by builds; what is in it is not looked at"
    if rights := rights_of(store.objects):
        yield "rights", f"{stat.filemode(rights[0])}, owner {rights[1]}"
    elif not reason:
        yield "rights", "the directory is made when it is first used"
    yield "entries", f"{found.entries:,}, {size(found.size)} of {size(store.bound)}"
    if found.unfinished:
        yield "unfinished", f"{counted(found.unfinished, 'file')} in tmp; what is left goes after an hour"
    if found.strays:
        yield "strays", f"{found.strays:,}; cuda-ext cache verify names them"
    records = sum(record.entry.size for record in found.records)
    references = f", and {counted(found.references, 'reference')} to them" if found.references else ""
    yield "on demand", f"{counted(len(found.records), 'record')}, {size(records)}{references}"
    for path, total in headers.items():
        yield "NVRTC headers", f"{path.name}, {size(total)}"


def _show(records: Sequence[KeptRecord]) -> None:
    """A table of those that were used last, as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not records:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("architecture", no_wrap=True)
    table.add_column("kernels")
    table.add_column("size", no_wrap=True, justify="right")
    table.add_column("last used", no_wrap=True)
    now = time.time()
    for record in records[:_SHOWN]:
        # Of all columns, only this one gives way.
        kernels = Text(", ".join(record.kernels), no_wrap=True, overflow="ellipsis")
        used = ago(now - record.entry.modified)
        table.add_row(record.architecture, kernels, size(record.entry.size), used)
    click.echo()
    Console(highlight=False, markup=False, emoji=False).print(table)
    if len(records) > _SHOWN:
        click.echo(f"and {len(records) - _SHOWN:,} more, which --json lists")


def _as_json(store: LocalStore, found: Survey, headers: Mapping[Path, int]) -> dict[str, object]:
    reason, rights = why_not_used(os.environ), rights_of(store.objects)
    return {
        "directory": str(store.objects.parent),
        "used": not reason,
        "reason": reason or None,
        "shared": shared_cache(os.environ) or None,
        "mode": f"{stat.S_IMODE(rights[0]):o}" if rights else None,
        "owner": rights[1] if rights else None,
        "entries": found.entries,
        "size": found.size,
        "bound": store.bound,
        "unfinished": found.unfinished,
        "strays": found.strays,
        "on_demand": {
            "references": found.references,
            "records": [_record_as_json(each) for each in found.records],
        },
        "nvrtc_headers": [{"path": str(path), "size": total} for path, total in headers.items()],
    }


def _record_as_json(record: KeptRecord) -> dict[str, object]:
    return {
        "key": record.entry.key,
        "architecture": record.architecture,
        "kernels": record.kernels,
        "size": record.entry.size,
        "last_used": datetime.fromtimestamp(record.entry.modified, UTC).isoformat(timespec="seconds"),
    }
