"""The command line as a whole: both ways to start it, exit codes, and no tracebacks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cuda_ext import cli
from cuda_ext.cli.commands import commands
from cuda_ext.cli.environment import VARIABLES
from cuda_ext.cli.terminal import show_line
from tests.fixtures.command_line import MODULE, ROOT, SCRIPT, run
from tests.fixtures.projects import write_project


@pytest.mark.parametrize("door", [MODULE, SCRIPT], ids=["module", "script"])
def test_the_help_names_all_commands(door: tuple[str, ...]) -> None:
    status, output, errors = run("--help", door=door)
    assert (status, errors) == (0, "")
    name = "cuda-ext" if door == SCRIPT else "python -m cuda_ext"
    assert output.startswith(f"Usage: {name} [OPTIONS] COMMAND [ARGS]...\n")
    listed = output.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    # As one meets them.
    work = ["init", "build", "report", "compile-commands", "export", "inspect", "doctor", "prepare"]
    assert [line.split()[0] for line in listed] == [*work, "record", "tune", "cache", "cmake-dir"]
    assert not any(line.endswith("...") for line in listed)


def test_the_versions_of_all_that_matters_are_told() -> None:
    import cuda_ext

    status, output, errors = run("--version")
    assert (status, errors) == (0, "")
    versions = {line[:10].rstrip(): line[10:] for line in output.splitlines()}
    assert list(versions) == ["cuda-ext", "Python", "driver", "NVRTC", "_launch", "_calls"]
    assert versions["cuda-ext"] == cuda_ext.__version__
    assert platform.python_version() in versions["Python"]


def test_a_misspelt_command_is_corrected() -> None:
    status, output, errors = run("bild", "--help")
    assert (status, output) == (2, "")
    assert errors.endswith("No such command 'bild'; did you mean 'build'?\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile"],
        ["cache", "empty"],
        ["cache", "clear", "--all"],
        ["cmake-dir", "more"],
        ["inspect"],
        ["inspect", "one", "two", "three"],
        ["prepare"],
        ["build", ""],
        ["build", "--arch", ""],
        ["build", "-o", ""],
        ["compile-commands", "--output", ""],
        ["report", "-o", ""],
        ["doctor", ""],
        ["init", ""],
        ["inspect", ""],
        ["prepare", ""],
    ],
    ids=" ".join,
)
def test_wrong_usage_has_exit_code_2(arguments: list[str]) -> None:
    status, output, errors = run(*arguments)
    assert (status, output) == (2, "")
    assert "Usage: python -m cuda_ext" in errors


def test_an_empty_value_is_wrong_usage() -> None:
    status, _, errors = run("build", "--arch", "")
    assert status == 2
    assert "Invalid value for '--arch': it is empty; give it a value or leave it out" in errors


@pytest.mark.parametrize("command", ["build", "compile-commands"])
def test_a_project_is_named_by_its_directory(tmp_path: Path, command: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text("[tool.cuda_ext]\n")
    assert run(command, file) == (1, "", f"{file}: is a file; name its directory\n")


def test_an_invalid_variable_is_one_message() -> None:
    for command in ([], ["clear"]):
        status, output, errors = run("cache", *command, CUDA_EXT_CACHE_SIZE="much")
        assert (status, output) == (1, "")
        assert errors.startswith("CUDA_EXT_CACHE_SIZE: 'much' is not a size; write bytes, or")
        assert errors.count("\n") == 1


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_those_of_a_reader_who_left(closed: str, tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "p").mkdir()
    build = f"exec {' '.join(MODULE)} build --arch sm_90 {tmp_path} {closed}"
    done = subprocess.run(build, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert ("1 kernel" in done.stdout, "compiled" in done.stderr) == (
        ">&-" not in closed.split(),
        "2" not in closed,
    )
    assert (tmp_path / "p/kernels/fill.fatbin").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_an_error_of_the_output_names_it() -> None:
    with Path("/dev/full").open("w") as full:
        command = [*SCRIPT, "cache"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode != 0
    assert done.stderr.startswith("standard output: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a directory that is in use stays there")
def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", program]
    done = subprocess.run([*command, *SCRIPT, "init"], cwd=gone, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the working directory was removed; change to one that exists\n"


def test_a_closed_pipe_is_silent() -> None:
    with subprocess.Popen([*SCRIPT, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_an_interrupt_before_a_command_runs_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt(name)

    monkeypatch.setattr(cli, "find_spec", interrupt)
    with pytest.raises(SystemExit, match=r"^\nAborted!$"):
        cli.main()


def test_without_click_one_line_names_the_package_to_install() -> None:
    assert run("cache", door=(sys.executable, "-S", "-m", "cuda_ext")) == (
        1,
        "",
        "cuda-ext needs click; install it with: pip install click\n",
    )


def test_users_of_kernels_need_nothing_but_click(tmp_path: Path) -> None:
    """As it is with ``pip install cuda-ext``: there is no compiler, and nothing else that building needs."""
    assert click.__file__ is not None
    (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    door = (sys.executable, "-S", "-m", "cuda_ext")
    alone = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path))), "CUDA_EXT_CACHE": tmp_path / "cache"}
    for command in (["--version"], ["cache"], ["doctor"]):
        status, output, errors = run(*command, door=door, **alone)
        assert (status, errors) == (0, ""), command
        assert output
    assert " note    NVRTC: NVRTC cannot be loaded" in output
    ptx = tmp_path / "kernel.ptx"
    ptx.write_text(".version 8.0\n.target sm_80\n.visible .entry axpy(){ret;}\n")
    assert "axpy" in run("inspect", ptx, door=door, **alone)[1]
    # What only authors need names the extra to install.
    install = 'install "cuda-ext[cu13]" (or "cuda-ext[cu12]")\n'
    assert run("init", tmp_path / "new", door=door, **alone) == (1, "", f"jinja2 is not installed; {install}")
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "a.cu").write_text("__global__ void k() {}")
    (tmp_path / "example").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.cuda_ext.modules."example.kernels"]\n')
    status, _, errors = run("build", tmp_path, door=door, **alone)
    assert status == 1
    assert 'install it with "cuda-ext[cu13]"' in errors


def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_line("a \x1b[31m", ("problem", "bold red"))
    assert capsys.readouterr().out == "a \\x1b[31mproblem\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_line("a \x1b[31m", ("problem", "bold red"))
    assert capsys.readouterr().out == "a \\x1b[31m\x1b[31m\x1b[1mproblem\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    show_line(("problem", "bold red"))
    assert capsys.readouterr().out == "problem\n"


@pytest.mark.parametrize("options", [(), ("-S",)], ids=["with packages", "without"])
def test_cmake_dir_needs_no_other_package(options: tuple[str, ...]) -> None:
    result = run("cmake-dir", door=(sys.executable, *options, "-m", "cuda_ext"))
    assert result == (0, f"{(ROOT / 'cmake' / 'CudaExt').as_posix()}\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("cuda-ext d", "plain,doctor\n"),
        ("cuda-ext cache clear --he", "plain,--headers\nplain,--help\n"),
        ("cuda-ext inspect dist/", "file,dist/\n"),
    ],
)
def test_click_completes_in_shells(words: str, expected: str) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": words.count(" "), "_CUDA_EXT_COMPLETE": "bash_complete"}
    assert run(door=SCRIPT, **asked)[1] == expected


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
