"""The version of ``cuda-ext`` that a built package requires, and a check that the project says so.

Build backends must not change ``[project] dependencies``, so the build says what to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cuda_ext.errors import ConfigError

FIRST_READER = "0.1"  # the first release of cuda-ext that reads manifest.SCHEMA
_FIRST_RELEASE = "0.1"

_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*([^;]*)")
_LOWER_BOUND = re.compile(r"(?:===?|~=|>=?)\s*v?(\d+(?:\.\d+)*)")


def read_requirements(project: object) -> tuple[str, ...] | None:
    """Read the requirements in the table ``[project]``, with extras; ``None`` if other files have them."""
    match project:
        case {"dynamic": [*dynamic]} if "dependencies" in dynamic:
            return None
        case dict() if "name" in project:
            return tuple(_strings([project.get("dependencies"), project.get("optional-dependencies")]))
    return None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(each)


def find_flaw(requirements: Sequence[str] | None, first_reader: str = FIRST_READER) -> ConfigError | None:
    """Return a warning about `requirements`; ``None`` if they are right, or not known.

    `first_reader` is the first release that reads what this one builds.
    """
    if requirements is None:
        return None
    where, remedy = "project.dependencies", f'write "cuda-ext>={first_reader}"'
    found = [match for match in map(_REQUIREMENT.match, requirements) if match and _is_own(match[1])]
    if not found:
        return ConfigError(
            "the built package imports cuda_ext, but does not require it", where=where, remedy=remedy
        )
    for requirement in found:
        oldest = _oldest(requirement[2])
        if oldest and _release(oldest) < _release(first_reader):
            problem = (
                f"{requirement[0].strip()!r} admits cuda-ext {oldest}, which cannot read the built package"
            )
            return ConfigError(problem, where=where, remedy=remedy)
    return None


def _is_own(name: str) -> bool:
    return re.sub(r"[-_.]+", "-", name).lower() == "cuda-ext"


def _oldest(specifier: str) -> str | None:
    """Return the oldest release that `specifier` admits; ``None`` for an address, which is one version."""
    if specifier.startswith("@"):
        return None
    return max(_LOWER_BOUND.findall(specifier), key=_release, default=_FIRST_RELEASE)


def _release(version: str) -> list[int]:
    release = [int(part) for part in version.split(".")]
    while release and not release[-1]:
        release.pop()
    return release
