"""From what was named to what is in it: nothing is imported, installed or run."""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cuda_ext import manifest as manifest_file
from cuda_ext.cli.inspect.contents import Contents, Kernel, KernelImage, Kind, Module, Unit
from cuda_ext.cli.inspect.images import ReadImage, format_of, read_images
from cuda_ext.cli.inspect.places import (
    Package,
    packages_below,
    packages_in_wheel,
    packages_of_module,
    read_file,
)
from cuda_ext.cli.terminal import Failure
from cuda_ext.errors import ManifestError
from cuda_ext.manifest import FILE_NAME, Image, Manifest, Symbol

__all__ = ["read_contents"]

_SUFFIXES = (".whl", ".fatbin", ".cubin", ".ptx")
_REMEDY = "build or install it again"
_KINDS: dict[str, Kind] = {"fatbin": "fatbin", "cubin": "cubin", "ptx": "ptx"}


def read_contents(name: str) -> Contents:
    """What is in the wheel, the image, the directory or the module `name`.

    Raises :class:`Failure` where there is no compiled code, or a damaged one.
    """
    path = Path(name)
    if path.is_dir():
        return _of_packages(name, "directory", packages_below(path))
    if path.exists() or name.endswith(_SUFFIXES) or not all(part.isidentifier() for part in name.split(".")):
        return _of_file(name, path)
    return _of_packages(name, "module", packages_of_module(name))


def _of_file(name: str, path: Path) -> Contents:
    if not path.exists():
        raise Failure(f"{name}: there is no such file or directory; correct the path")
    if path.is_file() and zipfile.is_zipfile(path):
        return _of_wheel(name, path)
    if path.is_file() and name.endswith(".whl"):
        raise Failure(f"{name}: is no wheel, or a damaged one; build or download it again")
    data = read_file(path)
    kind = _KINDS.get(format_of(data) or "")
    if kind is None:
        raise Failure(
            f"{name}: is no compiled code; name a wheel, a fatbin, a cubin, PTX, a directory or a module"
        )
    module = _without_manifest(path.name, len(data), read_images(data, path.name, name))
    return Contents(name, kind, len(data), {path.name: len(data)}, (module,))


def _of_wheel(name: str, path: Path) -> Contents:
    try:
        with zipfile.ZipFile(path) as wheel:
            files = {info.filename: info.compress_size for info in wheel.infolist() if not info.is_dir()}
            modules, damaged = _modules(name, packages_in_wheel(wheel))
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise Failure(f"{name}: cannot be read: {error}; build or download it again") from None
    return Contents(
        name, "wheel", path.stat().st_size, files, tuple(module for module, _ in modules), damaged
    )


def _of_packages(name: str, kind: Kind, packages: Iterable[Package]) -> Contents:
    modules, damaged = _modules(name, packages)
    files = {
        file if module.place == "." else f"{module.place}/{file}": size
        for module, sizes in modules
        for file, size in sizes.items()
    }
    return Contents(name, kind, sum(files.values()), files, tuple(module for module, _ in modules), damaged)


def _modules(
    name: str, packages: Iterable[Package]
) -> tuple[Sequence[tuple[Module, Mapping[str, int]]], tuple[str, ...]]:
    """The modules in what is called `name`, each with its files and their sizes, and what is damaged.

    Raises :class:`Failure` if there is none that is whole.
    """
    modules, damaged = [], []
    for package in packages:
        try:
            modules.append(_module(name, package))
        except (Failure, ManifestError) as error:
            damaged.append(str(error))
        except OSError as error:
            damaged.append(f"{name}: {package.place}: cannot be read: {error}; look at its rights")
    if damaged and not modules:
        raise Failure("\n".join(damaged))
    if not modules:
        raise Failure(
            f"{name}: holds no module of kernels; name what a build with [tool.cuda_ext], or cuda_ext.save, "
            "has made"
        )
    return modules, tuple(damaged)


def _module(name: str, package: Package) -> tuple[Module, Mapping[str, int]]:
    where = name if package.place == "." else f"{name}: {package.place}"
    manifest = manifest_file.loads(package.read(FILE_NAME), f"{where}: {FILE_NAME}")
    images = {image.file: image for unit in manifest.units for image in unit.images}
    try:
        found = {file: _read_file(package, image, where) for file, image in images.items()}
        names = [FILE_NAME, *images, *(f"sources/{source}" for source in manifest.embedded or ())]
        sizes = {file: package.size(file) for file in names}
    except (KeyError, FileNotFoundError) as error:
        raise Failure(f"{where}: a file is missing that {FILE_NAME} tells of: {error}; {_REMEDY}") from None
    units = [[_image_of(unit_image, found, where) for unit_image in unit.images] for unit in manifest.units]
    titles = _titles(manifest)
    module = Module(
        name=manifest.module,
        place=package.place,
        size=sum(sizes.values()),
        units=tuple(
            Unit(title, unit.sources, tuple(each.image for each in read))
            for title, unit, read in zip(titles, manifest.units, units, strict=True)
        ),
        kernels=_kernels(manifest, titles, units),
        symbols=manifest.symbols,
        compiler=f"{manifest.compiler} {manifest.version}",
        compress=manifest.compress,
        embedded=manifest.embedded,
        variants={variants.name: str(variants) for variants in manifest.variants},
    )
    return module, sizes


def _read_file(package: Package, image: Image, where: str) -> Mapping[str, ReadImage]:
    """The images in the file that `image` lies in, by architecture."""
    data = package.read(image.file)
    if hashlib.sha256(data).hexdigest() != image.sha256:
        raise Failure(f"{where}: {image.file} is not the file that {FILE_NAME} tells of; {_REMEDY}")
    read = read_images(data, image.file, f"{where}: {image.file}", image.architecture)
    return {each.image.architecture: each for each in read}


def _image_of(image: Image, found: Mapping[str, Mapping[str, ReadImage]], where: str) -> ReadImage:
    read = found[image.file]
    # A file of its own has one image, which may not tell what it was compiled for.
    one = read.get(image.architecture) or (next(iter(read.values())) if len(read) == 1 else None)
    if one is None:
        raise Failure(f"{where}: {image.file} lacks its image for {image.architecture}; {_REMEDY}")
    return replace(one, image=replace(one.image, architecture=image.architecture, size=image.size))


def _titles(manifest: Manifest) -> Sequence[str]:
    """What each unit is called; those that were split off one source, with their instantiations."""
    counts = Counter(unit.title for unit in manifest.units)
    return [
        " ".join([unit.title, *(name for source in unit.sources for name in source.instantiate)])
        if counts[unit.title] > 1
        else unit.title
        for unit in manifest.units
    ]


def _kernels(
    manifest: Manifest, titles: Sequence[str], units: Sequence[Sequence[ReadImage]]
) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(
            kernel.expression,
            kernel.signature,
            kernel.lowered,
            titles[kernel.unit],
            tuple(
                KernelImage(image.architecture, lowered, read.kernels.get(lowered))
                for image, read in zip(manifest.units[kernel.unit].images, units[kernel.unit], strict=True)
                if (lowered := manifest.lowered_name(kernel, image)) is not None
            ),
        )
        for kernel in manifest.kernels
    )


def _without_manifest(file: str, size: int, images: Sequence[ReadImage]) -> Module:
    """The module that a file by itself would be: lowered names are all that is known."""
    kernels: dict[str, list[KernelImage]] = {}
    symbols: dict[str, Symbol] = {}
    for read in images:
        for name, resources in read.kernels.items():
            kernels.setdefault(name, []).append(KernelImage(read.image.architecture, name, resources))
        for name, variable in read.variables.items():
            symbols.setdefault(name, Symbol(name, name, 0, variable.space, "", variable.size))
    return Module(
        name=file,
        place=".",
        size=size,
        units=(Unit(file, (), tuple(read.image for read in images)),),
        kernels=tuple(
            Kernel(name, None, name, file, tuple(found)) for name, found in sorted(kernels.items())
        ),
        symbols=tuple(symbols[name] for name in sorted(symbols)),
    )
