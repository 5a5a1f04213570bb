"""``cuda-ext init``: the new project installs and passes its tests, and no file is overwritten."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from cuda_ext.cli.init import normalize_name, write_files
from cuda_ext.cli.terminal import Failure
from tests.fixtures import command_line
from tests.fixtures.environments import CHECKOUT, Environment, run, uv
from tests.integrations.test_cmake_examples import QUICKLY

unix = pytest.mark.skipif(sys.platform == "win32", reason="terminals are those of Unix")
pytestmark = pytest.mark.xdist_group("environments")

NAMES = ("setuptools", "scikit-build-core", "hatchling", "meson-python")
# One that is installed as the workflow says is not among them.
BACKENDS = (
    "setuptools",
    pytest.param(
        "scikit-build-core",
        marks=[
            pytest.mark.slow,
            pytest.mark.host_compiler,
            pytest.mark.skipif(shutil.which("g++") is None, reason="takes g++"),
        ],
    ),
    pytest.param("meson-python", marks=pytest.mark.slow),
)
FILES = (
    ".github/workflows/test.yml",
    ".gitignore",
    "README.md",
    "device/axpy.cu",
    "pyproject.toml",
    "src/my_project/__init__.py",
    "src/my_project/py.typed",
    "tests/test_axpy.py",
)


RELEASE = ".github/workflows/release.yml"


def init(directory: Path | str, *options: str) -> Path:
    """A new project in `directory`."""
    status, _, errors = command_line.run("init", directory, *options)
    assert (status, errors) == (0, "")
    return Path(directory)


def found_in(directory: Path) -> list[str]:
    return sorted(file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file())


# What is written


def test_output_lists_files_and_next_steps(tmp_path: Path) -> None:
    project = tmp_path / "My Project"
    assert command_line.run("init", project) == (
        0,
        "Wrote the project my-project, which setuptools builds:\n"
        + "".join(f"  {project / file}\n" for file in FILES)
        + f"\nNext:\n  cd '{project}'\n  pip install \".[test]\"\n  pytest\n",
        "",
    )
    assert found_in(project) == sorted(FILES)


@unix
def test_a_terminal_is_asked_for_what_no_option_says(tmp_path: Path) -> None:
    printed = in_terminal(["init", "asked", "--name=my-project", "--backend=hatchling"], "y\n", tmp_path)
    assert "Build backend" not in printed
    assert "Publish a release for each tag, with a workflow on GitHub? [y/N]: " in printed
    assert found_in(tmp_path / "asked") == sorted([*FILES, RELEASE])
    printed = in_terminal(["init", "default", "--name=my-project"], "\n\n", tmp_path)
    assert "Build backend (setuptools, scikit-build-core, hatchling, meson-python) [setuptools]: " in printed
    assert found_in(tmp_path / "default") == sorted(FILES)


def in_terminal(arguments: list[str], typed: str, directory: Path) -> str:
    """Return what ``cuda-ext`` prints in a terminal in which `typed` is typed."""
    import pty

    printed: list[bytes] = []

    def read(terminal: int) -> bytes:
        printed.append(os.read(terminal, 65536))
        return printed[-1]

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execv(sys.executable, [sys.executable, "-m", "cuda_ext", *arguments])
    os.write(terminal, typed.encode())
    with contextlib.suppress(OSError):  # the command has ended
        while read(terminal):
            pass
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0, b"".join(printed)
    return b"".join(printed).decode()


def test_the_release_workflow_publishes_what_it_tested(tmp_path: Path) -> None:
    for backend in NAMES:
        project = init(tmp_path / backend, "--backend", backend, "--publish", "--name", "my-project")
        jobs = yaml.safe_load((project / RELEASE).read_text(encoding="utf-8"))["jobs"]
        assert jobs["publish"]["needs"] == "build"
        assert jobs["publish"]["permissions"] == {"id-token": "write"}
        assert jobs["build"]["steps"][-1]["with"]["name"] == jobs["publish"]["steps"][0]["with"]["name"]
        (check,) = (step["run"] for step in jobs["build"]["steps"] if "version" in step.get("name", ""))
        wheel = project / "dist/my_project-0.1.0-py3-none-any.whl"
        wheel.parent.mkdir()
        wheel.touch()
        run("bash", "-c", check, cwd=project, GITHUB_REF_NAME="v0.1.0")
        run("bash", "-c", check, cwd=project, GITHUB_REF_NAME="v0.2.0", status=2)


@pytest.mark.network
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_new_project_installs_and_passes_its_tests(
    backend: str, cuda_ext_wheel: Path, tmp_path: Path
) -> None:
    project = init(tmp_path / "My Project", "--backend", backend)
    environment = Environment.make(tmp_path / "environment", "pytest")
    found = {**QUICKLY, "UV_FIND_LINKS": str(cuda_ext_wheel.parent)}
    uv("pip", "install", "--python", environment.prefix, project, **found)
    assert_passed(environment.run("-m", "pytest", cwd=project))
    (about,) = environment.prefix.glob("**/my_project-0.1.0.dist-info/WHEEL")
    assert "Tag: py3-none-any" in about.read_text(encoding="utf-8")
    installed = uv("pip", "list", "--python", environment.prefix)
    assert "cuda-ext" in installed
    assert not re.search("nvrtc|nvfatbin|cmake|ninja|scikit|setuptools", installed)
    if backend == "setuptools":
        assert_typed(project, environment)


@pytest.mark.network
@pytest.mark.slow
def test_the_workflow_passes(cuda_ext_wheel: Path, tmp_path: Path) -> None:
    project = init(tmp_path / "my-project", "--backend", "hatchling")
    environment = Environment.make(tmp_path / "environment", "pip")
    variables = {
        **QUICKLY,
        "PATH": f"{environment.python.parent}:/usr/bin:/bin",
        "UV_FIND_LINKS": str(cuda_ext_wheel.parent),
        "PIP_FIND_LINKS": f"{cuda_ext_wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}",
        "PIP_NO_COMPILE": "1",
    }
    workflow = (project / ".github/workflows/test.yml").read_text(encoding="utf-8")
    wheel, install, test = re.findall(r"^ +- run: (.*)$", workflow, re.MULTILINE)
    # Where nothing is built uv does the same, in a fraction of the time.
    into = f"'{sys.executable}' -m uv pip install --python '{environment.prefix}'"
    install = install.replace("pip install", into, 1)
    for command in (wheel, install):
        run("bash", "-c", command, cwd=project, **variables)
    printed = run("bash", "-c", test, cwd=project, **variables)
    assert_passed(printed)
    assert [wheel.name for wheel in (project / "dist").iterdir()] == ["my_project-0.1.0-py3-none-any.whl"]
    run("git", "init", "--quiet", cwd=project)
    seen = run("git", "status", "--porcelain", "--untracked-files=all", cwd=project)
    assert sorted(line.removeprefix("?? ") for line in seen.splitlines()) == sorted(FILES)


def assert_passed(printed: str) -> None:
    """Check that all tests passed, except those that need a GPU on a machine without one."""
    assert "10 passed" in printed or (
        "4 passed, 6 skipped" in printed and "there is no GPU to launch the kernels on" in printed
    )


def assert_typed(project: Path, environment: Environment) -> None:
    """Check the installed package and its tests with mypy --strict."""
    how = (f"--config-file={CHECKOUT / 'pyproject.toml'}", "--python-executable", environment.python)
    what = ("-p", "my_project", "-m", "test_axpy")
    run(sys.executable, "-m", "mypy", *how, *what, cwd=project.parent, MYPYPATH=str(project / "tests"))


def test_other_tools_accept_it(tmp_path: Path) -> None:
    projects = [init(tmp_path / backend, "--backend", backend, "--name", "my-project") for backend in NAMES]
    ruff = (sys.executable, "-m", "ruff")
    run(*ruff, "check", "--isolated", "--extend-select", "B,D3,I,N,PT,RUF,UP", cwd=projects[0])
    run(*ruff, "format", "--isolated", "--check", cwd=projects[0])
    validate = Path(sys.executable).with_name("validate-pyproject")
    run(validate, *(project / "pyproject.toml" for project in projects))


# Where something is


def test_a_directory_may_hold_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-project/src/other").mkdir(parents=True)
    (tmp_path / "my-project/LICENSE").write_text("precious")
    monkeypatch.chdir(tmp_path / "my-project")
    status, output, _ = command_line.run("init")
    assert status == 0
    assert "  cd " not in output
    assert found_in(Path.cwd()) == sorted([*FILES, "LICENSE"])


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    for name in ("README.md", "src/my_project/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    before = found_in(tmp_path)
    assert command_line.run("init", tmp_path, "--name", "my_project") == (
        1,
        "",
        f"{tmp_path}: nothing was written, because these files exist; move them, name another directory, or "
        "replace them with --force:\n"
        f"  {tmp_path / 'README.md'}\n"
        f"  {tmp_path / 'src/my_project/__init__.py'}\n",
    )
    assert found_in(tmp_path) == before


def test_files_are_replaced_by_force(tmp_path: Path) -> None:
    init(tmp_path, "--name", "my-project")
    (tmp_path / "README.md").write_text("old")
    (tmp_path / "LICENSE").write_text("precious")
    init(tmp_path, "--name", "my-project", "--force", "--publish")
    assert (tmp_path / "README.md").read_text().startswith("# my-project\n")
    assert found_in(tmp_path) == sorted([*FILES, RELEASE, "LICENSE"])


def test_a_replacement_that_fails_leaves_all_files(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("precious")
    (tmp_path / "device").write_text("in the way")
    with pytest.raises(Failure, match=r"device.*; nothing was written"):
        write_files(tmp_path, {"README.md": "new", "src/a.py": "", "device/axpy.cu": ""}, force=True)
    assert (tmp_path / "README.md").read_text() == "precious"
    assert found_in(tmp_path) == ["README.md", "device"]
    (tmp_path / "a").mkdir()
    with pytest.raises(Failure, match="a: is not a regular file; move it; nothing was written"):
        write_files(tmp_path, {"README.md": "new", "a": ""}, force=True)
    assert (tmp_path / "README.md").read_text() == "precious"


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "my-project").write_text("precious")
    status, output, errors = command_line.run("init", tmp_path / "my-project")
    assert (status, output) == (1, "")
    assert errors == f"{tmp_path / 'my-project'}: is a file; name a directory\n"


def test_a_failed_write_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "src").write_text("precious")
    with pytest.raises(Failure, match=r"src.*; nothing was written"):
        write_files(tmp_path, {"README.md": "", "device/axpy.cu": "", "src/my_project/__init__.py": ""})
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


def test_a_dangling_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "device").symlink_to("gone")
    message = "is a link to gone, which does not exist; create that, or remove the link; nothing was written"
    with pytest.raises(Failure, match=f"device: {message}"):
        write_files(tmp_path, {"README.md": "", "device/axpy.cu": ""})
    assert [path.name for path in tmp_path.iterdir()] == ["device"]


def test_a_directory_with_a_leading_dash_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, output, _ = command_line.run("init", "--", "-foo")
    assert status == 0
    assert f"  cd .{os.sep}-foo\n" in output


# Names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my-project", "my-project"),
        ("My_Project", "my-project"),
        ("two  words", "two-words"),
        ("-a.b_", "a-b"),
        ("fft3d", "fft3d"),
    ],
)
def test_names_are_normalized(text: str, name: str) -> None:
    assert normalize_name(text) == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--", "it has no letter"),
        ("späße", "'ä' is not one of the letters a to z, digits, '-', '_' and '.'"),
        ("a+b", "'+' is not one of the letters a to z, digits, '-', '_' and '.'"),
        ("3d", "it begins with a digit"),
        ("class", "'class' is a keyword of Python"),
        ("Test", "'test' is a module of the standard library"),
        ("cuda-ext", "'cuda_ext' is a package that the project uses"),
        ("setuptools", "'setuptools' is a package that the project uses"),
        ("hatchling", "'hatchling' is a package that the project uses"),
    ],
)
def test_an_unusable_name_is_an_error(text: str, why: str, tmp_path: Path) -> None:
    message = f"{text!r} is not a name for a package: {why}; give another one with --name\n"
    assert command_line.run("init", tmp_path / text) == (1, "", message)
    assert not list(tmp_path.iterdir())


def test_an_unknown_backend_is_wrong_usage(tmp_path: Path) -> None:
    status, _, errors = command_line.run("init", tmp_path, "--backend", "meson")
    assert status == 2
    assert "'meson' is not one of 'setuptools', 'scikit-build-core', 'hatchling'" in errors
