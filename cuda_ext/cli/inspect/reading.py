"""Read wheels, directories, installed modules and images into :class:`Contents`.

Nothing is imported, installed or run.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cuda_ext.cli.inspect.contents import (
    Contents,
    Image,
    Kernel,
    KernelImage,
    Kind,
    Module,
    Source,
    Unit,
    Variable,
)
from cuda_ext.cli.inspect.places import (
    Package,
    packages_below,
    packages_in_wheel,
    packages_of_module,
    read_file,
)
from cuda_ext.cli.terminal import Failure
from cuda_ext.compiler.compile_options import common_options
from cuda_ext.errors import BuildError, CudaExtError, FatbinError
from cuda_ext.facts import kernels
from cuda_ext.facts import manifest as manifest_file
from cuda_ext.facts.architecture import TILE_IR, ImageKind
from cuda_ext.facts.kernels import Symbol
from cuda_ext.facts.manifest import FILE_NAME, Manifest
from cuda_ext.facts.sha256 import sha256
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import Resources, read_cubin, read_sizes
from cuda_ext.formats.definitions import read_definitions
from cuda_ext.formats.fatbin import FatbinEntry, read_fatbin
from cuda_ext.formats.tile_ir import MAGIC

_SUFFIXES = (".whl", ".fatbin", ".cubin", ".ptx", ".tileir")
_REBUILD = "build or install it again"
# How a fatbin and an ELF file begin, and the machine in the header of a cubin.
_FATBIN, _ELF = (0xBA55ED50).to_bytes(4, "little"), b"\x7fELF"
_MACHINE, _CUDA = slice(18, 20), (190).to_bytes(2, "little")
# The Python packages that decompress images.
_DECOMPRESSORS = {"lz4": "lz4", "zstd": "zstandard"}


@dataclass(frozen=True, slots=True)
class _ImageContent:
    """An image with its kernels and variables by lowered name."""

    image: Image
    kernels: Mapping[str, Resources | None] = field(default_factory=dict)
    variables: Mapping[str, Symbol] = field(default_factory=dict)


def read_contents(name: str) -> Contents:
    """Read the wheel, the image, the directory or the installed module `name`.

    Raises :class:`Failure` if there is no compiled code, or if all of it is damaged.
    """
    path = Path(name)
    if path.is_dir():
        return _read_modules(name, "directory", packages_below(path))
    if not path.exists():
        if not name.endswith(_SUFFIXES) and all(part.isidentifier() for part in name.split(".")):
            return _read_modules(name, "module", packages_of_module(name))
        raise Failure("there is no such file or directory", where=name, remedy="correct the path")
    if path.is_file() and (name.endswith(".whl") or zipfile.is_zipfile(path)):
        return _read_wheel(name, path)
    data = read_file(path)
    if (kind := _format_of(data)) is None:
        raise Failure(
            "is not compiled code",
            where=name,
            remedy="name a wheel, a fatbin, a cubin, PTX, a directory or a module",
        )
    module = _describe_file(path.name, len(data), _read_images(data, path.name, name))
    return Contents(name, kind, len(data), (module,), {path.name: len(data)})


def _read_wheel(name: str, path: Path) -> Contents:
    try:
        with zipfile.ZipFile(path) as wheel:
            files = {info.filename: info.compress_size for info in wheel.infolist() if not info.is_dir()}
            contents = _read_modules(name, "wheel", packages_in_wheel(wheel))
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise Failure(
            f"is not a wheel, or is damaged: {error}", where=name, remedy="build or download it again"
        ) from None
    return replace(contents, size=path.stat().st_size, files=files)


def _read_modules(name: str, kind: Kind, packages: Iterable[Package]) -> Contents:
    """Read the modules in `name`. Raises :class:`Failure` if no module could be read."""
    modules: list[Module] = []
    files: dict[str, int] = {}
    damaged: list[str] = []
    for package in packages:
        where = name if package.place == "." else f"{name}: {package.place}"
        try:
            module, sizes = _read_module(package, where)
        except CudaExtError as error:
            damaged.append(str(error))
        except OSError as error:
            damaged.append(f"{where}: cannot be read: {error}; check its permissions")
        else:
            modules.append(module)
            files |= {posixpath.normpath(f"{package.place}/{file}"): size for file, size in sizes.items()}
    if damaged and not modules:
        raise Failure("\n".join(damaged))
    if not modules:
        raise Failure(
            "contains no module of kernels",
            where=name,
            remedy="name the output of a build with [tool.cuda_ext], or of cuda_ext.save",
        )
    return Contents(name, kind, sum(files.values()), tuple(modules), files, tuple(damaged))


def _read_module(package: Package, where: str) -> tuple[Module, Mapping[str, int]]:
    """Read a module with a manifest; also return the sizes of its files."""
    manifest = manifest_file.loads(package.read(FILE_NAME), f"{where}: {FILE_NAME}")
    listed = {image.file: image for unit in manifest.units for image in unit.images}
    try:
        contents = {file: _read_listed_file(package, image, where) for file, image in listed.items()}
        names = [FILE_NAME, *listed, *(f"sources/{source}" for source in manifest.embedded or ())]
        sizes = {file: package.size(file) for file in names}
    except (KeyError, FileNotFoundError) as error:
        raise Failure(
            f"a file that {FILE_NAME} lists is missing: {error}", where=where, remedy=_REBUILD
        ) from None
    images = [
        [_select_image(image, contents[image.file], where) for image in u.images] for u in manifest.units
    ]
    titles = _unique_titles(manifest)
    module = Module(
        name=manifest.module,
        place=package.place,
        size=sum(sizes.values()),
        compiler=f"{manifest.compiler} {manifest.version}",
        compress=manifest.compress,
        jit=manifest.embedded is not None,
        embedded=manifest.embedded,
        variants={each.name: str(each) for each in manifest.variants if not each.specialised},
        units=tuple(
            Unit(title, tuple(map(_describe_source, unit.sources)), tuple(each.image for each in own))
            for title, unit, own in zip(titles, manifest.units, images, strict=True)
        ),
        kernels=tuple(
            Kernel(
                kernel.expression,
                kernel.signature,
                kernel.lowered,
                titles[kernel.unit],
                tuple(
                    _describe_kernel(kernel, lowered, image, content)
                    for image, content in zip(
                        manifest.units[kernel.unit].images, images[kernel.unit], strict=True
                    )
                    if (lowered := manifest.lowered_name(kernel, image)) is not None
                ),
            )
            for kernel in manifest.kernels
        ),
        symbols=tuple(Variable(s.name, s.lowered, s.space, s.type, s.size) for s in manifest.symbols),
    )
    return module, sizes


def _describe_kernel(
    kernel: kernels.Kernel, lowered: str, image: manifest_file.Image, content: _ImageContent
) -> KernelImage:
    launch = image.launches.get(kernel.expression)
    resources = content.kernels.get(lowered)
    return KernelImage(image.architecture, lowered, resources, str(launch) if launch else None)


def _read_listed_file(package: Package, image: manifest_file.Image, where: str) -> Sequence[_ImageContent]:
    """Read the images in the file that `image` lies in."""
    data = package.read(image.file)
    if sha256(data).hex() != image.sha256:
        raise Failure(
            f"{image.file} is not the file that {FILE_NAME} describes", where=where, remedy=_REBUILD
        )
    return _read_images(data, image.file, f"{where}: {image.file}", image.architecture)


def _select_image(image: manifest_file.Image, contents: Sequence[_ImageContent], where: str) -> _ImageContent:
    by_architecture = {content.image.architecture: content for content in contents}
    # The only image of a file need not contain its architecture.
    content = contents[0] if len(contents) == 1 else by_architecture.get(image.architecture)
    if content is None:
        raise Failure(f"{image.file} has no image for {image.architecture}", where=where, remedy=_REBUILD)
    return replace(content, image=replace(content.image, architecture=image.architecture, size=image.size))


def _unique_titles(manifest: Manifest) -> Sequence[str]:
    """Return the titles of units; units of one source are distinguished by their instantiations."""
    counts = Counter(unit.title for unit in manifest.units)
    return [
        " ".join([unit.title, *(name for source in unit.sources for name in source.instantiate)])
        if counts[unit.title] > 1
        else unit.title
        for unit in manifest.units
    ]


def _describe_source(source: manifest_file.Source) -> Source:
    options = source.options
    flags = {"relaxed-constexpr": options.relaxed_constexpr, "relocatable": options.relocatable}
    if source.name.endswith(".py"):  # whose options are in the instantiations
        return Source(source.name, source.sha256, (), source.instantiate)
    spelled = (*common_options(options), *(name for name, is_set in flags.items() if is_set))
    return Source(source.name, source.sha256, spelled, source.instantiate)


def _describe_file(file: str, size: int, contents: Sequence[_ImageContent]) -> Module:
    """Describe a file without a manifest, of which only lowered names are known."""
    kernels: dict[str, list[KernelImage]] = {}
    symbols: dict[str, Variable] = {}
    for content in contents:
        for name, resources in content.kernels.items():
            kernels.setdefault(name, []).append(KernelImage(content.image.architecture, name, resources))
        for name, variable in content.variables.items():
            symbols.setdefault(name, Variable(name, name, variable.space, "", variable.size))
    return Module(
        name=file,
        place=".",
        size=size,
        units=(Unit(file, (), tuple(content.image for content in contents)),),
        kernels=tuple(Kernel(name, None, name, file, tuple(each)) for name, each in sorted(kernels.items())),
        symbols=tuple(symbols[name] for name in sorted(symbols)),
    )


def _format_of(data: bytes) -> Literal["fatbin", "cubin", "ptx", "tileir"] | None:
    """Return the format of `data`; ``None`` for all others, of which LTO-IR is one."""
    if data.startswith(_FATBIN):
        return "fatbin"
    if data.startswith(_ELF):
        return "cubin" if data[_MACHINE] == _CUDA else None
    if data.startswith(MAGIC):
        return "tileir"
    return "ptx" if ptx.target(data) else None


def _read_images(data: bytes, file: str, where: str, architecture: str = "") -> Sequence[_ImageContent]:
    """Read the images in `data`, the bytes of `file`; `where` names it in errors.

    `architecture` is that of an image which does not contain its own.
    """
    try:
        return [_read_image(entry, file) for entry in _list_images(data, architecture)]
    except (BuildError, FatbinError) as error:
        raise Failure(str(error), where=where, remedy="build, install or download it again") from None


def _list_images(data: bytes, architecture: str) -> Sequence[FatbinEntry]:
    """List the entries of a fatbin; any other image is an entry by itself."""
    kind: ImageKind
    match _format_of(data):
        case "fatbin":
            return read_fatbin(data)
        case "cubin":
            kind, architecture = "cubin", str(read_cubin(data).target or architecture)
        case "ptx":
            kind, architecture = "ptx", str(ptx.target(data))
        case "tileir":
            kind, architecture = "tileir", str(TILE_IR)
        case None:
            kind = "ltoir"
    return [FatbinEntry(0, kind, architecture, "none", False, len(data), data)]


def _read_image(entry: FatbinEntry, file: str) -> _ImageContent:
    decompressor = _DECOMPRESSORS.get(entry.codec)
    missing = decompressor if decompressor and find_spec(decompressor) is None else None
    image = Image(entry.architecture, entry.kind, file, entry.codec, len(entry.stored), entry.size, missing)
    if missing or entry.kind == "ltoir":
        return _ImageContent(image)
    try:
        data = entry.payload()
        found = read_definitions(entry.kind, data)
        if entry.kind == "cubin":
            image = replace(image, parts=read_sizes(data))
        return _ImageContent(image, {n: found.usage.get(n) for n in found.kernels}, found.variables)
    except BuildError as error:
        raise BuildError(str(error), where=entry.architecture) from None
