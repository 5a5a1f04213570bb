"""Completions in brackets, doc comments and instantiations, for IPython and ``help``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuda_ext.runtime.loaded_library import Library

# The types whose attributes IPython may look up before it completes brackets.
_TYPES = (
    ("cuda_ext.runtime.module", "KernelModule"),
    ("cuda_ext.runtime.lookup", "Namespace"),
    ("cuda_ext.runtime.lookup", "KernelTemplate"),
)


def allow_completion() -> None:
    """Let IPython, where it runs, look up ``kernels.axpy`` to complete ``kernels.axpy["``.

    It does not call ``__getattr__`` of types that it does not know.
    """
    try:
        policies: Any = import_module("IPython.core.guarded_eval").EVALUATION_POLICIES
    except (AttributeError, ImportError):  # another version
        return
    for policy in policies.values():
        allowed = getattr(policy, "allowed_getattr_external", None)
        if isinstance(allowed, set):
            allowed.update(_TYPES)


def complete_brackets(library: Library, scope: str) -> list[str]:
    """List the texts that brackets take on the name `scope`, of a template or a namespace."""
    known = library.names
    plain = [name for name in known.looked_up if known.symbols(name) or known.variants(name)]
    names = [*plain, *(name for each in known.looked_up for name in known.overloads(each))]
    begins = {f"{scope}<": ">", f"{scope}(": "", f"{scope}::": ""} if scope else {"": ""}
    found = [
        (name.removeprefix(begin) if begin[-1:] != "(" else name.removeprefix(scope)).removesuffix(end)
        for name in names
        for begin, end in begins.items()
        if name.startswith(begin)
    ]
    return [*dict.fromkeys(found)]


def read_doc_comment(library: Library, expression: str) -> str:
    """Return the comment above the kernel in the embedded sources; empty if there is none."""
    if not library.manifest.embedded:
        return ""
    from cuda_ext.formats.spelling import plain_name  # most programs need none of this

    return library.on_demand.doc_comments.get(plain_name(expression), "")


def describe_name(library: Library, name: str, names: Sequence[str]) -> str:
    """Describe the template or overloaded kernels `name`, of which `names` were built."""
    built = [f"    {library.names.kernel(each).signature}" for each in names]
    head = f"CUDA kernels {name}, built:" if built else f"CUDA kernel template {name}, compiled on demand"
    parts = [head, *built, "", read_doc_comment(library, name)]
    return "\n".join(parts).strip()
