"""Name expressions that differ only in spelling: typedefs, constants, enumerators and literals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Unit
from cuda_ext.formats.spelling import normalise, plain_name

# The meaning of a kernel that may have ``auto`` parameters, for which 1, 1u and true differ.
AUTO = "auto"

_NUMBER = re.compile(
    r"(?P<digits>-?(?:0[xX][0-9a-fA-F']+|0[bB][01']+|(?P<octal>0[0-7']*)|[1-9][0-9']*))[uUlLzZ]{0,3}"
)
_CHARACTER = re.compile(
    r"'(?:(?P<plain>[ -&(-\[\]-~])|\\(?P<octal>[0-7]{1,3})|\\(?P<named>[abfnrtv'\"?\\]))'"
)
_NAMED_CHARACTERS = dict(zip("abfnrtv'\"?\\", map(ord, "\a\b\f\n\r\t\v'\"?\\"), strict=True))
# Literals, and names with their namespaces, but not members of a template's instantiation.
_TOKEN = re.compile(
    r"'(?:\\.|[^'\\]){1,4}'|(?<![\w.])\d[\w.']*|(?<![\w>:.])(?:::)?[^\W\d]\w*(?:::[^\W\d]\w*)*"
)
_CAST = re.compile(r"(?:static_cast<([\w:]+)>|(?<![\w:])([\w:]+))[({](-?\d+)[)}]")


def literal_value(text: str) -> int | None:
    """Return the value of a literal; ``None`` above ASCII, where it depends on the sign of ``char``."""
    if text in ("true", "false"):
        return int(text == "true")
    if match := _NUMBER.fullmatch(text):
        return int(match["digits"].replace("'", ""), 8 if match["octal"] else 0)
    if match := _CHARACTER.fullmatch(text):
        plain, octal, named = match.group("plain", "octal", "named")
        code = ord(plain) if plain else int(octal, 8) if octal else _NAMED_CHARACTERS[named]
        return code if code < 128 else None
    return None


class Meanings:
    """The meanings of names, without the names that have several meanings."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self._several: set[str] = set()

    def add(self, name: str, meaning: str) -> None:
        if name != meaning and name not in self._several and self.known.setdefault(name, meaning) != meaning:
            del self.known[name]
            self._several.add(name)


def merge_meanings(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Unite the meanings of several images, without the names whose meanings differ."""
    meanings = Meanings()
    for each in several:
        for name, meaning in each.items():
            meanings.add(name, meaning)
    return meanings.known


def spell_out(expression: str, meanings: Mapping[str, str]) -> str:
    """Replace the names and literals in the normalised `expression` by their meanings.

    `meanings` maps names in template arguments, with their namespaces, and whole expressions. Names are
    looked up from the kernel's namespace.

    >>> spell_out("ns::fill<half, B>", {"half": "__half", "ns::B": "1"})
    'ns::fill<__half, 1>'
    >>> spell_out("k<0x10u, true, Mode(1)>", {})
    'k<16, 1, (Mode)1>'
    """
    template = plain_name(expression)
    scopes = scopes_of(template)
    arguments = expression[len(template) :]
    is_auto = meanings.get(template) == AUTO

    def mean(match: re.Match[str]) -> str:
        token = match[0]
        before = arguments[: match.start()]
        # Templates among the arguments may have ``auto`` parameters, too.
        needs_type = is_auto or before.count("<") > before.count(">") + 1
        known = _look_up(token, scopes, meanings)
        owner, _, member = token.rpartition("::")
        if known is None and owner and (alias := _look_up(owner, scopes, meanings)):
            known = meanings.get(f"{alias}::{member}")  # an enumerator
        if known is None and (value := literal_value(token)) is not None:
            known = str(value)
        if known is None or (needs_type and _NUMBER.fullmatch(known)):
            return token.removeprefix("::")
        return known

    rest = _TOKEN.sub(mean, arguments)
    rest = _CAST.sub(lambda cast: f"({cast[1] or cast[2]}){cast[3]}", rest)
    spelled = normalise(template + rest)
    return meanings.get(spelled, spelled)


def _look_up(name: str, scopes: Iterable[str], meanings: Mapping[str, str]) -> str | None:
    """Return the meaning of `name` in the innermost of `scopes` that has it."""
    if name.startswith("::"):
        return meanings.get(name[2:])
    return next((meanings[scope + name] for scope in scopes if scope + name in meanings), None)


def scopes_of(name: str) -> list[str]:
    """Return the namespaces around the plain `name`, from the innermost to the global one.

    >>> scopes_of("one::two::kernel")
    ['one::two::', 'one::', '']
    """
    parts = name.split("::")
    return ["::".join([*parts[:depth], ""]) for depth in range(len(parts) - 1, -1, -1)]


def find_meant(
    name: str, known: Iterable[str], kernel_of: Callable[[str], Kernel], units: Sequence[Unit]
) -> str | None:
    """Return the `known` name that the normalised `name` spells in another way, or ``None``.

    Names have the meanings of the kernel's unit, of `units`: others may use the same names differently.
    """
    if not name.endswith((">", ")")):
        return None
    template = plain_name(name)
    found = []
    for each in known:
        if each.startswith((f"{template}<", f"{template}(")):
            meanings = units[kernel_of(each).unit].meanings
            if spell_out(each, meanings) == spell_out(name, meanings):
                found.append(each)
    return found[0] if len(found) == 1 else None
