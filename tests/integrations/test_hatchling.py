"""The build hook for hatchling: the same packages as from setuptools, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fixtures.environments import Environment, uv
from tests.integrations.backends import fails_to_build, hatch, hatchling, replace
from tests.integrations.test_setuptools import contents

__all__ = ["hatchling"]  # a fixture

pytestmark = pytest.mark.xdist_group("environments")


BUILD = ("-m", "hatchling", "build", "-t")
both = pytest.mark.parametrize(
    "hatchling", ["current", pytest.param("oldest", marks=pytest.mark.slow)], indirect=True
)


def shipped(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel without its metadata, which differ between build tools."""
    return {name: content for name, content in contents(archive).items() if ".dist-info/" not in name}


# Wheels and source distributions


def test_a_wheel_is_that_of_setuptools(
    hatchling: Environment, current_environment: Environment, package_späße_und_mehr: Path
) -> None:
    expected = current_environment.build(package_späße_und_mehr, "wheel")
    files = shipped(expected)
    wheel = hatchling.build(hatch(package_späße_und_mehr), "wheel")
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


# Mistakes


@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_a_project_without_the_table(target: str, hatchling: Environment, package_no_table: Path) -> None:
    assert fails_to_build(hatchling, hatch(package_no_table), *BUILD, target) == (
        f"{package_no_table / 'pyproject.toml'}: has no [tool.cuda_ext] table; add it, an empty one compiles "
        "device/*.cu\n"
    )


def test_a_key_in_the_wrong_table(hatchling: Environment, package_flat: Path) -> None:
    hatch(package_flat, 'sources = ["device/*.cu"]\n')
    assert fails_to_build(hatchling, package_flat, *BUILD, "wheel") == (
        "tool.hatch.build.hooks.cuda-ext.sources: unknown key; settings of the build are in [tool.cuda_ext]\n"
    )
