"""Constants of the code: numbers that device code computes at compile time."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Number: TypeAlias = int | float | bool
_WORDS = {"True": True, "False": False}


class Constant(NamedTuple):
    """The value of the C++ expression ``name``, as the compiler of ``unit`` sees it.

    ``type`` is its type in C++, and an integer's for an enumeration. ``value`` is spelled as in Python. Where
    the code for other architectures has other values, these are ``elsewhere``. Before a module is assembled,
    the type may be empty: then ``value`` says why the unit has no such constant.
    """

    name: str
    type: str
    value: str
    unit: int = 0
    elsewhere: Mapping[str, str] = {}

    def number(self, architecture: str = "") -> Number:
        """Return the value in an image for `architecture`."""
        text = self.elsewhere.get(architecture, self.value)
        if text in _WORDS:
            return _WORDS[text]
        return float(text) if self.type in ("float", "double") else int(text)

    @property
    def declaration(self) -> str:
        """The constant with its values."""
        others = (f"{value} for {architecture}" for architecture, value in self.elsewhere.items())
        return f"{self.name} = {', '.join([self.value, *others])}"
