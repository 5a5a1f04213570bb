"""What a terminal shows: the contents of one thing, or what changed between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from cuda_ext.builder.report.difference import Change, Place
from cuda_ext.cli.inspect.comparing import ContentsDifference
from cuda_ext.cli.inspect.contents import Contents, Image, Kernel, KernelImage, Module
from cuda_ext.cli.inspect.tables import Row, open_console, show_groups, show_table
from cuda_ext.formats.quantities import format_count, format_size
from cuda_ext.formats.resources import Resources, Usage

__all__ = ["NOTHING", "show_contents", "show_difference"]

NOTHING = "\N{EN DASH}"
# Digits of a digest; two of one project hardly share them.
_DIGEST = 10
# The kernels of a module, and the rows of a table of changes, that a terminal has room for.
_MOST_KERNELS, _MOST_CHANGES = 100, 30
_REMARKS = {"compute": "PTX, which the driver compiles", "lto": "LTO-IR, which has to be linked"}
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
    console = open_console()
    kernels = sum(len(module.kernels) for module in contents.modules)
    counts = format_count(kernels, "kernel")
    if contents.has_manifests:
        counts = f"{format_count(len(contents.modules), 'module')}, {counts}"
    console.print(f"{_title(contents)}, {counts}", soft_wrap=True)
    for module in contents.modules:
        _show_module(console, module, contents)
    images = [image for module in contents.modules for unit in module.units for image in unit.images]
    for package in sorted({image.missing for image in images if image.missing}):
        console.print(f'\nimages are compressed; "pip install {package}" to see what is in them')


def show_difference(difference: ContentsDifference) -> None:
    """Print what changed, the largest changes first."""
    console = open_console()
    before, after, build = difference.before, difference.after, difference.build
    console.print(
        f"before  {_title(before)}\nafter   {_title(after)}{_total_growth(before, after)}", soft_wrap=True
    )
    if difference.is_empty:
        console.print("\nnothing has changed")
        return
    single_module = len(before.modules) == len(after.modules) == 1

    def name(place: Place) -> str:
        """Return `place` as text; a single module needs no name."""
        return " ".join(filter(None, place[single_module:])) or "all"

    def show(headings: Sequence[str], rows: Iterator[Sequence[str]], numbers: int = 0) -> None:
        show_table(console, headings, rows, numbers, _MOST_CHANGES)

    for heading, changes in (
        ("module", difference.modules),
        ("unit", difference.units),
        ("source", difference.sources),
        ("variable", difference.symbols),
    ):
        show((heading, "change"), ([name(c.place), _describe(c)] for c in changes))
    show(
        ("setting", "of", "before", "after"),
        ([c.place[-1], name(c.place[:-1]), *_distinct_words(c)] for c in difference.settings),
    )
    sizes = ("before", "after", "change")
    architectures = ([c.place[0], *_sizes(c.before, c.after)] for c in build.architectures)
    show(("images for", *sizes), architectures, len(sizes))
    show(("file", *sizes), ([c.place[0], *_sizes(c.before, c.after)] for c in build.files), len(sizes))
    images = ([name(c.place), *_sizes(_stored(c.before), _stored(c.after))] for c in build.images)
    show(("image", *sizes), images, len(sizes))
    for heading, kernels in (("new kernel", build.new), ("removed kernel", build.gone)):
        show((heading, "architectures"), ([name(place), " ".join(a)] for place, a in kernels.items()))
    if build.kernels:
        _show_resource_changes(console, build.kernels[:_MOST_CHANGES], name)
        if (more := len(build.kernels) - _MOST_CHANGES) > 0:
            console.print(f"and {more:,} more, which --json lists", style="dim")


def _title(contents: Contents) -> str:
    return f"{contents.path}: {contents.kind}, {format_size(contents.size)}"


def _number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def _show_module(console: Console, module: Module, contents: Contents) -> None:
    if module.compiler is not None:
        console.print()
        console.print(Text(module.name, "bold"), soft_wrap=True)
        for label, value in _facts(module, contents):
            console.print(Text(f"{label:<13}", "dim") + Text(value, "none"), soft_wrap=True)
    sources = [source for unit in module.units for source in unit.sources]
    show_table(
        console,
        ("source", "digest", "options"),
        ([s.name, s.sha256[:_DIGEST] or NOTHING, " ".join(s.options)] for s in sources),
    )
    show_table(
        console,
        ("image of", "architecture", "format", "stored", "size"),
        (
            [unit.title if image is unit.images[0] else "", *_image_cells(image)]
            for unit in module.units
            for image in unit.images
        ),
        numbers=2,
    )
    _show_kernels(console, module.kernels)
    variables = (
        [" ".join(filter(None, (f"__{s.space}__", s.type, s.name))), format_size(s.size)]
        for s in module.symbols
    )
    show_table(console, ("variable", "size"), variables, numbers=1)


def _facts(module: Module, contents: Contents) -> Iterator[tuple[str, str]]:
    if module.place != ".":
        yield "place", module.place
    yield "compiler", module.compiler or ""
    yield "compression", module.compress or ""
    if module.embedded is None:
        yield "jit", "no"
    else:
        yield "jit", f"yes, {format_count(len(module.embedded), 'embedded file')}"
    share = f", {module.size / contents.size:.0%} of the {contents.kind}" if contents.size else ""
    yield "size", f"{format_size(module.size)}{share if module.size != contents.size else ''}"
    for name, candidates in (module.variants or {}).items():
        yield "variants", f"{name}: {candidates}"


def _image_cells(image: Image) -> tuple[str, ...]:
    form = image.kind if image.codec == "none" else f"{image.kind}, {image.codec}"
    return image.architecture, form, format_size(image.stored), format_size(image.size)


def _show_kernels(console: Console, kernels: Sequence[Kernel]) -> None:
    """Print the signature of each kernel, with a line for each architecture below it."""
    shown = kernels[:_MOST_KERNELS]
    if not shown:
        return
    groups = [(kernel.signature or kernel.name, [_image_row(i) for i in kernel.images]) for kernel in shown]
    show_groups(console, ("architecture", *_RESOURCES), groups)
    if (more := len(kernels) - len(shown)) > 0:
        console.print(f"and {more:,} more; --kernel selects, --json lists all", style="dim")
    if any(image.resources and image.resources.spilled for kernel in shown for image in kernel.images):
        console.print("spills: bytes that each thread stores + loads", style="dim")


def _image_row(image: KernelImage) -> Row:
    """Return the resources of a kernel on an architecture, or why they are not known."""
    if (resources := image.resources) is None:
        remark = _REMARKS.get(image.architecture.partition("_")[0], "compressed")
        return Row((image.architecture, remark), "dim", is_remark=True)
    cells = {heading: _number(getattr(resources, field)) for heading, field in _RESOURCES.items()}
    cells["spills"] = _spills(resources)
    return Row((image.architecture, *cells.values()), "yellow" if resources.spilled else "")


def _spills(resources: Resources) -> str:
    if not resources.spilled:
        return _number(resources.spilled)
    return f"{resources.spill_stores:,}+{resources.spill_loads:,}"


def _total_growth(before: Contents, after: Contents) -> str:
    growth = _growth(before.size, after.size)
    if before.kind != after.kind or not growth:
        return ""
    return f", {growth} ({after.size / before.size - 1:+.1%})"


def _growth(before: int | None, after: int | None) -> str:
    """Format how much larger something became.

    >>> _growth(1024, 3072), _growth(None, 100), _growth(2048, 1024)
    ('+2 KiB', '+100 B', '-1 KiB')
    """
    change = (after or 0) - (before or 0)
    return f"{'-' if change < 0 else '+'}{format_size(abs(change))}" if change else ""


def _describe(change: Change[Any]) -> str:
    """Describe how a name, a digest or a variable changed."""
    if change.before is None:
        return "added"
    if change.after is None:
        return "removed"
    return " → ".join(
        each[:_DIGEST] if isinstance(each, str) else f"{each.type}, {format_size(each.size)}"
        for each in (change.before, change.after)
    )


def _distinct_words(change: Change[str]) -> Iterator[str]:
    """Return the words of a setting before and after; of many options, those that are not in both."""
    before, after = (change.before or "").split(), (change.after or "").split()
    for these, others in ((before, after), (after, before)):
        yield " ".join(word for word in these if word not in others) or NOTHING


def _sizes(before: int | None, after: int | None) -> Iterator[str]:
    yield from (NOTHING if each is None else format_size(each) for each in (before, after))
    yield _growth(before, after)


def _stored(image: Image | None) -> int | None:
    return None if image is None else image.stored


def _show_resource_changes(
    console: Console, changes: Sequence[Change[Usage]], name: Callable[[Place], str]
) -> None:
    """Print the architectures of each kernel, with a column for every resource that changed anywhere."""
    columns = {
        heading: field
        for heading, field in _RESOURCES.items()
        if any(getattr(c.before, field) != getattr(c.after, field) for c in changes)
    }
    groups: dict[str, list[Row]] = {}
    for change in changes:
        values = [(getattr(change.before, field), getattr(change.after, field)) for field in columns.values()]
        cells = [_number(a) if b == a else f"{_number(b)} → {_number(a)}" for b, a in values]
        groups.setdefault(name(change.place[:-1]), []).append(Row((change.place[-1], *cells)))
    show_groups(console, ("architecture", *columns), groups.items())
