"""The shape of the house: who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "cuda_ext"
MODULES = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))

# Which rooms each room may look into, besides itself. The modules that lie in no room are open to all.
MAY_IMPORT = {
    "cli": {"build", "compiler", "runtime"},
    "integrations": {"build", "compiler"},
    "build": {"compiler"},
    "runtime": {"compiler"},
    "compiler": set(),
}
# Modules that lie in no room, and are the door of one.
DOORS = {Path("cuda_ext/__main__.py"): "cli"}


def imports(path: Path) -> Iterator[str]:
    """All modules that `path` imports, inside functions too, as absolute names."""
    for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name: str) -> str | None:
    """The room that a module, or something in a module, belongs to."""
    parts = name.split(".")
    return parts[1] if parts[0] == "cuda_ext" and len(parts) > 1 and parts[1] in MAY_IMPORT else None


def test_every_room_is_known():
    assert {path.parts[1] for path in MODULES if len(path.parts) > 2} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", [p for p in MODULES if p.name != "__init__.py"], ids=str)
def test_arrows_run_one_way(path):
    here = path.parts[1] if len(path.parts) > 2 else DOORS.get(path)
    allowed = {None, here, *MAY_IMPORT.get(here or "", ())}
    assert [name for name in imports(path) if room(name) not in allowed] == []


def test_other_programs_are_run_in_one_place():
    runners = [p for p in MODULES if any(name.partition(".")[0] == "subprocess" for name in imports(p))]
    assert runners == [Path("cuda_ext/compiler/process.py")]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_every_module_says_what_it_is_for(path):
    text = (ROOT / path).read_text()
    assert not text or ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", [p for p in MODULES if ">>> " in (ROOT / p).read_text()], ids=str)
def test_examples_in_docstrings_hold(path):
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    assert not doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed


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
    "module", ["build.project", "cli", "compiler.module", "compiler.nvrtc", "integrations"]
)
def test_importing_a_room_needs_only_the_standard_library(module):
    loaded = {name.partition(".")[0] for name in loaded_by(f"import cuda_ext.{module}")}
    assert loaded - set(sys.stdlib_module_names) == {"cuda_ext"}
