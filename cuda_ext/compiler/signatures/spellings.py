"""Ask a compiler for the meanings of names in template arguments.

A user may request ``fill<half, B>`` for the kernel ``fill<__half, 1>``. So a source with instantiations is
compiled with further declarations and probes after it. The lowered names of the probes contain the answers.
Like the probes of types, they leave no trace in any image.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from cuda_ext.compiler.signatures.layouts import append_declarations
from cuda_ext.compiler.signatures.reflection import name_of
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.kernels import Kernel
from cuda_ext.formats.lowered_names.lowered_types import LoweredType, LoweredValue
from cuda_ext.formats.lowered_names.mangling import read_lowered_name
from cuda_ext.formats.lowered_names.meanings import AUTO, Meanings, scopes_of, spell_out
from cuda_ext.formats.spelling import STANDARD_INTEGERS, base_name, normalise, plain_name
from cuda_ext.text.brackets import split_arguments
from cuda_ext.text.declarations import Declaration, find_declarations
from cuda_ext.text.declared_types import DeclaredType, find_types

_MISSING = "cuda_ext_missing"

# Typedefs of common headers, which the source may include. The compiler says what they mean, if they exist.
_COMMON = ("half", "half2", "nv_bfloat16", "nv_bfloat162", "cuComplex", "cuFloatComplex", "cuDoubleComplex")
# A type or value without its declarator.
_WORDS = re.compile(r"\((?:\w+::)*\w+\)-?\d+|(?:\w+::)*\w+(?: \w+)*")
_CAST_TYPE = re.compile(r"\(((?:\w+::)*\w+)\)-?\d")
_NAME = re.compile(r"(?:::)?[^\W\d]\w*(?:::[^\W\d]\w*)*")


class Questions(NamedTuple):
    """Lines to append to a source, and types by question; probes of these types have the answers.

    ``scopes`` has the namespace of each instantiation that the source writes; the first lines are about
    these. In ``auto`` templates, values of different types may differ.
    """

    declarations: bytes = b""
    types: Mapping[str, str] = {}
    scopes: Mapping[str, str] = {}
    auto: tuple[str, ...] = ()

    def accepted(self, rejected: Iterable[str], lines: Collection[int]) -> Questions:
        """Return the questions without the `rejected` ones, and without those declared in `lines`."""
        if max(lines, default=0) > len(self.scopes):
            return NO_QUESTIONS
        declared = self.declarations.split(b"\n")
        refused = set(rejected)
        for number, asked in enumerate(self.scopes, 1):
            if number in lines:
                refused.add(asked)
                declared[number - 1] = b""
        types = {asked: type_ for asked, type_ in self.types.items() if asked not in refused}
        return self._replace(declarations=b"\n".join(declared), types=types)


NO_QUESTIONS = Questions()


def ask(unit: TranslationUnit) -> Questions:
    """Ask for the meanings of names in possible instantiations of kernels of `unit`; nothing without any."""
    texts = (unit.source, *unit.headers.values())
    kernels = find_declarations(texts).kernels
    overloaded = _overloaded(kernels)
    written = sorted(
        {
            (k.scope, k.instantiation)
            for k in kernels
            if k.instantiation and base_name(k.name) not in overloaded
        }
    )
    if unit.kind != "cu" or not (written or unit.instantiate):
        return NO_QUESTIONS
    # The table's own expressions show their meanings. Declaring their names twice would make them ambiguous.
    known = _words(unit.instantiate)
    used = known | _words(text for _, text in written) | _words(kernel.template for kernel in kernels)
    declared = find_types(texts)
    own_types = {base_name(name) for name, type_ in declared.items() if not type_.is_used}
    for name, type_ in [*declared.items()]:
        if type_.is_used and base_name(name) not in own_types.union(STANDARD_INTEGERS):
            del declared[name]  # it may be a function, and a question about one is an error
    standard = [f"{scope}{name}" for scope in ("", "std::", "cuda::std::") for name in STANDARD_INTEGERS]
    aliases = [*_COMMON, *standard, *(name for name, type_ in declared.items() if type_.is_alias)]
    aliases = [name for name in dict.fromkeys(aliases) if name not in known]
    enumerations = {n: type_ for n, type_ in declared.items() if type_.enumerators and base_name(n) in used}
    lines, types, scopes = _ask_instantiations(written)
    lines += _declare_otherwise(name for name in (*aliases, *enumerations) if name not in known)
    types |= {name: f"cuda_ext_probe::meaning<::{name}>" for name in aliases}
    about_enumerators = _ask_enumerators(enumerations)
    auto = {kernel.name for kernel in kernels if "auto" in _words([kernel.template])}
    declarations = "\n".join([*lines, *about_enumerators[0]]).encode()
    return Questions(declarations, types | about_enumerators[1], scopes, tuple(sorted(auto)))


def _overloaded(kernels: Iterable[Declaration]) -> set[str]:
    """List the names of templates with several parameter lists: their instantiations have no one address."""
    heads = (k for k in kernels if "<" in k.template)
    lists = {(base_name(k.name), *(normalise(p.type) for p in k.parameters)) for k in heads}
    return {name for name, count in Counter(name for name, *_ in lists).items() if count > 1}


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _ask_instantiations(
    written: Iterable[tuple[Sequence[str], str]],
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Declare aliases for the kernels that the source instantiates; return lines, types and namespaces."""
    lines, types, scopes = [], {}, {}
    for number, (scope, instantiation) in enumerate(written):
        alias, address = f"cuda_ext_written_{number}", f"&{instantiation}"
        kernel = f"::cuda_ext_probe::kernel_at<decltype({address}), {address}>"
        lines.append(_within(scope, f"using {alias} = {kernel};"))
        asked = normalise("::".join([*scope, instantiation]))
        types[asked] = "::".join([*scope, alias])
        scopes[asked] = "::".join([*scope, ""])
    return lines, types, scopes


def _declare_otherwise(names: Iterable[str]) -> list[str]:
    """Declare `names` in case the source does not, so that no question about them is an error.

    A qualified name is looked up in its namespace first, and then in the namespaces that this one uses.
    """
    by_namespace: dict[str, list[str]] = {}
    for name in names:
        namespace, _, last = name.rpartition("::")
        by_namespace.setdefault(namespace, []).append(last)
    # With headers of the standard library, std uses cuda::std. A name in two namespaces that std uses is
    # ambiguous.
    through = set(by_namespace.get("std", ())).intersection(by_namespace.get("cuda::std", ()))
    by_namespace["std"] = [name for name in by_namespace.get("std", ()) if name not in through]
    missing = sorted({name for members in by_namespace.values() for name in members})
    lines = [_within([_MISSING], " ".join(f"struct {name};" for name in missing))]
    for number, (namespace, members) in enumerate(sorted(by_namespace.items())):
        own = f"missing_{number}"
        # All mean the same, so that a name in several visible namespaces is not ambiguous.
        declared = " ".join(f"using ::{_MISSING}::{name};" for name in members)
        used = f"using namespace ::{_MISSING}::{own};"
        lines += [_within([_MISSING, own], declared), _within(filter(None, namespace.split("::")), used)]
    lines += [_within(["std"], "using namespace ::cuda::std;")] if through else []
    return lines


def _ask_enumerators(enumerations: Mapping[str, DeclaredType]) -> tuple[list[str], dict[str, str]]:
    """Declare functions whose types have the values of existing enumerators; return lines and types."""
    lines, types = [], {}
    for each in sorted({each for type_ in enumerations.values() for each in type_.enumerators}):
        function = f"template <class E> __device__ %s cuda_ext_enumerator_{each}(%s);"
        lines += [function % (f"cuda_ext_probe::value<E, E::{each}>", "int"), function % ("void", "...")]
    for name, type_ in enumerations.items():
        scopes = [name] if type_.is_scoped else [name, name.rpartition("::")[0]]
        for each in type_.enumerators:
            for scope in scopes:
                asked = f"{scope}::{each}".removeprefix("::")
                types[asked] = f"decltype(cuda_ext_enumerator_{each}<::{name}>(0))"
    return lines, types


def append_questions(source: bytes, questions: Questions) -> bytes:
    """Append the declarations of `questions` to `source`, as lines of a separate file."""
    if not questions.declarations:
        return source
    return append_declarations(source, 1, questions.declarations.decode())


def _within(scope: Iterable[str], declaration: str) -> str:
    names = list(scope)
    return "".join([*(f"namespace {name} {{ " for name in names), declaration, *(" }" for _ in names)])


def read_answers(questions: Questions, lowered: Mapping[str, str]) -> dict[str, str]:
    """Read the meanings of names and instantiations from the lowered names of probes, by question."""
    meanings = Meanings()
    for asked, probe in lowered.items():
        name = read_lowered_name(probe)
        answer = name.arguments[0] if name and name.arguments else None
        if not isinstance(answer, LoweredType):
            continue
        match answer.left.partition("<")[0], answer.arguments:
            case "cuda_ext_probe::kernel_at", (_, LoweredValue(spelling=spelling)):
                meaning = normalise(spelling.removeprefix("&"))
                meanings.add(asked, meaning)
                _align(meanings, asked, meaning, questions.scopes[asked])
            case "cuda_ext_probe::value", (_, LoweredValue(spelling=spelling)):
                meanings.add(asked, normalise(spelling))
            case "cuda_ext_probe::meaning", (LoweredType() as type_,) if _is_plain(type_):
                meanings.add(asked, normalise(type_.spelling))
    return {**meanings.known, **dict.fromkeys(questions.auto, AUTO)}


def _is_plain(type_: LoweredType) -> bool:
    """Return True if `type_` can replace its name everywhere: ``const`` before a pointer is the target's."""
    is_missing = type_.left.startswith(f"{_MISSING}::")
    return type_.kind in ("builtin", "named") and not type_.qualifiers and not is_missing


def _align(meanings: Meanings, written: str, meaning: str, scope: str = "") -> None:
    """Add the names in the template arguments of `written`, whose `meaning` is known as a whole."""
    arguments = [[*split_arguments(text.partition("<")[2][:-1])] for text in (written, meaning)]
    for given, meant in zip(*arguments, strict=False):
        _align_argument(meanings, given, meant, scope)


def _align_argument(meanings: Meanings, written: str, meaning: str, scope: str) -> None:
    while written.startswith("const ") and meaning.startswith("const "):
        written, meaning = written[6:], meaning[6:]
    while written[-1:] in ("*", "&") and written[-1:] == meaning[-1:]:
        written, meaning = written[:-1], meaning[:-1]
    if _NAME.fullmatch(written) and written not in ("true", "false") and "*" not in meaning:
        is_global = written.startswith("::")
        meanings.add(written[2:] if is_global else scope + written, meaning)
    elif written.endswith(">") and meaning.endswith(">"):
        _align(meanings, written, meaning, scope)


def _forget_shadowed(meanings: Meanings, written: str, meaning: str) -> None:
    """Forget a name of the kernel's namespace if `written`, outside of it, means something else by it."""
    own = Meanings()
    _align(own, written, meaning)
    for name, meant in own.known.items():
        qualified = (scope + name for scope in scopes_of(plain_name(written)))
        if found := next((each for each in qualified if each in meanings.known), None):
            meanings.add(found, meant)


def describe_spellings(
    kernels: Iterable[Kernel], requested: Mapping[str, str], answers: Mapping[str, str]
) -> dict[str, str]:
    """Return the meanings that a manifest needs to find `kernels` under all their spellings.

    `requested` has the lowered names of the expressions in the table, and `answers` are the compiler's.
    """
    expressions = {kernel.lowered: kernel.expression for kernel in kernels}
    canonical = {lowered: name_of(lowered) for lowered in expressions}
    meanings = Meanings()
    for name, meaning in answers.items():
        if "<" not in name:
            meanings.add(name, meaning)
    requested = {normalise(e): lowered for e, lowered in requested.items() if lowered in canonical}
    for expression, lowered in requested.items():
        _align(meanings, expression, canonical[lowered])
    written = [*requested.items()]
    for name, meaning in answers.items():
        written += [(name, lowered) for lowered, each in canonical.items() if "<" in name and each == meaning]
    for expression, lowered in written:
        _forget_shadowed(meanings, expression, canonical[lowered])
    # Most names in the questions occur in no argument.
    text = " ".join([*canonical.values(), *expressions.values()])
    words = {*_WORDS.findall(text.replace("const ", "")), *_CAST_TYPE.findall(text)}
    needed = {
        name: meaning
        for name, meaning in meanings.known.items()
        if (name if meaning == AUTO else meaning.lstrip("-")) in words
    }
    for lowered, name in canonical.items():
        if _shows_types(lowered, needed.get(plain_name(name)) == AUTO):
            written.append((name, lowered))
    for spelling, lowered in written:
        spelled = spell_out(spelling, needed)
        called = spell_out(expressions[lowered], needed)
        if spelled.endswith(">") and called.endswith(">") and spelled != called:
            needed.setdefault(spelled, called)
    return dict(sorted(needed.items()))


def _shows_types(lowered: str, is_auto: bool) -> bool:
    """Return True if the canonical name shows the types of values for templates with ``auto`` parameters.

    The kernel's own template has some if it `is_auto`; of others among its arguments nothing is known.
    """

    def shows(argument: LoweredType | LoweredValue) -> bool:
        if isinstance(argument, LoweredValue):
            return argument.has_type
        if argument.target:
            return shows(argument.target)
        return all(map(shows, argument.arguments)) if argument.arguments else "<" not in argument.spelling

    name = read_lowered_name(lowered)
    arguments = name.arguments if name and name.arguments else ()
    return all(shows(each) for each in arguments if is_auto or isinstance(each, LoweredType))
