"""Find the source that defines a kernel, as far as the texts show."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable


def choose_sources(
    kernel: str,
    sources: Iterable[str],
    built: Collection[str],
    texts_of: Callable[[str], Iterable[tuple[str, Collection[str]]]],
    can_compile: Callable[[str], bool],
) -> list[str]:
    """Choose the source from which the template `kernel`, a plain name, is instantiated on demand.

    `texts_of` lists a source and its headers, each with the kernels that it defines. Of the sources that have
    the template from the same headers it is the first: of those that `can_compile`, and of the `built` ones,
    which have instantiations of it. Several are returned if each has a template of its own.
    """
    groups: dict[object, list[str]] = {}
    for source in sources:
        own, *headers = texts_of(source)
        if kernel in own[1]:
            groups[source] = [source]
        elif defining := frozenset(name for name, kernels in headers if kernel in kernels):
            groups.setdefault(defining, []).append(source)
    candidates = [group for key, group in groups.items() if isinstance(key, str)] or list(groups.values())
    with_built = [group for group in candidates if not set(built).isdisjoint(group)]
    return [min(g, key=lambda s: (not can_compile(s), s not in built)) for g in with_built or candidates]
