"""What was measured, as text of at most 110 columns and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from bench._printing import WIDTH

from packages.building import STATES, Built, lines_beside_kernels
from packages.environments import Place
from packages.importing import Imported

__all__ = ["Found", "as_json", "as_text"]

ON_A_GPU = """\
Measured on a GPU, by scripts of their own:
  python scripts/bench_jit.py     the first call of a process: ours, and CuPy's RawModule
  python scripts/bench_launch.py  what a launch costs, beside C, cuda.core, CuPy, Triton and PyTorch"""


@dataclass(slots=True)
class Found:
    """All samples of one contender, in the order they were taken."""

    place: Place
    built: list[Built] = field(default_factory=list)
    imported: list[Imported] = field(default_factory=list)

    def seconds(self, state: str) -> list[float]:
        return [built.seconds for built in self.built if built.state == state]


def as_text(found: Sequence[Found], left_out: Mapping[str, str], rounds: int) -> str:
    parts = [_builds(found, rounds), _wheels(found), _imports(found)]
    parts += [f"not measured: {title}: {_short(why)}" for title, why in left_out.items()]
    return "\n\n".join([*parts, ON_A_GPU])


def as_json(
    machine: Mapping[str, str], found: Sequence[Found], left_out: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "machine": dict(machine),
        "contenders": {
            each.place.contender.key: {
                "versions": each.place.versions,
                "installed_megabytes": each.place.megabytes,
                "wheels": each.place.contender.wheels,
                "lines_beside_kernels": lines_beside_kernels(each.place.contender),
                "built": [asdict(built) for built in each.built],
                "imported_milliseconds": [asdict(imported) for imported in each.imported],
            }
            for each in found
        },
        "left_out": dict(left_out),
    }


def _builds(found: Sequence[Found], rounds: int) -> str:
    ours = median(found[0].seconds("clean"))
    rows = [
        (
            each.place.contender.title,
            *(_spread(each.seconds(state), 1) for state in STATES),
            f"{median(each.seconds('clean')) / ours:.1f} x" if each.place.contender.compiles else "",
        )
        for each in found
    ]
    reference = found[0].place.contender.title
    title = f"pip wheel, seconds: medians of {rounds} rounds (least .. most)"
    states = "\n".join(f"    {state}: {what}" for state, what in STATES.items())
    return f"{title}\n{_table(('', *STATES, f'clean / {reference}'), rows)}\n{states}"


def _wheels(found: Sequence[Found]) -> str:
    head = ("", "wheel", "wheels for 3.11 to 3.14", "host compiler", "installed", "lines")
    rows = [
        (
            (contender := each.place.contender).title,
            f"{each.built[0].size / 1000:.0f} kB",
            contender.wheels,
            "needed" if contender.host_compiler else "no",
            f"{each.place.megabytes:,.0f} MB",
            str(lines_beside_kernels(contender)),
        )
        for each in found
    ]
    files = "\n".join(f"    {each.built[0].wheel}" for each in found)
    return (
        f"What it takes and makes\n{_table(head, rows)}\n"
        "    wheels: for one system and kind of processor, unless it is py3-none-any\n"
        "    installed: what building and using it takes, besides Python, pip and a host compiler\n"
        f"    lines: of the project besides the kernels, without comments\n{files}"
    )


def _imports(found: Sequence[Found]) -> str:
    head = ("", "package", "framework before it")
    rows = []
    for each in found:
        framework = each.place.contender.framework
        before = _spread([i.framework for i in each.imported], 0)
        package = _spread([i.package for i in each.imported], 1)
        rows.append((each.place.contender.title, package, f"{framework} {before}" if framework else ""))
    count = len(found[0].imported)
    return f"Import, milliseconds: medians of {count} fresh processes (least .. most)\n{_table(head, rows)}"


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their content: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = (
        f"  {first:{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        for first, *rest in (head, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


def _short(why: str) -> str:
    """The end of what went wrong; a build tool's output is long, and its cause comes last."""
    lines = why.strip().splitlines()
    return "\n".join(line[:WIDTH] for line in (lines if len(lines) < 20 else ["...", *lines[-20:]]))
