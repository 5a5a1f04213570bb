"""Declare structures in stubs: each member is a property, with the types that it has and takes."""

from __future__ import annotations

import keyword
from collections.abc import Callable

from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.structures import Structure

# The types of members as they are read, by kind; pointers are arrays or addresses.
_READ = {"integer": "int", "unsigned": "int", "enum": "int", "bool": "bool", "float": "float"}


def structure_members(
    structure: Structure,
    builtins: str,
    typing: str,
    written: Callable[[Parameter], str],
    class_of: Callable[[str], str | None],
) -> list[str]:
    """Write the body of the class of `structure`.

    `builtins` and `typing` are the names of these modules in the stub. `written` gives the type of the values
    that a parameter takes, and `class_of` the class of another structure.
    """
    lines: list[str] = []
    parameters = []
    for field in structure.fields:
        name = f"{field.name}_" if keyword.iskeyword(field.name) else field.name
        read, takes = _types(field, builtins, typing, written, class_of)
        parameters.append(f"{name}: {takes} = ...")
        lines += [
            f"@{builtins}.property",
            f"def {name}(self) -> {read}: ...",
            f"@{name}.setter",
            f"def {name}(self, value: {takes}, /) -> None: ...",
        ]
    return [f"def __new__(cls, *, {', '.join(parameters)}) -> {typing}.Self: ...", *lines]


def _types(
    field: Parameter,
    builtins: str,
    typing: str,
    written: Callable[[Parameter], str],
    class_of: Callable[[str], str | None],
) -> tuple[str, str]:
    """Return the types of a member as it is read, and as it is written."""
    own = class_of(field.type) if field.kind == "struct" else None
    read = own or (f"{builtins}.{_READ[field.kind]}" if field.kind in _READ else f"{typing}.Any")
    takes = f"{own} | {typing}.Mapping[{builtins}.str, {typing}.Any]" if own else written(field)
    for _ in field.extents:
        read, takes = f"{builtins}.tuple[{read}, ...]", f"{typing}.Sequence[{takes}]"
    if field.extents:
        takes += f" | {typing}.Any"  # an array of numpy
    return read, takes
