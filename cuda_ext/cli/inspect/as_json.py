"""The JSON of ``--json``, for programs. Fields may be added; what changes otherwise has another ``schema``.

Of one thing::

    {"schema": 1, "path", "kind", "size", "modules": [
      {"name", "place", "size", "compiler", "compress", "jit", "embedded", "variants",
       "units": [{"title", "sources": [{"name", "sha256", "options", "instantiate"}],
                  "images": [{"architecture", "kind", "file", "codec", "stored", "size", "missing"}]}],
       "kernels": [{"name", "signature", "lowered", "unit",
                    "images": [{"architecture", "lowered", "resources": {...} or null}]}],
       "symbols": [{"name", "lowered", "space", "type", "size"}]}]}

Resources are those of :class:`~cuda_ext.formats.resources.Resources`. Of two things, all but ``new`` and
``gone`` are lists of changes, each with ``before`` and ``after``, which are ``null`` where there is nothing::

    {"schema": 1, "before": {"path", "kind", "size"}, "after": {...}, "same",
     "modules": [{"module"}], "units": [{"module", "unit"}], "settings": [{"module", "source", "setting"}],
     "sources": [{"module", "source"}], "files": [{"path"}], "architectures": [{"architecture"}],
     "images": [{"module", "unit", "architecture"}], "kernels": [{"module", "kernel", "architecture"}],
     "new": [{"module", "kernel", "architectures"}], "gone": [...], "symbols": [{"module", "symbol"}]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from cuda_ext.cli.inspect.contents import Contents, Kernel, Module, options_of
from cuda_ext.cli.inspect.difference import Change, Difference, Place

__all__ = ["contents_as_json", "difference_as_json"]

_SCHEMA = 1

# What the places of changes consist of.
_PLACES = {
    "modules": ("module",),
    "units": ("module", "unit"),
    "settings": ("module", "source", "setting"),
    "sources": ("module", "source"),
    "files": ("path",),
    "architectures": ("architecture",),
    "images": ("module", "unit", "architecture"),
    "kernels": ("module", "kernel", "architecture"),
    "symbols": ("module", "symbol"),
}


def contents_as_json(contents: Contents) -> dict[str, object]:
    """All that is known of one thing."""
    return {
        "schema": _SCHEMA,
        **_head(contents),
        "modules": [_module(module) for module in contents.modules],
    }


def difference_as_json(difference: Difference) -> dict[str, object]:
    """All that changed between two."""
    return {
        "schema": _SCHEMA,
        "before": _head(difference.before),
        "after": _head(difference.after),
        "same": difference.same,
        **{name: _changes(getattr(difference, name), fields) for name, fields in _PLACES.items()},
        "new": _kernels(difference.new),
        "gone": _kernels(difference.gone),
    }


def _head(contents: Contents) -> dict[str, object]:
    return {"path": contents.path, "kind": contents.kind, "size": contents.size}


def _module(module: Module) -> dict[str, object]:
    return {
        "name": module.name,
        "place": module.place,
        "size": module.size,
        "compiler": module.compiler,
        "compress": module.compress,
        "jit": module.jit,
        "embedded": module.embedded,
        "variants": module.variants,
        "units": [
            {
                "title": unit.title,
                "sources": [
                    {
                        "name": source.name,
                        "sha256": source.sha256,
                        "options": options_of(source),
                        "instantiate": source.instantiate,
                    }
                    for source in unit.sources
                ],
                "images": [asdict(image) for image in unit.images],
            }
            for unit in module.units
        ],
        "kernels": [_kernel(kernel) for kernel in module.kernels],
        "symbols": [_value(symbol) for symbol in module.symbols],
    }


def _kernel(kernel: Kernel) -> dict[str, object]:
    return {
        "name": kernel.expression,
        "signature": kernel.signature,
        "lowered": kernel.lowered,
        "unit": kernel.unit,
        "images": [asdict(image) for image in kernel.images],
    }


def _changes(changes: Sequence[Change[Any]], fields: Sequence[str]) -> list[dict[str, object]]:
    return [
        {
            **dict(zip(fields, change.place, strict=True)),
            "before": _value(change.before),
            "after": _value(change.after),
        }
        for change in changes
    ]


def _value(value: Any) -> object:
    """A record without the number of its unit, which says nothing outside of a manifest."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {name: each for name, each in asdict(value).items() if name != "unit"}


def _kernels(found: Mapping[Place, Sequence[str]]) -> list[dict[str, object]]:
    return [
        {"module": module, "kernel": kernel, "architectures": architectures}
        for (module, kernel), architectures in found.items()
    ]
