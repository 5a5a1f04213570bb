"""``cuda-ext cache``: show and clear the cache of compiled code."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cuda_ext.cache.location import shared_cache
from cuda_ext.cache.open_store import find_flaw, local_store, why_not_used
from cuda_ext.cli.terminal import Failure, echo_json
from cuda_ext.formats.quantities import format_count, format_size
from cuda_ext.toolchain.programs.bundled_headers import measure_unpacked, remove_unpacked


@click.group(
    invoke_without_command=True,
    epilog="""\b
    Examples:
      cuda-ext cache
      cuda-ext cache --json | jq .size
      cuda-ext cache clear
    """,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def cache(context: click.Context, as_json: bool) -> None:
    """Show the place and the size of the cache, or clear it."""
    if context.invoked_subcommand is not None:
        return
    store = local_store(os.environ)
    reason, shared = why_not_used(os.environ), shared_cache(os.environ)
    size, headers = sum(file.size for file in store.files()), measure_unpacked(Path(store.directory))
    if as_json:
        facts = {"directory": store.directory, "used": not reason, "reason": reason or None}
        sizes = {"size": size, "bound": store.bound, "nvrtc_headers": headers}
        echo_json({**facts, "shared": shared or None, **sizes})
        return
    click.echo(f"directory      {store.directory}")
    click.echo(f"used           {f'no: {reason}' if reason else 'yes'}")
    if shared and store.bound:
        click.echo(f"shared cache   {shared}, used by builds; its size is not known")
    click.echo(f"size           {format_size(size)} of {format_size(store.bound)}")
    if headers:
        click.echo(f"NVRTC headers  {format_size(headers)}")


@cache.command(
    epilog="""\b
    Examples:
      cuda-ext cache clear
      cuda-ext cache clear --headers
    """
)
@click.option(
    "--headers",
    is_flag=True,
    help="Remove NVRTC's unpacked headers, too, while no other process compiles with them.",
)
def clear(headers: bool) -> None:
    """Remove compiled code from the cache of this machine.

    Other processes may use the cache meanwhile; at worst, they compile again. Files that do not belong to the
    cache stay.
    """
    store = local_store(os.environ)
    flaw, remedy = find_flaw(store.directory)
    if flaw:
        raise Failure(f"the cache is left alone: {flaw}", where=store.directory, remedy=remedy)
    directory = Path(store.directory)
    before = sum(file.size for file in store.files()) + (measure_unpacked(directory) if headers else 0)
    remaining = store.clear() + (remove_unpacked(directory) if headers else 0)
    if remaining:
        count = format_count(remaining, "file or directory", "files or directories")
        remedy = "check the owner and the permissions"
        raise Failure(f"{count} could not be removed", where=directory, remedy=remedy)
    click.echo(f"{directory}: removed {format_size(before)}")
