"""Find the kernels and variables that a source declares, without compiling it.

What is found here is a proposal: names that the compiler is asked about, and names of parameters, which no
image contains. Types never come from here. Macros of the project that declare something for
the device are expanded; conditions are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from cuda_ext.compiler.name_expressions import split_arguments

__all__ = [
    "Declaration",
    "Declarations",
    "DeclaredParameter",
    "find_declarations",
    "find_parameters",
    "find_types",
]


class DeclaredParameter(NamedTuple):
    """The name of a parameter, empty for an unnamed one, and the text of its type."""

    name: str
    type: str
    is_pack: bool = False


class Declaration(NamedTuple):
    """A kernel or variable. ``name`` includes the namespaces.

    ``parameters`` are those of a kernel, the last of which may be a pack. ``is_plain`` excludes templates and
    what depends on a condition; ``is_definition`` excludes prototypes.
    """

    name: str
    parameters: tuple[DeclaredParameter, ...] = ()
    is_plain: bool = False
    is_managed: bool = False
    is_definition: bool = False


class Declarations(NamedTuple):
    """All that the texts of a translation unit declare.

    ``doubtful`` are words that names of more variables may contain: those of declarations that are not clear.
    ``has_extern`` is whether a variable may be declared without being defined.
    """

    kernels: tuple[Declaration, ...]
    variables: tuple[Declaration, ...]
    doubtful: tuple[str, ...] = ()
    has_extern: bool = False


_TEXT = re.compile(
    r'(?P<linkage>\bextern\s*"C")|//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)'
    r'|\b(?:u8|[uUL])?R"(?P<fence>[^()\\\s"]*)\(.*?(?:\)(?P=fence)"|\Z)'
    r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'|\\\r?\n",
    re.DOTALL,
)
_C_LINKAGE = "extern_C"
# With its continued lines, before comments are removed: few lines of headers are definitions.
_DEFINITION = re.compile(
    rb"(?m)^[ \t]*(?:/\*.*?\*/[ \t]*)*#[ \t]*define\b((?:[^\n\\]|\\\r?\n|\\(?!\r?\n))*)$"
)
_MACRO = re.compile(r"\s*(\w+)(\(([^)]*)\))?(.*)", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
_SPACES = r"__(?:global|device|constant|managed)__"
# What opens and closes scopes, and a declaration that is sought.
_MARKS = (
    rf"(?m)^[ \t]*#[ \t]*(?P<directive>\w+)(?P<rest>.*)$|\bnamespace\b(?P<namespace>[^;{{}}=]{{0,1000}})\{{"
    rf"|\b{_C_LINKAGE}\s*(?P<block>\{{)|(?P<sought>%s)|[;{{}}]"
)
_SPECIFIER_MARKS = re.compile(_MARKS % rf"\b{_SPACES}")
_TYPE = (
    r"\b(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(?:alignas\s*\([^()]*\)\s*)?(?P<type>\w+)"
    r"(?=\s*[:;{])|\busing\s+(?P<alias>\w+)\s*=|\btypedef\b[^;{}]{0,1000}?\b(?P<typedef>\w+)\s*;"
)
_GUARD = re.compile(
    r"[ \t]*#[ \t]*if(?:ndef[ \t]+|[ \t]*![ \t]*defined\b[ \t(]*)(\w+)[ \t)]*\n\s*#[ \t]*define[ \t]+\1\b"
)
# A variable whose specifier may be in a macro of another header.
_MACRO_VARIABLE = re.compile(
    rb"(?m)^[ \t]*(?:static[ \t]+|extern[ \t]+)*[A-Z][A-Z0-9_]{3,}[ \t]+(?P<rest>[\w:<>, \t*&]+?\b\w+)\s*"
    rb"(?:\[[^\]]*\]\s*)*[=;{]"
)
# A declaration that defines nothing: with the linkage of C, too, unless it is in braces.
_EXTERN = re.compile(rf"\b(?:extern|{_C_LINKAGE})\b[^={{]*$")
# Words before a parenthesis that are not the name of a function.
_NOT_NAMES = frozenset(
    [
        *("alignas", "decltype", "noexcept", "requires", "sizeof", "typeof"),
        *("if", "while", "for", "return"),
    ]
)
_CALL = re.compile(r"\b([^\W\d]\w*)\s*(?:<[^;{}()]*>)?\s*\(|[;{}]")
_TEMPLATE = re.compile(r"\s*template\s*<")
_ATTRIBUTE = re.compile(r"\b(?:alignas|__align__|__attribute__|__declspec|__\w+__)\s*\(")
_POINTER = re.compile(r"\(\s*[*&]+(?:\s*(?:const|__restrict__)\b)*\s*([^\W\d]\w*)?\s*(?:\[[^\]]*\]\s*)*\)")
# Words that are never the name of a parameter; qualifiers are not even a type.
_QUALIFIERS = frozenset(
    [
        *("const", "volatile", "struct", "class", "enum", "union", "typename"),
        *("__restrict__", "__restrict", "restrict", "__grid_constant__"),
    ]
)
_TYPE_WORDS = _QUALIFIERS | frozenset(
    [
        *("unsigned", "signed", "char", "short", "int", "long", "float", "double", "bool", "void"),
        *("auto", "__int128", "wchar_t", "constexpr", "friend", "operator", "using", "typedef", "inline"),
    ]
)


def find_declarations(texts: Sequence[bytes]) -> Declarations:
    """Find what `texts`, a source and the headers of its project, declare at the scope of namespaces."""
    macros = tuple(macro for text in texts for macro in _macros(text))
    declaring = _declaring(macros)
    marks = re.compile("|".join([_SPACES, *(macro.name for macro in declaring)]).encode())
    found = [
        _find(text, macros, declaring) for text in texts if marks.search(text) or _MACRO_VARIABLE.search(text)
    ]
    return Declarations(
        tuple(k for f in found for k in f.kernels),
        tuple(v for f in found for v in f.variables),
        tuple(dict.fromkeys(word for f in found for word in f.doubtful)),
        any(f.has_extern for f in found),
    )


def _plain(content: bytes) -> str:
    """The text without comments, literals and continued lines."""
    return _TEXT.sub(lambda m: f"{_C_LINKAGE} " if m["linkage"] else " ", content.decode(errors="replace"))


@lru_cache(maxsize=1000)
def _find(content: bytes, macros: tuple[_Macro, ...], declaring: tuple[_Macro, ...]) -> Declarations:
    """Cached, since units share their headers."""
    text = _expand(_plain(content), declaring)
    kernels: list[Declaration] = []
    variables: list[Declaration] = []
    unclear = list(_MACRO_VARIABLE.finditer(content))
    doubtful = [name for match in unclear for name in _names(match["rest"].decode())]
    has_extern = any(_EXTERN.search(match[0].decode()) for match in unclear)
    read: tuple[int, bool] | None = None
    for scope, head, space, is_conditional in _declarators(text, _SPECIFIER_MARKS):
        if read == (read := (head, space[0] == "__global__")):
            continue  # a further specifier of the same declaration
        namespaces = [part for part in scope or () if part not in ("", _C_LINKAGE)]
        is_plain = not is_conditional and not re.search(r"\btemplate\b", text[head : space.start()])
        if space[0] == "__global__":
            if scope is not None and (found := _kernel(text, space.end(), macros)):
                name, parameters, is_definition = found
                name = "::".join([*namespaces, name])
                kernels.append(Declaration(name, parameters, is_plain, is_definition=is_definition))
        elif "__global__" not in text[head : space.start()]:
            end = _end(text, head, ";", "(){}[]")
            statement = text[head : space.end()] + _expand(text[space.end() : end], macros)
            declared = _variables(statement)
            has_extern |= declared != [] and _EXTERN.search(statement) is not None
            is_local = "" in (scope or ()) or "static" in text[head : space.start()]
            if declared is None:
                doubtful += _names(statement)
            elif scope is None or (is_local and not is_plain):
                # Within a class or function it is none, but then the braces may be of several conditions.
                doubtful += declared
            if scope is not None:
                is_managed = "__managed__" in statement
                for name in declared or ():
                    qualified = "::".join([*namespaces, name])
                    variables.append(Declaration(qualified, (), is_plain, is_managed=is_managed))
    return Declarations(tuple(kernels), tuple(dict.fromkeys(variables)), tuple(doubtful), has_extern)


def _names(text: str) -> list[str]:
    """The words of `text` that may be names: those outside of braces."""
    while (outer := re.sub(r"\{[^{}]*\}", "", text)) != text:
        text = outer
    return [
        word for word in _WORD.findall(text) if word not in _TYPE_WORDS and not re.fullmatch(r"__\w+__", word)
    ]


def find_types(texts: Sequence[bytes]) -> set[str]:
    """Find the names of the types that `texts` declare at the scope of namespaces."""
    marks = re.compile(_MARKS % _TYPE)
    return {
        "::".join(
            part for part in (*scope, *mark.group("type", "alias", "typedef")) if part and part != _C_LINKAGE
        )
        for text in texts
        for scope, _, mark, _ in _declarators(_plain(text), marks)
        if scope is not None
    }


def _declarators(
    text: str, marks: re.Pattern[str]
) -> Iterator[tuple[tuple[str, ...] | None, int, re.Match[str], bool]]:
    """The matches of what `marks` seek: the namespaces of each, and where its declaration begins.

    Within a function or class there are no namespaces. Last comes whether it depends on a condition.
    """
    scopes: list[str | None] = []
    conditions: list[bool] = []  # whether each is one, and not an include guard
    head = 0
    for mark in marks.finditer(text):
        if directive := mark["directive"]:
            head = mark.end()
            if directive in ("if", "ifdef", "ifndef"):
                guard = _GUARD.match(text, mark.start())
                conditions.append(guard is None)
            elif directive == "endif" and conditions:
                conditions.pop()
        elif mark["namespace"] is not None:
            # Anonymous ones have no name, and one that a macro makes has none that is known here.
            name = re.split(r"\[\[|__attribute__", mark["namespace"])[0]
            scopes.append("" if "(" in name else "::".join(_WORD.findall(name)))
            head = mark.end()
        elif mark["block"]:
            scopes.append(_C_LINKAGE)
            head = mark.end()
        elif mark["sought"]:
            scope = None if None in scopes else tuple(s for s in scopes if s is not None)
            yield scope, head, mark, any(conditions)
        else:
            if mark[0] == "{":
                scopes.append(None)
            elif mark[0] == "}" and scopes:
                scopes.pop()
            head = mark.end()


def _kernel(
    text: str, start: int, macros: tuple[_Macro, ...]
) -> tuple[str, tuple[DeclaredParameter, ...], bool] | None:
    """The name and parameters of the kernel whose declarator begins at `start`; whether that is defined."""
    end = _end(text, start, ";{}", "()")
    is_definition = text.startswith("{", end)
    declarator = _expand(text[start:end], macros)
    at = 0
    while (match := _CALL.search(declarator, at)) and match[1]:
        end = _closing(declarator, match.end())
        name = match[1]
        if name not in _NOT_NAMES and not re.fullmatch(r"__\w+__", name):
            return name, _parameters(declarator[match.end() : end]), is_definition
        at = end + 1
    return None


def _variables(statement: str) -> list[str] | None:
    """The names of the variables that `statement` declares: none for a function, ``None`` if unclear."""
    while template := _TEMPLATE.match(statement):
        statement = statement[_closing(statement, template.end(), "<>") + 1 :]
    while attribute := _ATTRIBUTE.search(statement):
        end = _closing(statement, attribute.end())
        statement = statement[: attribute.start()] + statement[end + 1 :]
    statement = re.sub(r"\[\[.*?\]\]", " ", statement)
    if re.search(r"\b(?:constexpr|using|typedef|friend)\b", statement):
        return []
    first = re.search(r"[({=]", statement)
    if first and first[0] == "(":
        pointer = _POINTER.match(statement, first.start())
        if pointer is None:
            # With values it is a variable, with types a function.
            return None if re.match(r"\(\s*[-+'\"\d]", statement[first.start() :]) else []
        return [pointer[1]] if pointer[1] else None
    if re.search(r"\b(?:struct|class|union|enum|template)\b", statement[: first.start() if first else None]):
        return None
    declarators = (re.split(r"[\[{=]", part, maxsplit=1)[0] for part in split_arguments(statement))
    names = (_WORD.findall(declarator)[-1:] for declarator in declarators)
    return [name for each in names for name in each]


def _end(text: str, start: int, ends: str, brackets: str) -> int:
    """The index of the first of `ends` outside of `brackets`."""
    depth = 0
    for match in re.compile(f"[{re.escape(ends + brackets)}]").finditer(text, start):
        if match[0] in ends and depth <= 0:
            return match.start()
        if match[0] in brackets:
            depth += 1 if match[0] in "([{" else -1
    return len(text)


def _closing(text: str, start: int, brackets: str = "()") -> int:
    """The index of the bracket that closes the one before `start`."""
    depth = 1
    for match in re.compile(f"[{brackets}]").finditer(text, start):
        depth += 1 if match[0] == brackets[0] else -1
        if not depth:
            return match.start()
    return len(text)


def _parameters(text: str) -> tuple[DeclaredParameter, ...]:
    return tuple(_parameter(declared) for declared in split_arguments(text) if declared != "void")


def _parameter(declared: str) -> DeclaredParameter:
    declared = declared.partition("=")[0].strip()
    if match := _POINTER.search(declared):  # to a function or an array
        return DeclaredParameter(match[1] or "", declared)
    plain = re.sub(r"(?:\s*\[[^\]]*\])+$", "", declared)
    match = re.search(r"([^\W\d]\w*)$", plain)
    before = plain[: match.start()].rstrip() if match else plain
    words = set(_WORD.findall(before)) - _QUALIFIERS
    # A single word is a type, and so is the last of a qualified name.
    if match is None or match[1] in _TYPE_WORDS or before.endswith("::") or not words:
        return DeclaredParameter("", declared, "..." in declared)
    return DeclaredParameter(match[1], before, "..." in declared)


def find_parameters(texts: Sequence[bytes], name: str) -> tuple[DeclaredParameter, ...] | None:
    """The parameters of the function `name`, whose definition a macro of another header marks as a kernel."""
    for content in texts:
        if name.encode() in content:
            text = _TEXT.sub(" ", content.decode(errors="replace"))
            for match in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
                end = _closing(text, match.end())
                if re.match(r"\)\s*\{", text[end:]):
                    return _parameters(text[match.end() : end])
    return None


class _Macro(NamedTuple):
    """A macro, with its parameters unless it has none, and whether it itself declares something."""

    name: str
    parameters: tuple[str, ...] | None
    body: str
    declares: bool


@lru_cache(maxsize=1000)
def _macros(content: bytes) -> tuple[_Macro, ...]:
    """The macros that `content` defines."""
    macros = []
    for definition in _DEFINITION.findall(content):
        if match := _MACRO.match(_plain(definition)):
            name, is_function, parameters, body = match.groups()
            names = tuple(p.strip() for p in parameters.split(",")) if is_function else None
            # As a rule, what is for the device and no variable is a function.
            declares = re.search(_SPACES if is_function else _SPACES.replace("device|", ""), body)
            # A macro that is an argument may declare something.
            calls = any(p and re.search(rf"\b{re.escape(p)}\s*\(", body) for p in names or ())
            macros.append(_Macro(name, names, body, bool(declares or calls)))
    return tuple(macros)


def _declaring(macros: Sequence[_Macro]) -> tuple[_Macro, ...]:
    """The macros that declare something for the device, also by other macros."""
    found = {macro.name: macro for macro in macros if macro.declares}
    words = {macro: set(_WORD.findall(macro.body)) for macro in macros} if found else {}
    while more := {m.name: m for m in words if m.name not in found and not found.keys().isdisjoint(words[m])}:
        found |= more
    return tuple(found.values())


@lru_cache(maxsize=1000)
def _uses(macros: tuple[_Macro, ...]) -> tuple[dict[str, _Macro], re.Pattern[str]]:
    """The `macros` by name, and what directives and uses of them look like."""
    by_name = {macro.name: macro for macro in macros}
    return by_name, re.compile(rf"(?m)^[ \t]*#.*$|\b({'|'.join(by_name)})\b")


def _expand(text: str, macros: tuple[_Macro, ...], within: frozenset[str] = frozenset()) -> str:
    """Expand `macros` where `text` and their bodies use them, but those `within` whose bodies it is."""
    if not macros:
        return text
    by_name, uses = _uses(macros)
    pieces, start = [], 0
    while match := uses.search(text, start):
        pieces.append(text[start : match.start()])
        start = match.end()
        if match[1] is None or match[1] in within:
            pieces.append(match[0])
            continue
        macro = by_name[match[1]]
        values: dict[str, str] = {}
        if macro.parameters is not None:
            opening = re.compile(r"\s*\(").match(text, start)
            if opening is None:
                pieces.append(match[0])
                continue
            start = _closing(text, opening.end()) + 1
            arguments = split_arguments(text[opening.end() : start - 1])
            values = dict(zip(macro.parameters, arguments, strict=False))
        body = _WORD.sub(lambda word, values=values: values.get(word[0], word[0]), macro.body)  # type: ignore[misc]
        body = re.sub(r"\s*##\s*", "", body)
        pieces += [" ", _expand(body, macros, within | {macro.name}), " "]
    return "".join([*pieces, text[start:]])
