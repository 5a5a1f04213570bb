"""The importable package of a compiled module: ``__init__.py``, stubs, manifest, images, sources."""

from __future__ import annotations

import errno
import json
import keyword
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuda_ext import manifest as manifest_file
from cuda_ext.build.replace import replace_directory
from cuda_ext.compiler.module import CompiledModule
from cuda_ext.compiler.names import split_template
from cuda_ext.errors import BuildError
from cuda_ext.manifest import Kernel, Parameter

__all__ = ["Package", "generate", "is_generated"]


@dataclass(frozen=True, slots=True)
class Package:
    """A generated package: its import name, and its files by path within it."""

    name: str
    files: Mapping[str, bytes]

    def write(self, directory: Path) -> list[Path]:
        """Make `directory` hold exactly these files; return their paths.

        The files appear at once: a build that is killed or runs out of space leaves what was there before.
        Raises :class:`BuildError` if that fails, or if something is there that no build of ours made.
        """
        try:
            replace_directory(directory, self.files, self._check)
        except OSError as error:
            remedy = _REMEDIES.get(error.errno or 0, "")
            raise BuildError(
                f"{directory}: cannot write the generated package {self.name}: {error.strerror}{remedy}"
            ) from None
        return [directory / name for name in self.files]

    def _check(self, directory: Path) -> None:
        if obstacle := _obstacle(directory):
            raise BuildError(
                f"{obstacle}: is where the generated package {self.name} goes, and was not generated; "
                "move it, or rename the module"
            )


def is_generated(directory: Path) -> bool:
    """Whether a build of ours made `directory`, be it an older or a newer version of us."""
    try:
        manifest = json.loads((directory / manifest_file.FILE_NAME).read_bytes())
    except (OSError, ValueError):
        return False
    match manifest:
        case {"schema": int(), "module": str(), "units": list()}:
            return True
    return False


def _obstacle(directory: Path) -> Path | None:
    """What a package in `directory` would replace, or hide from imports, that no build of ours made."""
    if (module := directory.with_name(f"{directory.name}.py")).exists():
        return module
    if not os.path.lexists(directory):
        return None
    if not directory.is_dir():
        return directory
    ours = {"__pycache__"}
    if is_generated(directory):
        ours |= {"__init__.py", "__init__.pyi", manifest_file.FILE_NAME, "sources"}
        ours |= {p.name for p in directory.iterdir() if p.suffix in _IMAGES or p.name.startswith(".")}
    return next((p for p in sorted(directory.iterdir()) if p.name not in ours), None)


_IMAGES = {".fatbin", ".cubin", ".ptx", ".ltoir"}
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free some space and build again"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "; make it writable"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "; a file is where a directory should be: move it"),
}


def generate(module: CompiledModule) -> Package:
    """Render the package of `module`. The same module gives the same bytes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cuda_ext.build"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Python is rendered, not HTML
    )
    context = {"module": module.manifest.module, "root": _tree(module)}
    files = {
        name: environment.get_template(f"{name}.j2").render(context).encode()
        for name in ("__init__.py", "__init__.pyi")
    }
    files[manifest_file.FILE_NAME] = manifest_file.dumps(module.manifest).encode()
    return Package(module.manifest.module, dict(sorted({**files, **module.files}.items())))


@dataclass
class _Overload:
    """One instantiation for the stubs: its class, the text between brackets, its parameters."""

    name: str
    arguments: str | None
    kernel: Kernel
    parameters: list[tuple[str, str]]


@dataclass
class _Namespace:
    """What the stubs say of one C++ namespace."""

    name: str
    kernels: dict[str, list[_Overload]] = field(default_factory=dict)
    symbols: list[str] = field(default_factory=list)
    namespaces: dict[str, _Namespace] = field(default_factory=dict)

    def within(self, scope: Sequence[str]) -> _Namespace:
        here = self
        for part in scope:
            here = here.namespaces.setdefault(part, _Namespace(f"{here.name}_{part}"))
        return here


def _tree(module: CompiledModule) -> _Namespace:
    root = _Namespace("")
    for kernel in module.manifest.kernels:
        name, arguments = split_template(kernel.expression.partition("(")[0])
        *scope, plain = name.split("::")
        if not _writable(scope, plain):
            continue
        namespace = root.within(scope)
        overloads = namespace.kernels.setdefault(plain, [])
        overloads.append(
            _Overload(
                f"{namespace.name}_{plain}_{len(overloads)}", arguments, kernel, _stub_parameters(kernel)
            )
        )
    for symbol in module.manifest.symbols:
        *scope, plain = symbol.name.split("::")
        if not _writable(scope, plain):
            continue
        namespace = root.within(scope)
        if plain not in namespace.kernels and plain not in namespace.symbols:
            namespace.symbols.append(plain)
    return root


def _writable(scope: Sequence[str], plain: str) -> bool:
    """Whether Python can spell the attribute; others are reached with brackets only."""
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in (*scope, plain))


_RESERVED = {"self", "grid", "block", "stream", "shared", "cooperative"}


def _stub_parameters(kernel: Kernel) -> list[tuple[str, str]]:
    taken = set(_RESERVED)
    parameters = []
    for parameter in kernel.parameters:
        name = parameter.name if parameter.name.isidentifier() else "arg"
        while name in taken or keyword.iskeyword(name):
            name += "_"
        taken.add(name)
        parameters.append((name, _stub_type(parameter)))
    return parameters


def _stub_type(parameter: Parameter) -> str:
    match parameter.kind:
        case "pointer":
            return "_Pointer"
        case "integer" | "unsigned" | "enum":
            return "_SupportsIndex"
        case "float":
            return "_SupportsFloat"
        case "bool":
            return "bool"
        case "struct" if parameter.type in ("__half", "__nv_bfloat16"):
            return "_SupportsFloat"
        case "struct":
            return "_Buffer"
        case _:
            return "object"
