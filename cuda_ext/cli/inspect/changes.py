"""What a terminal shows of two things: what changed from one to the other, the largest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console

from cuda_ext.cli.inspect.contents import Contents, Image
from cuda_ext.cli.inspect.difference import Change, Difference, Place
from cuda_ext.cli.inspect.tables import DIGEST, NOTHING, Row, console, count, growth, show_groups, show_table
from cuda_ext.formats.quantities import format_size as size
from cuda_ext.formats.resources import Resources

__all__ = ["show_difference"]

# Rows of a table that a terminal has room for.
_SHOWN = 30
# What a kernel takes, and how it is called in the table.
_COLUMNS = {
    "registers": "registers",
    "spilled": "spills",
    "stack": "stack",
    "shared": "shared",
    "constant": "constant",
    "code": "code",
    "max_threads": "threads",
}


def show_difference(difference: Difference) -> None:
    """Print what changed; nothing is said of what did not."""
    target = console()
    before, after = difference.before, difference.after
    target.print(f"before  {_title(before)}\nafter   {_title(after)}{_total(before, after)}", soft_wrap=True)
    if difference.same:
        target.print("\nnothing has changed")
        return
    is_one = len(before.modules) == len(after.modules) == 1

    def name(place: Place) -> str:
        """`place` as people read it; the only module needs no name."""
        return " ".join(filter(None, place[is_one:])) or "all"

    for heading, changes in (
        ("module", difference.modules),
        ("unit", difference.units),
        ("source", difference.sources),
        ("variable", difference.symbols),
    ):
        show_table(target, (heading, "change"), ([name(c.place), _what(c)] for c in changes), 0, _SHOWN)
    show_table(
        target,
        ("setting", "of", "before", "after"),
        ([c.place[-1], name(c.place[:-1]), *_words(c)] for c in difference.settings),
        0,
        _SHOWN,
    )
    sizes = ("before", "after", "change")
    for heading, rows in (
        ("images for", ([c.place[0], *_sizes(c.before, c.after)] for c in difference.architectures)),
        ("file", ([c.place[0], *_sizes(c.before, c.after)] for c in difference.files)),
        ("image", ([name(c.place), *_sizes(*_stored(c))] for c in difference.images)),
    ):
        show_table(target, (heading, *sizes), rows, len(sizes), _SHOWN)
    for heading, kernels in (("new kernel", difference.new), ("kernel that is gone", difference.gone)):
        listed = ([name(place), " ".join(architectures)] for place, architectures in kernels.items())
        show_table(target, (heading, "architectures"), listed, 0, _SHOWN)
    if difference.kernels:
        _show_resources(target, difference.kernels[:_SHOWN], name)
        if len(difference.kernels) > _SHOWN:
            target.print(f"and {len(difference.kernels) - _SHOWN:,} more, which --json lists", style="dim")


def _title(contents: Contents) -> str:
    return f"{contents.path}: {contents.kind}, {size(contents.size)}"


def _total(before: Contents, after: Contents) -> str:
    change = growth(before.size, after.size)
    if before.kind != after.kind or not change:
        return ""
    return f", {change} ({after.size / before.size - 1:+.1%})"


def _what(change: Change[Any]) -> str:
    if change.before is None:
        return "added"
    if change.after is None:
        return "removed"
    if isinstance(change.before, str):
        return f"{change.before[:DIGEST]} → {change.after[:DIGEST]}"
    return (
        f"{change.before.type}, {size(change.before.size)} → {change.after.type}, {size(change.after.size)}"
    )


def _words(change: Change[str]) -> Iterator[str]:
    """What a setting was and is; of options, of which there are many, those that are not in both."""
    before, after = (change.before or "").split(), (change.after or "").split()
    for these, others in ((before, after), (after, before)):
        yield " ".join(word for word in these if word not in others) or NOTHING


def _sizes(before: int | None, after: int | None) -> Iterator[str]:
    yield from (NOTHING if each is None else size(each) for each in (before, after))
    yield growth(before, after)


def _stored(change: Change[Image]) -> Iterator[int | None]:
    return (None if image is None else image.stored for image in (change.before, change.after))


def _show_resources(
    target: Console, changes: Sequence[Change[Resources]], name: Callable[[Place], str]
) -> None:
    """For each kernel, worst first, its architectures, with a column for all that changed anywhere."""
    columns = [
        field
        for field in _COLUMNS
        if any(getattr(c.before, field) != getattr(c.after, field) for c in changes)
    ]
    groups: dict[str, list[Row]] = {}
    for change in changes:
        cells = (_cell(getattr(change.before, field), getattr(change.after, field)) for field in columns)
        groups.setdefault(name(change.place[:-1]), []).append(Row((change.place[-1], *cells)))
    show_groups(target, ("architecture", *(_COLUMNS[field] for field in columns)), groups.items())


def _cell(before: int | None, after: int | None) -> str:
    return count(after) if before == after else f"{count(before)} → {count(after)}"
