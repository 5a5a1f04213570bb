"""Format the results of ``scripts/bench_packages.py`` as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from bench.tables import WIDTH, format_spread, format_table

from cuda_ext.formats.quantities import format_count
from packages.building import STATES, Built, count_other_lines
from packages.environments import Place
from packages.importing import Imported

__all__ = ["Results", "as_json", "as_text"]

ON_A_GPU = """\
Other scripts measure on a GPU:
  python scripts/bench_jit.py     the first call of a process, with cuda_ext and CuPy's RawModule
  python scripts/bench_launch.py  launches with cuda_ext, C, cuda.core, CuPy, Triton and PyTorch"""


@dataclass(slots=True)
class Results:
    """All samples of one contender, in the order of measurement."""

    place: Place
    built: list[Built] = field(default_factory=list)
    imported: list[Imported] = field(default_factory=list)

    def seconds(self, state: str) -> list[float]:
        return [built.seconds for built in self.built if built.state == state]


def as_text(results: Sequence[Results], left_out: Mapping[str, str], rounds: int) -> str:
    parts = [_format_builds(results, rounds), _format_wheels(results), _format_imports(results)]
    parts += [f"not measured: {title}: {_shorten(error)}" for title, error in left_out.items()]
    return "\n\n".join([*parts, ON_A_GPU])


def as_json(
    machine: Mapping[str, str], results: Sequence[Results], left_out: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "machine": dict(machine),
        "contenders": {
            each.place.contender.key: {
                "versions": each.place.versions,
                "installed_mebibytes": each.place.mebibytes,
                "wheels": each.place.contender.wheels,
                "other_lines": count_other_lines(each.place.contender),
                "built": [asdict(built) for built in each.built],
                "imported_milliseconds": [asdict(imported) for imported in each.imported],
            }
            for each in results
        },
        "left_out": dict(left_out),
    }


def _format_builds(results: Sequence[Results], rounds: int) -> str:
    reference_seconds = median(results[0].seconds("clean"))
    rows = [
        (
            each.place.contender.title,
            *(format_spread(seconds, 1) if (seconds := each.seconds(state)) else "" for state in STATES),
            f"{median(each.seconds('clean')) / reference_seconds:.1f} x"
            if each.place.contender.compiles
            else "",
        )
        for each in results
    ]
    reference = results[0].place.contender.title
    title = f"pip wheel, seconds: medians of {format_count(rounds, 'round')} (least .. most)"
    states = "\n".join(f"    {state}: {what}" for state, what in STATES.items())
    return f"{title}\n{format_table(('', *STATES, f'clean / {reference}'), rows)}\n{states}"


def _format_wheels(results: Sequence[Results]) -> str:
    head = ("", "wheel", "wheels for 3.11 to 3.14", "host compiler", "installed", "lines")
    rows = [
        (
            (contender := each.place.contender).title,
            f"{each.built[0].size / 1024:.0f} KiB",
            contender.wheels,
            "needed" if contender.host_compiler else "no",
            f"{each.place.mebibytes:,.0f} MiB",
            str(count_other_lines(contender)),
        )
        for each in results
    ]
    files = "\n".join(f"    {each.built[0].wheel}" for each in results)
    return (
        f"Requirements and wheels\n{format_table(head, rows)}\n"
        "    wheels: for one platform, unless the tag is py3-none-any\n"
        "    installed: packages to build and use it, besides Python, pip and a host compiler\n"
        f"    lines: of the project without the kernels and comments\n{files}"
    )


def _format_imports(results: Sequence[Results]) -> str:
    head = ("", "package", "framework before it")
    rows = []
    for each in results:
        framework = each.place.contender.framework
        before = format_spread([i.framework for i in each.imported], 0)
        package = format_spread([i.package for i in each.imported], 1)
        rows.append((each.place.contender.title, package, f"{framework} {before}" if framework else ""))
    count = len(results[0].imported)
    return (
        f"Import, milliseconds: medians of {count} new processes (least .. most)\n{format_table(head, rows)}"
    )


def _shorten(error: str) -> str:
    """Return the last lines of an error: the output of build tools is long, and the cause is at its end."""
    lines = error.strip().splitlines()
    return "\n".join(line[:WIDTH] for line in (lines if len(lines) < 20 else ["...", *lines[-20:]]))
