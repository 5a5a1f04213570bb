"""Build wheels with ``pip wheel``: in a new tree, after an edit, and in a clone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.processes import run, temporary_directory

from packages.checking import check_wheel
from packages.contenders import Contender
from packages.environments import Place

__all__ = ["STATES", "Built", "build_in_all_states", "count_other_lines"]

STATES = {
    "clean": "a new tree and empty caches",
    "edited": "the same tree after an edit of one kernel",
    "clone": "a new tree with the compiler cache of the first",
}

_DEVICE = Path(__file__).parent / "device"
_COMMENT = re.compile(r'//|"""|#(?!include|pragma)')
_EDITED = ("axpy.cu", "y[i] += a * x[i]", "y[i] = a * x[i] - y[i]")


@dataclass(frozen=True, slots=True)
class Built:
    """The duration of one build in seconds, and its wheel."""

    state: str
    seconds: float
    wheel: str
    size: int


def build_in_all_states(place: Place, work: Path, keep: Path) -> Iterator[Built]:
    """Build in each of the states, with new caches, and copy the first wheel to `keep`.

    Raises :class:`RuntimeError`.
    """
    with temporary_directory(work) as directory:
        tree, clone = directory / "here" / "project", directory / "there" / "project"
        caches = directory / "caches"
        _copy_project(place.contender, tree)
        yield _build(place, "clean", tree, caches, directory / "clean", keep)
        _edit(tree)
        yield _build(place, "edited", tree, caches, directory / "edited")
        _copy_project(place.contender, clone)
        _edit(clone)
        yield _build(place, "clone", clone, caches, directory / "clone")


def count_other_lines(contender: Contender) -> int:
    """Count the lines of the project besides the kernels, without blank lines and comments."""
    texts = (file.read_text(encoding="utf-8") for file in contender.project.rglob("*") if file.is_file())
    lines = (line.strip() for text in texts for line in text.splitlines())
    return sum(1 for line in lines if line and not _COMMENT.match(line))


def _copy_project(contender: Contender, tree: Path) -> None:
    shutil.copytree(contender.project, tree)
    shutil.copytree(_DEVICE, tree / "device")


def _edit(tree: Path) -> None:
    name, old, new = _EDITED
    file = tree / "device" / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def _build(
    place: Place, state: str, tree: Path, caches: Path, output: Path, keep: Path | None = None
) -> Built:
    pip = [place.python, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", output]
    completed = run([*pip, tree], directory=tree, environment=place.variables(tree, caches))
    (wheel,) = output.glob("*.whl")
    check_wheel(place.contender, wheel)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, keep)
    return Built(state, completed.seconds, wheel.name, wheel.stat().st_size)
