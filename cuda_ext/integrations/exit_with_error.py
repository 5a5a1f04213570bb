"""What the doors for build tools have in common: how a mistake in the project ends a build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from cuda_ext.builder.project import Project

__all__ = ["check_names", "one_message"]


@contextmanager
def one_message() -> Iterator[None]:
    """Turn a mistake in the project into one message and exit status 1."""
    # SystemExit passes through the build tools and every front end as it is.
    try:
        yield
    except BuildError as error:
        raise SystemExit(f"cuda-ext: error: {error}") from None


def check_names(
    project: Project, packages: Iterable[str], directory_of: Callable[[str], Path], tool: str
) -> None:
    """Every module lies in one of `packages`, which are those that `tool` found, where nothing else is.

    `directory_of` tells where a package lies in the source tree, or would. Raises :class:`ConfigError`.
    """
    from cuda_ext.builder.package.in_place import check_place

    tops = sorted({name.partition(".")[0] for name in packages})
    for module in project.modules:
        if module.name.partition(".")[0] not in tops:
            found = f"it has {', '.join(tops)}; begin the name with one" if tops else f"{tool} found none"
            raise ConfigError(f"{module.where}: is not in a package of this project; {found}")
        check_place(module, directory_of(module.name))
