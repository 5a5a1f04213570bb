"""Find a kernel that two sources define before anything is compiled, where their text leaves no doubt.

Macros, overloads and what is compiled conditionally are left to the compiler: the kernels of all images are
compared afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cuda_ext.compiler.module_plan import defined_twice
from cuda_ext.compiler.name_expressions import code_of, declared_names, kernel_names
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError

__all__ = ["check_duplicates"]

_LINE = rb"(?:[^\n]*\\\n)*[^\n]*\n?"
_DIRECTIVE = rb"[ \t]*#[ \t]*(\w*)"
_MENTION = rb"__global__[^;{}]*?\b%b\s*\("
_DEFINITION = rb"(?:\A|(?<=[;{}]))([^;{}]*)__global__[^();{}]*\b%b\s*\((?:[^()]|\([^()]*\))*\)\s*\{"


def check_duplicates(module: str, units: Sequence[TranslationUnit]) -> None:
    """Raise :class:`~cuda_ext.errors.BuildError` if two of `units` define a kernel that is no template."""
    defining: dict[str, list[TranslationUnit]] = {}
    for unit in units:
        if unit.kind == "cu":
            for name in sorted(kernel_names(unit.source)):
                defining.setdefault(name, []).append(unit)
    for name, several in defining.items():
        owners: dict[str, str] = {}
        for unit in several if len(several) > 1 else ():
            if (qualified := _definition(unit, name)) is None:
                continue
            if (owner := owners.setdefault(qualified, unit.name)) != unit.name:
                error = defined_twice(qualified, owner, unit.name)
                raise BuildError(f"{module}:\n{error.problem}", remedy=error.remedy)


def _definition(unit: TranslationUnit, name: str) -> str | None:
    """The qualified name of the only kernel `name` in `unit`; ``None`` where there may be others."""
    text, uncertain = _unconditional(code_of(unit.source))
    uncertain += [*unit.headers.values(), *map(str.encode, (*unit.options.define, *unit.options.raw))]
    if any(re.search(rb"\b%b\b" % name.encode(), part) for part in uncertain):
        return None
    definitions = re.findall(_DEFINITION % name.encode(), text)
    qualified = [k for k in declared_names([text]).kernels if k.rpartition("::")[2] == name]
    is_certain = len(definitions) == len(re.findall(_MENTION % name.encode(), text)) == len(qualified) == 1
    return qualified[0] if is_certain and b"template" not in definitions[0] else None


def _unconditional(text: bytes) -> tuple[bytes, list[bytes]]:
    """`text` outside of ``#if``, without directives; and all that is left out."""
    kept: list[bytes] = []
    others: list[bytes] = []
    depth = 0
    for line in re.findall(_LINE, text):
        directive = re.match(_DIRECTIVE, line)
        if directive:
            depth += directive[1].startswith(b"if") - (directive[1] == b"endif")
        (others if directive or depth else kept).append(line)
    return b"".join(kept), others
