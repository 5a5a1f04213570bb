"""Find kernels that two sources define before anything is compiled, if the texts leave no doubt.

Macros, overloads and conditional code are left to the compiler: afterwards, the kernels of all images are
compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cuda_ext.compiler.module_plan import defined_twice
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError
from cuda_ext.formats.spelling import base_name
from cuda_ext.text.declarations import find_declarations, kernel_names
from cuda_ext.text.lexer import read_text


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
    """Return the qualified name of the only kernel `name` in `unit`; ``None`` where there may be others."""
    options = map(str.encode, (*unit.options.define, *unit.options.raw))
    uncertain = [*unit.headers.values(), *options, read_text(unit.source).directives]
    if any(re.search(rb"\b%b\b" % name.encode(), part) for part in uncertain):
        return None
    found = [k for k in find_declarations([unit.source]).kernels if base_name(k.name) == name]
    return found[0].name if len(found) == 1 and found[0].is_plain and found[0].is_definition else None
