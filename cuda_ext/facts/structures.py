"""Structures that kernels take by value, with their members."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cuda_ext.facts.kernels import LARGEST_PARAMETERS, Kernel, Parameter


class Structure(NamedTuple):
    """A structure that kernels of ``units`` take by value, or that is a member of one.

    ``name`` is its type as parameters spell it. ``fields`` are its members in the order of their offsets,
    inherited ones included. If they are not known, ``obstacle`` says why, and values are passed as bytes.
    """

    name: str
    size: int
    alignment: int
    fields: tuple[Parameter, ...] = ()
    obstacle: str = ""
    units: tuple[int, ...] = ()

    @property
    def is_consistent(self) -> bool:
        """True if its members lie within it, one behind the other. Those of damaged data may not."""
        end = 0
        for each in self.fields:
            if each.offset < end or not each.has_possible_size:
                return False
            end = each.offset + each.size
        return end <= self.size <= LARGEST_PARAMETERS

    @property
    def is_known(self) -> bool:
        """True if it has a name and members that are known."""
        return bool(self.fields) and not self.name.startswith("decltype(")

    @property
    def is_attribute(self) -> bool:
        """True if attributes reach it: it is not within a template."""
        return self.is_known and ">" not in self.name.removesuffix(">")

    @property
    def declaration(self) -> str:
        """The structure in C++, with its members or the reason why they are not known."""
        if self.obstacle:
            return f"struct {self.name}, {self.size} bytes: {self.obstacle}"
        return f"struct {self.name} {{ {' '.join(f'{field};' for field in self.fields)} }}"


class Operand(NamedTuple):
    """A parameter of a kernel, or a member ``p.inner.width`` of one, which is called so.

    ``position`` is that of the parameter. ``offset`` is that of the member within the parameter's value.
    """

    position: int
    parameter: Parameter
    offset: int = 0
    is_member: bool = False

    @property
    def size(self) -> int:
        return self.parameter.size


def operands_of(kernel: Kernel, structures: Iterable[Structure]) -> dict[str, Operand]:
    """List the parameters of `kernel`, and the members of those that are known `structures`, by name."""
    known = {each.name: each for each in structures if kernel.unit in each.units}

    def members(outer: Operand, within: tuple[str, ...]) -> Iterator[Operand]:
        type_ = outer.parameter.type
        if type_ in within or type_ not in known:  # damaged data may contain itself
            return
        for each in known[type_].fields:
            name = f"{outer.parameter.name}.{each.name}"
            member = Operand(outer.position, each._replace(name=name), outer.offset + each.offset, True)
            if not each.extents:
                yield member
                yield from members(member, (*within, type_))

    found: dict[str, Operand] = {}
    for position, parameter in enumerate(kernel.parameters):
        operand = Operand(position, parameter)
        found |= {each.parameter.name: each for each in (operand, *members(operand, ()))}
    return found


def comparable_names(kernel: Kernel, structures: Iterable[Structure]) -> set[str]:
    """Return the names of what conditions of `kernel` may compare: operands and extents."""
    operands = operands_of(kernel, structures).items()
    names = {name for name, operand in operands if operand.parameter.is_comparable}
    return names | {hidden.source for hidden in kernel.hidden if hidden.extent}
