"""The templates of everything that is generated, rendered in one way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["render"]


def render(
    template: str, context: Mapping[str, object], filters: Mapping[str, Callable[..., object]] | None = None
) -> str:
    """The text of a file in ``templates``, which has what is in `context`, and `filters`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cuda_ext.build"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - programs are rendered, not HTML
    )
    environment.filters.update(filters or {})
    return environment.get_template(template).render(context)
