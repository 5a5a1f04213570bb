"""Python sources: find their front-end and what they import, and check that instantiations fit them.

No source is imported.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from cuda_ext.builder.config.modules import Override
from cuda_ext.builder.sources.tuned_sources import TunedSources
from cuda_ext.compiler.front_ends.instantiation import Instantiation, TypedParameter, parse_instantiation
from cuda_ext.compiler.front_ends.python_file import possible_files
from cuda_ext.compiler.front_ends.python_functions import (
    PythonFunction,
    find_functions,
    functions_with_hooks,
)
from cuda_ext.compiler.spelled_settings import spell_override, spell_setting
from cuda_ext.compiler.translation_unit import NAMED, SourceKind, TranslationUnit
from cuda_ext.errors import BuildError, ConfigError, did_you_mean, shorten
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.candidates import Term
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.filesystem.regular_file import read_file
from cuda_ext.formats.variant_conditions import LAST, SM, can_hold, is_about_gpu, may_hold_on, spell
from cuda_ext.text.brackets import split_arguments, take_parentheses

_INTEGER = r"[iu](?:nt)?(?:8|16|32|64)"
_COMPARED = rf"{_INTEGER}|\*.*"
# The modules from which the decorators of each front-end come.
_MODULES: dict[SourceKind, str] = {"cutile": "cuda.tile.", "triton": "triton."}


def front_end_of(name: str, source: bytes) -> SourceKind:
    """Find the front-end of the Python file `name` by its functions' decorators; Triton if none shows it.

    Raises :class:`BuildError` for a file without decorated functions, or with those of several front-ends.
    """
    functions = tuple(find_functions(source))
    if not functions:
        raise BuildError(
            "has no kernel: no function has a decorator of Triton or cuTile",
            where=name,
            remedy="name only files with kernels under sources; what they import is found",
        )
    decorators = [each for function in functions for each in function.decorators]
    kinds = [k for k, module in _MODULES.items() if any(each.startswith(module) for each in decorators)]
    if len(kinds) > 1:
        raise BuildError(
            f"has functions of {' and '.join(kinds)}", where=name, remedy="move those of one to another file"
        )
    return kinds[0] if kinds else "triton"


def check_instantiations(
    unit: TranslationUnit,
    texts: Mapping[int, str],
    where: str,
    tuned: TunedSources,
    override: Override | None = None,
) -> list[str]:
    """Return the instantiations of `unit` that `texts` request, in canonical spelling.

    `texts` are by their positions at the key path `where`, in `override` if there is one. Each instantiation
    occurs in the configurations that its table in `tuned` has, and is added to that. An instantiation with
    hints is followed by the same one without hints. Raises :class:`ConfigError`.
    """
    functions = {function.name: function for function in find_functions(unit.source)}
    checked: dict[str, None] = {}
    for number, text in texts.items():
        here = f"{where}[{number}]"
        try:
            each = parse_instantiation(text)
        except ValueError as error:
            raise ConfigError(str(error), where=here) from None
        if each.function not in functions:
            names = ", ".join(functions) or "none"
            remedy = did_you_mean(each.function, functions) or f"its decorated functions: {names}"
            raise ConfigError(
                f"{unit.name} has no function {shorten(each.function)!r}", where=here, remedy=remedy
            )
        function = functions[each.function]
        alternatives = [
            pair for one in each.alternatives for pair in tuned.configure(unit, function, one, override)
        ]
        for configured, candidate in alternatives:
            place = candidate.tuning.file if candidate else here
            _check_configuration(configured, function, place)
            _check_parameters(configured, function, here, texts.values())
            for name in configured.derived:
                _check_parameter(name, function, here)
            for term in chain.from_iterable((*configured.when, *configured.derived.values())):
                _check_comparable(term, configured.parameters, place)
            if not configured.conditions or any(map(can_hold, configured.conditions)):
                checked[str(configured)] = None
            elif not candidate:  # with a table, sizes need not have the hints
                raise ConfigError(
                    f"{spell(configured.conditions)} never holds",
                    where=here,
                    remedy="correct the condition, or the hints at the types",
                )
            checked[str(configured.without_hints())] = None
            if candidate:
                for text in {str(configured), str(configured.without_hints())} & checked.keys():
                    tuned.found[unit.name, text] = candidate
    return [*checked]


def describe_hooks(units: Iterable[TranslationUnit]) -> Iterator[str]:
    """Yield a message for each function in `units` whose configurations have hooks that no launch runs."""
    built: dict[tuple[str, bytes], set[str]] = {}
    for unit in units:
        functions = built.setdefault((unit.name, unit.source), set())
        functions.update(parse_instantiation(text).function for text in unit.instantiate)
    for (file, source), functions in built.items():
        for name in functions.intersection(functions_with_hooks(source)):
            yield (
                f"{file}: configurations of {name} have a pre_hook, which no launch runs; "
                "do the same before a launch, such as filling a tensor with zeros"
            )


def one_for_each_instantiation(
    unit: TranslationUnit, architectures: Sequence[Architecture]
) -> list[tuple[TranslationUnit, tuple[Architecture, ...]]]:
    """Divide `unit` by its instantiations, each with the `architectures` on which its condition may hold.

    Raises :class:`ConfigError` if there is no instantiation.
    """
    if not unit.instantiate:
        names = ", ".join(function.name for function in find_functions(unit.source))
        raise ConfigError(
            f"no instantiation names a function of this source, which has {names}",
            where=unit.name,
            remedy=f"name the types of its parameters under {spell_setting('instantiate')}, "
            f"in {spell_override()} for it",
        )
    parts = ((unit.replace(instantiate=(each,)), _useful(each, architectures)) for each in unit.instantiate)
    return [(part, useful) for part, useful in parts if useful]


def _useful(text: str, architectures: Sequence[Architecture]) -> tuple[Architecture, ...]:
    """Select the `architectures` on whose GPUs the condition of an instantiation may hold."""
    conditions = parse_instantiation(text).when
    if not conditions:
        return tuple(architectures)
    own = {a: a.number for a in architectures if a.kind == "cubin"}
    useful = []
    for each in architectures:
        others = {number for architecture, number in own.items() if architecture != each}
        last = LAST if each.kind != "cubin" else each.number if each.suffix else 10 * each.major + 9
        served = [number for number in range(each.number, last + 1) if number not in others]
        if any(may_hold_on(condition, number) for condition in conditions for number in served):
            useful.append(each)
    return tuple(useful)


def _check_parameter(name: str, function: PythonFunction, where: str) -> None:
    """Check that `function` has a parameter `name`, which the key path `where` gives. Raises ConfigError."""
    if name not in function.parameters:
        raise ConfigError(
            f"{function.name} has no parameter {shorten(name)!r}",
            where=where,
            remedy=did_you_mean(name, function.parameters)
            or f"its parameters: {', '.join(function.parameters)}",
        )


def _check_comparable(term: Term, parameters: Sequence[TypedParameter], where: str) -> None:
    """Check that a launch can compare `term`: a parameter, or a shape or stride of one."""
    name = term.name
    types = {parameter.argument: parameter.type for parameter in parameters}
    argument, _, extent = name.partition(".")
    if is_about_gpu(term) or (argument in types and (extent or re.fullmatch(_COMPARED, types[argument]))):
        return
    integers = [each for each, type_ in types.items() if re.fullmatch(_INTEGER, type_)]
    is_typed = argument in types
    raise ConfigError(
        f"{shorten(name)!r} is {types[name]}"
        if is_typed
        else f"no parameter {shorten(argument)!r} has a type",
        where=where,
        remedy=f"conditions compare integers: {', '.join([*integers, SM])}",
    )


def _check_configuration(each: Instantiation, function: PythonFunction, where: str) -> None:
    """Check that the configuration of `each`, which `where` gives, has parameters without a value."""
    for name in each.configuration:
        if name in each.constants or name in [parameter.name for parameter in each.parameters]:
            raise ConfigError(
                f"{shorten(name)!r} is given by the instantiation, too: {each}",
                where=where,
                remedy="take it out of one of them",
            )
        if name not in TRITON_OPTIONS:
            _check_parameter(name, function, where)


def _check_parameters(
    each: Instantiation, function: PythonFunction, where: str, texts: Iterable[str]
) -> None:
    """Raise :class:`ConfigError` for a wrong or missing parameter; `texts` are all instantiations."""
    given = [*(parameter.name for parameter in each.parameters), *each.constants, *each.configuration]
    for parameter in each.parameters:
        _check_parameter(parameter.name, function, where)
    for name in function.parameters:
        if name not in given and name not in function.defaults:
            raise ConfigError(
                f"the parameter {shorten(name)!r} of {each.function} has neither a type nor a value",
                where=where,
                remedy=f"add {_spell_elsewhere(name, each.function, texts)}",
            )


def _spell_elsewhere(name: str, function: str, texts: Iterable[str]) -> str:
    """Return the parameter `name` as another instantiation of `function` has it, or how it may look."""
    for text in texts:
        arguments = take_parentheses(text.strip().removeprefix(function).strip())
        for argument in split_arguments(arguments[0]) if arguments else ():
            if re.match(rf"{name}\s*[:=]", argument):
                return f"{argument}, as in another instantiation"
    return f"{name}: i32, or {name}=1 for a constant"


# Modules of PyTorch with functions that kernels of torch.compile call. Their texts suffice.
_OF_TORCH = {f"torch/_inductor/runtime/{name}" for name in ("triton_helpers", "triton_compat")}


class ProjectImports:
    """The files of the project in `root` that its sources in Python import; each is read once.

    Those of an installed PyTorch that torch.compile's kernels import have names in :data:`NAMED`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents: dict[str, bytes] = {}
        self._imported: dict[str, list[str]] = {}

    def gather(self, name: str, source: bytes) -> dict[str, bytes]:
        """Read what `source`, the text of the file `name`, imports, directly or not.

        Imports anywhere in a file count. A package's ``__init__.py`` is included only if something imports a
        name of it: packages of kernels need not be importable as a whole. Raises :class:`BuildError` for
        invalid syntax.
        """
        found = dict.fromkeys(self._files(name, source))
        waiting = [*found]
        while waiting:
            file = waiting.pop()
            new = [each for each in self._of_file(file) if each not in found]
            found |= dict.fromkeys(new)
            waiting += new
        return {file: self._contents[file] for file in sorted(found) if file != name}

    def _of_file(self, file: str) -> list[str]:
        if file not in self._imported:
            self._imported[file] = self._files(file, self._contents[file])
        return self._imported[file]

    def _files(self, path: str, source: bytes) -> list[str]:
        """Read the files of the project that `source` may import, and return their names."""
        modules = dict.fromkeys(_imports(path, source))
        files = [file for module in modules for file in _files(self._root, module)]
        for file in files:
            if file not in self._contents:
                self._contents[file] = read_file(str(_place_of(self._root, file)))
        return files


def _imports(path: str, source: bytes) -> Iterator[str]:
    """Yield the modules that a file may import, as paths below a root and without suffix."""
    package = posixpath.dirname(_below_root(path))
    for node in ast.walk(_parse(path, source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.replace(".", "/")
        elif isinstance(node, ast.ImportFrom):
            base = package
            for _ in range(node.level - 1):
                base = posixpath.dirname(base)
            start = [base] if node.level and base else []
            module = "/".join([*start, *([node.module.replace(".", "/")] if node.module else [])])
            yield module
            for alias in node.names:
                yield posixpath.join(module, alias.name)


def _parse(path: str, source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        raise BuildError(f"is not valid Python: {error.msg}", where=where, remedy="correct it") from None
    except ValueError as error:
        raise BuildError(f"is not valid Python: {error}", where=path, remedy="correct it") from None
    except (MemoryError, RecursionError):
        raise BuildError("is not valid Python: it nests too deep", where=path, remedy="divide it") from None


def _below_root(path: str) -> str:
    for root in (NAMED.rstrip("/"), "src"):
        if root and path.startswith(f"{root}/"):
            return path.removeprefix(f"{root}/")
    return path


def _files(root: Path, module: str) -> Iterator[str]:
    """Yield the file of `module` below `root`."""
    for path in possible_files(module):
        if module and (root / path).is_file():
            yield path
            return
    if module in _OF_TORCH and _place_of(root, f"{NAMED}{module}.py").is_file():
        yield f"{NAMED}{module}.py"


def _place_of(root: Path, file: str) -> Path:
    if not file.startswith(NAMED):
        return root / file
    torch = find_spec("torch")
    places = torch and torch.submodule_search_locations
    return Path(places[0]).parent / file.removeprefix(NAMED) if places else Path(file)
