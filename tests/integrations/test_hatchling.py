"""The build hook for hatchling: the same packages as from setuptools, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.environments import SETUPTOOLS, Environment, run, uv
from tests.integrations.test_setuptools import IMPORT, MODULES, assert_one_message, contents, mistake, replace

pytestmark = pytest.mark.xdist_group("environments")

HATCHLING = {"current": "hatchling", "oldest": "hatchling==1.27.*"}
BUILD_SYSTEM = """\
[build-system]
requires = ["hatchling>=1.27", "cuda-ext[cu13]"]
build-backend = "hatchling.build"

[project]
requires-python = ">=3.11"
"""
HOOK = "\n[tool.hatch.build.hooks.cuda-ext]\n"


def hatch(project: Path, more: str = "") -> Path:
    """Make hatchling the build backend of `project`."""
    pyproject = project / "pyproject.toml"
    _, _, rest = pyproject.read_text(encoding="utf-8").partition("[project]\n")
    pyproject.write_text(BUILD_SYSTEM + rest + HOOK + more, encoding="utf-8")
    return project


@pytest.fixture(scope="session", params=["current"])
def hatchling(request: pytest.FixtureRequest, environment_with: Callable[..., Environment]) -> Environment:
    """An environment with hatchling, in the current version unless a test names another."""
    environment = environment_with(SETUPTOOLS[request.param])
    uv("pip", "install", "--python", environment.prefix, HATCHLING[request.param], "editables")
    return environment


both = pytest.mark.parametrize(
    "hatchling", ["current", pytest.param("oldest", marks=pytest.mark.slow)], indirect=True
)


def shipped(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel without its metadata, which differ between build tools."""
    return {name: content for name, content in contents(archive).items() if ".dist-info/" not in name}


# Wheels and source distributions


@pytest.mark.parametrize("package", ["flat", "several_modules", "späße_und_mehr"])
def test_a_wheel_is_that_of_setuptools(
    package: str, hatchling: Environment, current_environment: Environment, request: pytest.FixtureRequest
) -> None:
    project = request.getfixturevalue(f"package_{package}")
    expected = current_environment.build(project, "wheel")
    files = shipped(expected)
    wheel = hatchling.build(hatch(project), "wheel")
    assert wheel.name == expected.name
    assert shipped(wheel) == files


def test_a_wheel_from_the_sdist_equals_one_from_the_tree(
    hatchling: Environment, package_headers: Path, tmp_path: Path
) -> None:
    # Neither what the project leaves out nor what version control ignores is missing.
    hatch(package_headers, '[tool.hatch.build.targets.sdist]\nonly-include = ["src"]\n')
    (package_headers / ".gitignore").write_text("kernels/\nvendor/\n", encoding="utf-8")
    sdist = hatchling.build(package_headers, "sdist")
    assert {name for name in contents(sdist) if name.endswith(("h", "cu"))} == {
        "device/clamp.cu",
        "device/limits.cuh",
        "include/headers/math.cuh",
        "include/headers/detail/compare.cuh",
        "vendor/include/vendor/compare.h",
    }
    shutil.unpack_archive(sdist, tmp_path / "unpacked", filter="data")
    (tree,) = (tmp_path / "unpacked").iterdir()
    wheel = hatchling.build(package_headers, "wheel")
    assert "headers/kernels/manifest.json" in contents(wheel)
    expected = wheel.read_bytes()
    assert hatchling.build(tree, "wheel").read_bytes() == expected


def test_paths_may_be_rewritten(hatchling: Environment, package_src_layout: Path) -> None:
    hatch(package_src_layout, '[tool.hatch.build.targets.wheel]\nsources = { "src" = "above" }\n')
    (package_src_layout / "src/src_layout").rename(package_src_layout / "src/below")
    pyproject = package_src_layout / "pyproject.toml"
    replace(pyproject, "sources = {", 'only-include = ["src"]\nsources = {')
    replace(pyproject, '"src_layout.kernels"', '"above.below.kernels"')
    names = shipped(hatchling.build(package_src_layout, "wheel"))
    assert {name.rpartition("/")[0] for name in names} == {
        "above/below",
        "above/below/kernels",
        "above/below/kernels/sources/device",
    }


# What in-place builds leave


@both
def test_files_of_an_editable_install_do_not_ship(hatchling: Environment, package_src_layout: Path) -> None:
    hatch(package_src_layout)
    expected = {kind: contents(hatchling.build(package_src_layout, kind)) for kind in ("wheel", "sdist")}
    gone = package_src_layout / "device/old.cu"
    gone.write_text('extern "C" __global__ void old(int* x) { *x = 1; }', encoding="utf-8")
    hatchling.install_editable(package_src_layout, "lenient")
    uv("pip", "uninstall", "--python", hatchling.prefix, "src-layout")  # others have this environment too
    gone.unlink()
    left = package_src_layout / "src/src_layout/kernels"
    (left / "__init__.py").write_text("raise SystemError('stale')", encoding="utf-8")
    # Nor does it under another name, nor where everything is asked for.
    shutil.copytree(left, left.with_name("formerly"))
    (package_src_layout / "device/compile_commands.json").write_text("[]", encoding="utf-8")
    for kind, files in expected.items():
        assert contents(hatchling.build(package_src_layout, kind)) == files
    with (package_src_layout / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('[tool.hatch.build]\nartifacts = ["src/**"]\n')
    assert contents(hatchling.build(package_src_layout, "wheel")) == expected["wheel"]


def test_clean_removes_files_built_in_place(hatchling: Environment, package_flat: Path) -> None:
    hatch(package_flat)
    hatchling.install_editable(package_flat, "lenient")
    kernels = package_flat / "flat/kernels"
    clean = ("-m", "hatchling", "build", "--clean-only", "--target", "wheel")
    (kernels / "notes.txt").touch()
    hatchling.run(*clean, cwd=package_flat)
    assert (kernels / "manifest.json").is_file(), "and with it the files of users were removed"
    (kernels / "notes.txt").unlink()
    hatchling.run(*clean, cwd=package_flat)
    assert [path.name for path in (package_flat / "flat").iterdir()] == ["__init__.py"]


def test_hooks_alone_leave_no_files(hatchling: Environment, package_flat: Path, tmp_path: Path) -> None:
    hatch(package_flat)
    before = sorted(package_flat.rglob("*"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    only = ("-m", "hatchling", "build", "--hooks-only", "--directory", tmp_path / "out")
    hatchling.run(*only, cwd=package_flat, TMPDIR=str(scratch))
    assert sorted(package_flat.rglob("*")) == before
    assert not list(scratch.iterdir())


# Editable


def test_kernels_are_importable_from_an_editable_install(
    hatchling: Environment, package_several_modules: Path, tmp_path: Path
) -> None:
    hatchling.install_editable(hatch(package_several_modules), "lenient")
    for module in MODULES["several_modules"]:
        assert str(package_several_modules) in hatchling.run("-c", IMPORT, module, cwd=tmp_path)


def test_an_editable_install_can_be_rebuilt_on_import(
    hatchling: Environment, package_flat: Path, tmp_path: Path
) -> None:
    replace(package_flat / "pyproject.toml", "architectures =", "editable-rebuild = true\narchitectures =")
    hatchling.install_editable(hatch(package_flat), "lenient")
    replace(package_flat / "device/axpy.cu", "axpy", "renamed")
    script = "from flat import kernels; print(kernels.renamed.signature)"
    assert hatchling.run("-c", script, cwd=tmp_path).splitlines()[-1].startswith("renamed(")
    wheel = hatchling.build(package_flat, "wheel")
    assert not [name for name in shipped(wheel) if "editable" in name]


def test_git_ignores_files_built_in_place(hatchling: Environment, package_flat: Path) -> None:
    hatchling.install_editable(hatch(package_flat), "lenient")
    run("git", "init", "--quiet", cwd=package_flat)
    seen = run("git", "status", "--porcelain", "--untracked-files=all", "flat", cwd=package_flat)
    assert seen == "?? flat/__init__.py\n"


# Mistakes


def fails_to_build(environment: Environment, project: Path, target: str = "wheel") -> str:
    """Build `target` in vain; return the message."""
    output = environment.run("-m", "hatchling", "build", "-t", target, status=1, cwd=project)
    assert "Traceback" not in output
    _, message = output.split("cuda-ext: error: ")
    return message


@pytest.mark.parametrize("command", ["wheel", "install -e"])
def test_pip_shows_one_message(command: str, hatchling: Environment, package_src_layout: Path) -> None:
    message = mistake(hatch(package_src_layout))
    how = ("--no-build-isolation", "--no-deps")
    output = hatchling.run("-m", "pip", *command.split(), ".", *how, status=1, cwd=package_src_layout)
    assert_one_message(message, output)


def test_uv_shows_one_message(hatchling: Environment, package_src_layout: Path) -> None:
    message = mistake(hatch(package_src_layout))
    how = ("--no-build-isolation", "--offline", "--python", hatchling.prefix)
    assert_one_message(message, uv("build", *how, package_src_layout, status=2))


@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_a_project_without_the_table(target: str, hatchling: Environment, package_no_table: Path) -> None:
    assert fails_to_build(hatchling, hatch(package_no_table), target) == (
        f"{package_no_table / 'pyproject.toml'}: has no [tool.cuda_ext] table; add it, an empty one compiles "
        "device/*.cu\n"
    )


def test_a_key_in_the_wrong_table(hatchling: Environment, package_flat: Path) -> None:
    hatch(package_flat, 'sources = ["device/*.cu"]\n')
    assert fails_to_build(hatchling, package_flat) == (
        "tool.hatch.build.hooks.cuda-ext.sources: unknown key; settings of the build are in [tool.cuda_ext]\n"
    )


def test_a_module_outside_the_project(hatchling: Environment, package_src_layout: Path) -> None:
    replace(package_src_layout / "pyproject.toml", '"src_layout.kernels"', '"src_lay0ut.kernels"')
    assert fails_to_build(hatchling, hatch(package_src_layout)) == (
        'tool.cuda_ext.modules."src_lay0ut.kernels": is not in a package of this project; it has src_layout; '
        "begin the name with one\n"
    )


def test_a_module_where_something_is(hatchling: Environment, package_src_layout: Path) -> None:
    path = package_src_layout / "src/src_layout/kernels.py"
    path.write_text("precious = True\n", encoding="utf-8")
    assert "kernels.py is where it would be generated" in fails_to_build(hatchling, hatch(package_src_layout))
    assert path.read_text(encoding="utf-8") == "precious = True\n"


def test_a_compiler_error(hatchling: Environment, package_flat: Path) -> None:
    replace(package_flat / "device/axpy.cu", "a * x", "b * x")
    message = fails_to_build(hatchling, hatch(package_flat))
    assert 'device/axpy.cu(3): error: identifier "b" is undefined' in message
