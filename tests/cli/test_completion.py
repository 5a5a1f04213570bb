"""``cuda-ext completion`` in shells, and its help."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from cuda_ext.cli.commands import commands
from cuda_ext.cli.environment import VARIABLES
from tests.fixtures.command_line import ROOT, SCRIPT, run
from tests.fixtures.loader import write_package

Complete = Callable[[str], list[str]]
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")

# What the last word of a line would be completed to, a line each.
ASK = """
eval "$(cuda-ext completion bash)" || exit
read -ra COMP_WORDS <<< "$1"
[[ $1 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { echo files; }
eval "$(complete -p cuda-ext | sed 's/.*-F \\([^ ]*\\).*/\\1/') cuda-ext '${COMP_WORDS[COMP_CWORD]}' ''"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Completes words in bash, with the module ``sample.kernels`` installed."""
    site = tmp_path / "site"
    package = write_package(site)
    (package.parent / "__init__.py").write_text("1 / 0\n")  # nothing is imported
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), str(ROOT))))
    monkeypatch.setenv("PATH", f"{Path(SCRIPT[0]).parent}{os.pathsep}{os.environ['PATH']}")

    def ask(line: str) -> list[str]:
        command = ["bash", "--norc", "-c", ASK, "ask", line]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1]

    return ask


@needs_bash
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cuda-ext d", ["doctor"]),
        ("cuda-ext completion ", ["bash", "zsh", "fish"]),
        ("cuda-ext cache clear --he", ["--headers", "--help"]),
        ("cuda-ext doctor sa", ["sample.kernels"]),
        ("cuda-ext prepare sa", ["sample.kernels"]),
        ("cuda-ext inspect sa", ["sample.kernels"]),
        ("cuda-ext inspect dist/", ["files", ""]),
    ],
    ids=str,
)
def test_bash_completes(complete: Complete, line: str, expected: list[str]) -> None:
    assert complete(line) == expected


@needs_bash
def test_bash_completes_architectures(complete: Complete) -> None:
    found = complete("cuda-ext prepare sample.kernels --arch sm_9")
    assert "sm_90" in found
    assert all(name.startswith("sm_9") for name in found)


@pytest.mark.parametrize(
    ("shell", "beginning"), [("zsh", "#compdef cuda-ext"), ("fish", "function _cuda_ext_completion")]
)
def test_scripts_for_other_shells_are_valid(shell: str, beginning: str, tmp_path: Path) -> None:
    status, output, errors = run("completion", shell)
    assert (status, errors) == (0, "")
    assert output.startswith(beginning)
    if program := shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(output)
        subprocess.run([program, "-n", str(script)], check=True, timeout=300)


def test_another_shell_is_wrong_usage() -> None:
    assert run("completion", "csh")[0] == 2


# Help.


def all_commands(group: click.Group, *names: str) -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= all_commands(command, *names, name)
        else:
            found[" ".join((*names, name))] = command
    return found


def test_the_help_lists_variables_and_exit_codes() -> None:
    status, output, _ = run("--help")
    assert status == 0
    assert all(len(line) <= 80 for line in output.splitlines())
    environment, codes = output.partition("\nEnvironment:\n")[2].split("\nExit codes:\n")
    names = [line.split()[0] for line in environment.splitlines() if line[2:3] not in ("", " ")]
    assert names == list(VARIABLES)
    assert [line.split()[0] for line in codes.splitlines()] == ["0", "1", "2"]


@pytest.mark.parametrize("name", all_commands(commands))
def test_each_command_has_examples(name: str) -> None:
    command = all_commands(commands)[name]
    assert command.help
    assert command.get_short_help_str(80).endswith(".")
    text = command.get_help(click.Context(command, info_name=name, terminal_width=80))
    assert f"cuda-ext {name}" in text.partition("Options:")[2]
