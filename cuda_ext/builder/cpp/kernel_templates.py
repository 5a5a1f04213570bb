"""One variable template for all instantiations of a kernel template: its parameters and specialisations.

C++ has no overloaded variable templates. So the template has as many parameters as the longest list of
arguments, and shorter lists are padded with placeholders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cuda_ext.builder.cpp.argument_ids import Argument

__all__ = ["Ids", "Shape", "by_ids"]

# The ids of a list of arguments, as C++ expressions.
Ids = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Which parameters of a template are types and which are values; from ``least`` on they may be absent."""

    kinds: tuple[str, ...]
    least: int

    @classmethod
    def of(cls, lists: Sequence[Sequence[Argument]]) -> Shape | None:
        """The shape of all `lists`; ``None`` if a parameter is a type in one and a value in another."""
        kinds: dict[int, str] = {}
        for arguments in lists:
            for position, argument in enumerate(arguments):
                if kinds.setdefault(position, argument.kind) != argument.kind:
                    return None
        return cls(tuple(kinds[i] for i in range(len(kinds))), min(map(len, lists))) if lists else None

    @property
    def with_absent(self) -> bool:
        return self.least < len(self.kinds)

    def padded(self, texts: Iterable[str]) -> Ids:
        """The ids `texts`, and placeholders for the parameters after them."""
        given = tuple(texts)
        absent = {"type": "type_id<absent>", "value": "value_id(absent_value)"}
        return (*given, *(absent[kind] for kind in self.kinds[len(given) :]))

    def parameters(self, template: str) -> str:
        """The declaration of the parameters of `template`."""
        words = {"type": ("class", "absent"), "value": ("auto", "absent_value")}
        texts = []
        for position, (kind, name) in enumerate(zip(self.kinds, self._names(template), strict=True)):
            word, absent = words[kind]
            default = f" = cuda_ext_kernels::{absent}" if position >= self.least else ""
            texts.append(f"{word} {name}{default}")
        return ", ".join(texts)

    def ids(self, template: str) -> tuple[str, ...]:
        """The ids of the parameters of `template`."""
        texts = {
            "type": "::cuda_ext::type_id<{}>",
            "value": "::cuda_ext::id_of_value<{}>()",
        }
        names = zip(self.kinds, self._names(template), strict=True)
        return tuple(texts[kind].format(name) for kind, name in names)

    def _names(self, template: str) -> list[str]:
        names = (f"{'T' if kind == 'type' else 'V'}{i}" for i, kind in enumerate(self.kinds))
        return [f"{name}_" if name == template else name for name in names]


def by_ids(lists: Iterable[tuple[int, Sequence[Argument]]], shape: Shape) -> dict[Ids, list[int]]:
    """The kernels of these indices by the ids of their arguments.

    Two lists may be the same or not, depending on the host's system: ``long`` and ``int64_t``. Their ids are
    made different, so that no specialisation is defined twice.
    """
    kernels: dict[Ids, list[int]] = {}
    related: dict[Ids, list[Ids]] = {}
    for index, arguments in lists:
        ids = shape.padded(argument.id for argument in arguments)
        if ids not in kernels:
            family = shape.padded(argument.family for argument in arguments)
            related.setdefault(family, []).append(ids)
        kernels.setdefault(ids, []).append(index)
    return {
        _distinct(ids, lists[:position], kernels[ids][0]): kernels[ids]
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
