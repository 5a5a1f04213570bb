"""The texts of errors: control characters are escaped, and a defect is one line that names a file."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cuda_ext.cli.commands import commands
from cuda_ext.errors import BuildError, describe_error, escape_controls
from cuda_ext.integrations.backend import exit_with_error


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("späße 汉 \U0001f600 e\u0301\t\n", "späße 汉 \U0001f600 e\u0301\t\n"),
        ("a\r\nb", "a\r\nb"),
        ("a\rb", r"a\rb"),
        ("\0\x07\x1b[31m\x7f\x9b", r"\x00\x07\x1b[31m\x7f\x9b"),
        ("\u2028\u202e\u2066", r"\u2028\u202e\u2066"),
        (os.fsdecode(b"\xff.cu"), r"\udcff.cu"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_controls(text) == shown
    assert str(BuildError(text, where=text, remedy=text)) == f"{shown}: {shown}; {shown}"


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_defect_is_one_line_and_a_file_of_its_owner(temporary: Path) -> None:
    line = describe_error(raised(ValueError("odd\x1b\nand odder")))
    (file,) = temporary.iterdir()
    problem = r"a defect of cuda_ext: ValueError: odd\x1b"
    assert line == f"{problem}; please report it with the file {file}"
    assert file.read_text().startswith("Traceback (most recent call last):\n")
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_room_for_a_file_a_defect_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert "please report it with all of this:\nTraceback" in describe_error(raised(KeyError("x")))


def test_errors_of_the_system_are_no_defects(temporary: Path) -> None:
    assert describe_error(PermissionError(13, "Permission denied", "a\x1b")) == r"a\x1b: Permission denied"
    assert describe_error(MemoryError()) == "there is not enough memory"
    limit = "the system starts no more threads or processes; raise the limit (ulimit -u), or use -j 1"
    assert describe_error(RuntimeError("can't start new thread")) == limit
    assert describe_error(BlockingIOError(11, "Resource temporarily unavailable")) == limit
    assert list(temporary.iterdir()) == []


def test_a_defect_of_a_command_is_one_line(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise KeyError("x")

    monkeypatch.setattr("cuda_ext.cli.inspect.reading.read_contents", fail)
    done = CliRunner().invoke(commands, ["inspect", "a.whl"])
    (file,) = temporary.iterdir()
    message = f"a defect of cuda_ext: KeyError: 'x'; please report it with the file {file}\n"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", message)


def test_a_defect_ends_a_build_with_one_line(temporary: Path) -> None:
    message = r"^cuda-ext: error: a defect of cuda_ext: KeyError: 'x'; please "
    with pytest.raises(SystemExit, match=message), exit_with_error():
        raise KeyError("x")
    assert len(list(temporary.iterdir())) == 1


def test_errors_of_the_build_tool_are_its_own() -> None:
    from setuptools.discovery import find_package_path

    with pytest.raises(AttributeError), exit_with_error():
        find_package_path(None, {}, "")  # type: ignore[arg-type]


def test_names_are_escaped_on_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "a\x1b[31mb.ptx"
    file.write_text(".version 8.0\n.target sm_90\n.visible .entry k()\n{\n}\n")
    done = CliRunner().invoke(commands, ["inspect", str(file)])
    assert (done.exit_code, r"a\x1b[31mb.ptx: ptx, " in done.stdout, "\x1b" in done.stdout) == (
        0,
        True,
        False,
    )
