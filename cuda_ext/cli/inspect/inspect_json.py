"""The JSON of ``inspect --json``. Fields may be added; any other change increases ``schema``.

For one thing, the fields of :class:`~cuda_ext.cli.inspect.contents.Contents` and what it holds::

    {"schema": 1, "path", "kind", "size", "modules": [
      {"name", "place", "size", "compiler", "compress", "jit", "embedded", "variants",
       "units": [{"title", "sources": [{"name", "sha256", "options", "instantiate"}],
                  "images": [{"architecture", "kind", "file", "codec", "stored", "size", "missing"}]}],
       "kernels": [{"name", "signature", "lowered", "unit",
                    "images": [{"architecture", "lowered", "resources": {...} or null, "launch"}]}],
       "symbols": [{"name", "lowered", "space", "type", "size"}]}]}

Resources are those of :class:`~cuda_ext.formats.cubin.Resources`. For two things, lists of changes, each
with ``before`` and ``after``, which are ``null`` where there is nothing; only ``new`` and ``gone`` have
kernels with their architectures::

    {"schema": 1, "before": {"path", "kind", "size"}, "after": {...}, "same",
     "modules": [{"module"}], "units": [{"module", "unit"}], "settings": [{"module", "source", "setting"}],
     "sources": [{"module", "source"}], "files": [{"path"}], "architectures": [{"architecture"}],
     "images": [{"module", "unit", "architecture"}], "kernels": [{"module", "kernel", "architecture"}],
     "symbols": [{"module", "symbol"}], "new": [{"module", "kernel", "architectures"}], "gone": [...]}
"""

from __future__ import annotations

from cuda_ext.cli.inspect.comparing import PLACES, compare_contents
from cuda_ext.cli.inspect.contents import Contents

_SCHEMA = 1


def contents_as_json(contents: Contents) -> dict[str, object]:
    """Return all that is known of one thing."""
    return {"schema": _SCHEMA, **_head(contents), "modules": contents.modules}


def difference_as_json(before: Contents, after: Contents) -> dict[str, object]:
    """Return all that changed from `before` to `after`. Raises as :func:`compare_contents` does."""
    difference = compare_contents(before, after)
    kernels = {"new": difference.new, "gone": difference.gone}
    return {
        "schema": _SCHEMA,
        "before": _head(before),
        "after": _head(after),
        "same": difference.is_empty,
        **{
            kind: [
                {**dict(zip(parts, c.place, strict=True)), "before": c.before, "after": c.after}
                for c in difference.changes[kind]
            ]
            for kind, parts in PLACES.items()
        },
        **{
            kind: [{"module": m, "kernel": k, "architectures": a} for (m, k), a in by_place.items()]
            for kind, by_place in kernels.items()
        },
    }


def _head(contents: Contents) -> dict[str, object]:
    return {"path": contents.path, "kind": contents.kind, "size": contents.size}
