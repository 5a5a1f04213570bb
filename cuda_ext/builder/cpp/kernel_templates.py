"""One variable template for all instantiations of a kernel template: its parameters and specialisations.

C++ has no overloaded variable templates. So the template has as many parameters as the longest list of
arguments, and shorter lists are padded with placeholders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from cuda_ext.builder.cpp.argument_ids import Argument
from cuda_ext.builder.cpp.kernel_classes import KernelClass

__all__ = ["Ids", "Shape", "by_ids"]

# The ids of a list of arguments, as C++ expressions.
Ids = tuple[str, ...]


class _Kind(NamedTuple):
    """A sort of template parameter: how it is declared, its id, its default, and the id of that."""

    declaration: str
    id: str
    absent: str
    absent_id: str


_KINDS = {
    "type": _Kind("class T", "::cuda_ext::type_id<{}>", "absent", "type_id<absent>"),
    "value": _Kind("auto V", "::cuda_ext::id_of_value<{}>()", "absent_value", "value_id(absent_value)"),
}


class Shape(NamedTuple):
    """The sorts of the parameters of a template; from ``least`` on they may be absent."""

    kinds: Sequence[str]
    least: int

    @classmethod
    def of(cls, lists: Collection[Sequence[Argument]]) -> Shape | None:
        """The shape of all `lists`; ``None`` if a parameter is a type in one and a value in another."""
        longest = max(lists, key=len, default=())
        kinds = [argument.kind for argument in longest]
        if not lists or any(a.kind != kind for each in lists for a, kind in zip(each, kinds, strict=False)):
            return None
        return cls(kinds, min(map(len, lists)))

    @property
    def with_absent(self) -> bool:
        return self.least < len(self.kinds)

    def padded(self, texts: Iterable[str]) -> Ids:
        """The ids `texts`, and placeholders for the parameters after them."""
        given = tuple(texts)
        return (*given, *(_KINDS[kind].absent_id for kind in self.kinds[len(given) :]))

    def parameters(self, template: str) -> tuple[str, Ids]:
        """The declaration of the parameters of `template`, and their ids."""
        declarations, ids = [], []
        for position, kind in enumerate(_KINDS[name] for name in self.kinds):
            word, _, name = f"{kind.declaration}{position}".partition(" ")
            name = f"{name}_" if name == template else name
            default = f" = cuda_ext_kernels::{kind.absent}" if position >= self.least else ""
            declarations.append(f"{word} {name}{default}")
            ids.append(kind.id.format(name))
        return ", ".join(declarations), tuple(ids)


def by_ids(known: Mapping[KernelClass, Sequence[Argument]], shape: Shape) -> dict[Ids, list[KernelClass]]:
    """The kernels by the ids of their arguments.

    Two lists may be the same or not, depending on the host's system: ``long`` and ``int64_t``. Their ids are
    made different, so that no specialisation is defined twice.
    """
    kernels: dict[Ids, list[KernelClass]] = {}
    related: dict[Ids, list[Ids]] = {}
    for kernel, arguments in known.items():
        ids = shape.padded(argument.id for argument in arguments)
        if ids not in kernels:
            family = shape.padded(argument.family for argument in arguments)
            related.setdefault(family, []).append(ids)
        kernels.setdefault(ids, []).append(kernel)
    return {
        _distinct(ids, lists[:position], kernels[ids][0].index): kernels[ids]
        for lists in related.values()
        for position, ids in enumerate(lists)
    }


def _distinct(ids: Ids, before: Sequence[Ids], index: int) -> Ids:
    """`ids`, as expressions that differ from those in `before` even if the types are the same."""
    if not before:
        return ids
    differing = [[i for i, id_ in enumerate(ids) if id_ != other[i]] for other in before]
    same = (
        " && ".join(f"{ids[i]} == {other[i]}" for i in positions)
        for positions, other in zip(differing, before, strict=True)
    )
    # No id of a type is as small as the index of a kernel.
    first = differing[0][0]
    return (*ids[:first], f"({' || '.join(same)} ? {index} : {ids[first]})", *ids[first + 1 :])
