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

from cuda_ext.text.brackets import closing_bracket, find_end, split_arguments
from cuda_ext.text.lexer import C_LINKAGE, read_text
from cuda_ext.text.macros import GUARD, SPECIFIERS, WORD, Macro, declaring_macros, expand_macros, find_macros


class DeclaredParameter(NamedTuple):
    """The name of a parameter, empty for an unnamed one, and the text of its type."""

    name: str
    type: str
    is_pack: bool = False


class Declaration(NamedTuple):
    """A kernel or variable. ``name`` includes the namespaces.

    ``parameters`` are those of a kernel, the last of which may be a pack. ``is_plain`` excludes templates and
    what depends on a condition; ``is_definition`` excludes prototypes. ``is_tile`` is for code of CUDA Tile.
    ``template`` is the head of a template, ``template <class T>``, and of an instantiation the word alone,
    which ``instantiation`` spells as it is written in ``scope``, its namespaces.
    """

    name: str
    parameters: tuple[DeclaredParameter, ...] = ()
    is_plain: bool = False
    is_managed: bool = False
    is_definition: bool = False
    is_tile: bool = False
    template: str = ""
    instantiation: str = ""
    scope: tuple[str, ...] = ()


class Declarations(NamedTuple):
    """All that the texts of a translation unit declare.

    ``doubtful`` are words that names of more variables may contain: those of declarations that are not clear.
    ``has_extern`` is whether a variable may be declared without being defined.
    """

    kernels: tuple[Declaration, ...]
    variables: tuple[Declaration, ...]
    doubtful: tuple[str, ...] = ()
    has_extern: bool = False


# What opens and closes scopes, and a declaration that is sought.
MARKS = (
    r"(?m)^[ \t\f\v]*(?:#|%%:)[ \t\f\v]*(?P<directive>\w+)(?P<rest>.*)$"
    rf"|\bnamespace\b(?P<namespace>[^;{{}}=]{{0,1000}})\{{|\b{C_LINKAGE}\s*(?P<block>\{{)|(?P<sought>%s)|[;{{}}]"
)
SPECIFIER_MARKS = re.compile(MARKS % rf"\b{SPECIFIERS}\b")
# A variable whose specifier may be in a macro of another header.
_MACRO_VARIABLE = re.compile(
    rb"(?m)^[ \t]*(?:static[ \t]+|extern[ \t]+)*[A-Z][A-Z0-9_]{3,}[ \t]+(?P<rest>[\w:<>, \t*&]+?\b\w+)\s*"
    rb"(?:\[[^\]]*\]\s*)*[=;{]"
)
# A declaration that defines nothing: with the linkage of C, too, unless it is in braces.
_EXTERN = re.compile(rf"\b(?:extern|{C_LINKAGE})\b[^={{]*$")
_KERNEL_MARKS = re.compile(r"(?m)^[ \t\f\v]*(?:#|%:).*$|\b(?P<kernel>__(?:tile_)?global__)\b")
KERNELS = ("__global__", "__tile_global__")
# Words before a parenthesis that are not the name of a function.
_NOT_NAMES = frozenset(
    [
        *("alignas", "decltype", "noexcept", "requires", "sizeof", "typeof"),
        *("if", "while", "for", "return"),
    ]
)
_CALL = re.compile(r"\b([^\W\d]\w*)\s*(<[^;{}()]*>)?\s*\(|[;{}]")
_TEMPLATE = re.compile(r"\s*template\s*<")
# Brackets in brackets are read to this depth, and comparisons only in parentheses.
_IN_PARENTHESES = r"\((?:[^();{}]|\([^();{}]*\))*\)"
_IN_ANGLES = rf"<(?:[^<>();{{}}]|{_IN_PARENTHESES}|<(?:[^<>();{{}}]|{_IN_PARENTHESES}|<[^<>;{{}}]*>)*>)*>"
_TEMPLATE_HEAD = re.compile(rf"\btemplate\b(?:\s*{_IN_ANGLES})?")
_TYPE_PARAMETER = re.compile(
    r"(?:template\s*<.*>\s*)?(?:class|typename)\s*(\.\.\.)?\s*([^\W\d]\w*)?", re.DOTALL
)
_QUALIFIED_TEMPLATE = re.compile(r"((?:\b[^\W\d]\w*\s*::\s*)*\b[^\W\d]\w*)\s*<")
_ATTRIBUTE = re.compile(r"\b(?:alignas|__align__|__attribute__|__declspec|__\w+__)\s*\(")
_ATTRIBUTES = re.compile(r"\[\[(?:(?!\[\[).)*?\]\]")
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
    macros = tuple(macro for text in texts for macro in find_macros(text))
    declaring = declaring_macros(macros)
    names = tuple(macro.name for macro in declaring)
    found = [_find(text, macros, declaring) for text in texts if _may_declare(text, names)]
    return Declarations(
        tuple(k for f in found for k in f.kernels),
        tuple(v for f in found for v in f.variables),
        tuple(dict.fromkeys(word for f in found for word in f.doubtful)),
        any(f.has_extern for f in found),
    )


@lru_cache(maxsize=10_000)
def _may_declare(content: bytes, macros: tuple[str, ...]) -> bool:
    """True if `content` may declare something, be it by one of the `macros`."""
    is_marked = re.search("|".join([SPECIFIERS, *macros]).encode(), content)
    return is_marked is not None or _MACRO_VARIABLE.search(content) is not None


@lru_cache(maxsize=1000)
def _find(content: bytes, macros: tuple[Macro, ...], declaring: tuple[Macro, ...]) -> Declarations:
    """Cached, since units share their headers."""
    text = expand_macros(read_text(content).plain, declaring)
    kernels: list[Declaration] = []
    variables: list[Declaration] = []
    unclear = list(_MACRO_VARIABLE.finditer(content))
    doubtful = [name for match in unclear for name in names_in(match["rest"].decode())]
    has_extern = any(_EXTERN.search(match[0].decode()) for match in unclear)
    read: tuple[int, bool] | None = None
    for scope, head, space, is_conditional in declarators(text, SPECIFIER_MARKS):
        is_kernel = space[0] in KERNELS
        if read == (read := (head, is_kernel)):
            continue  # a further specifier of the same declaration
        namespaces = [part for part in scope or () if part not in ("", C_LINKAGE)]
        template = _TEMPLATE_HEAD.search(text, head, space.start())
        is_plain = not (is_conditional or template)
        is_tile = space[0].startswith("__tile_")
        if is_kernel:
            if scope is not None and (found := read_kernel(text, space.end(), macros)):
                name, parameters, is_definition = found
                name = "::".join([*namespaces, name])
                spelled = " ".join(template[0].split()) if template else ""
                is_instantiation = spelled == "template" and not is_conditional and "" not in scope
                written = _instantiation(text, space.end()) if is_instantiation else ""
                kernels.append(
                    Declaration(
                        name,
                        parameters,
                        is_plain,
                        is_definition=is_definition,
                        is_tile=is_tile,
                        template=spelled,
                        instantiation=written,
                        scope=tuple(namespaces),
                    )
                )
        elif "global__" not in text[head : space.start()]:
            end = find_end(text, head, ";", "(){}[]")
            statement = text[head : space.end()] + expand_macros(text[space.end() : end], macros)
            declared = declared_variables(statement)
            has_extern |= declared != [] and _EXTERN.search(statement) is not None
            is_local = "" in (scope or ()) or "static" in text[head : space.start()]
            if declared is None:
                doubtful += names_in(statement)
            elif scope is None or (is_local and not is_plain):
                # Within a class or function it is none, but then the braces may be of several conditions.
                doubtful += declared
            if scope is not None:
                is_managed = "__managed__" in statement
                for name in declared or ():
                    qualified = "::".join([*namespaces, name])
                    variables.append(
                        Declaration(qualified, (), is_plain, is_managed=is_managed, is_tile=is_tile)
                    )
    return Declarations(tuple(kernels), tuple(dict.fromkeys(variables)), tuple(doubtful), has_extern)


def names_in(text: str) -> list[str]:
    """Return the words of `text` that may be names: those outside of braces."""
    while (outer := re.sub(r"\{[^{}]*\}", "", text)) != text:
        text = outer
    return [
        word for word in WORD.findall(text) if word not in _TYPE_WORDS and not re.fullmatch(r"__\w+__", word)
    ]


def declarators(
    text: str, marks: re.Pattern[str]
) -> Iterator[tuple[tuple[str, ...] | None, int, re.Match[str], bool]]:
    """Yield the matches of what `marks` seek: the namespaces of each, and where its declaration begins.

    Within a function or class there are no namespaces. Last comes whether it depends on a condition.
    """
    scopes: list[str | None] = []
    conditions: list[bool] = []  # whether each is one, and not an include guard
    head = 0
    for mark in marks.finditer(text):
        if directive := mark["directive"]:
            head = mark.end()
            if directive in ("if", "ifdef", "ifndef"):
                conditions.append(GUARD.match(text, mark.start()) is None)
            elif directive == "endif" and conditions:
                conditions.pop()
        elif mark["namespace"] is not None:
            # Anonymous ones have no name, and one that a macro makes has none that is known here.
            name = re.split(r"\[\[|__attribute__", mark["namespace"])[0]
            scopes.append("" if "(" in name else "::".join(WORD.findall(name)))
            head = mark.end()
        elif mark["block"]:
            scopes.append(C_LINKAGE)
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


def kernel_names(content: bytes) -> frozenset[str]:
    """Return the names of the kernels that `content` declares, without namespaces.

    Those that macros declare, and instantiations, are left out.

    >>> sorted(kernel_names(b"__global__ void __launch_bounds__(32, (N ? 2 : 4)) k(int* x) {}"))
    ['k']
    """
    return _kernel_names(content) if b"global__" in content else frozenset()


@lru_cache(maxsize=1000)
def _kernel_names(content: bytes) -> frozenset[str]:
    text = read_text(content).plain
    ends = (mark.end() for mark in _KERNEL_MARKS.finditer(text) if mark["kernel"])
    declarators = (text[end : find_end(text, end, ";{}", "()")] for end in ends)
    found = filter(None, (_declared(_ATTRIBUTES.sub(" ", each)) for each in declarators))
    return frozenset(name for name, arguments, _ in found if not arguments)


def read_kernel(
    text: str, start: int, macros: tuple[Macro, ...]
) -> tuple[str, tuple[DeclaredParameter, ...], bool] | None:
    """Read the name and parameters of the kernel whose declarator is at `start`; True if it is defined."""
    end = find_end(text, start, ";{}", "()")
    is_definition = text.startswith("{", end)
    unexpanded = _declared(_ATTRIBUTES.sub(" ", text[start:end]))
    written = {parameter.name for parameter in _parameters(unexpanded[2])} if unexpanded else set()
    # A macro is no parameter's name where the compiler sees it: then it stands for one, or is not defined.
    kept = {m.name for m in macros if m.name in written and m.parameters is None and not m.another_name}
    declarator = _ATTRIBUTES.sub(" ", expand_macros(text[start:end], macros, frozenset(kept)))
    if found := _declared(declarator):
        return found[0], _parameters(found[2]), is_definition
    return None


def _declared(declarator: str) -> tuple[str, str, str] | None:
    """Return the name of the function in `declarator`, its template arguments, and its parameters."""
    at = 0
    while (match := _CALL.search(declarator, at)) and match[1]:
        end = closing_bracket(declarator, match.end())
        name = match[1]
        if name not in _NOT_NAMES and not re.fullmatch(r"__\w+__", name):
            return name, match[2] or "", declarator[match.end() : end]
        at = end + 1
    return None


def _instantiation(text: str, start: int) -> str:
    """Return the kernel, with its template arguments, whose explicit instantiation goes on at `start`."""
    end = find_end(text, start, ";", "()")
    for match in _QUALIFIED_TEMPLATE.finditer(text, start, end):
        closing = closing_bracket(text, match.end(), "<>")
        if re.match(r">\s*\(", text[closing:end]):
            return " ".join(text[match.start() : closing + 1].split())
    return ""


def declared_variables(statement: str) -> list[str] | None:
    """List the variables that `statement` declares: none for a function, ``None`` if unclear."""
    while template := _TEMPLATE.match(statement):
        statement = statement[closing_bracket(statement, template.end(), "<>") + 1 :]
    while attribute := _ATTRIBUTE.search(statement):
        end = closing_bracket(statement, attribute.end())
        statement = statement[: attribute.start()] + statement[end + 1 :]
    statement = _ATTRIBUTES.sub(" ", statement)
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
    names = (WORD.findall(declarator)[-1:] for declarator in declarators)
    return [name for each in names for name in each]


def _parameters(text: str) -> tuple[DeclaredParameter, ...]:
    return tuple(_parameter(declared) for declared in split_arguments(text) if declared != "void")


def _parameter(declared: str) -> DeclaredParameter:
    declared = declared.partition("=")[0].strip()
    if match := _POINTER.search(declared):  # to a function or an array
        return DeclaredParameter(match[1] or "", declared)
    plain = re.sub(r"(?:(?<!\s)\s*\[[^\[\]]*\])+$", "", declared)
    match = re.search(r"([^\W\d]\w*)$", plain)
    before = plain[: match.start()].rstrip() if match else plain
    words = set(WORD.findall(before)) - _QUALIFIERS
    # A single word is a type, and so is the last of a qualified name.
    if match is None or match[1] in _TYPE_WORDS or before.endswith("::") or not words:
        return DeclaredParameter("", declared, "..." in declared)
    return DeclaredParameter(match[1], before, "..." in declared)


def template_parameters(head: str) -> tuple[DeclaredParameter, ...]:
    """Read the parameters of a template from its `head`; none if it is not clear.

    >>> [each.name for each in template_parameters("template <class T, int N, bool = (N > 2), int... Is>")]
    ['T', 'N', '', 'Is']
    """
    head = re.sub(_IN_PARENTHESES, lambda match: re.sub("[<>]", " ", match[0]), head)  # comparisons
    match = re.fullmatch(r"template\s*<(.*)>", head, re.DOTALL)
    return tuple(map(_template_parameter, split_arguments(match[1]))) if match else ()


def _template_parameter(declared: str) -> DeclaredParameter:
    match = _TYPE_PARAMETER.fullmatch(declared.partition("=")[0].strip())
    return DeclaredParameter(match[2] or "", "class", match[1] is not None) if match else _parameter(declared)


def find_parameters(texts: Sequence[bytes], name: str) -> tuple[DeclaredParameter, ...] | None:
    """Find the parameters of the function `name`, which a macro of another header marks as a kernel."""
    for content in texts:
        if name.encode() in content:
            text = read_text(content).plain
            for match in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
                end = closing_bracket(text, match.end())
                if re.match(r"\)\s*\{", text[end:]):
                    return _parameters(text[match.end() : end])
    return None
