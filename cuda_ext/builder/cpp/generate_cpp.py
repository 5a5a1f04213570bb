"""A module as C++: a header that declares its kernels, and sources with its images and device code.

The header is for users and cheap to include. The sources are compiled once; they hold the manifest's content
as constants. No code of either runs before the first use of a kernel.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cuda_ext import manifest as manifest_file
from cuda_ext.builder.cpp import header, source_names
from cuda_ext.builder.cpp.embedding import Embedded, assembled, literal, quoted
from cuda_ext.builder.cpp.header import Header
from cuda_ext.builder.package.generate import Package
from cuda_ext.builder.rendering import templates
from cuda_ext.compiler.compile_options import nvrtc_options, option_with_path
from cuda_ext.compiler.headers import closure
from cuda_ext.manifest import Kernel, Manifest, Source, Symbol, Unit

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["CppModule", "Embed", "render"]

Embed = Literal["incbin", "literal"]


@dataclass(frozen=True)
class CppModule:
    """The files of a module in C++ by path; among them the ``header``, below ``include``, and ``sources``."""

    header: str
    sources: tuple[str, ...]
    files: Mapping[str, bytes]


def render(package: Package, include_dirs: Sequence[str], package_directory: Path, embed: Embed) -> CppModule:
    """The C++ of `package`, whose files lie in `package_directory`.

    `include_dirs` are directories of the project, in which compilation on demand looks for headers. The same
    arguments give the same bytes. The text of the source changes whenever an embedded file does.
    """
    manifest = manifest_file.loads(package.files[manifest_file.FILE_NAME], manifest_file.FILE_NAME)
    described = header.describe(manifest)
    stem = described.path.rpartition("/")[2].removesuffix(".h")
    source = _source(manifest, package, include_dirs, package_directory)
    context = {
        "header": described,
        "source": source,
        "example": _example(described),
        "stem": stem,
        "embed": embed,
    }
    sources = source_names(manifest.module, manifest.embedded is not None)
    files = {f"include/{described.path}": _render("module.h.j2", context)}
    for name, template in zip(sources, ("module.cpp.j2", "module.on_demand.cpp.j2"), strict=False):
        files[name] = _render(template, context)
    if embed == "literal":
        files |= {f"{stem}.{i}.inc": literal(each) for i, each in enumerate(source.embedded)}
    return CppModule(f"include/{described.path}", sources, files)


def _render(template: str, context: Mapping[str, object]) -> bytes:
    return _templates().get_template(template).render(context).encode()


@cache
def _templates() -> Environment:
    environment = templates(__package__)
    environment.filters |= {"assembled": assembled, "comment": _comment, "quoted": quoted}
    return environment


def _comment(text: str) -> str:
    """`text` in one line of a comment, without a backslash at its end that would continue the line."""
    return " ".join(text.split()) + ("." if text.endswith("\\") else "")


@dataclass(frozen=True, slots=True)
class _Source:
    """The content of the source; ``sources`` and ``headers`` have the C++ expression of each text by name.

    Every external symbol begins with ``prefix``.
    """

    manifest: Manifest
    prefix: str
    embedded: tuple[Embedded, ...]
    units: tuple[_Unit, ...]
    kernels: tuple[_Entity, ...]
    symbols: tuple[_Entity, ...]
    sources: Mapping[str, str]
    headers: Mapping[str, str]
    link: str | None


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a source is compiled on demand; ``headers`` are indices into those of the module.

    ``option_with_path`` is an option that may mean something else on other machines, if there is one.
    """

    described: Source
    options: Sequence[str]
    option_with_path: str
    headers: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Unit:
    """``images`` are architectures, with the name and size of the array that holds the image.

    ``recipes`` is empty if the manifest lacks the sources' compile options.
    """

    index: int
    sources: str
    recipes: tuple[_Recipe, ...]
    images: tuple[tuple[str, str, int], ...]
    version: int
    ptx_version: int
    zstd: bool


@dataclass(frozen=True, slots=True)
class _Entity:
    """A kernel or symbol; ``exceptions`` are the images in which its lowered name differs, with that name."""

    index: int
    described: Kernel | Symbol
    exceptions: tuple[tuple[int, str | None], ...]


def _source(manifest: Manifest, package: Package, include_dirs: Sequence[str], directory: Path) -> _Source:
    images = dict.fromkeys(image.file for unit in manifest.units for image in unit.images)
    texts = [f"sources/{name}" for name in manifest.embedded or ()]
    prefix = "cuda_ext_" + "".join(f"{len(part)}{part}" for part in map(_ascii, manifest.module.split(".")))
    embedded = {
        file: Embedded(
            f"{prefix}_{index}",
            directory / file,
            package.files[file],
            "unsigned char" if file in images else "char",
        )
        for index, file in enumerate([*images, *texts])
    }
    compiled = {source.name for unit in manifest.units for source in unit.sources}
    sources = {name: embedded[f"sources/{name}"].name for name in manifest.embedded or ()}
    before = {
        name for unit in manifest.units for source in unit.sources for name in source.options.pre_include
    }
    headers = [n for n in sources if n not in compiled or n in before or _is_included(n, package)]
    # Aliases forward, since #pragma once takes one text under two names for two headers.
    forwarding = {
        alias: quoted(f'#include "{name}"\n') for alias, name in _aliases(headers, include_dirs).items()
    }
    return _Source(
        manifest=manifest,
        prefix=prefix,
        embedded=tuple(embedded.values()),
        units=tuple(
            _unit(i, unit, manifest, embedded, _recipes(unit, package, headers))
            for i, unit in enumerate(manifest.units)
        ),
        kernels=tuple(_entity(i, kernel, manifest) for i, kernel in enumerate(manifest.kernels)),
        symbols=tuple(_entity(i, symbol, manifest) for i, symbol in enumerate(manifest.symbols)),
        sources={name: text for name, text in sources.items() if name in compiled},
        headers={name: sources[name] for name in headers} | forwarding,
        link=manifest.module
        if any(source.options.relocatable for unit in manifest.units for source in unit.sources)
        else None,
    )


def _recipes(unit: Unit, package: Package, headers: Sequence[str]) -> tuple[_Recipe, ...]:
    prefix = "sources/"
    texts = {
        file.removeprefix(prefix): text for file, text in package.files.items() if file.startswith(prefix)
    }
    if not all(source.name in texts and source.sha256 for source in unit.sources):
        return ()
    recipes = []
    for source in unit.sources:
        others = {name: text for name, text in texts.items() if name != source.name}
        reached = closure(texts[source.name], source.options.pre_include, others)
        options = nvrtc_options(source.name, source.options)
        indices = [headers.index(name) for name in reached]
        recipes.append(_Recipe(source, options, option_with_path(source.options), indices))
    return tuple(recipes)


def _ascii(name: str) -> str:
    return "".join(c if c.isascii() else f"_u{ord(c):x}" for c in name)


def _unit(
    index: int,
    unit: Unit,
    manifest: Manifest,
    embedded: Mapping[str, Embedded],
    recipes: tuple[_Recipe, ...],
) -> _Unit:
    major, minor = map(int, manifest.version.split("."))
    version = 1000 * major + 10 * minor
    in_fatbin = any(image.file.endswith(".fatbin") for image in unit.images)
    return _Unit(
        index=index,
        sources=unit.title,
        recipes=recipes,
        images=tuple(
            (image.architecture, embedded[image.file].name, len(embedded[image.file].content))
            for image in unit.images
        ),
        # The CUDA version of images that others compiled is unknown.
        version=0 if unit.arrived_as(".cubin", ".fatbin") else version,
        ptx_version=0 if unit.arrived_as(".ptx", ".fatbin") else version,
        zstd=in_fatbin and not unit.arrived_as(".fatbin") and manifest.compress in ("balance", "size"),
    )


def _entity(index: int, entity: Kernel | Symbol, manifest: Manifest) -> _Entity:
    images = enumerate(manifest.units[entity.unit].images)
    names = ((i, manifest.lowered_name(entity, image)) for i, image in images)
    return _Entity(index, entity, tuple((i, name) for i, name in names if name != entity.lowered))


def _is_included(name: str, package: Package) -> bool:
    """Whether a text of `package` includes the header of that canonical name."""
    directive = f'"{name}"'.encode()
    texts = (content for file, content in package.files.items() if file.startswith("sources/"))
    return any(directive in text for text in texts)


def _aliases(headers: Sequence[str], include_dirs: Sequence[str]) -> dict[str, str]:
    """The canonical names of `headers` by the other names that an ``#include`` may spell."""
    names: dict[str, str] = {}
    for directory in include_dirs:
        prefix = posixpath.normpath(directory.replace("\\", "/")) + "/"
        for name in headers:
            alias = name.removeprefix(prefix)
            if alias not in headers:
                names.setdefault(alias, name)
    return names


def _example(header: Header) -> str:
    """An example of a launch, for the header's first comment."""
    if not header.kernels:
        return ""
    kernel = header.kernels[0]
    name = "::".join([*header.namespaces, kernel.expression.partition("(")[0]])
    return f"{name}({', '.join(['{grid, block, stream}', *(name for _, name in kernel.parameters)])})"
