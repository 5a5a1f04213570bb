"""Sources of front-ends are imported apart from each other, and from all else."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.toolchain.front_ends.contained_code import MissingImportError
from cuda_ext.toolchain.front_ends.source_import import import_source


def unit(text: str, **headers: bytes) -> TranslationUnit:
    return TranslationUnit("device/a.py", text.encode(), "triton", {f"{n}.py": t for n, t in headers.items()})


def test_modules_of_other_sources_are_forgotten_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An isolated build has its requirements in a temporary directory, too.
    (tmp_path / "a_requirement_of_the_build.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    requirement = importlib.import_module("a_requirement_of_the_build")
    text = "import a_requirement_of_the_build as requirement\nfrom shared_by_sources import number"
    for number in (1, 2):
        module = import_source(unit(f"{text}  # {number}", shared_by_sources=b"number = %d" % number))
        assert (module.number, module.requirement) == (number, requirement)
    del sys.modules["a_requirement_of_the_build"]


ERRORS = {
    # Sources, and what their errors say.
    "raise SystemExit(3)": r"SystemExit: 3 \(device/a.py, line 1\)",
    "raise KeyboardInterrupt": r"KeyboardInterrupt \(device/a.py, line 1\)",
    "def f(): f()\nf()": r"RecursionError: maximum recursion depth exceeded.* \(device/a.py, line 1\)",
    "import sys; sys.path = None\nimport not_there": r"TypeError: .* \(device/a.py, line 2\)",
    "class E(Exception): __str__ = None\nraise E": r"device.a.E: <.* failed> \(device/a.py, line 2\)",
}


@pytest.mark.parametrize("text", ERRORS)
def test_a_source_that_cannot_be_imported_is_an_error(text: str) -> None:
    with pytest.raises(CompilationError, match=f"device/a.py: cannot be imported: {ERRORS[text]}"):
        import_source(unit(text))


def test_what_a_source_changes_of_the_process_is_restored() -> None:
    state = Path.cwd(), dict(os.environ), [*sys.path], sys.stdout, sys.getrecursionlimit()
    text = """
import os, sys, tempfile
os.chdir(tempfile.gettempdir())
os.environ["CUDA_EXT_A_SOURCE"] = "1"
del os.environ["PATH"]
sys.path.clear()
sys.path = sys.path_hooks = sys.meta_path = sys.stdout = os.environ = None
sys.setrecursionlimit(200)
"""
    for changes, failure in ((text, nullcontext()), (f"{text}raise ValueError", suppress(CompilationError))):
        with failure:
            import_source(unit(changes))
        assert state == (Path.cwd(), dict(os.environ), sys.path, sys.stdout, sys.getrecursionlimit())
        assert None not in (sys.path_hooks, sys.meta_path)


def test_a_source_is_not_taken_for_another_module() -> None:
    source = unit("").replace(name="json.py")
    with pytest.raises(CompilationError, match="another module is called json, too; rename the source"):
        import_source(source)


def test_a_missing_import_reaches_other_processes() -> None:
    """Once Dask is imported, exceptions are pickled with those before them."""
    error = MissingImportError("device/a.py:3", "torch", ModuleNotFoundError("No module", name="torch"))
    error.problem += "; device/a.py:9 needs it"
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == str(error)
    assert str(error).startswith("device/a.py:3: imports torch, which is not installed; device/a.py:9")
    assert copied.remedy == error.remedy
