"""The structure of the package: rooms, arrows between them, sizes, and what an import loads."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "cuda_ext"
PATHS = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """The dotted name of the module at `path`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in PATHS}

# Which rooms each room may import, besides itself and what these may import.
ARROWS = {
    "cli": {"recording", "tuning", "integrations"},
    "recording": {"builder", "runtime"},
    "tuning": {"runtime"},
    "integrations": {"builder"},
    "builder": {"toolchain", "cache"},
    "runtime": {"toolchain", "cache"},
    "toolchain": {"compiler", "cache"},
    "time_limit": {"errors"},
    "compiler": {"formats", "filesystem", "text"},
    "cache": {"formats", "filesystem", "time_limit"},
    "filesystem": {"facts"},
    "formats": {"facts"},
    "facts": {"errors"},
    "text": {"errors"},
    "errors": set(),
}
# The modules of the package itself, which open a room.
DOORS = {"cuda_ext": {"runtime", "errors"}, "cuda_ext.__main__": {"cli"}}


def reachable(room: str) -> set[str]:
    """All rooms that `room` may import."""
    return {room}.union(*(reachable(other) for other in ARROWS[room]))


def imports(path: Path) -> Iterator[str]:
    """All modules that `path` imports, inside functions and for type checkers too, as absolute names."""
    for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(name: str) -> str | None:
    """The module of this package that `name`, or the object of that name, lies in."""
    while name not in MODULES:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return name


def room_of(module: str) -> str:
    return module.split(".")[1]


@pytest.fixture(scope="module")
def graph():
    """The modules that each module imports."""
    return {
        name: {module for module in map(module_of, imports(path)) if module not in (None, name)}
        for name, path in MODULES.items()
    }


def test_arrows_run_one_way(graph):
    wrong = {
        (module, other)
        for module in graph.keys() - DOORS.keys()
        for other in graph[module] - {"cuda_ext"}
        if room_of(other) not in reachable(room_of(module))
    }
    assert wrong == set()


@pytest.mark.parametrize("module", DOORS)
def test_doors_open_rooms(module, graph):
    assert {room_of(other) for other in graph[module]} <= DOORS[module]


def components(graph: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """The import circles in `graph`."""

    def reach(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    reached = {name: reach(name) for name in graph}
    for name in graph:
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and name == min(circle):
            yield circle


def test_there_are_no_import_circles(graph):
    assert list(components(graph)) == []


def test_files_are_short():
    lengths = {str(p): len((ROOT / p).read_text(encoding="utf-8").splitlines()) for p in PATHS}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_no_module_name_is_used_twice():
    names = Counter(path.stem for path in PATHS if not path.stem.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


# Which other folders of a room each of its folders may import, besides folders that these may import.
FOLDERS = {
    "runtime": {"driver": set(), "arrays": {"driver"}, "launch": {"arrays"}, "jit": {"driver"}},
}


@pytest.mark.parametrize("room", FOLDERS)
def test_arrows_inside_rooms_run_one_way(room, graph):
    """The modules of the room itself lie above its folders."""
    folders = FOLDERS[room]
    prefix = f"cuda_ext.{room}."

    def folder_of(module):
        return module.removeprefix(prefix).split(".")[0]

    def below(folder):
        return {folder}.union(*(below(other) for other in folders[folder]))

    inside = [module for module in MODULES if module.startswith(prefix) and folder_of(module) in folders]
    assert {folder_of(module) for module in inside} == folders.keys()
    wrong = {
        (module, other)
        for module in inside
        for other in graph[module]
        if other.startswith(prefix) and folder_of(other) not in below(folder_of(module))
    }
    assert wrong == set()


def test_other_programs_are_run_in_one_place():
    runners = [p for p in PATHS if any(name.partition(".")[0] == "subprocess" for name in imports(p))]
    assert runners == [Path("cuda_ext/toolchain/process.py")]


def test_every_module_has_a_docstring():
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in PATHS}
    assert [p for p, text in texts.items() if text and not ast.get_docstring(ast.parse(text))] == []


def test_docstrings_begin_with_a_verb_or_a_noun():
    """They say what something does or is: no question, and no pronoun for something told elsewhere."""
    described = (ast.Module, ast.ClassDef, ast.FunctionDef)
    wrong = {"How", "That", "Those", "What", "Where", "Whether", "Which", "Who"}
    found = [
        (str(path), text)
        for path in PATHS
        for node in ast.walk(ast.parse((ROOT / path).read_bytes()))
        if isinstance(node, described) and (text := ast.get_docstring(node)) and text.split()[0] in wrong
    ]
    assert found == []


@pytest.mark.parametrize("path", [p for p in PATHS if ">>> " in (ROOT / p).read_text()], ids=str)
def test_examples_in_docstrings_hold(path):
    assert not doctest.testmod(importlib.import_module(name_of(path)), optionflags=doctest.ELLIPSIS).failed


def loaded_by(statement: str) -> set[str]:
    """The modules that `statement` loads in a fresh interpreter without site-packages."""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*set(sys.modules) - before)"
    )
    command = [sys.executable, "-I", "-S", "-c", script]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_nothing_else():
    assert loaded_by("import cuda_ext") - {"__future__"} == {"cuda_ext"}


@pytest.mark.parametrize(
    "module", ["builder.project", "cli", "compiler.module_plan", "toolchain.nvrtc", "integrations"]
)
def test_importing_a_room_needs_only_the_standard_library(module):
    loaded = {name.partition(".")[0] for name in loaded_by(f"import cuda_ext.{module}")}
    assert loaded - set(sys.stdlib_module_names) == {"cuda_ext"}
