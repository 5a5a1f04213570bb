"""The script that compares packages runs, and finds the cells of the published tables."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.fixtures.environments import CHECKOUT


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(CHECKOUT / "scripts"))
    from packages import published

    return published


@pytest.mark.slow
def test_packages_are_compared() -> None:
    command = [sys.executable, "scripts/bench_packages.py", "--quick"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "vector_kernels-0.1.0-py3-none-any.whl" in done.stdout


def test_the_published_figures_can_be_written(published: Any) -> None:
    found = set()
    for page in published.PAGES:
        text = (CHECKOUT / page).read_text(encoding="utf-8")
        assert published.DATE.search(text)
        figures = dict.fromkeys(published.ROWS, "7 new")
        changed = published.replace_cells(text, {"cuda_ext": figures, "cupy_raw_module": figures})
        for old, new in zip(text.split("\n"), changed.split("\n"), strict=True):
            if old != new:
                before, after = old.split("|"), new.split("|")
                assert (after[2], after[5]) == (" 7 new ", " 7 new ")
                assert before[:2] + before[3:5] == after[:2] + after[3:5]
                found.add(after[1].strip())
    assert found == published.ROWS.keys()
