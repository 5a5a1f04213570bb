"""Kernels in IPython: completions in brackets, ``?``, and tracebacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("IPython", reason="where launches alone are tested, it is not installed")

from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

SOURCE = '''
import cuda_ext
kernels = cuda_ext.compile("""
/// Adds a times x to y.
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) { y[n] += a * x[n]; }
/// Fills.
__global__ void fill(float* x) { *x = 1; }
namespace ns { template <class T, int N> __global__ void set(T* x) { *x = N; } }
__constant__ int weights[3];
""", instantiate=["axpy<float>", "axpy<double>", "ns::set<int, 2>"], architectures=["sm_90"])
'''


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    config = Config()
    config.HistoryManager.enabled = False
    directory = tmp_path_factory.mktemp("ipython")
    shell = InteractiveShell.instance(colors="nocolor", config=config, ipython_dir=str(directory))
    shell.run_cell(SOURCE)
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("typed", "completions"),
    [
        ('kernels["', ["axpy<double>", "axpy<float>", "fill", "ns::set<int, 2>", "weights"]),
        ('kernels.axpy["', ["double", "float"]),
        ("kernels.axpy['f", ["float"]),
        ('kernels.ns["', ["set<int, 2>"]),
        ('kernels.ns.set["', ["int, 2"]),
    ],
)
def test_brackets_complete(shell: Any, typed: str, completions: list[str]) -> None:
    with provisionalcompleter():
        found = shell.Completer.completions(typed, len(typed))
        assert sorted(each.text for each in found) == completions


def test_a_question_mark_shows_instantiations_and_comments(shell: Any) -> None:
    template = shell.object_inspect_text("kernels.axpy")
    assert (
        "axpy<double>(int n, double a, const double* x, double* y)\n    axpy<float>(int n, float" in template
    )
    assert "Adds a times x to y." in template
    kernel = shell.object_inspect_text("kernels.fill")
    assert "CUDA kernel fill(float* x)\n\nFills.\n" in kernel


@pytest.mark.parametrize(
    "line",
    [
        "kernels.axpy(1, 2.0, [1], [2], threads=1)",
        "kernels.fill('a', threads=1)",
        "kernels.axpy.choose(U='float')",
        "kernels.axpyy",
        "cuda_ext.compile('void f() {}', architectures=['sm_90'])",
    ],
)
def test_an_error_shows_the_line_and_at_most_two_frames(
    shell: Any, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell(f"x = 1\n{line}")
    shown = capsys.readouterr().out
    assert f"----> 2 {line}" in shown
    assert len(re.findall(r"^File ", shown, re.MULTILINE)) <= 2
