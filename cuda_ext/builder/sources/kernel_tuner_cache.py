"""Cache files of Kernel Tuner, as entries of a table of measurements."""

from __future__ import annotations

from typing import Any

from cuda_ext.builder.config.kinds import expect
from cuda_ext.errors import ConfigError

# Keys of a cache file that a build has no use for.
_UNUSED = {
    *("device_name", "cache", "kernel_name", "problem_size", "tune_params", "tune_params_keys"),
    *("objective", "version", "schema_version"),
}


def convert_cache(entry: object, where: str) -> object:
    """Return the fastest configuration in `entry`, if it is a cache file, as an entry of a table."""
    if not isinstance(entry, dict) or not {"device_name", "cache"} <= entry.keys():
        return entry
    rest = {name: value for name, value in entry.items() if name not in _UNUSED}
    return {"device": entry["device_name"], "config": _fastest(entry["cache"], f"{where}.cache"), **rest}


def _fastest(cache: object, where: str) -> dict[str, Any]:
    """Return the configuration with the least time, in the form of ``triton.Config``.

    A record begins with the values of its key, ``"128,2"``; if it is not valid, its time is a text.
    """
    valid: list[tuple[float, dict[str, Any]]] = []
    for key, each in expect(cache, dict, where, "a table of measured configurations").items():
        record = expect(each, dict, f"{where}.{key}", "a measured configuration")
        time = record.get("time")
        if isinstance(time, int | float) and time > 0:
            valid.append((time, {name: record[name] for name in [*record][: key.count(",") + 1]}))
    if not valid:
        raise ConfigError("has no configuration with a time", where=where, remedy="measure some")
    return {"kwargs": min(valid, key=lambda pair: pair[0])[1]}
