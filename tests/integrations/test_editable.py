"""Editable installs warn of changed sources when imported, or compile them: ``editable-rebuild = true``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from cuda_ext.builder.editable_package import build_editable
from cuda_ext.builder.editable_record import is_editable
from cuda_ext.builder.package.in_place import write_in_place
from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
from cuda_ext.builder.sources.inputs import input_digests
from cuda_ext.errors import BuildError
from cuda_ext.filesystem.locks import lock
from cuda_ext.filesystem.ownership import foreign, is_generated
from tests.fixtures import command_line
from tests.fixtures.environments import NO_CACHE, Environment, run, uv
from tests.fixtures.projects import FILL, load, write_project
from tests.integrations.test_setuptools import contents, replace

pytestmark = pytest.mark.xdist_group("environments")

ROOT = Path(__file__).parents[2]
KEY = "editable-rebuild = true\n"
TABLE = f"""
[project]
name = "p"
version = "1"
dependencies = ["cuda-ext>=0.1"]

[tool.cuda_ext]
architectures = ["sm_90"]
include-dirs = ["include"]
{KEY}
[tool.cuda_ext.modules."p.kernels"]
"""
FILES = {
    "device/fill.cu": '#include "p/value.h"\n' + FILL,
    "include/p/value.h": "#define VALUE 1\n",
    "src/p/__init__.py": "",
}
NAMES = "from p import kernels; print(*dir(kernels))"
ARCHITECTURES = (
    "from p import kernels; from cuda_ext import describe; "
    "print(*(i.architecture for u in describe(kernels).units for i in u.images))"
)


def install(root: Path, **environ: str) -> Path:
    """Build the packages of the project in `root` like an editable install; return the last one."""
    project = load(root)
    build = partial(build_project, project, environ=os.environ | environ)
    packages = build_editable(project, project.source_directory, build, environ.get("CUDAARCHS", ""))
    places = {package.name: project.source_directory(package.name) for package in packages}
    write_in_place(project, packages, places)
    return list(places.values())[-1]


def environment(root: Path) -> dict[str, str]:
    """That of an interpreter which finds the project in `root`."""
    path = os.pathsep.join([str(root / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error"}


def python(root: Path, script: str = NAMES, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a new interpreter that finds the project in `root`."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment(root) | environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def printed(root: Path, script: str = NAMES, **environ: str) -> tuple[str, str]:
    """Run `script`; return its standard output and standard error."""
    done = python(root, script, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def refusal(root: Path) -> str:
    """Return the error that importing the package raises."""
    done = python(root)
    assert done.returncode == 1
    return done.stderr.partition("\nImportError: ")[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with an editable install."""
    install(write_project(tmp_path / "project", TABLE, FILES))
    return tmp_path / "project"


def settle(project: Path) -> None:
    """Make all files old enough that their times are trusted, and import the package."""
    for path in sorted(project.rglob("*")):
        os.utime(path, ns=(0, time.time_ns() - 10**10))
    time.sleep(2.1)  # the time of change cannot be set
    printed(project)


# What is not changed.


def test_an_unchanged_import_loads_no_builder_module(project: Path) -> None:
    settle(project)
    loaded = "sorted(m for m in sys.modules if m.startswith('cuda_ext.'))"
    script = f"import sys; from p import kernels; print(*{loaded})"
    assert printed(project, script)[0].split() == [
        "cuda_ext.builder",
        "cuda_ext.builder.editable_record",
        "cuda_ext.integrations",
        "cuda_ext.integrations.editable",
        "cuda_ext.runtime",
        "cuda_ext.runtime.module",
    ]


def test_an_unchanged_project_is_not_compiled(project: Path) -> None:
    package = project / "src/p/kernels"
    assert is_generated(package)
    assert foreign(package) is None
    text = (package / "editable.json").read_text()
    assert str(project) in text
    assert sys.prefix not in text.replace(str(project), "")  # no file of the environment
    for path in (project / "device").iterdir():
        path.touch()
    assert printed(project, **NO_CACHE) == ("fill", "")
    replace(project / "pyproject.toml", 'version = "1"', 'version = "2"')  # of another table
    assert printed(project, **NO_CACHE) == ("fill", "")


def test_without_the_key_an_import_warns_of_changes(tmp_path: Path) -> None:
    install(write_project(tmp_path, TABLE.replace(KEY, ""), FILES))
    settle(tmp_path)
    shown = {"PYTHONWARNINGS": "default"}
    assert printed(tmp_path, **shown) == ("fill", "")
    replace(tmp_path / "device/fill.cu", "fill(", "draw(")
    problem = "its kernels are older than its sources; changed: device/fill.cu"
    warning = (
        f"<string>:1: UserWarning: p.kernels: {problem}; run cuda-ext build in {tmp_path}, "
        "or set editable-rebuild = true\n"
    )
    assert printed(tmp_path, f"{NAMES}; import p.kernels", **shown) == ("fill", warning)
    doctor = "import sys; from cuda_ext.cli.doctor import doctor; sys.argv[1:] = ['p.kernels']; doctor()"
    assert problem in " ".join(python(tmp_path, doctor).stdout.split())
    assert command_line.run("build", tmp_path)[0] == 0
    assert printed(tmp_path, **shown) == ("draw", "")
    replace(tmp_path / "pyproject.toml", '"sm_90"', "7")
    assert "p.kernels: its project cannot be read any more: " in printed(tmp_path, **shown)[1]


# What is changed.


def test_an_edited_source_is_compiled(project: Path) -> None:
    replace(project / "device/fill.cu", "fill(", "paint(")
    names, message = printed(project)
    assert names == "paint"
    assert message.startswith("p.kernels: changed: device/fill.cu\np.kernels: with nvrtc ")
    assert "compiled" in message.splitlines()[-1]
    assert printed(project) == ("paint", "")
    replace(project / "device/fill.cu", "paint(", "fill(")
    assert printed(project) == ("fill", "")  # cached results are used silently
    replace(project / "pyproject.toml", '"sm_90"', '"sm_80"')
    assert printed(project, ARCHITECTURES)[0] == "sm_80"
    replace(project / "pyproject.toml", KEY, "")
    assert printed(project) == ("fill", "")
    replace(project / "device/fill.cu", "fill(", "paint(")
    assert "run cuda-ext build" in printed(project, PYTHONWARNINGS="default")[1]


def test_an_edited_header_is_noticed_however_old_it_looks(project: Path) -> None:
    settle(project)
    (project / "include/p/value.h").write_text("#define VALUE 2\n")
    os.utime(project / "include/p/value.h", ns=(0, 0))
    assert "changed: include/p/value.h\n" in printed(project)[1]


def test_a_new_source_and_one_that_is_gone(project: Path) -> None:
    settle(project)
    (project / "device/other.cu").write_text(FILL.replace("fill", "other"))
    names, message = printed(project)
    assert names == "fill other"
    assert "p.kernels: changed: device/other.cu\n" in message
    (project / "device/fill.cu").unlink()
    assert printed(project)[0] == "other"


def test_a_header_that_hides_another_is_noticed(project: Path) -> None:
    settle(project)
    (project / "device/p").mkdir()
    (project / "device/p/value.h").write_text("#define VALUE 3\n")
    assert "changed: device/p/value.h, include/p/value.h\n" in printed(project)[1]


def test_a_reload_brings_new_kernels_into_a_running_process(project: Path) -> None:
    script = (
        "import importlib, pathlib; from p import kernels; before = dir(kernels); "
        f"file = pathlib.Path({str(project / 'device/fill.cu')!r}); "
        "file.write_text(file.read_text().replace('fill', 'paint')); "
        "importlib.reload(kernels); print(*before, *dir(kernels))"
    )
    assert printed(project, script)[0] == "fill paint"


def test_all_modules_of_the_project_are_brought_up_to_date(tmp_path: Path) -> None:
    table = TABLE + '[tool.cuda_ext.modules."p.others"]\nsources = ["others/*.cu"]\n'
    install(write_project(tmp_path, table, {**FILES, "others/other.cu": FILL.replace("fill", "other")}))
    replace(tmp_path / "others/other.cu", "other(", "paint(")
    both = "from p import kernels, others; print(*dir(others))"
    names, message = printed(tmp_path, both)
    assert names == "paint"
    assert message.count("changed: others/other.cu") == 1


# Several processes.


def test_of_several_processes_one_compiles_and_all_see_the_same(project: Path) -> None:
    replace(project / "device/fill.cu", "fill(", "splash(")
    with ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda _: printed(project), range(3)))
    assert [names for names, _ in results] == ["splash"] * 3
    assert len([message for _, message in results if message]) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="sees processes wait by an event of fcntl")
def test_a_failed_compilation_is_not_repeated_by_other_processes(project: Path) -> None:
    replace(project / "device/fill.cu", "value;", "valeu;")
    says = (
        "import sys; sys.addaudithook(lambda event, _: event == 'fcntl.flock' and print('waits', flush=True))"
    )
    command = [sys.executable, "-c", f"{says}; {NAMES}"]
    with lock(project / "pyproject.toml"):
        processes = [
            subprocess.Popen(
                command,
                env=environment(project),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == "waits\n"
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert all('identifier "valeu" is undefined' in error for error in errors)
    assert len([error for error in errors if "sm_90 failed" in error]) == 1
    assert "sm_90 failed" in python(project).stderr  # a later one does


# What goes wrong.


MISTAKES = [
    ("device/fill.cu", "value;", "valeu;", 'device/fill.cu(2): error: identifier "valeu" is undefined'),
    (
        "pyproject.toml",
        "include-dirs",
        "include-dir",
        "tool.cuda_ext.include-dir: unknown key; did you mean 'include-dirs'?",
    ),
    (
        "pyproject.toml",
        "p.kernels",
        "p.others",
        "has no module 'p.kernels' any more; install the project again",
    ),
]


def test_a_module_that_cannot_be_compiled_is_not_imported(project: Path) -> None:
    for file, old, new, answer in MISTAKES:
        replace(project / file, old, new)
        message = refusal(project)
        assert answer in message
        replace(project / file, new, old)
    assert message.startswith("p.kernels: ")
    assert printed(project) == ("fill", "")


@pytest.mark.parametrize("damage", ["{", "[]", '{"schema": 1}'])
def test_a_damaged_record_is_reported(damage: str, project: Path) -> None:
    (project / "src/p/kernels/editable.json").write_text(damage)
    assert (
        "editable.json is damaged, or of another version of cuda-ext; install the project again"
        in refusal(project)
    )


def test_a_package_that_was_copied_under_another_name_is_left_as_it_is(project: Path) -> None:
    shutil.copytree(project / "src/p/kernels", project / "src/moved")
    replace(project / "device/fill.cu", "fill(", "paint(")
    names, message = printed(project, "import moved; print(moved.__file__)", PYTHONWARNINGS="default")
    assert names == str(project / "src/moved/__init__.py")
    assert f"is a copy of a package of an editable install in {project}" in message


def test_a_package_outside_of_the_root_is_compiled(tmp_path: Path) -> None:
    table = TABLE + '[tool.setuptools.package-dir]\n"" = "../src"\n'
    (tmp_path / "src/p").mkdir(parents=True)
    (tmp_path / "src/p/__init__.py").touch()
    files = {name: text for name, text in FILES.items() if not name.startswith("src")}
    install(write_project(tmp_path / "project", table, files))
    replace(tmp_path / "project/device/fill.cu", "fill(", "paint(")
    assert printed(tmp_path)[0] == "paint"


def test_without_a_lock_nothing_is_compiled(project: Path) -> None:
    without = "import sys; sys.modules['fcntl'] = None; "
    (project / "device/fill.cu").touch()
    assert printed(project, without + NAMES)[0] == "fill"
    replace(project / "device/fill.cu", "fill(", "paint(")
    message = python(project, without + NAMES).stderr
    assert "pyproject.toml: cannot be locked on this system" in message
    assert command_line.run("build", project)[0] == 0
    assert printed(project, without + NAMES) == ("paint", "")


def test_a_source_that_vanishes_while_it_is_read_is_a_build_error(project: Path) -> None:
    class Vanishing(Project):
        def source_files(self) -> list[Path]:
            found = super().source_files()
            (self.root / "include/p/value.h").unlink(missing_ok=True)
            return found

    with pytest.raises(BuildError, match=r"^include/p/value\.h: cannot be read: No such file"):
        input_digests(Vanishing(**vars(load(project))))


def test_a_copy_of_the_project_does_not_use_the_original(project: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(project, tmp_path / "copy")
    replace(project / "device/fill.cu", "fill(", "paint(")
    names, message = printed(copy, PYTHONWARNINGS="default")
    assert names == "fill"
    assert f"is a copy of a package of an editable install in {project}" in message


# Beside cuda-ext build.


@pytest.mark.parametrize("arguments", [(), ("--arch", "sm_75")])
def test_a_build_in_place_leaves_an_editable_install_one(arguments: tuple[str, ...], tmp_path: Path) -> None:
    place = install(write_project(tmp_path, TABLE, FILES), CUDAARCHS="80-real")
    assert command_line.run("build", tmp_path, *arguments)[0] == 0
    assert is_editable(place)
    assert printed(tmp_path, ARCHITECTURES) == (arguments[1] if arguments else "sm_80", "")
    assert json.loads((place / "editable.json").read_bytes())["cudaarchs"] == "80-real"
    # The next change is compiled for the architectures of the install.
    replace(tmp_path / "device/fill.cu", "fill(", "paint(")
    assert printed(tmp_path, ARCHITECTURES)[0] == "sm_80"


def test_a_build_in_place_creates_no_record(tmp_path: Path) -> None:
    write_project(tmp_path, TABLE, FILES)
    assert command_line.run("build", tmp_path)[0] == 0
    assert not is_editable(tmp_path / "src/p/kernels")


# Through build tools.


def rebuilding(package: Path) -> Path:
    """Set the key in the table of `package`."""
    pyproject = package / "pyproject.toml"
    pyproject.write_text(
        pyproject.read_text(encoding="utf-8").replace(
            "[tool.cuda_ext.modules", f"[tool.cuda_ext]\n{KEY}\n[tool.cuda_ext.modules", 1
        ),
        encoding="utf-8",
    )
    return package


SRC_LAYOUT = "from src_layout import kernels; print(*dir(kernels), kernels.__file__)"


@pytest.mark.slow
def test_a_strict_install_rebuilds_and_ships_no_record(
    current_environment: Environment, package_src_layout: Path, tmp_path: Path
) -> None:
    rebuilding(package_src_layout)
    current_environment.install_editable(package_src_layout, "strict")
    (package_src_layout / "device/fresh.cu").write_text(FILL.replace("fill", "fresh"))
    output = current_environment.run("-c", SRC_LAYOUT, cwd=tmp_path)
    uv("pip", "uninstall", "--python", current_environment.prefix, "src-layout")
    assert "changed: device/fresh.cu" in output
    place = package_src_layout / "src/src_layout/kernels"
    assert output.splitlines()[-1] == f"fill fresh scale {place / '__init__.py'}"
    assert (place / "fresh.fatbin").is_file()
    assert is_editable(place)
    for kind in ("wheel", "sdist"):
        files = contents(current_environment.build(package_src_layout, kind))
        assert not [name for name in files if name.endswith("editable.json")]
        assert b"refresh" not in files.get("src_layout/kernels/__init__.py", b"")


@pytest.mark.network
@pytest.mark.slow
def test_it_works_after_the_environment_of_an_isolated_build_is_removed(
    cuda_ext_wheel: Path, bare_environment: Environment, package_src_layout: Path, tmp_path: Path
) -> None:
    found = {"UV_FIND_LINKS": str(cuda_ext_wheel.parent)}
    rebuilding(package_src_layout)
    uv("pip", "install", "--python", bare_environment.prefix, "--editable", package_src_layout, **found)
    assert bare_environment.run("-c", SRC_LAYOUT, cwd=tmp_path).startswith("fill scale ")
    for source in (package_src_layout / "device").iterdir():
        source.touch()  # the digests are compared, for which no compiler is needed
    assert bare_environment.run("-c", SRC_LAYOUT, cwd=tmp_path).startswith("fill scale ")
    replace(package_src_layout / "device/scale.cu", "scale(", "stretch(")
    output = bare_environment.run("-c", SRC_LAYOUT, cwd=tmp_path, status=1)
    assert 'install it with "cuda-ext[cu13]"' in output.splitlines()[-1]
    # With the compiler of this environment.
    output = run(
        sys.executable, "-c", SRC_LAYOUT, PYTHONPATH=f"{package_src_layout / 'src'}:{ROOT}", cwd=tmp_path
    )
    assert output.splitlines()[-1].startswith("fill stretch ")
