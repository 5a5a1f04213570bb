"""Read wheels, directories, installed modules and images into :class:`Contents`.

Nothing is imported, installed or run.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cuda_ext.cli.inspect.contents import Contents, ImageContent, Kind, Module, unique_titles
from cuda_ext.cli.inspect.places import (
    Package,
    packages_below,
    packages_in_wheel,
    packages_of_module,
    read_file,
)
from cuda_ext.cli.terminal import Failure
from cuda_ext.errors import BuildError, CudaExtError, FatbinError
from cuda_ext.facts.architecture import TILE_IR, ImageKind
from cuda_ext.facts.codec import sha256
from cuda_ext.facts.kernels import Kernel, Symbol
from cuda_ext.facts.manifest import FILE_NAME, SCHEMA, Image, Manifest, Source, Unit, loads
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import read_cubin, read_sizes
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
    module = _describe_file(path.name, len(data), _read_images(data, name))
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
    manifest = loads(package.read(FILE_NAME), f"{where}: {FILE_NAME}")
    # All records are read here, where damage is reported.
    manifest = manifest._replace(
        units=tuple(manifest.units),
        kernels=tuple(manifest.kernels),
        symbols=tuple(manifest.symbols),
        variants=tuple(manifest.variants),
    )
    listed = {image.file: image for unit in manifest.units for image in unit.images}
    try:
        read = {file: _read_listed_file(package, image, where) for file, image in listed.items()}
        sizes = {file: package.size(file) for file in (FILE_NAME, *manifest.files)}
    except (KeyError, FileNotFoundError) as error:
        raise Failure(
            f"a file that {FILE_NAME} lists is missing: {error}", where=where, remedy=_REBUILD
        ) from None
    titles = unique_titles(manifest)
    contents = {
        (title, image.architecture): _select_image(image, read[image.file], where)
        for title, unit in zip(titles, manifest.units, strict=True)
        for image in unit.images
    }
    return Module(package.place, sum(sizes.values()), manifest, titles, contents), sizes


def _read_listed_file(package: Package, image: Image, where: str) -> Sequence[ImageContent]:
    """Read the images in the file that `image` lies in."""
    data = package.read(image.file)
    if sha256(data).hex() != image.sha256:
        raise Failure(
            f"{image.file} is not the file that {FILE_NAME} describes", where=where, remedy=_REBUILD
        )
    return _read_images(data, f"{where}: {image.file}", image.architecture)


def _select_image(image: Image, contents: Sequence[ImageContent], where: str) -> ImageContent:
    by_architecture = {content.architecture: content for content in contents}
    # The only image of a file need not contain its architecture.
    content = contents[0] if len(contents) == 1 else by_architecture.get(image.architecture)
    if content is None:
        raise Failure(f"{image.file} has no image for {image.architecture}", where=where, remedy=_REBUILD)
    return content


def _describe_file(file: str, size: int, contents: Sequence[ImageContent]) -> Module:
    """Describe a file without a manifest, of which only lowered names are known."""
    names = sorted({name for content in contents for name in content.definitions.kernels})
    variables = {n: each for content in contents for n, each in content.definitions.variables.items()}
    images = [
        Image(
            content.architecture,
            file,
            content.size,
            "",
            {name: None for name in names if name not in content.definitions.kernels},
        )
        for content in contents
    ]
    manifest = Manifest(
        schema=SCHEMA,
        module=file,
        compiler="",
        version="",
        compress="none",
        units=(Unit((Source(file),), tuple(images)),),
        kernels=tuple(Kernel(name, name, 0, ()) for name in names),
        symbols=tuple(Symbol(n, n, 0, each.space, "", each.size) for n, each in sorted(variables.items())),
    )
    own = {(file, content.architecture): content for content in contents}
    return Module(".", size, manifest, [file], own)


def _format_of(data: bytes) -> Literal["fatbin", "cubin", "ptx", "tileir"] | None:
    """Return the format of `data`; ``None`` for all others, of which LTO-IR is one."""
    if data.startswith(_FATBIN):
        return "fatbin"
    if data.startswith(_ELF):
        return "cubin" if data[_MACHINE] == _CUDA else None
    if data.startswith(MAGIC):
        return "tileir"
    return "ptx" if ptx.target(data) else None


def _read_images(data: bytes, where: str, architecture: str = "") -> Sequence[ImageContent]:
    """Read the images in `data`; `where` names it in errors.

    `architecture` is that of an image which does not contain its own.
    """
    try:
        return [_read_image(entry) for entry in _list_images(data, architecture)]
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


def _read_image(entry: FatbinEntry) -> ImageContent:
    decompressor = _DECOMPRESSORS.get(entry.codec)
    missing = decompressor if decompressor and find_spec(decompressor) is None else None
    content = ImageContent(
        entry.architecture, entry.kind, entry.codec, len(entry.stored), entry.size, missing
    )
    if missing or entry.kind == "ltoir":
        return content
    try:
        data = entry.payload()
        parts = read_sizes(data) if entry.kind == "cubin" else None
        return replace(content, parts=parts, definitions=read_definitions(entry.kind, data))
    except BuildError as error:
        raise BuildError(str(error), where=entry.architecture) from None
