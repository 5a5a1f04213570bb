"""The configurations of ``@triton.autotune``, as the text of a source has them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.text.expressions import FUNCTIONS, evaluate
from cuda_ext.text.python_names import nodes_of_scope


class Autotune(NamedTuple):
    """The ``key`` and the configurations of a function, with values as Python spells them.

    ``prunes`` is true if a function of the source leaves some out, which the text does not tell.
    """

    key: tuple[str, ...]
    configurations: tuple[Mapping[str, str], ...]
    prunes: bool = False


@lru_cache(maxsize=16)  # each instantiation of a source asks
def read_autotune(source: bytes, function: str) -> Autotune:
    """Read the decorator of `function`. No statement of the source is run.

    Raises :class:`ValueError` that says why the configurations cannot be read.
    """
    values: dict[str, Any] = {}
    functions: dict[str, Callable[..., Any]] = {**FUNCTIONS, "Config": _config, "range": range}
    for node in nodes_of_scope(ast.parse(source)):
        match node:
            case ast.Assign([ast.Name(name)], value):
                with suppress(ValueError):
                    values[name] = evaluate(value, values, functions)
            case ast.FunctionDef(name) if name == function:
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("autotune"):
                        names = [each.arg for each in call.keywords]
                        call.keywords = [each for each in call.keywords if each.arg in ("configs", "key")]
                        found: Autotune = evaluate(call, values, {**functions, "autotune": _autotune})
                        return found._replace(prunes="prune_configs_by" in names)
            case ast.FunctionDef(name, ast.arguments(args=[]), [*_, ast.Return(ast.expr() as value)]):
                with suppress(ValueError):
                    functions[name] = partial(evaluate, value, values, functions)
    raise ValueError("it has no decorator triton.autotune")


def _autotune(configs: Sequence[Mapping[str, str]], key: Sequence[str]) -> Autotune:
    return Autotune(tuple(key), tuple(configs))


def _config(kwargs: Mapping[str, Any] = {}, *options: object, **named: object) -> dict[str, str]:
    """Spell the values of a ``triton.Config``."""
    usual = {"num_warps": 4, "num_stages": 3}
    return spell_configuration(kwargs, {**usual, **dict(zip(TRITON_OPTIONS, options, strict=False)), **named})


def spell_configuration(kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, str]:
    """Spell constants and options as Python does, without those that a ``triton.Config`` rarely changes."""
    given = {name: options[name] for name in TRITON_OPTIONS if options.get(name) is not None}
    given = {name: value for name, value in given.items() if (name, value) != ("num_ctas", 1)}
    return {name: repr(value) for name, value in {**kwargs, **given}.items()}
