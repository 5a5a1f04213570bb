"""The parameters of one variable template that stands for all instantiations of a kernel template.

C++ has no overloaded variable templates. So the template has as many parameters as the longest list of
arguments, and placeholders fill the shorter lists.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from cuda_ext.builder.cpp.template_arguments import Argument

_ABSENT = {False: Argument("type", "absent"), True: Argument("value", "absent_value")}


class TemplateParameters(NamedTuple):
    """The template parameters, each a value or a type; those from the position ``least`` on may be absent."""

    are_values: Sequence[bool]
    least: int

    @classmethod
    def of(cls, lists: Collection[Sequence[Argument]]) -> TemplateParameters | None:
        """Make parameters for all `lists`; ``None`` if one is a type in one list and a value in another."""
        longest = max(lists, key=len, default=())
        are_values = [argument.kind == "value" for argument in longest]
        if any((a.kind == "value") != v for each in lists for a, v in zip(each, are_values, strict=False)):
            return None
        return cls(are_values, min(map(len, lists), default=0))

    @property
    def names(self) -> list[str]:
        return [f"{'V' if is_value else 'T'}{i}" for i, is_value in enumerate(self.are_values)]

    @property
    def declaration(self) -> str:
        """The declarations of the parameters, for a template."""
        return ", ".join(
            f"{'auto' if is_value else 'class'} {name}"
            for name, is_value in zip(self.names, self.are_values, strict=True)
        )

    @property
    def texts(self) -> list[str]:
        """The C++ classes that provide the texts of the parameters."""
        return [
            f"AbsentOr<loader::{'Value' if is_value else 'Type'}Argument<{name}>>"
            if i >= self.least
            else f"loader::{'Value' if is_value else 'Type'}Argument<{name}>"
            for i, (name, is_value) in enumerate(zip(self.names, self.are_values, strict=True))
        ]

    def declare(self, template: str) -> tuple[str, str]:
        """Declare the parameters, with defaults, of the variable template `template`, and its arguments."""
        names = [f"{name}_" if name == template else name for name in self.names]
        words = ["auto" if is_value else "class" for is_value in self.are_values]
        defaults = [
            f" = cuda_ext_kernels::{_ABSENT[is_value].text}" if i >= self.least else ""
            for i, is_value in enumerate(self.are_values)
        ]
        return ", ".join(map("{} {}{}".format, words, names, defaults)), ", ".join(names)

    def condition(self, arguments: Sequence[Argument]) -> str:
        """Write the C++ condition that the parameters equal these `arguments`."""
        absent = [_ABSENT[is_value] for is_value in self.are_values[len(arguments) :]]
        pairs = zip([*arguments, *absent], self.names, strict=True)
        return " && ".join(argument.condition(name) for argument, name in pairs) or "true"
