"""Structures that kernels take by value, with their members."""

from typing import NamedTuple

from cuda_ext.facts.kernels import LARGEST_PARAMETERS, Parameter


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
