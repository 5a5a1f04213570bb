"""Read wheels, directories, installed modules and images into :class:`Contents`.

Nothing is imported, installed or run.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cuda_ext.cli.inspect.contents import Contents, Kind, Module, unique_titles
from cuda_ext.cli.inspect.places import (
    Package,
    packages_below,
    packages_in_wheel,
    packages_of_module,
    read_file,
)
from cuda_ext.cli.terminal import Failure
from cuda_ext.errors import BuildError, CudaExtError, FatbinError
from cuda_ext.facts.codec import sha256
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import FILE_NAME, SCHEMA, Image, Manifest, Unit, loads
from cuda_ext.facts.sources import Source
from cuda_ext.formats.image_content import ImageContent, format_of, read_images, select_image

_SUFFIXES = (".whl", ".fatbin", ".cubin", ".ptx", ".tileir")
_REBUILD = "build or install it again"


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
    if (kind := format_of(data)) is None:
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
    return contents._replace(size=path.stat().st_size, files=files)


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
        structures=tuple(manifest.structures),
        constants=tuple(manifest.constants),
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
    by_unit: dict[int, list[Kernel]] = {}
    for kernel in manifest.kernels:
        by_unit.setdefault(kernel.unit, []).append(kernel)
    images = []
    for number, (title, unit) in enumerate(zip(titles, manifest.units, strict=True)):
        for image in unit.images:
            content = select_image(image, read[image.file], by_unit.get(number, ()))
            if content is None:
                raise Failure(
                    f"{image.file} has no image for {image.architecture}", where=where, remedy=_REBUILD
                )
            images.append(content._replace(unit=title))
    return Module(package.place, sum(sizes.values()), manifest, titles, tuple(images)), sizes


def _read_listed_file(package: Package, image: Image, where: str) -> Sequence[ImageContent]:
    """Read the images in the file that `image` lies in."""
    data = package.read(image.file)
    if sha256(data).hex() != image.sha256:
        raise Failure(
            f"{image.file} is not the file that {FILE_NAME} describes", where=where, remedy=_REBUILD
        )
    return _read_images(data, f"{where}: {image.file}", image.architecture)


def _describe_file(file: str, size: int, contents: Sequence[ImageContent]) -> Module:
    """Describe a file without a manifest, of which only lowered names are known."""
    names = sorted({name for content in contents for name in content.kernels})
    variables = {name: each for content in contents for name, each in content.variables.items()}
    manifest = Manifest(
        schema=SCHEMA,
        module=file,
        compiler="",
        version="",
        compress="none",
        units=(Unit((Source(file),), tuple(Image(c.architecture, file, c.size, "") for c in contents)),),
        kernels=tuple(Kernel(name, name, 0, ()) for name in names),
        symbols=tuple(variables[name] for name in sorted(variables)),
    )
    images = tuple(content._replace(unit=file, variables={}) for content in contents)
    return Module(".", size, manifest, [file], images)


def _read_images(data: bytes, where: str, architecture: str = "") -> Sequence[ImageContent]:
    """Read the images in `data`; `where` names it in errors."""
    try:
        return read_images(data, architecture)
    except (BuildError, FatbinError) as error:
        raise Failure(str(error), where=where, remedy="build, install or download it again") from None
