"""Output for a terminal: the contents of one thing, or the changes between two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cuda_ext.builder.report.difference import Change, Place
from cuda_ext.cli.inspect.comparing import compare_contents, shipped_size
from cuda_ext.cli.inspect.contents import Contents, Module, spell_options
from cuda_ext.cli.inspect.tables import Row, show_groups, show_table
from cuda_ext.cli.terminal import show_line
from cuda_ext.facts.spelled_variants import spell_variants
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.quantities import format_count, format_size

NOTHING = "\N{EN DASH}"
# Digits of a digest; two of one project hardly share them.
_DIGEST = 10
# The kernels of a module, and the changes of a kind, that a terminal has room for.
_MOST_KERNELS, _MOST_CHANGES = 100, 30
_REMARKS = {
    "compute": "PTX, which the driver compiles",
    "lto": "LTO-IR, which has to be linked",
    "tile": "Tile IR, which the driver compiles",
}
# The style of kernels that spill registers.
_SPILLED = "yellow"
# Resources by the headings of their columns.
_RESOURCES = {
    "registers": "registers",
    "stack": "stack",
    "spills": "spilled",
    "shared": "shared",
    "constant": "constant",
    "code": "code",
    "threads": "max_threads",
}


def show_contents(contents: Contents) -> None:
    """Print the contents, module by module."""
    counts = format_count(len(contents.kernels), "kernel")
    if contents.has_manifests:
        counts = f"{format_count(len(contents.modules), 'module')}, {counts}"
    show_line(f"{_title(contents)}, {counts}")
    for module in contents.modules:
        _show_module(module, contents)
    missing = {image.missing for module in contents.modules for image in module.images}
    for package in sorted(filter(None, missing)):
        show_line(f'\nimages are compressed; "pip install {package}" to see what is in them')


def show_sizes(contents: Contents) -> None:
    """Print what the bytes of each image are for, module by module."""
    show_line(_title(contents))
    for module in contents.modules:
        cubins = (image for image in module.images if image.kind == "cubin" and not image.missing)
        parts = list(dict.fromkeys(part for image in cubins for part in image.parts))
        groups: dict[str, list[Row]] = {title: [] for title in module.titles}
        for image in module.images:
            sizes = [*map(image.parts.get, parts), image.size, image.stored]
            groups[image.unit].append(((image.architecture, *map(_number, sizes)), ""))
        headings = _numbers([*parts, "size", "stored"])
        show_groups(("architecture", *headings), [*groups.items()], _MOST_KERNELS)
    show_line(("bytes; constants include parameters, other is what the driver needs to load", "dim"))


def show_difference(before: Contents, after: Contents) -> None:
    """Print what changed from `before` to `after`, the largest changes first.

    Raises as :func:`compare_contents` does.
    """
    changes = compare_contents(before, after)
    growth = _growth(before.size, after.size) if before.kind == after.kind else ""
    total = f", {growth} ({after.size / before.size - 1:+.1%})" if growth else ""
    show_line(f"before  {_title(before)}\nafter   {_title(after)}{total}")
    if not any(changes.values()):
        show_line("\nnothing has changed")
        return
    single_module = len(before.modules) == len(after.modules) == 1

    def name(place: Place) -> str:
        """Return `place` as text; a single module needs no name."""
        return " ".join(filter(None, place[single_module:])) or "all"

    for heading, kind in {
        "module": "modules",
        "unit": "units",
        "source": "sources",
        "variable": "symbols",
        "structure": "structures",
        "constant": "constants",
    }.items():
        rows = [[name(c.place), _describe(c)] for c in changes[kind]]
        show_table((heading, "change"), rows, _MOST_CHANGES)
    settings = [[c.place[-1], name(c.place[:-1]), *_distinct_words(c)] for c in changes["settings"]]
    show_table(("setting", "of", "before", "after"), settings, _MOST_CHANGES)
    for heading, kind in {"images for": "architectures", "file": "files", "image": "images"}.items():
        rows = [[name(c.place) if kind == "images" else c.place[0], *_sizes(c)] for c in changes[kind]]
        show_table((heading, ">before", ">after", ">change"), rows, _MOST_CHANGES)
    for heading, kind in {"new kernel": "new", "removed kernel": "gone"}.items():
        rows = [[name(c.place), " ".join(c.before or c.after)] for c in changes[kind]]
        show_table((heading, "architectures"), rows, _MOST_CHANGES)
    # A column for each resource that changed anywhere.
    columns = {
        heading: field
        for heading, field in _RESOURCES.items()
        if any(getattr(c.before, field) != getattr(c.after, field) for c in changes["kernels"])
    }
    groups: dict[str, list[Row]] = {}
    for c in changes["kernels"]:
        values = [(getattr(c.before, field), getattr(c.after, field)) for field in columns.values()]
        cells = [_number(a) if b == a else f"{_number(b)} → {_number(a)}" for b, a in values]
        groups.setdefault(name(c.place[:-1]), []).append(((c.place[-1], *cells), ""))
    show_groups(("architecture", *_numbers(columns)), [*groups.items()], _MOST_CHANGES)


def _title(contents: Contents) -> str:
    return f"{contents.path}: {contents.kind}, {format_size(contents.size)}"


def _show_module(module: Module, contents: Contents) -> None:
    manifest = module.manifest
    if manifest.compiler:
        show_line()
        show_line((manifest.module, "bold"))
        for label, value in _facts(module, contents):
            show_line((f"{label:<13}", "dim"), value)
        sources = [source for unit in manifest.units for source in unit.sources]
        digests = ((s.name, s.sha256[:_DIGEST] or NOTHING, spell_options(s)) for s in sources)
        show_table(("source", "digest", "options"), map(list, dict.fromkeys(digests)))
    # The title of a unit stands beside its first image.
    first = {image.unit: image for image in reversed(module.images)}
    images = (
        [
            image.unit if image is first[image.unit] else "",
            image.architecture,
            image.kind if image.codec == "none" else f"{image.kind}, {image.codec}",
            format_size(image.stored),
            format_size(image.size),
        ]
        for image in module.images
    )
    show_table(("image of", "architecture", "format", ">stored", ">size"), images)
    launches = {
        (title, image.architecture, name): str(launch)
        for title, unit in zip(module.titles, manifest.units, strict=True)
        for image in unit.images
        for name, launch in image.launches.items()
    }
    resources = module.resources()
    groups = []
    for kernel in manifest.kernels:
        place = module.titles[kernel.unit], kernel.expression
        rows = [
            _kernel_row(
                architecture,
                each,
                launches.get((place[0], architecture, place[1]), "") if launches else None,
            )
            for architecture, each in resources.get(place, {}).items()
        ]
        groups.append((kernel.signature if manifest.compiler else kernel.expression, rows))
    fixed = ["launch"] if launches else []
    show_groups(("architecture", *_numbers([*_RESOURCES, *fixed])), groups, _MOST_KERNELS)
    if any(style == _SPILLED for _, own in groups[:_MOST_KERNELS] for _, style in own):
        show_line(("spills: bytes that each thread stores + loads", "dim"))
    variables = (
        [" ".join(filter(None, (f"__{s.space}__", s.type, s.name))), format_size(s.size)]
        for s in manifest.symbols
    )
    show_table(("variable", ">size"), variables)
    structures = (
        [s.name, s.obstacle or "; ".join(map(str, s.fields)), format_size(s.size)]
        for s in manifest.structures
    )
    show_table(("structure", "members", ">size"), structures)
    constants = (
        [c.name, c.type, c.value, ", ".join(f"{value} for {a}" for a, value in c.elsewhere.items())]
        for c in manifest.constants
    )
    show_table(("constant", "type", ">value", "elsewhere"), constants)


def _facts(module: Module, contents: Contents) -> Iterator[tuple[str, str]]:
    manifest = module.manifest
    if module.place != ".":
        yield "place", module.place
    yield "compiler", manifest.compilers
    yield "compression", manifest.compress
    if manifest.embedded is None:
        yield "jit", "no"
    else:
        sources = (source.name for unit in manifest.units for source in unit.sources)
        missing = [name for name in dict.fromkeys(sources) if name not in manifest.embedded]
        without = f", without {', '.join(missing)}" if missing else ""
        yield "jit", f"yes, {format_count(len(manifest.embedded), 'embedded file')}{without}"
    share = f", {module.size / contents.size:.0%} of the {contents.kind}" if contents.size else ""
    yield "size", f"{format_size(module.size)}{share if module.size != contents.size else ''}"
    for variants in manifest.variants:
        if not variants.is_one_kernel:
            yield "variants", spell_variants(variants, manifest.named_kernels)


def _kernel_row(architecture: str, resources: Resources | None, launch: str | None) -> Row:
    """Return the resources of a kernel in an image, or why they are not known."""
    if resources is None:
        remark = _REMARKS.get(architecture.partition("_")[0], "compressed")
        return (architecture, remark), "dim"
    cells = {heading: _number(getattr(resources, field)) for heading, field in _RESOURCES.items()}
    if resources.spilled:
        cells["spills"] = f"{resources.spill_stores:,}+{resources.spill_loads:,}"
    fixed = [] if launch is None else [launch]
    return (architecture, *cells.values(), *fixed), _SPILLED if resources.spilled else ""


def _numbers(headings: Iterable[str]) -> list[str]:
    """Return the headings of columns that are aligned as numbers are."""
    return [f">{heading}" for heading in headings]


def _number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def _growth(before: int | None, after: int | None) -> str:
    """Format how much larger something became.

    >>> _growth(1024, 3072), _growth(None, 100), _growth(2048, 1024)
    ('+2 KiB', '+100 B', '-1 KiB')
    """
    change = (after or 0) - (before or 0)
    return f"{'-' if change < 0 else '+'}{format_size(abs(change))}" if change else ""


def _describe(change: Change) -> str:
    """Describe how a name, a digest or a variable changed."""
    if change.before is None:
        return "added"
    if change.after is None:
        return "removed"
    return " → ".join(
        each[:_DIGEST] if isinstance(each, str) else f"{each.type}, {format_size(each.size)}"
        for each in (change.before, change.after)
    )


def _distinct_words(change: Change) -> Iterator[str]:
    """Return the words of a setting before and after; of many options, those that are not in both."""
    before, after = change.before.split(), change.after.split()
    for these, others in ((before, after), (after, before)):
        yield " ".join(word for word in these if word not in others) or NOTHING


def _sizes(change: Change) -> Iterator[str]:
    """Return the sizes of images or files before and after, and how much they grew."""
    before, after = (None if each is None else shipped_size(each) for each in (change.before, change.after))
    yield from (NOTHING if size is None else format_size(size) for size in (before, after))
    yield _growth(before, after)
