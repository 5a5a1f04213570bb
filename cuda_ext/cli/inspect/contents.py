"""Compiled code as data: manifests, and what the bytes of images show beyond them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from cuda_ext.compiler.compile_options import common_options
from cuda_ext.facts.architecture import ImageKind
from cuda_ext.facts.codec import plain
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Image, Manifest, Source
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.definitions import Definitions
from cuda_ext.formats.fatbin import Codec
from cuda_ext.formats.spelling import normalise, plain_name

Kind = Literal["wheel", "directory", "module", "fatbin", "cubin", "ptx", "tileir"]


@dataclass(frozen=True, slots=True)
class ImageContent:
    """The kernels and variables that the bytes of an image show.

    ``stored`` counts the bytes in the fatbin, where they may be compressed. ``parts`` counts those of a cubin
    by what they are for. ``missing`` is the Python package that could decompress it, and is not installed.
    """

    architecture: str
    kind: ImageKind
    codec: Codec
    stored: int
    size: int
    missing: str | None = None
    parts: Mapping[str, int] | None = None
    definitions: Definitions = Definitions()


@dataclass(frozen=True, slots=True)
class Module:
    """A module of kernels.

    An image alone has a manifest without a compiler, in which only lowered names are known. ``place`` is the
    directory within what was named, ``size`` the sum of its files. Each unit has a title of its own in
    ``titles``; ``contents`` are those of its images, by title and architecture.
    """

    place: str
    size: int
    manifest: Manifest
    titles: Sequence[str]
    contents: Mapping[tuple[str, str], ImageContent]

    def images(self) -> Iterator[tuple[str, Image, ImageContent]]:
        """Yield each image with the title of its unit."""
        for title, unit in zip(self.titles, self.manifest.units, strict=True):
            for image in unit.images:
                yield title, image, self.contents[title, image.architecture]

    def images_of(self, kernel: Kernel) -> Iterator[tuple[Image, Resources | None]]:
        """Yield the images that contain `kernel`, each with its resources there, if these are known."""
        for image in self.manifest.units[kernel.unit].images:
            lowered = self.manifest.lowered_name(kernel, image)
            if lowered is not None:
                content = self.contents[self.titles[kernel.unit], image.architecture]
                yield image, content.definitions.usage.get(lowered)

    def select(self, pattern: str, titles: Collection[str]) -> Module:
        """Return the kernels that match `pattern`, the units of these `titles`, and nothing else."""
        kept = [index for index, title in enumerate(self.titles) if title in titles]
        kernels = [kernel for kernel in self.manifest.kernels if is_match(kernel, pattern)]
        manifest = self.manifest._replace(
            units=tuple(self.manifest.units[index] for index in kept),
            kernels=tuple(kernel._replace(unit=kept.index(kernel.unit)) for kernel in kernels),
            symbols=(),
        )
        return replace(self, manifest=manifest, titles=[self.titles[index] for index in kept])


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a wheel, a directory, an installed package or an image.

    ``files`` are those that ship, by path, with their sizes there. ``damaged`` has a message for each module
    that could not be read. ``is_part`` tells that kernels were selected.
    """

    path: str
    kind: Kind
    size: int
    modules: tuple[Module, ...]
    files: Mapping[str, int]
    damaged: tuple[str, ...] = ()
    is_part: bool = False

    @property
    def has_manifests(self) -> bool:
        return all(module.manifest.compiler for module in self.modules)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for module in self.modules for kernel in module.manifest.kernels)

    def units_with(self, pattern: str) -> set[str]:
        """Return the titles of the units with kernels that match `pattern`."""
        return {
            module.titles[kernel.unit]
            for module in self.modules
            for kernel in module.manifest.kernels
            if is_match(kernel, pattern)
        }

    def with_kernels(self, pattern: str, titles: Collection[str]) -> Contents:
        """Return the kernels that match `pattern` and the units of these `titles`, and nothing else."""
        modules = tuple(module.select(pattern, titles) for module in self.modules)
        return replace(self, modules=modules, is_part=True)

    def without_empty_modules(self) -> Contents:
        """Return the modules that hold kernels."""
        return replace(self, modules=tuple(module for module in self.modules if module.manifest.kernels))

    @property
    def head(self) -> dict[str, object]:
        return {"path": self.path, "kind": self.kind, "size": self.size}

    def as_json(self) -> dict[str, object]:
        """Return the output of ``--json``: manifests, and what each image shows beyond its manifest::

            {"schema": 1, "path", "kind", "size", "modules": [
              {"place", "size", "manifest": {...},
               "images": [{"unit", "architecture", "codec", "stored", "missing", "parts",
                           "kernels": {name expression: resources or null}}]}]}

        Manifests have no fields with their default. Fields may be added; any other change increases
        ``schema``.
        """
        modules = [
            {
                "place": module.place,
                "size": module.size,
                "manifest": plain(module.manifest, []),
                "images": list(_images_as_json(module)),
            }
            for module in self.modules
        ]
        return {"schema": 1, **self.head, "modules": modules}


def _images_as_json(module: Module) -> Iterator[dict[str, object]]:
    resources: dict[tuple[str, str], dict[str, Resources | None]] = {}
    for kernel in module.manifest.kernels:
        for image, usage in module.images_of(kernel):
            place = module.titles[kernel.unit], image.architecture
            resources.setdefault(place, {})[kernel.expression] = usage
    for title, image, content in module.images():
        yield {
            "unit": title,
            "architecture": image.architecture,
            "codec": content.codec,
            "stored": content.stored,
            "missing": content.missing,
            "parts": content.parts,
            "kernels": resources.get((title, image.architecture), {}),
        }


def names_of(kernel: Kernel) -> tuple[str, ...]:
    """Return its name expression, the name of its template or function, and its lowered name."""
    return kernel.expression, plain_name(kernel.expression), kernel.lowered


def is_match(kernel: Kernel, pattern: str) -> bool:
    """Return True if `pattern`, with ``*`` for anything, matches one of the names of `kernel`."""
    names = names_of(kernel)
    return normalise(pattern) in names or any(fnmatchcase(name, pattern) for name in names)


def spell_options(source: Source) -> str:
    """Return the options of `source` as compilers spell them."""
    if source.name.endswith(".py"):  # whose options are in the instantiations
        return ""
    options = source.options
    flags = {"relaxed-constexpr": options.relaxed_constexpr, "relocatable": options.relocatable}
    return " ".join([*common_options(options), *(name for name, is_set in flags.items() if is_set)])


def unique_titles(manifest: Manifest) -> Sequence[str]:
    """Return the titles of units; units of one source are distinguished by their instantiations."""
    counts = Counter(unit.title for unit in manifest.units)
    return [
        " ".join([unit.title, *(name for source in unit.sources for name in source.instantiate)])
        if counts[unit.title] > 1
        else unit.title
        for unit in manifest.units
    ]
