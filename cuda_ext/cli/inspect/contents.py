"""Compiled code as data: manifests, and what the bytes of images show beyond them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from cuda_ext.compiler.compile_options import common_options
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Manifest
from cuda_ext.facts.sources import Source
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.image_content import ImageContent
from cuda_ext.formats.spelling import normalise, plain_name

Kind = Literal["wheel", "directory", "module", "fatbin", "cubin", "ptx", "tileir"]


class Module(NamedTuple):
    """A module of kernels.

    An image alone has a manifest without a compiler, in which only lowered names are known. ``place`` is the
    directory within what was named, ``size`` the sum of its files. Each unit has a title of its own in
    ``titles``, which its ``images`` have, too.
    """

    place: str
    size: int
    manifest: Manifest
    titles: Sequence[str]
    images: tuple[ImageContent, ...]

    def resources(self) -> dict[tuple[str, str], dict[str, Resources | None]]:
        """Return the resources of each kernel by architecture, by its unit's title and its expression."""
        found: dict[tuple[str, str], dict[str, Resources | None]] = {}
        for image in self.images:
            for name, resources in image.kernels.items():
                found.setdefault((image.unit, name), {})[image.architecture] = resources
        return found

    def select(self, pattern: str, titles: Collection[str]) -> Module:
        """Return the kernels that match `pattern`, the units of these `titles`, and nothing else."""
        kept = [index for index, title in enumerate(self.titles) if title in titles]
        kernels = [kernel for kernel in self.manifest.kernels if is_match(kernel, pattern)]
        manifest = self.manifest._replace(
            units=tuple(self.manifest.units[index] for index in kept),
            kernels=tuple(kernel._replace(unit=kept.index(kernel.unit)) for kernel in kernels),
            symbols=(),
            structures=(),
            constants=(),
        )
        names = {kernel.expression for kernel in kernels}
        images = tuple(
            image._replace(kernels={name: each for name, each in image.kernels.items() if name in names})
            for image in self.images
            if image.unit in titles
        )
        return self._replace(manifest=manifest, titles=[self.titles[i] for i in kept], images=images)


class Contents(NamedTuple):
    """The contents of a wheel, a directory, a package or an image; as JSON, the output of ``--json``.

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
        return self._replace(modules=modules, is_part=True)

    def without_empty_modules(self) -> Contents:
        """Return the modules that hold kernels."""
        return self._replace(modules=tuple(module for module in self.modules if module.manifest.kernels))

    @property
    def head(self) -> dict[str, object]:
        return {"path": self.path, "kind": self.kind, "size": self.size}


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
    flags = {
        "relaxed-constexpr": options.relaxed_constexpr,
        "std-headers=false": not options.std_headers,
        "host-code=skip": options.skip_host_code,
        "relocatable": options.relocatable,
    }
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
