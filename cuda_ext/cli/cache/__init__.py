"""``cuda-ext cache``: to look after the cache of what was compiled, which takes care of itself."""

from __future__ import annotations

import click

from cuda_ext.cli.cache.clear import clear
from cuda_ext.cli.cache.info import info
from cuda_ext.cli.cache.verify import verify

__all__ = ["cache"]

cache = click.Group(
    "cache",
    commands=[info, verify, clear],
    help="Look after the cache of what was compiled.",
)
