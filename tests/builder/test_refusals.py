"""Projects that are refused: ``refusals.txt`` has a project and the whole message for each mistake.

``pytest --update`` writes the messages anew.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from cuda_ext.builder.config.keys import Settings
from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
from cuda_ext.errors import BuildError
from tests.fixtures.refusals import Refusal, read_refusals, spell_message

FILE = Path(__file__).with_name("refusals.txt")
PARTS = list(read_refusals(FILE))
REFUSALS = [part for part in PARTS if isinstance(part, Refusal)]
CASES = [
    pytest.param(
        refusal,
        id=f"{refusal.name}: {refusal.lines[0]}"[:80],
        marks=[pytest.mark.host_compiler] if 'compiler = "nvcc"' in refusal.lines else [],
    )
    for refusal in REFUSALS
]


def build(root: Path) -> None:
    project = Project.load(root, ["p"])
    assert project is not None
    build_project(project, lambda _: None)


@pytest.mark.parametrize("refusal", CASES)
def test_a_project_is_refused_with_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, refusal: Refusal
) -> None:
    monkeypatch.delenv("CUDAARCHS", raising=False)
    refusal.write_project(tmp_path)
    with pytest.raises(BuildError) as caught:
        build(tmp_path)
    message = str(caught.value)
    if request.config.getoption("update") and not refusal.is_answered_by(message):
        refusal.message = spell_message(message)
        FILE.write_text("".join(map(str, PARTS)), encoding="utf-8")
    elif not refusal.is_answered_by(message):
        assert spell_message(message) == refusal.message


@pytest.mark.parametrize("key", [field.name.replace("_", "-") for field in dataclasses.fields(Settings)])
def test_every_key_has_a_refusal(key: str) -> None:
    assert any(refusal.message.startswith(f"$MODULE.{key}: expected ") for refusal in REFUSALS)


def test_no_project_is_there_twice() -> None:
    projects = sorted(refusal.lines for refusal in REFUSALS)
    assert [one for one, other in itertools.pairwise(projects) if one == other] == []
