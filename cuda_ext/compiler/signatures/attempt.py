"""The names and types that one compilation is asked for, and its answers, which are in lowered names.

A compiler that rejects a part compiles nothing. The next attempt leaves that part out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import compress, islice
from typing import NamedTuple, TypeVar

from cuda_ext.compiler.signatures.constant_values import (
    append_constants,
    constant_type,
    explain_rejection,
    read_constant,
)
from cuda_ext.compiler.signatures.layouts import (
    NO_MEMBERS,
    Members,
    append_members,
    members_of,
    refused_members,
    rejected_lines,
)
from cuda_ext.compiler.signatures.probes import Probed, known_subjects, probe, probe_type, read_probe
from cuda_ext.compiler.signatures.spellings import (
    NO_QUESTIONS,
    Questions,
    append_questions,
    ask,
    read_answers,
)
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.constants import Constant

_T = TypeVar("_T")


class Answers(NamedTuple):
    """The lowered names of instantiations and of variables, types, meanings of names, and constants."""

    names: Mapping[str, str]
    addresses: Sequence[str]
    types: dict[str, Probed]
    meanings: Mapping[str, str]
    constants: Mapping[str, Constant]


class Attempt(NamedTuple):
    """The instantiations of a unit, addresses of variables, and subjects and questions for probes.

    All attempts have the same instantiations, since without one the image is incomplete. Kernels among the
    subjects are asked for the ``members`` of structures, but not for the ``refused`` ones, by number. The
    ``plain`` subjects are not: they may take structures of types that no template of a kernel takes. The
    ``constants`` are C++ expressions; those that are ``unknown`` have been rejected.
    """

    instantiate: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    questions: Questions = NO_QUESTIONS
    members: Members = NO_MEMBERS
    refused: frozenset[int] = frozenset()
    plain: frozenset[str] = frozenset()
    constants: Sequence[str] = ()
    unknown: tuple[Constant, ...] = ()

    @property
    def probes(self) -> list[str]:
        """The name expressions of the probes. Errors of NVRTC name a probe by its index."""
        plain = self.plain if self.members.names else self.subjects
        about = [probe(subject, index, subject not in plain) for index, subject in enumerate(self.subjects)]
        types = enumerate(self.questions.types.values(), len(about))
        probes = [*about, *(probe_type(type_, index) for index, type_ in types)]
        constants = enumerate(map(constant_type, self.constants), len(probes))
        return [*probes, *(probe_type(type_, index) for index, type_ in constants)]

    @property
    def expressions(self) -> Sequence[str]:
        """All name expressions."""
        return (*self.instantiate, *self.addresses, *self.probes)

    def without(self, rejected: Collection[int], log: str) -> Attempt:
        """Leave out the `rejected` expressions, by index, and questions whose declarations `log` rejects."""
        flags = [index in rejected for index, _ in enumerate(self.expressions)]
        _, addresses, subjects, asked, constants = self._divide(flags)
        lost = (explain_rejection(each, log) for each in compress(self.constants, constants))
        unknown = set(compress(self.subjects, subjects))
        if described := unknown - self.plain if self.members.names else set():
            return self._replace(plain=self.plain | described)
        return self._replace(
            addresses=_unless(self.addresses, addresses),
            subjects=_unless(self.subjects, subjects),
            refused=self.refused | refused_members(log, self.members),
            constants=tuple(_unless(self.constants, constants)),
            unknown=(*self.unknown, *lost),
            questions=self.questions.accepted(compress(self.questions.types, asked), rejected_lines(log)),
        )

    def after(self, rejected: Collection[int], log: str) -> Attempt | None:
        """Return the next attempt after this one failed; ``None`` if the source itself is at fault."""
        following = self.without(rejected, log)
        if following != self:
            return following
        # Questions may be what makes a name ambiguous.
        return self._replace(questions=NO_QUESTIONS) if self.questions.types else None

    def append_to(self, source: bytes) -> bytes:
        """Append the declarations of the questions, and those about members, to `source`."""
        source = append_questions(source, self.questions)
        if self.constants:
            source = append_constants(source)
        return append_members(source, self.members, self.refused) if self.subjects else source

    def read(self, lowered: Sequence[str]) -> Answers:
        """Read the answers from the `lowered` names of the expressions."""
        names, addresses, about, asked, constants = self._divide(lowered)
        pairs = zip(self.constants, constants, strict=True)
        found = (read_constant(each, name) or explain_rejection(each, "") for each, name in pairs)
        types = {subject: read_probe(name) for subject, name in zip(self.subjects, about, strict=True)}
        return Answers(
            dict(zip(self.instantiate, names, strict=True)),
            addresses,
            {subject: found for subject, found in types.items() if found is not None},
            read_answers(self.questions, dict(zip(self.questions.types, asked, strict=True))),
            {each.name: each for each in (*self.unknown, *found)},
        )

    def _divide(self, items: Sequence[_T]) -> list[list[_T]]:
        """Divide `items`, one for each expression, by what the expressions are."""
        remaining = iter(items)
        about = self.questions.types
        parts = (self.instantiate, self.addresses, self.subjects, about, self.constants)
        return [list(islice(remaining, len(part))) for part in parts]


def first_attempt(unit: TranslationUnit, addresses: tuple[str, ...] = ()) -> Attempt:
    """Ask for all that `unit` may have, and for the lowered names of the variables at `addresses`."""
    subjects, members = known_subjects(unit), members_of(unit)
    return Attempt(unit.instantiate, addresses, subjects, ask(unit), members, constants=unit.constants)


def _unless(items: Sequence[_T], flags: Sequence[bool]) -> tuple[_T, ...]:
    return tuple(item for item, flag in zip(items, flags, strict=True) if not flag)
