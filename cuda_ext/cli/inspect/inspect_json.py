"""The JSON of ``inspect --json``. Fields may be added; any other change increases ``schema``.

For one thing, the fields of :class:`~cuda_ext.cli.inspect.contents.Contents` and what it holds::

    {"schema": 1, "path", "kind", "size", "modules": [
      {"name", "place", "size", "compiler", "compress", "jit", "embedded", "variants",
       "units": [{"title", "sources": [{"name", "sha256", "options", "instantiate"}],
                  "images": [{"architecture", "kind", "file", "codec", "stored", "size", "missing"}]}],
       "kernels": [{"name", "signature", "lowered", "unit",
                    "images": [{"architecture", "lowered", "resources": {...} or null}]}],
       "symbols": [{"name", "lowered", "space", "type", "size"}]}]}

Resources are those of :class:`~cuda_ext.formats.resources.Resources`. For two things, lists of changes, each
with ``before`` and ``after``, which are ``null`` where there is nothing; only ``new`` and ``gone`` have
kernels with their architectures::

    {"schema": 1, "before": {"path", "kind", "size"}, "after": {...}, "same",
     "modules": [{"module"}], "units": [{"module", "unit"}], "settings": [{"module", "source", "setting"}],
     "sources": [{"module", "source"}], "files": [{"path"}], "architectures": [{"architecture"}],
     "images": [{"module", "unit", "architecture"}], "kernels": [{"module", "kernel", "architecture"}],
     "symbols": [{"module", "symbol"}], "new": [{"module", "kernel", "architectures"}], "gone": [...]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from cuda_ext.builder.report.difference import Change, Place
from cuda_ext.cli.inspect.comparing import ContentsDifference
from cuda_ext.cli.inspect.contents import Contents

__all__ = ["contents_as_json", "difference_as_json"]

_SCHEMA = 1


def contents_as_json(contents: Contents) -> dict[str, object]:
    """Return all that is known of one thing."""
    fields = asdict(contents)
    return {"schema": _SCHEMA, **{name: fields[name] for name in ("path", "kind", "size", "modules")}}


def difference_as_json(difference: ContentsDifference) -> dict[str, object]:
    """Return all that changed between two things."""
    build = difference.build
    return {
        "schema": _SCHEMA,
        "before": _head(difference.before),
        "after": _head(difference.after),
        "same": difference.is_empty,
        "modules": _changes(difference.modules, "module"),
        "units": _changes(difference.units, "module", "unit"),
        "settings": _changes(difference.settings, "module", "source", "setting"),
        "sources": _changes(difference.sources, "module", "source"),
        "files": _changes(build.files, "path"),
        "architectures": _changes(build.architectures, "architecture"),
        "images": _changes(build.images, "module", "unit", "architecture"),
        "kernels": _changes(build.kernels, "module", "kernel", "architecture"),
        "symbols": _changes(difference.symbols, "module", "symbol"),
        "new": _kernels(build.new),
        "gone": _kernels(build.gone),
    }


def _head(contents: Contents) -> dict[str, object]:
    return {"path": contents.path, "kind": contents.kind, "size": contents.size}


def _changes(changes: Sequence[Change[Any]], *fields: str) -> list[dict[str, object]]:
    return [
        {
            **dict(zip(fields, change.place, strict=True)),
            "before": _value(change.before),
            "after": _value(change.after),
        }
        for change in changes
    ]


def _value(value: Any) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _kernels(kernels: Mapping[Place, Sequence[str]]) -> list[dict[str, object]]:
    return [
        {"module": module, "kernel": kernel, "architectures": architectures}
        for (module, kernel), architectures in kernels.items()
    ]
