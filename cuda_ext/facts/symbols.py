"""Variables of a module."""

from typing import Literal, NamedTuple


class Symbol(NamedTuple):
    """A ``__constant__`` or ``__device__`` variable; ``alignment`` is 0 if it is not known."""

    name: str
    lowered: str
    unit: int
    space: Literal["constant", "device"]
    type: str
    size: int
    alignment: int = 0
