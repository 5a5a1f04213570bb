"""List the differences of two records of digests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from digests.samples import NO_DIGEST


def summarize(files: Mapping[str, Mapping[str, str]]) -> str:
    """Count the projects, the wheels and the digests."""
    names = [name for project in files.values() for name in project]
    without = sum(value.startswith(NO_DIGEST) for project in files.values() for value in project.values())
    wheels = {name.partition("/")[0] for name in names if ".whl/" in name}
    built = f"{len(files)} projects, {len(wheels)} wheels"
    return f"{built}: {len(names) - without} digests, {without} files without one"


def tool_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """List the tools whose versions differ; they can be the cause of other differences."""
    before, after = ({**each["machine"], **each["packages"]} for each in (old, new))
    for name in sorted({**before, **after}):
        if before.get(name) != after.get(name):
            yield f"note: {name}: {before.get(name, 'absent')}, now {after.get(name, 'absent')}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """List the files that differ, by project, then the keys of manifests that differ."""
    for project in sorted({**old["files"], **new["files"]}):
        lines = list(_files(old["files"].get(project, {}), new["files"].get(project, {})))
        yield from [project, *lines] if lines else []
    lines = list(_manifests(old["manifests"], new["manifests"]))
    yield from ["keys of manifest.json", *lines] if lines else []


def _files(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({**old, **new}):
        if name not in new:
            yield f"  gone:    {name}"
        elif name not in old:
            yield f"  new:     {name}"
        elif old[name] != new[name]:
            yield f"  differs: {name}"


def _manifests(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """List each key that differs once, with the number of manifests and an example."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted({*old} & {*new}):
        before, after = _by_key(old[name]), _by_key(new[name])
        for key in {**before, **after}:
            if key not in after:
                found[f"  gone:    {key}"].append(f"{before[key]} in {name}")
            elif key not in before:
                found[f"  new:     {key}"].append(f"{after[key]} in {name}")
            elif before[key] != after[key]:
                found[f"  differs: {key}"].append(f"{before[key]} became {after[key]} in {name}")
    for line, examples in sorted(found.items()):
        example = examples[0] if len(examples[0]) <= 300 else f"{examples[0][:300]}..."
        yield f"{line}, in {len(examples)}: {example}"


def _by_key(value: Any, key: str = "") -> dict[str, list[Any]]:
    """Collect the values of a JSON document, in order, by keys such as ``kernels[].parameters[].name``."""
    match value:
        case dict() if value:
            nested = [(f"{key}.{name}".lstrip("."), each) for name, each in value.items()]
        case list() if value:
            nested = [(f"{key}[]", each) for each in value]
        case _:
            return {key: [value]}
    values: dict[str, list[Any]] = defaultdict(list)
    for name, each in nested:
        for below, found in _by_key(each, name).items():
            values[below] += found
    return values
