"""The configurations of ``@triton.autotune``, as the text of a source has them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from cuda_ext.text.expressions import FUNCTIONS, evaluate
from cuda_ext.text.python_names import nodes_of_scope


class Autotune(NamedTuple):
    """The ``key`` and the configurations of a function, with values as Python spells them.

    ``obstacle`` says why the configurations cannot be read. ``prunes`` is true if a function of the source
    leaves some out, which the text does not tell.
    """

    key: tuple[str, ...] = ()
    configurations: tuple[Mapping[str, str], ...] = ()
    obstacle: str = ""
    prunes: bool = False


def read_autotune(source: bytes, function: str) -> Autotune | None:
    """Read the decorator of `function`; ``None`` if it has none. No statement of the source is run."""
    values: dict[str, Any] = {}
    functions: dict[str, Callable[..., Any]] = {**FUNCTIONS, "Config": _config, "range": range}
    for node in nodes_of_scope(ast.parse(source)):
        match node:
            case ast.Assign([ast.Name(name)], value):
                with suppress(ValueError):
                    values[name] = evaluate(value, values, functions)
            case ast.FunctionDef(name) if name == function:
                return _read_decorators(node.decorator_list, values, functions)
            case ast.FunctionDef(name, ast.arguments(args=[]), [*_, ast.Return(ast.expr() as value)]):
                with suppress(ValueError):
                    functions[name] = partial(evaluate, value, values, functions)
    return None


def _read_decorators(
    decorators: Sequence[ast.expr], values: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Autotune | None:
    for call in decorators:
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("autotune"):
            given: dict[str | None, ast.expr] = dict(zip(("configs", "key"), call.args, strict=False))
            given |= {each.arg: each.value for each in call.keywords}
            try:
                key = tuple(map(str, evaluate(given["key"], values)))
                configs = evaluate(given["configs"], values, functions)
                texts = tuple({name: repr(value) for name, value in each.items()} for each in configs)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                return Autotune(obstacle=str(error))
            return Autotune(key, texts, prunes="prune_configs_by" in given)
    return None


def _config(
    kwargs: Mapping[str, Any] = {},
    num_warps: int = 4,
    num_stages: int = 3,
    num_ctas: int = 1,
    maxnreg: int | None = None,
    **_: object,
) -> dict[str, Any]:
    """Return the values of a ``triton.Config``, whose defaults these are."""
    own = {"num_warps": num_warps, "num_stages": num_stages}
    own |= {"num_ctas": num_ctas} if num_ctas != 1 else {}
    return {**kwargs, **own, **({"maxnreg": maxnreg} if maxnreg else {})}
