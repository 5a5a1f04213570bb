"""A module as C++: a header that declares its kernels, and a source with its images and device code.

The header is for users and cheap to include. The source is compiled once; it contains the manifest as
constants. No code of either runs before the first use of a kernel.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import cuda_ext
from cuda_ext import __version__
from cuda_ext.builder.cpp import source_name
from cuda_ext.builder.cpp.c_interface import describe_in_c
from cuda_ext.builder.cpp.embedding import Embedded, assembled, literal, quoted
from cuda_ext.builder.cpp.header import Header, UnbuiltTemplate
from cuda_ext.builder.cpp.launched_kernels import launched_kernels
from cuda_ext.builder.cpp.module_data import ModuleData, Recipe, Template
from cuda_ext.builder.cpp.object_file import object_file
from cuda_ext.builder.cpp.template_arguments import TemplateParameters
from cuda_ext.builder.package.generate import Package
from cuda_ext.builder.rendering import templates
from cuda_ext.compiler.compile_options import nvrtc_options
from cuda_ext.compiler.headers import closure
from cuda_ext.compiler.kernel_sources import choose_sources
from cuda_ext.compiler.translation_unit import NAMED
from cuda_ext.facts import manifest as manifest_file
from cuda_ext.facts.codec import key_of
from cuda_ext.facts.image_choice import order_images
from cuda_ext.facts.manifest import Manifest, Unit
from cuda_ext.facts.sources import Options, Source
from cuda_ext.formats.spelling import plain_name
from cuda_ext.text.declarations import find_declarations, kernel_names
from cuda_ext.text.includes import find_includes
from cuda_ext.toolchain.cuda_packages import standard_headers

if TYPE_CHECKING:
    from jinja2 import Environment

Embed = Literal["incbin", "literal", "object"]

(_STANDARD,) = standard_headers(Options())


class CppModule(NamedTuple):
    """The files of a module in C++, by path, including the ``header`` and the ``source``."""

    header: str
    source: str
    files: Mapping[str, bytes]


class Texts(NamedTuple):
    """Device code to embed: ``files`` below ``root``, and the ``named`` ones, which the header declares."""

    root: Path = Path()
    files: Mapping[str, bytes] = {}
    named: Sequence[str] = ()


def render(
    package: Package,
    include_dirs: Sequence[str],
    package_directory: Path,
    embed: Embed,
    namespace: str | None = None,
    jit: bool = False,
    given: Texts = Texts(),  # noqa: B008 - immutable
    with_c: bool = False,
    machine: str = "",
) -> CppModule:
    """Render the C++ of `package`, whose files lie in `package_directory`.

    `namespace` replaces the package's own. `given` are texts to embed. `include_dirs` are directories of the
    project; headers below them have further names. With `jit`, the sources of the package are embedded and
    compiled on demand. `with_c` adds an interface in C. Objects are for `machine`. The same arguments
    give the same bytes. The text of the source changes whenever an embedded file does, except in objects.
    """
    manifest = manifest_file.loads(package.files[manifest_file.FILE_NAME], manifest_file.FILE_NAME)
    units = [unit._replace(images=tuple(order_images(unit.images))) for unit in manifest.units]
    manifest = manifest._replace(units=units)
    launched = launched_kernels(manifest)
    manifest = manifest._replace(kernels=tuple(each.kernel for each in launched))
    # The prefix of every external symbol.
    prefix = "cuda_ext_" + "".join(f"{len(part)}{part}" for part in map(_ascii, manifest.module.split(".")))
    jit = jit and manifest.embedded is not None
    sources = manifest.embedded or () if jit else ()
    texts = {**given.files, **{name: package.files[f"sources/{name}"] for name in sources}}
    places = {name: package_directory / "sources" if name in sources else given.root for name in texts}
    if jit or given.files:
        standard = _standard_headers(texts)
        places |= dict.fromkeys(standard.keys() - texts.keys(), _STANDARD)
        texts = {**standard, **texts}
    templates = list(_list_templates(manifest, texts)) if jit else []
    header = Header(manifest, launched, namespace, _unbuilt_templates(manifest, texts, templates))
    stem = posixpath.basename(header.path).removesuffix(".h")
    embedded = _embedded(package, manifest, package_directory, prefix)
    embedded |= {
        f"sources/{name}": Embedded(f"{prefix}_{index}", places[name] / name, text, "char")
        for index, (name, text) in enumerate(texts.items(), len(embedded))
    }
    text_names = {name: embedded[f"sources/{name}"].name for name in texts}
    compiled = {source.name: source for unit in manifest.units for source in unit.sources}
    headers = _headers(texts, compiled, text_names, given, include_dirs)
    data = ModuleData(
        manifest,
        launched,
        embedded,
        {name: text for name, text in text_names.items() if name in compiled},
        headers,
        key_of(*(field for item in sorted(texts.items()) for field in item), *headers),
        [_recipe(unit, texts) for unit in manifest.units] if jit else None,
        templates,
    )
    context = {
        "manifest": manifest,
        "header": header,
        "example": _example(header),
        "stem": stem,
        "version": __version__,
        "abi": "v" + re.sub(r"\W", "_", __version__),
        "embed": embed,
        "prefix": prefix,
        "embedded": embedded,
        "variants": [variants for variants in manifest.variants if not variants.specialised],
        "data": data,
        "headers": headers,
        "named": _identifiers(given.named),
        "jit": jit,
        "c": describe_in_c(manifest.module, launched, manifest.symbols) if with_c else None,
    }
    source = source_name(manifest.module)
    names = ("interface.hpp", "compile.hpp") if jit or given.named else ("interface.hpp",)
    files = {
        f"include/{header.path}": _render("module.h.j2", context),
        **{f"include/{header.path.removesuffix('.h')}/{_COPIES[name]}": _copy(name) for name in names},
        source: _render("module.cpp.j2", context),
    }
    if with_c:
        files[f"include/{header.path.removesuffix('.h')}/c.h"] = _render("c_interface.h.j2", context)
    if embed == "object":
        files[f"{stem}.images.o"] = object_file(embedded.values(), machine)
    if embed == "literal":
        files |= {f"{stem}.{i}.inc": literal(each) for i, each in enumerate(embedded.values())}
    return CppModule(f"include/{header.path}", source, files)


def _render(template: str, context: Mapping[str, object]) -> bytes:
    return _templates().get_template(template).render(context).encode()


@cache
def _templates() -> Environment:
    environment = templates(__package__)
    environment.filters |= {"assembled": assembled, "comment": _comment, "quoted": quoted}
    return environment


# Headers of this package that each module copies: another module may have copies of another version.
_COPIES = {"interface.hpp": "cuda_ext.hpp", "compile.hpp": "compile.hpp"}


@cache
def _copy(name: str) -> bytes:
    """Return the copy of `name`. It includes the other copies and contains all other includes."""
    directory = Path(cuda_ext.__file__).parent / "include" / "cuda_ext"

    def include(match: re.Match[str]) -> str:
        included = match[1]
        if included in _COPIES:
            return f'#include "{_COPIES[included]}"'
        return (directory / included).read_text(encoding="utf-8")

    text = (directory / name).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.*)"', include, text, flags=re.MULTILINE).encode()


def _comment(text: str) -> str:
    """Write `text` in one line of a comment, with a dot after a final backslash that would continue it."""
    return " ".join(text.split()) + ("." if text.endswith("\\") else "")


def _embedded(package: Package, manifest: Manifest, directory: Path, prefix: str) -> dict[str, Embedded]:
    """Return the images of `package` by their path within it."""
    images = dict.fromkeys(image.file for unit in manifest.units for image in unit.images)
    return {
        file: Embedded(f"{prefix}_{index}", directory / file, package.files[file])
        for index, file in enumerate(images)
    }


def _headers(
    texts: Mapping[str, bytes],
    compiled: Mapping[str, Source],
    text_names: Mapping[str, str],
    given: Texts,
    include_dirs: Sequence[str],
) -> dict[str, str]:
    """Return the C++ expression of the text of each header, by the names that an ``#include`` may spell."""
    before = {name for source in compiled.values() for name in source.options.pre_include}

    def is_included(name: str) -> bool:
        return any(f'"{name}"'.encode() in text for text in texts.values())

    headers = {
        name: text
        for name, text in text_names.items()
        if name not in compiled or name in before or name in given.files or is_included(name)
    }
    headers = {name.removeprefix(NAMED): text for name, text in headers.items()} | headers
    # Aliases include the header, since #pragma once treats one text under two names as two headers.
    aliases = _aliases(headers, include_dirs).items()
    return headers | {alias: quoted(f'#include "{name}"\n') for alias, name in aliases}


def _recipe(unit: Unit, texts: Mapping[str, bytes]) -> Recipe:
    source = unit.sources[0]
    if len(unit.sources) > 1 or source.options.relocatable:
        return Recipe(source, obstacle="linked modules are compiled on demand by Python only")
    if source.name.endswith(".ptx"):
        return Recipe(source, obstacle="PTX is compiled on demand by Python only")
    if source.options.skip_host_code:
        return Recipe(source, obstacle=f"{source.name} has host code, which Python leaves out")
    if source.name not in texts or not source.sha256:
        why = "is not embedded, since NVRTC does not compile it, or compiles it differently on other machines"
        return Recipe(source, obstacle=f"{source.name} {why}")
    is_specific = any(image.target.suffix for image in unit.images)
    headers = [name.removeprefix(NAMED) for name in _reached(source, texts)]
    if source.options.std_headers and (standard := _standard_headers(texts)):
        headers += (name for name in standard if name not in headers)
        source = source._replace(sha256=key_of(source.sha256, *standard.values()))
    return Recipe(source, nvrtc_options(source.name, source.options), headers, is_specific)


def _standard_headers(texts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the headers of the standard library that `texts` include, which lead to libcu++."""
    known = {path.name for path in _STANDARD.iterdir()}
    found: dict[str, bytes] = {}
    pending = list(texts.values())
    while pending:
        names = {include.name for include in find_includes(pending.pop()).named if not include.is_test}
        for name in sorted((names & known) - found.keys()):
            found[name] = texts.get(name) or (_STANDARD / name).read_bytes()
            pending.append(found[name])
    return dict(sorted(found.items()))


def _reached(source: Source, texts: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return the embedded headers that `source` can include."""
    others = {name: text for name, text in texts.items() if name != source.name}
    return closure(texts[source.name], source.options, others)


def _list_templates(manifest: Manifest, texts: Mapping[str, bytes]) -> Iterator[Template]:
    """List the kernel templates of `manifest`: those of built kernels, then all that the sources define."""
    # The sources by title, each with its first unit, since a source with split instantiations has several.
    units = {unit.title: index for index, unit in reversed(list(enumerate(manifest.units)))}
    variables = {symbol.unit: symbol.name for symbol in reversed(manifest.symbols)}
    texts_of: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for title, index in sorted(units.items()):
        source = manifest.units[index].sources[0]
        known = {source.name: texts[source.name], **_reached(source, texts)} if source.name in texts else {}
        texts_of[title] = [(name, kernel_names(text)) for name, text in known.items()] or [("", frozenset())]

    def can_compile(title: str) -> bool:
        index = units[title]
        return index not in variables and not _recipe(manifest.units[index], texts).obstacle

    built: dict[str, set[str]] = {}
    for kernel in manifest.kernels:
        if "<" in kernel.expression:
            titles = built.setdefault(plain_name(kernel.expression), set())
            titles.add(manifest.units[kernel.unit].title)
    defined = {name for each in texts_of.values() for _, names in each for name in names}
    for name in [*sorted(built), *sorted(defined)]:
        owners = built.get(name, set())
        own = choose_sources(name.rpartition("::")[2], texts_of, owners, texts_of.__getitem__, can_compile)
        title = own[0] if own else min(owners)
        obstacle = ""
        if len(own) > 1:
            obstacle = f"{' and '.join(own)} each define {name}"
        elif units[title] in variables:
            variable = variables[units[title]]
            obstacle = (
                f"{title} has the variable '{variable}', of which the kernel would have a separate copy"
            )
        yield Template(name, name in built, units[title], obstacle)


def _unbuilt_templates(
    manifest: Manifest, texts: Mapping[str, bytes], templates: Sequence[Template]
) -> dict[str, UnbuiltTemplate]:
    """Return the templates that are compiled on demand and have no built instantiation, by their names."""
    built = {plain_name(kernel.expression) for kernel in manifest.kernels}
    names = {each.name for each in templates if not each.is_qualified and not each.obstacle}
    unbuilt: dict[str, UnbuiltTemplate] = {}
    for source in (unit.sources[0] for unit in manifest.units if names and unit.sources[0].name in texts):
        for kernel in find_declarations([texts[source.name], *_reached(source, texts).values()]).kernels:
            plain = kernel.name.rpartition("::")[2]
            if plain not in names or kernel.name in built or "<" not in kernel.template:
                continue
            if parameters := TemplateParameters.read(kernel.template):
                signature = ", ".join(f"{each.type} {each.name}".strip() for each in kernel.parameters)
                declaration = f"{kernel.template} {kernel.name}({signature})"
                unbuilt[kernel.name] = UnbuiltTemplate(declaration, parameters)
    return unbuilt


def _identifiers(names: Sequence[str]) -> dict[str, str]:
    """Return the files `names` by their identifiers in C++: ``device_copy_cu`` for ``device/copy.cu``."""
    identifiers: dict[str, str] = {}
    for name in names:
        identifier = re.sub(r"\W|^(?=[0-9])", "_", _ascii(name))
        while identifier in identifiers:
            identifier += "_"
        identifiers[identifier] = name
    return identifiers


def _ascii(name: str) -> str:
    return "".join(c if c.isascii() else f"_u{ord(c):x}" for c in name)


def _aliases(headers: Collection[str], include_dirs: Sequence[str]) -> dict[str, str]:
    """Return the canonical names of `headers` by the other names that an ``#include`` may spell."""
    names: dict[str, str] = {}
    for directory in include_dirs:
        prefix = posixpath.normpath(directory.replace("\\", "/")) + "/"
        for name in headers:
            alias = name.removeprefix(prefix)
            if alias not in headers:
                names.setdefault(alias, name)
    return names


def _example(header: Header) -> str:
    """Write an example of a launch, for the header's first comment."""
    if not header.kernels:
        return ""
    kernel = header.kernels[0]
    name = "::".join([*header.namespaces, kernel.kernel.expression.partition("(")[0]])
    launch = "{grid, stream}" if kernel.is_fixed else "{grid, block, stream}"
    arguments = [launch, *(each.name or "..." for each in kernel.kernel.parameters)]
    return f"{name}({', '.join(arguments)})"
