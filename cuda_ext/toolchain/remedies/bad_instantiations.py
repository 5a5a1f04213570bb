"""Remedies for name expressions that name no kernel: its namespace, its name, or a template argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import closest_name
from cuda_ext.formats.spelling import base_name, normalise, template_name
from cuda_ext.text.declarations import find_declarations
from cuda_ext.text.declared_types import find_types

# The headers of types.
HEADERS = {
    "cuda_fp16.h": ("half", "half2", "__half", "__half2"),
    "cuda_bf16.h": ("nv_bfloat16", "__nv_bfloat16", "nv_bfloat162", "__nv_bfloat162"),
    "cuda_fp8.h": ("__nv_fp8_e4m3", "__nv_fp8_e5m2", "__nv_fp8_e8m0"),
    "cuComplex.h": ("cuFloatComplex", "cuDoubleComplex", "cuComplex"),
    "cuda/std/cstdint": tuple(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}

_BAD_EXPRESSION = r'Input name expression was: "\s*(.*?)\s*"'
_NAME_MAP = r"(?ms)^__nv_name_map\((?P<line>\d+)\): (?:error|note).*?(?=^\S+\(\d+\): |\Z)"
_UNDEFINED = r'identifier "(\w+)" is undefined|has no member "(\w+)"'

_HEADER_OF = {name: header for header, names in HEADERS.items() for name in names}
_WORDS = ("bool", "char", "short", "int", "long", "float", "double", "unsigned int", "unsigned char")


def explain_instantiations(log: str, unit: TranslationUnit, by_nvrtc: bool) -> tuple[str, list[str]]:
    """Return `log` without the text about name expressions of `unit`, and a remedy for each of these."""
    refusals: dict[int, str] = {}
    for match in re.finditer(_NAME_MAP, log):
        line = int(match["line"])
        refusals[line] = refusals.get(line, "") + match[0]
    # NVRTC repeats a name expression that it rejects; nvcc's have one line each, from the second on.
    requested = {} if by_nvrtc else dict(enumerate(unit.instantiate, 2))
    notes = []
    reasons: dict[str, str] = {}  # by undefined names; NVRTC gives them for the first of the expressions
    for line, refusal in refusals.items():
        if repeated := re.search(_BAD_EXPRESSION, refusal):
            requested[line] = repeated[1]
        if undefined := re.search(_UNDEFINED, refusal):
            reasons.setdefault(undefined[1] or undefined[2], refusal)
        else:
            words = re.findall(r"\w+", requested.get(line, ""))
            refusal = next((reasons[word] for word in words if word in reasons), refusal)
        notes.append(_explain(normalise(requested[line]), refusal, unit) if line in requested else refusal)
    return re.sub(_NAME_MAP, "", log), [note.strip() for note in notes]


def _explain(expression: str, refusal: str, unit: TranslationUnit) -> str:
    text = f"instantiation {expression!r} does not exist"
    if match := re.search(r"error: (.*)", refusal):
        text += f": {match[1]}"
    if hint := _hint(expression, refusal, unit):
        text += f"; {hint}"
    return text


def _hint(expression: str, refusal: str, unit: TranslationUnit) -> str:
    texts = [unit.source, *unit.headers.values()]
    kernels = find_declarations(texts).kernels
    name = template_name(expression)
    if "cannot determine which instance of function template" in refusal:
        if not expression.endswith(">"):
            return f"write its template arguments, as in {f'{expression}<float>'!r}"
        alike = (k.template for k in kernels if "<" in k.template and base_name(k.name) == base_name(name))
        head = next(alike, "")
        return f"the arguments do not fit: it is declared as {head}" if head else ""
    undefined = re.search(_UNDEFINED, refusal)
    unknown = (undefined[1] or undefined[2]) if undefined else ""
    names = {kernel.name for kernel in kernels}
    if name in names or (unknown and unknown not in name.split("::")):
        return _about_argument(expression, name, unknown, texts)
    if close := _closest_kernel(expression, names):
        return f"did you mean {close!r}?"
    own = sorted({kernel.name for kernel in find_declarations([unit.source]).kernels})
    return f"this source defines {', '.join(own)}" if own else ""


def _about_argument(expression: str, name: str, unknown: str, texts: Sequence[bytes]) -> str:
    """Return the remedy for a template argument of the kernel `name` in which `unknown` is not declared."""
    if not unknown:
        return ""
    arguments = expression.removeprefix(name)
    types = sorted(name for name, type_ in find_types(texts).items() if not type_.is_used)
    by_plain = {each.rpartition("::")[2]: each for each in types}
    known = {**{word: word for word in (*_WORDS, *_HEADER_OF)}, **by_plain}
    close = unknown if unknown in known else closest_name(unknown, known)
    text = f"the kernel exists, its template argument {unknown!r} does not: "
    if not close:
        return f"{text}correct it, or declare it in the source"
    meant = name + re.sub(rf"(?:\w+::)*\b{unknown}\b", known[close], arguments)
    header = _HEADER_OF.get(known[close])
    if header and meant == expression:
        return f"{text}add #include <{header}>"
    return f"{text}did you mean {meant!r}" + (f", with #include <{header}>?" if header else "?")


def _closest_kernel(expression: str, kernels: Iterable[str]) -> str:
    """Return the normalised `expression` with the most similar name among `kernels`.

    >>> _closest_kernel("sofmax<float, 4>", ["ops::softmax", "ops::sum"])
    'ops::softmax<float, 4>'
    """
    name = template_name(expression)
    plain = name.rpartition("::")[2]
    by_plain: dict[str, list[str]] = {}
    for kernel in sorted(kernels):
        by_plain.setdefault(kernel.rpartition("::")[2], []).append(kernel)
    close = plain if plain in by_plain else closest_name(plain, by_plain)
    return closest_name(name, by_plain[close], 0) + expression[len(name) :] if close else ""
