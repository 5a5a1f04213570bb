"""Render the Jinja templates of generated files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["render", "templates"]


def render(package: str, template: str, context: Mapping[str, object]) -> str:
    """Render the file `template` in the directory ``templates`` of `package`."""
    return templates(package).get_template(template).render(context)


@cache
def templates(package: str) -> Environment:
    """The files in the directory ``templates`` of `package`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - programs are rendered, not HTML
    )
