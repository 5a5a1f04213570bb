"""``cuda-ext build``: packages in place, or where another build tool wants them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuda_ext.builder.package.depfile import is_depfile, render_depfile
from cuda_ext.builder.session import build_project
from cuda_ext.builder.sources.inputs import searched_directories
from cuda_ext.errors import BuildError
from cuda_ext.filesystem.ownership import check_replaceable
from tests.fixtures.command_line import MODULE, run
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.environments import run as run_program
from tests.fixtures.messages import Messages
from tests.fixtures.projects import FILL, SM_90, load, write_project

PROJECT = '[project]\nname = "p"\ndependencies = ["cuda-ext"]\n'
FILES = {"device/fill.cu": FILL}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose kernels belong into ``p/kernels``."""
    return write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})


def refusal(*arguments: object) -> str:
    code, output, message = run("build", *arguments)
    assert (code, output) == (1, "")
    return message


# Where the packages go.


NAMED = '[tool.cuda_ext.modules."{}"]\n'
PACKAGE_DIR = f"{NAMED.format('p.kernels')}[tool.setuptools.package-dir]\n"


@pytest.mark.parametrize(
    ("package", "table"),
    [
        *((package, PROJECT + SM_90) for package in ("src/p", "p", "python/p", "lib/p")),
        ("source/p", f'{SM_90}{PACKAGE_DIR}"" = "source"\n'),
        ("elsewhere", f'{SM_90}{PACKAGE_DIR}p = "elsewhere"\n'),
        ("src/space/p/inner", SM_90 + NAMED.format("space.p.inner.kernels")),
    ],
)
def test_kernels_are_put_into_the_package_of_each_layout(package: str, table: str, tmp_path: Path) -> None:
    for directory in ("src/other", "src/p"):  # a package precedes a directory of that name
        (tmp_path / directory).mkdir(parents=True)
    project = load(write_project(tmp_path, table, {**FILES, f"{package}/__init__.py": ""}))
    place = project.source_directory(project.modules[0].name)
    assert place.relative_to(tmp_path) == Path(package, "kernels")


def test_a_build_in_place(project: Path) -> None:
    code, output, message = run("build", project)
    (summary,) = output.splitlines()
    assert (code, summary.partition(",")[0]) == (0, "p.kernels: 1 kernel")
    assert summary.endswith(f" in {project / 'p/kernels'}")
    assert "p.kernels: with nvrtc " in message
    run_program("git", "init", "--quiet", cwd=project)
    seen = run_program("git", "status", "--porcelain", "--untracked-files=all", "p", cwd=project)
    assert seen == "?? p/__init__.py\n"
    # It imports as the installed package would.
    path = os.pathsep.join([str(project), str(Path(__file__).parents[2])])
    script = "from p import kernels; print(*dir(kernels))"
    assert run_program(sys.executable, "-c", script, cwd=project, PYTHONPATH=path) == "fill\n"
    # A failed build leaves it.
    former = project / "p/kernels"
    before = (former / "manifest.json").read_bytes()
    (project / "device/fill.cu").write_text(FILL.replace("value;", "valeu;"))
    assert 'device/fill.cu(1): error: identifier "valeu" is undefined' in refusal(project)
    assert (former / "manifest.json").read_bytes() == before
    # One of a renamed module removes it, and no package that cuda_ext.save wrote.
    other = former.with_name("of_others")
    shutil.copytree(former, other)
    (other / ".gitignore").unlink()
    table = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    write_project(project, f"{table}{PROJECT}{SM_90}{NAMED.format('p.renamed')}", FILES)
    code, _, errors = run("build", project)
    assert code == 0
    assert sorted(path.name for path in (project / "p").iterdir()) == ["__init__.py", "of_others", "renamed"]
    # Nor does a backend that would build none of it go unnoticed.
    assert "warning: [build-system]: hatchling does not build the kernels: wheels lack them; " in errors


def test_output_to_another_directory(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project", f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n', FILES)
    code, output, _ = run("build", root, "-o", tmp_path / "out", "--json")
    assert code == 0
    built = json.loads(output)
    (module,) = built["modules"]
    assert module["directory"] == str(tmp_path / "out/p/kernels")
    assert {path.relative_to(module["directory"]).as_posix() for path in (tmp_path / "out").rglob("*.*")} == {
        *module["files"]
    }
    assert (module["module"], module["kernels"], module["images"]) == ("p.kernels", ["fill"], 1)
    assert built["seconds"] >= 0
    assert {path.name for path in root.iterdir()} == {"device", "pyproject.toml"}


def test_no_package_goes_into_that_of_another_project(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, module in (("a", "ns.other"), ("b", "ns.other.sub")):
        write_project(tmp_path / name, f'{SM_90}[tool.cuda_ext.modules."{module}"]\n', FILES)
    assert run("build", tmp_path / "a", "-o", out)[0] == 0
    message = f'modules."ns.other.sub": {out / "ns/other"} is a generated package, within which it would be'
    assert message in refusal(tmp_path / "b", "-o", out)
    assert run("build", tmp_path / "a", "-o", out)[0] == 0


def test_other_files_in_the_output_stay(tmp_path: Path) -> None:
    table = SM_90 + '[tool.cuda_ext.modules."p.{}"]\n'
    root, out = write_project(tmp_path / "project", table.format("kernels"), FILES), tmp_path / "out"
    for name in ("kernels", "renamed"):
        (root / "pyproject.toml").write_text(table.format(name))
        assert run("build", root, "-o", out)[0] == 0
        (out / "p/precious.txt").touch()
    assert sorted(path.name for path in (out / "p").iterdir()) == ["kernels", "precious.txt", "renamed"]


# How it is built.


def test_options_precede_the_environment_and_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "device")  # to which paths are relative
    files = ("--report", "report.html", "--trace", "trace.json")
    targets = ("--arch", "sm_80", "--arch", "compute_80", "--jobs", "1")
    environ = {"CUDAARCHS": "90", "CUDA_EXT_REPORT": "/no/where"}
    code, output, message = run("build", "..", "--json", *targets, *files, **environ)
    assert code == 0, message
    (module,) = json.loads(output)["modules"]
    text = Path(module["directory"], "manifest.json").read_text()
    assert ("sm_80" in text, "compute_80" in text, "sm_90" in text) == (True, True, False)
    assert all(Path(file).stat().st_size for file in files[1::2])


@pytest.mark.parametrize("option", ["--report", "--trace", "--depfile"])
def test_only_files_of_builds_are_overwritten(option: str, project: Path) -> None:
    message = refusal(project, option, project / "pyproject.toml")
    assert f"pyproject.toml: is not the {option[2:]} of a build, and stays; name another file" in message
    assert (project / "pyproject.toml").read_text() == PROJECT + SM_90
    assert not (project / "p/kernels").exists()  # it was said before anything was compiled


def test_no_file_of_a_build_lies_in_a_generated_package(project: Path) -> None:
    """Neither where one is, nor where one will be: the next build would refuse to replace the package."""
    for option in ("--report", "--depfile"):
        message = refusal(project, option, project / "p/kernels/r")
        assert f"{option}: {project}/p/kernels/r would lie in the generated package" in message
    (project / "pyproject.toml").write_text(f'{PROJECT}{SM_90}trace = "p/kernels/r"\n')
    with pytest.raises(BuildError, match=r"^tool\.cuda_ext\.trace: .* would lie in the generated package"):
        build_project(load(project))
    assert "tool.cuda_ext.trace: " in refusal(project)
    assert [path.name for path in (project / "p").iterdir()] == ["__init__.py"]


def test_only_the_beginning_of_a_file_of_others_is_read(tmp_path: Path) -> None:
    lengths: list[int] = []

    def is_one(content: bytes) -> bool:
        lengths.append(len(content))
        return is_depfile(content)

    with (tmp_path / "large").open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(BuildError, match="is not the depfile of a build, and stays"):
        check_replaceable(tmp_path / "large", "depfile of a build", is_one)
    assert lengths[0] <= 1 << 20


def test_the_next_build_overwrites_files_of_a_build(project: Path) -> None:
    arguments = [each for name in ("report", "trace", "depfile") for each in (f"--{name}", project / name)]
    for _ in range(2):
        assert run("build", project, *arguments)[0] == 0
        assert all((project / name).stat().st_size for name in ("report", "trace", "depfile"))


def test_keys_of_the_project_overwrite_only_files_of_builds(tmp_path: Path) -> None:
    table = f'{PROJECT}{SM_90}trace = "device/fill.cu"\n'
    write_project(tmp_path, table, {**FILES, "p/__init__.py": ""})
    assert "device/fill.cu: is not the trace of a build" in refusal(tmp_path)
    for key in ("report", "trace"):
        for path, problem in [
            ("p/__init__.py", f"p/__init__.py: is not the {key} of a build, and stays; name another file"),
            ("../x", f"tool.cuda_ext.{key}: '../x' leads out of the project"),
            ("/tmp/x", f"tool.cuda_ext.{key}: '/tmp/x' leads out of the project"),
            ("link/x", f"tool.cuda_ext.{key}: 'link/x' is a link that leads out of the project"),
        ]:
            (tmp_path / "pyproject.toml").write_text(f'{PROJECT}{SM_90}{key} = "{path}"\n')
            (tmp_path / "link").unlink(missing_ok=True)
            (tmp_path / "link").symlink_to("/tmp")
            assert problem in refusal(tmp_path)
    assert (tmp_path / "p/__init__.py").read_bytes() == b""
    both = ("--report", tmp_path / "one", "--trace", tmp_path / "one")
    assert "one: is named as both the report and the trace" in refusal(tmp_path, *both)
    both = ("--report", tmp_path / "one", "--depfile", tmp_path / "one")
    assert "--depfile: --report names this file, too" in refusal(tmp_path, *both)


# What the output depends on.


def test_a_depfile_names_all_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "a project"
    files = {"device/fill.cu": f'#include "value.h"\n{FILL}', "include/value.h": ""}
    outside = tmp_path / "outside" / "limit.h"
    outside.parent.mkdir()
    outside.touch()
    files["device/fill.cu"] = f"#include <limit.h>\n{files['device/fill.cu']}"
    keys = f'include-dirs = ["include"]\noptions = ["-I{outside.parent}"]\n'
    write_project(root, f'{SM_90}{keys}[tool.cuda_ext.modules."p.kernels"]\n', files)
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path / "build")
    assert run("build", root, "-o", ".", "--depfile", "kernels.d")[0] == 0
    outputs, _, inputs = Path("kernels.d").read_text().replace("\\\n", "").partition(":")
    assert outputs == "p"
    wanted = ["pyproject.toml", "device", "device/fill.cu", "include", "include/value.h"]
    escaped = [str(root / name).replace(" ", "\\ ") for name in wanted]
    assert [name for name in (*escaped, f"{outside}") if name not in inputs] == []


def test_an_unchanged_output_is_newer_than_its_inputs(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project", f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n', FILES)
    out = tmp_path / "out"
    for _ in range(2):
        (root / "device/fill.cu").touch()
        assert run("build", root, "-o", out)[0] == 0
        assert (out / "p").stat().st_mtime_ns >= (root / "device/fill.cu").stat().st_mtime_ns


def test_depfiles_escape_names() -> None:
    assert render_depfile(["an output"], ["a#b", "c$d"]) == "an\\ output: a\\#b \\\n c$$d\n"


def test_searched_directories_are_inputs(tmp_path: Path) -> None:
    table = f"""{SM_90}include-dirs = ["include"]
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/**/*.cu", "more/*.cu"]
headers = ["shipped/*.h"]
"""
    files = {
        "device/inner/fill.cu": f'#include "p/value.h"\n{FILL}',
        "device/empty/note.txt": "",
        "include/p/value.h": "",
        "include/other/unused.h": "",
        "more/more.cu": FILL.replace("fill", "more"),
        "shipped/api.h": "",
    }
    assert searched_directories(load(write_project(tmp_path, table, files))) == {
        *("device", "device/inner", "device/empty", "more", "shipped"),
        *("include", "include/p"),
    }


# Mistakes.


def test_a_missing_package_is_an_error(tmp_path: Path, messages: Messages) -> None:
    write_project(tmp_path, f'{SM_90}[tool.cuda_ext.modules."p.inner.kernels"]\n', FILES)
    message = refusal(tmp_path)
    messages(message)


def test_a_file_in_place_of_the_package_is_an_error(tmp_path: Path) -> None:
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": "", "p/kernels.py": "precious = 1"})
    assert refusal(tmp_path).endswith(
        "p/kernels.py is where it would be generated; move it, or rename the module\n"
    )
    assert (tmp_path / "p/kernels.py").read_text() == "precious = 1"


def test_a_missing_project_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    remedy = "name the directory of a project\n"
    assert refusal(tmp_path) == f"{file}: there is no such file; {remedy}"
    file.mkdir()
    assert refusal(tmp_path) == f"{file}: is not a file; {remedy}"
    file.rmdir()
    file.write_text('[project]\nname = "p"\n')
    assert "has no [tool.cuda_ext] table" in refusal(tmp_path)


@needs_mount
def test_errors_of_a_read_only_output_name_the_place(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project", f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n', FILES)
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        assert run("build", root, "-o", disk)[0] == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert refusal(root, "-o", disk).endswith(f"\n{disk / 'p'}: Read-only file system\n")


@pytest.mark.parametrize("command", ["build", "report"])
def test_an_invalid_architecture_names_the_option(command: str, project: Path) -> None:
    status, _, message = run(command, project, "--arch", "sm-90")
    assert (status, message) == (1, "--arch: unknown architecture 'sm-90'; did you mean 'sm_90'?\n")


@pytest.mark.parametrize("wrong", [("--jobs", "0"), ("--nope",), ("--arch",)])
def test_wrong_usage(wrong: tuple[str, ...], tmp_path: Path) -> None:
    assert run("build", tmp_path, *wrong)[0] == 2


@pytest.mark.skipif(os.name == "nt", reason="there are no such signals")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_an_interrupted_build_leaves_no_files(signum: int, tmp_path: Path) -> None:
    slow = "#include <cub/block/block_reduce.cuh>\n" + FILL
    write_project(tmp_path, PROJECT + SM_90, {"device/fill.cu": slow, "p/__init__.py": ""})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environ = {"CUDA_EXT_CACHE_SIZE": "0", "TMPDIR": str(scratch), "PYTHONPATH": path}
    process = subprocess.Popen(
        [*MODULE, "build", str(tmp_path)], env={**os.environ, **environ}, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 60
    while not list(scratch.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signum)
    _, message = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "Traceback" not in message
    assert {p.name for p in tmp_path.iterdir()} == {"device", "p", "pyproject.toml", "scratch"}
    assert [p.name for p in (tmp_path / "p").iterdir()] == ["__init__.py"]
    # A worker whose build has ended removes its files itself, after it has closed its output.
    end = time.monotonic() + 60
    while list(scratch.iterdir()) and time.monotonic() < end:
        time.sleep(0.01)
    assert list(scratch.iterdir()) == []


def test_a_report_leaves_the_source_tree_alone(project: Path) -> None:
    page = project / "build/kernels.html"
    code, output, errors = run("report", project, "--fresh", "--arch", "sm_80")
    assert (code, output) == (0, f"{page}: 1 module\n")
    assert "1 compilation: 1 compiled" in errors
    assert "sm_80" in page.read_text()
    assert [path.name for path in (project / "p").iterdir()] == ["__init__.py"]
    mine = project / "mine.html"
    mine.write_text("mine")
    status, _, errors = run("report", project, "-o", mine)
    assert (status, mine.read_text()) == (1, "mine")
    assert f"{mine}: is not the report of a build, and stays; name another file" in errors


def test_commands_of_the_compilers_are_shown_on_demand(tmp_path: Path, empty_cache: Path) -> None:
    failing = "__global__ void k() { undeclared(); }"
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "device/bad.cu": failing, "p/__init__.py": ""})
    status, _, errors = run("build", tmp_path, "-v", CUDA_EXT_CACHE=tmp_path / "cache")
    assert status == 1
    commands = [line for line in errors.splitlines() if line.startswith("nvrtc ")]
    assert {line.rpartition(" ")[2] for line in commands} == {"device/fill.cu", "device/bad.cu"}
    assert all(" -arch=sm_90 " in line for line in commands)
    assert "nvrtc -" not in refusal(tmp_path)
