"""What was measured, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["bounds_text", "launches_text", "pairs_text"]


def pairs_text(pairs: Any, title: str = "") -> str:
    width = max(map(len, pairs))
    lines = [f"{'  ' if title else ''}{name:{width}}  {value}" for name, value in pairs.items()]
    return "\n".join([*([f"\n{title}"] if title else []), *lines])


def launches_text(found: Any) -> str:
    contenders: Mapping[str, Mapping[str, float]] = found["contenders"]
    width = max(map(len, contenders))
    lines = [
        f"\nOne launch, microseconds: medians of {found['rounds']} rounds of {found['batch']} launches",
        f"  {'':{width}}  median   10 % .. 90 %   / C",
    ]
    for name, taken in contenders.items():
        ratio = taken["median"] / contenders[_reference(name)]["median"]
        spread = f"{taken['p10']:.2f} .. {taken['p90']:.2f}"
        lines.append(f"  {name:{width}}  {taken['median']:6.2f}  {spread:>13}  {ratio:5.2f}")
    lines += [f"  left out: {name}: {why}" for name, why in found["left_out"].items()]
    return "\n".join(lines)


def _reference(name: str) -> str:
    return "C, 16 arguments" if "16 arguments" in name else "C, 4 arguments"


def bounds_text(found: Mapping[str, Any]) -> str:
    rows: list[tuple[str, str, float | None, bool]] = []
    launch = found.get("launch", {}).get("contenders", {})
    for name, limit in {
        "ours, from C++, typed wrapper": 1.03,
        "ours, from C++, 16 arguments": 1.03,
        "ours, addresses": 1.25,
        "ours, bind, addresses": 1.25,
        "ours, torch tensors": 1.5,
        "ours, 16 arguments, 9 torch tensors": 2.2,
    }.items():
        value = launch[name]["median"] / launch[_reference(name)]["median"] if name in launch else None
        rows.append((f"{name} / C", f"<= {limit}", value, value is not None and value <= limit))
    for what, part, name, limit in (
        ("import over an empty package, ms", "import", "over an empty package", 3),
        ("first launch after context, ms", "cold", "first launch: image, kernel, launch", 60),
    ):
        value = float(found[part][name].split()[0]) if part in found else None
        rows.append((what, f"<= {limit}", value, value is not None and value <= limit))
    value = float(found["numpy"]["ratio"]) if "numpy" in found else None
    rows.append(("numpy call / pinned copies by hand", ">= 0.9", value, value is not None and value >= 0.9))
    width = max(len(what) for what, *_ in rows)
    lines = ["\nBounds"]
    for what, bound, measured, holds in rows:
        figure = "-" if measured is None else f"{measured:.2f}"
        verdict = "not measured" if measured is None else "holds" if holds else "misses"
        lines.append(f"  {what:{width}}  {bound:>7}  {figure:>6}  {verdict}")
    return "\n".join(lines)
