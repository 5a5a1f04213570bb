"""Format the results of ``scripts/bench_launch.py`` as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bench.tables import format_table


def format_launches(results: Any, where: str = "") -> str:
    contenders: Mapping[str, Mapping[str, float]] = results["contenders"]
    rows = [
        (
            name,
            f"{times['median']:.2f}",
            f"{times['p10']:.2f} .. {times['p90']:.2f}",
            f"{times['median'] / contenders[_reference(name, contenders)]['median']:.2f}",
        )
        for name, times in contenders.items()
    ]
    counts = f"{results['rounds']} rounds of {results['batch']} launches"
    title = f"One launch{where}, microseconds: {counts}"
    left_out = [f"  left out: {name}: {error}" for name, error in results["left_out"].items()]
    return "\n".join([f"\n{title}", format_table(("", "median", "10 % .. 90 %", "/ C"), rows), *left_out])


def format_bounds(results: Mapping[str, Any]) -> str:
    figures: list[tuple[str, str, float, float | None]] = []
    figures += _ratios_to_c(
        results.get("launch"),
        "",
        {
            "cuda_ext, from C++, typed wrapper": 1.02,
            "cuda_ext, from C++, 16 arguments": 1.02,
            "cuda_ext, addresses": 1.10,
            "cuda_ext, torch tensors": 1.15,
            "cuda_ext, 16 arguments, 9 torch tensors": 1.35,
            "cuda_ext, threads=": 1.25,
            "cuda_ext, grid and block as tuples": 1.25,
            "cuda_ext, parameters by name": 1.25,
            "cuda_ext, instantiation from dtypes": 1.25,
            "cuda_ext, CuPy arrays": 1.30,
            "cuda_ext, bind, addresses": 1.08,
            "torch custom op, from cuda_ext": 1.8,
        },
    )
    for title, part, name, limit in (
        ("import over an empty package, ms", "import", "over an empty package", 1),
        ("import to the first kernel's handle after numpy, ms", "cold", "the same after numpy", 6),
        ("import to the first kernel's handle alone, ms", "cold", "import, look-up, image and kernel", 12),
        ("first result / interpreter and a C program", "cold", "/ interpreter and C program", 1.15),
    ):
        time = float(results[part][name].split()[0]) if part in results else None
        figures.append((title, "<=", limit, time))
    structures = results.get("structures")
    figures += _ratios_to_c(structures, "", {"cuda_ext, filled before": 1.1, "cuda_ext, 33 assignments": 1.5})
    alone = structures["contenders"]["one assignment alone"]["median"] if structures else None
    figures.append(("one assignment of a member, us", "<=", 0.2, alone))
    large = results.get("large", {})
    figures += _ratios_to_c(
        large,
        "504 kernels, ",
        {
            "by dtypes": 1.4,
            "by constants by name": 1.4,
            "by constants by position": 1.4,
            "in Triton's syntax": 1.5,
            "in Triton's syntax, constants by position": 1.5,
            "in Triton's syntax, grid from a function": 1.5,
            "looked up each time": 1.4,
            "1,000 combinations in turns": 2.0,
        },
    )
    for title, part, name, limit in (
        ("first choice of a combination, us", "first", "first choice of a combination", 200),
        ("300 kernels, import beside PyTorch, ms", "cold", "import", 1),
        ("300 kernels, first kernel, ms", "cold", "first kernel", 5),
    ):
        time = float(large[part][name].split()[0]) if part in large else None
        figures.append((title, "<=", limit, time))
    ratio = float(results["numpy"]["ratio"]) if "numpy" in results else None
    figures.append(("numpy call / pinned copies by hand", ">=", 0.9, ratio))
    return format_figures(figures)


def _ratios_to_c(
    results: Any, title: str, limits: Mapping[str, float]
) -> Iterator[tuple[str, str, float, float | None]]:
    """The bounds of launches in relation to those from C, where they were measured."""
    launch = (results or {}).get("contenders", {})
    for name, limit in limits.items():
        ratio = (
            launch[name]["median"] / launch[_reference(name, launch)]["median"] if name in launch else None
        )
        yield f"{title}{name} / C", "<=", limit, ratio


def format_figures(figures: Iterable[tuple[str, str, float, float | None]]) -> str:
    """Format bounds: each has a title, ``<=`` or ``>=``, the limit, and the figure if it was measured."""
    rows = [
        (
            title,
            f"{relation} {limit}",
            "-" if figure is None else f"{figure:.2f}",
            _verdict(relation, limit, figure),
        )
        for title, relation, limit, figure in figures
    ]
    return "\nBounds\n" + format_table(("", "bound", "measured", ""), rows)


def _reference(name: str, contenders: Iterable[str]) -> str:
    if "C, 33 assignments" in contenders:
        return "C, 33 assignments"
    return "C, 16 arguments" if "16 arguments" in name else "C, 4 arguments"


def _verdict(relation: str, limit: float, figure: float | None) -> str:
    if figure is None:
        return "not measured"
    return "holds" if (figure <= limit if relation == "<=" else figure >= limit) else "misses"
