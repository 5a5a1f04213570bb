"""The command line as a whole: both ways to start it, exit codes, and no tracebacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ext import cli
from tests.fixtures.command_line import MODULE, ROOT, SCRIPT, run


@pytest.mark.parametrize("door", [MODULE, SCRIPT], ids=["module", "script"])
def test_the_help_names_all_commands(door: tuple[str, ...]) -> None:
    status, output, errors = run("--help", door=door)
    assert (status, errors) == (0, "")
    name = "cuda-ext" if door == SCRIPT else "python -m cuda_ext"
    assert output.startswith(f"Usage: {name} [OPTIONS] COMMAND [ARGS]...\n")
    listed = output.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    # As one meets them.
    work = ["init", "build", "compile-commands", "inspect", "doctor", "prepare", "cache"]
    assert [line.split()[0] for line in listed] == [*work, "completion", "cmake-dir"]
    assert not any(line.endswith("...") for line in listed)


def test_version() -> None:
    import cuda_ext

    assert run("--version") == (0, f"{cuda_ext.__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile"],
        ["cache"],
        ["cache", "empty"],
        ["cache", "info", "--all"],
        ["cache", "clear", "--older-than", "-1"],
        ["cache", "clear", "--older-than", "yesterday"],
        ["cmake-dir", "more"],
        ["inspect"],
        ["inspect", "one", "two", "three"],
        ["prepare"],
        ["build", ""],
        ["build", "--arch", ""],
        ["build", "-o", ""],
        ["compile-commands", "--output", ""],
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
    for command in ("info", "verify", "clear"):
        status, output, errors = run("cache", command, CUDA_EXT_CACHE_SIZE="much")
        assert (status, output) == (1, "")
        assert errors.startswith("CUDA_EXT_CACHE_SIZE: 'much' is not a size; write bytes, or")
        assert errors.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_an_error_of_the_output_names_it() -> None:
    with Path("/dev/full").open("w") as full:
        command = [*SCRIPT, "cache", "info"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode != 0
    assert done.stderr.startswith("standard output: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a directory that is in use stays there")
def test_an_error_of_the_system_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", program]
    done = subprocess.run([*command, *SCRIPT, "init"], cwd=gone, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "No such file or directory\n"


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
    assert run("cache", "info", door=(sys.executable, "-S", "-m", "cuda_ext")) == (
        1,
        "",
        'cuda-ext needs click and rich; install "cuda-ext[cu13]" (or "cuda-ext[cu12]")\n',
    )


@pytest.mark.parametrize("options", [(), ("-S",)], ids=["with packages", "without"])
def test_cmake_dir_needs_no_other_package(options: tuple[str, ...]) -> None:
    result = run("cmake-dir", door=(sys.executable, *options, "-m", "cuda_ext"))
    assert result == (0, f"{(ROOT / 'cmake' / 'CudaExt').as_posix()}\n", "")
