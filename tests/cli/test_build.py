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


def built_in_place(root: Path) -> Path:
    """Build a project in `root`; where the kernels are."""
    write_project(root, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    code, _, message = run("build", root)
    assert code == 0, message
    return root / "p" / "kernels"


# Where the packages go.


def place(root: Path, package: str, table: str) -> Path:
    """Return the directory of the kernels of a project in `root` with its Python in `package`."""
    project = load(write_project(root, table, {**FILES, f"{package}/__init__.py": ""}))
    return project.source_directory(project.modules[0].name).relative_to(root)


@pytest.mark.parametrize("package", ["src/p", "p", "python/p", "lib/p"])
def test_kernels_are_put_into_the_package_of_each_layout(package: str, tmp_path: Path) -> None:
    (tmp_path / "src/other").mkdir(parents=True)
    assert place(tmp_path, package, PROJECT + SM_90) == Path(package, "kernels")


@pytest.mark.parametrize(
    ("package_dir", "package"), [('"" = "source"', "source/p"), ('p = "elsewhere"', "elsewhere")]
)
def test_package_dir_of_setuptools_is_respected(package_dir: str, package: str, tmp_path: Path) -> None:
    table = f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n[tool.setuptools.package-dir]\n{package_dir}\n'
    assert place(tmp_path, package, table) == Path(package, "kernels")


def test_a_nested_package_and_a_namespace(tmp_path: Path) -> None:
    table = f'{SM_90}[tool.cuda_ext.modules."space.p.inner.kernels"]\n'
    assert place(tmp_path, "src/space/p/inner", table) == Path("src/space/p/inner/kernels")


def test_a_package_precedes_a_directory_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "src/p").mkdir(parents=True)
    assert place(tmp_path, "lib/p", PROJECT + SM_90) == Path("lib/p/kernels")


def test_a_build_prints_a_summary_and_git_ignores_its_output(tmp_path: Path) -> None:
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    code, output, message = run("build", tmp_path)
    (summary,) = output.splitlines()
    assert (code, summary.partition(",")[0]) == (0, "p.kernels: 1 kernel")
    assert summary.endswith(f" in {tmp_path / 'p/kernels'}")
    assert "p.kernels: with nvrtc " in message
    run_program("git", "init", "--quiet", cwd=tmp_path)
    seen = run_program("git", "status", "--porcelain", "--untracked-files=all", "p", cwd=tmp_path)
    assert seen == "?? p/__init__.py\n"


def test_a_renamed_module_leaves_no_package_in_the_source_tree(tmp_path: Path) -> None:
    former = built_in_place(tmp_path)
    other = former.with_name("of_others")
    shutil.copytree(former, other)
    (other / ".gitignore").unlink()  # as cuda_ext.save writes it
    table = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    (tmp_path / "pyproject.toml").write_text(
        table + PROJECT + SM_90 + '[tool.cuda_ext.modules."p.renamed"]\n'
    )
    code, _, errors = run("build", tmp_path)
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["__init__.py", "of_others", "renamed"]
    # Nor does a backend that would build none of it go unnoticed.
    assert "warning: [build-system]: hatchling does not build the kernels: wheels lack them; " in errors


def test_it_imports_as_the_installed_package_would(tmp_path: Path) -> None:
    built_in_place(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    printed = run_program(
        sys.executable, "-c", "from p import kernels; print(*dir(kernels))", cwd=tmp_path, PYTHONPATH=path
    )
    assert printed == "fill\n"


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


def test_options_precede_the_environment_and_the_project(tmp_path: Path) -> None:
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    files = [tmp_path / "report.html", tmp_path / "trace.json"]
    arguments = (
        "--arch",
        "sm_80",
        "--arch",
        "compute_80",
        "--jobs",
        "1",
        "--report",
        files[0],
        "--trace",
        files[1],
    )
    code, output, message = run(
        "build", tmp_path, "--json", *arguments, CUDAARCHS="90", CUDA_EXT_REPORT="/no/where"
    )
    assert code == 0, message
    (module,) = json.loads(output)["modules"]
    text = Path(module["directory"], "manifest.json").read_text()
    assert ("sm_80" in text, "compute_80" in text, "sm_90" in text) == (True, True, False)
    assert all(file.stat().st_size for file in files)


def test_paths_are_relative_to_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path / "project", PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    monkeypatch.chdir(tmp_path)
    assert run("build", "project", "--trace", "trace.json")[0] == 0
    assert (tmp_path / "trace.json").is_file()


@pytest.mark.parametrize("option", ["--report", "--trace", "--depfile"])
def test_only_files_of_builds_are_overwritten(option: str, tmp_path: Path) -> None:
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    message = refusal(tmp_path, option, tmp_path / "pyproject.toml")
    assert f"pyproject.toml: is not the {option[2:]} of a build, and stays; name another file" in message
    assert (tmp_path / "pyproject.toml").read_text() == PROJECT + SM_90
    assert not (tmp_path / "p/kernels").exists()  # it was said before anything was compiled


def test_no_file_of_a_build_lies_in_a_generated_package(tmp_path: Path) -> None:
    """Neither where one is, nor where one will be: the next build would refuse to replace the package."""
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    for option in ("--report", "--depfile"):
        message = refusal(tmp_path, option, tmp_path / "p/kernels/r")
        assert f"{option}: {tmp_path}/p/kernels/r would lie in the generated package" in message
    (tmp_path / "pyproject.toml").write_text(f'{PROJECT}{SM_90}trace = "p/kernels/r"\n')
    with pytest.raises(BuildError, match=r"^tool\.cuda_ext\.trace: .* would lie in the generated package"):
        build_project(load(tmp_path))
    assert "tool.cuda_ext.trace: " in refusal(tmp_path)
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["__init__.py"]


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


def test_the_next_build_overwrites_files_of_a_build(tmp_path: Path) -> None:
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    arguments = [each for name in ("report", "trace", "depfile") for each in (f"--{name}", tmp_path / name)]
    for _ in range(2):
        assert run("build", tmp_path, *arguments)[0] == 0
        assert all((tmp_path / name).stat().st_size for name in ("report", "trace", "depfile"))


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
    assert "one: is to be both the report and the trace" in refusal(tmp_path, *both)
    both = ("--report", tmp_path / "one", "--depfile", tmp_path / "one")
    assert "--depfile: is to be the file of --report too" in refusal(tmp_path, *both)


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


def refusal(*arguments: object) -> str:
    code, output, message = run("build", *arguments)
    assert (code, output) == (1, "")
    return message


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
    assert (
        refusal(tmp_path)
        == f"{tmp_path / 'pyproject.toml'}: there is no such file; name the directory of a project\n"
    )
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\n')
    assert "has no [tool.cuda_ext] table" in refusal(tmp_path)


def test_a_directory_in_place_of_pyproject_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    message = f"{tmp_path / 'pyproject.toml'}: is not a file; name the directory of a project\n"
    assert refusal(tmp_path) == message


@needs_mount
def test_errors_of_a_read_only_output_name_the_place(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project", f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n', FILES)
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        assert run("build", root, "-o", disk)[0] == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert refusal(root, "-o", disk).endswith(f"\n{disk / 'p'}: Read-only file system\n")


@pytest.mark.parametrize("command", ["build", "report"])
def test_an_invalid_architecture_names_the_option(command: str, tmp_path: Path) -> None:
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    status, _, message = run(command, tmp_path, "--arch", "sm-90")
    assert (status, message.partition("\n")[2]) == (
        1,
        "--arch: unknown architecture 'sm-90'; did you mean 'sm_90'?\n",
    )


def test_a_failed_build_leaves_the_old_package(tmp_path: Path) -> None:
    place = built_in_place(tmp_path)
    before = (place / "manifest.json").read_bytes()
    (tmp_path / "device/fill.cu").write_text(FILL.replace("value;", "valeu;"))
    assert 'device/fill.cu(1): error: identifier "valeu" is undefined' in refusal(tmp_path)
    assert (place / "manifest.json").read_bytes() == before


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


def test_a_report_leaves_the_source_tree_alone(tmp_path: Path) -> None:
    write_project(tmp_path, PROJECT + SM_90, {**FILES, "p/__init__.py": ""})
    page = tmp_path / "build/kernels.html"
    code, output, errors = run("report", tmp_path, "--fresh", "--arch", "sm_80")
    assert (code, output) == (0, f"{page}: 1 module\n")
    assert "1 compilation: 1 compiled" in errors
    assert "sm_80" in page.read_text()
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["__init__.py"]
    mine = tmp_path / "mine.html"
    mine.write_text("mine")
    status, _, errors = run("report", tmp_path, "-o", mine)
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
