"""Variants: several kernels under one name, among which the conditions of a launch choose."""

from collections.abc import Container, Mapping
from typing import Literal, NamedTuple, TypeAlias

Operator: TypeAlias = Literal["", "<", "<=", "==", "!=", ">=", ">"]

_LARGEST = (1 << 63) - 1  # the largest number in a condition


class Term(NamedTuple):
    """A comparison that a condition requires: ``n % 16 == 0``, ``x.shape[0] >= 64``, ``sm >= 80``.

    Without a modulus, it compares the value itself. A target such as ``sm_90a`` has no operator: it requires
    that the GPU loads an image for this target.
    """

    name: str
    operator: Operator = ""
    number: int = 0
    modulus: int = 0

    @property
    def is_comparable(self) -> bool:
        """True if its numbers have at most 64 bits. Those of damaged data may be others."""
        return -_LARGEST <= self.number <= _LARGEST and 0 <= self.modulus <= _LARGEST

    @property
    def left(self) -> str:
        return f"{self.name} % {self.modulus}" if self.modulus else self.name

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.number}" if self.operator else self.name


class Measured(NamedTuple):
    """The GPU, by its name or capability, and the values of a key for which a candidate was the fastest."""

    device: str
    key: tuple[int, ...]


class Tuning(NamedTuple):
    """The arguments by which candidates of a kernel are measured, and the ``file`` of the results.

    ``key`` are the integers on which the choice depends. ``grid`` are expressions of arguments and constants,
    ``arrays`` those of the elements of each array, and ``inputs`` is the function of the author that makes
    the arguments of a case instead, ``module:function``. Results agree if no element differs by more than
    ``tolerance``, relative to the largest, or if their bits are equal. ``source`` is a digest.
    """

    file: str
    key: tuple[str, ...]
    grid: tuple[str, ...] = ()
    arrays: Mapping[str, str] = {}
    inputs: str = ""
    tolerance: float = 0.0
    source: str = ""

    def sizes(self, constants: Container[str]) -> list[str]:
        """Return those of the key that are no `constants` of a kernel: the names of a measured case."""
        return [name for name in self.key if name not in constants]


class Candidate(NamedTuple):
    """One kernel of several variants, and the terms that must all hold; the default has none.

    ``measured`` are the cases for which it was the fastest.
    """

    kernel: str
    when: tuple[Term, ...] = ()
    measured: tuple[Measured, ...] = ()

    @property
    def condition(self) -> str:
        return " and ".join(map(str, self.when))

    def __str__(self) -> str:
        name = self.kernel.partition(" if ")[0]
        return f"{name} if {self.condition}" if self.when else name


class Variants(NamedTuple):
    """Several kernels under one name. A launch takes the first whose condition holds.

    The last candidate is the default. All have the same parameters. The candidates of ``specialised``
    variants are one kernel, compiled under several conditions. They have no names of their own, and not all
    have a default. A kernel compiled for several conditions is a candidate for each. Specialised variants may
    also stand for kernels with names of their own, whose constants a launch derives from its arguments. The
    candidates with ``tuning`` differ in constants that are measured.
    """

    name: str
    candidates: tuple[Candidate, ...]
    specialised: bool = False
    tuning: Tuning | None = None

    @property
    def is_one_kernel(self) -> bool:
        """True if the candidates are one kernel, which has their name."""
        return self.specialised and all(c.kernel.partition(" if ")[0] == self.name for c in self.candidates)

    def __str__(self) -> str:
        if self.is_one_kernel:
            conditions = [f"if {c.condition}" if c.when else "and for all arguments" for c in self.candidates]
            return f"compiled {', '.join(conditions)}"
        *conditional, default = self.candidates
        return ", ".join([*map(str, conditional), f"else {default}"])
