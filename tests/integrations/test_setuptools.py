"""``build_cuda``: builds of projects with a ``[tool.cuda_ext]`` table; other projects are unaffected."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.environments import EPOCH, NO_CACHE, SETUPTOOLS, Environment, run
from tests.integrations import backends
from tests.integrations.backends import SETUP, assert_one_message, make_mistake, replace

pytestmark = pytest.mark.xdist_group("environments")

# What each sample project makes: its modules and their kernels.
MODULES = {
    "flat": {"flat.kernels": ["axpy"]},
    "headers": {"headers.kernels": ["clamp"]},
    "several_modules": {"several_modules.linear": ["scale"], "several_modules.signal.kernels": ["mirror"]},
    "späße_und_mehr": {"spaesse.kernels": ["square"]},
    "src_layout": {"src_layout.kernels": ["fill<float>", "fill<int>", "scale"]},
    "with_c_extension": {"with_c_extension.kernels": ["halve"]},
    "with_cmdclass": {"with_cmdclass.kernels": ["axpy"]},
}
# Most tests run with two versions of setuptools. These do not depend on it.
current = pytest.mark.parametrize("environment", [SETUPTOOLS["current"]], indirect=True, ids=["current"])

IMPORT = "import importlib, sys; print(importlib.import_module(sys.argv[1]).__file__)"


def contents(archive: Path) -> dict[str, bytes]:
    """The files of a wheel or an sdist, without the sdist's leading directory."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as sdist:
        files = [member for member in sdist if member.isfile()]
        return {m.name.partition("/")[2]: sdist.extractfile(m).read() for m in files}  # type: ignore[union-attr]


def kernels(files: Mapping[str, bytes], module: str) -> list[str]:
    """The kernels of a generated package, by its manifest."""
    manifest = json.loads(files[f"{module.replace('.', '/')}/manifest.json"])
    return sorted(kernel["expression"] for kernel in manifest["kernels"])


# Wheels


@pytest.mark.parametrize("package", MODULES)
def test_a_wheel_holds_the_generated_packages(
    package: str, environment: Environment, request: pytest.FixtureRequest
) -> None:
    files = contents(request.getfixturevalue(f"wheel_{package}"))
    assert {module: kernels(files, module) for module in MODULES[package]} == MODULES[package]


def test_a_generated_package_is_complete(wheel_headers: Path) -> None:
    assert [name for name in contents(wheel_headers) if name.startswith("headers/")] == [
        "headers/__init__.py",
        "headers/kernels/__init__.py",
        "headers/kernels/__init__.pyi",
        "headers/kernels/clamp.fatbin",
        "headers/kernels/manifest.json",
        "headers/kernels/sources/device/clamp.cu",
        "headers/kernels/sources/device/limits.cuh",
        "headers/kernels/sources/include/headers/math.cuh",
        "headers/kernels/sources/include/headers/detail/compare.cuh",
        "headers/kernels/sources/vendor/include/vendor/compare.h",
    ]


def test_a_c_extension_alone_gives_a_wheel_a_tag(
    wheel_flat: Path, wheel_src_layout: Path, wheel_with_cmdclass: Path, wheel_with_c_extension: Path
) -> None:
    for wheel in (wheel_flat, wheel_src_layout, wheel_with_cmdclass):
        assert wheel.name.endswith("-1.0-py3-none-any.whl")
    assert "none-any" not in wheel_with_c_extension.name
    assert any(Path(name).stem.startswith("_answer.") for name in contents(wheel_with_c_extension))
    # Steps of a replaced build stay.
    assert contents(wheel_with_cmdclass)["with_cmdclass/stamp.txt"] == b"stamped\n"


@current
def test_generated_files_are_as_readable_as_others(wheel_flat: Path) -> None:
    with zipfile.ZipFile(wheel_flat) as wheel:
        modes = {info.external_attr for info in wheel.infolist() if info.filename.startswith("flat/")}
    assert len(modes) == 1


@current
def test_a_build_class_may_come_from_distutils(environment: Environment, package_with_cmdclass: Path) -> None:
    replace(package_with_cmdclass / "commands.py", "from setuptools.command", "from distutils.command")
    files = contents(environment.build(package_with_cmdclass, "wheel"))
    assert kernels(files, "with_cmdclass.kernels") == ["axpy"]


@current
@pytest.mark.parametrize("directory", ["gpu", "flat/gpu"])
def test_device_code_lies_anywhere_in_a_flat_layout(
    directory: str, environment: Environment, package_flat: Path
) -> None:
    (package_flat / "device").rename(package_flat / directory)
    with (package_flat / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(f'sources = ["{directory}/*.cu"]\n')
    assert kernels(contents(environment.build(package_flat, "wheel")), "flat.kernels") == ["axpy"]


SETUP_PY = """
from setuptools import setup
from setuptools.command.build import build

class Build(build):
    sub_commands = list(build.sub_commands)

setup(name="flat", version="1.0", packages=["flat"], cmdclass={"build": Build})
"""


def test_a_project_that_is_configured_in_setup_py(environment: Environment, package_flat: Path) -> None:
    pyproject = package_flat / "pyproject.toml"
    build_system, _, _ = pyproject.read_text(encoding="utf-8").partition("[project]")
    pyproject.write_text(f"{build_system}[tool.cuda_ext]\n", encoding="utf-8")
    (package_flat / "setup.py").write_text(SETUP_PY, encoding="utf-8")
    wheel = environment.build(package_flat, "wheel", CUDAARCHS="90-real")
    assert kernels(contents(wheel), "flat.kernels") == ["axpy"]


# Source distributions


@pytest.mark.parametrize("package", ["headers", "späße_und_mehr", "with_cmdclass"])
def test_a_wheel_from_the_sdist_equals_one_from_the_tree(
    package: str, environment: Environment, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    sdist, wheel = (request.getfixturevalue(f"{kind}_{package}") for kind in ("sdist", "wheel"))
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    rebuilt = environment.build(tree, "wheel", SOURCE_DATE_EPOCH=EPOCH, **NO_CACHE)
    assert rebuilt.read_bytes() == wheel.read_bytes()


@current
def test_an_sdist_needs_no_compiler(
    bare_environment: Environment, package_headers: Path, sdist_headers: Path
) -> None:
    sdist = bare_environment.build(package_headers, "sdist")
    assert contents(sdist).keys() == contents(sdist_headers).keys()


# Stale outputs


@pytest.mark.parametrize("forgotten", ["build", "src/src_layout/kernels"])
def test_a_renamed_module_leaves_no_files(
    forgotten: str, environment: Environment, package_src_layout: Path
) -> None:
    # An in-place build writes to both; each must be enough to tell that the package is generated.
    environment.run("-c", SETUP, "build_ext", "--inplace", cwd=package_src_layout)
    shutil.rmtree(package_src_layout / forgotten)
    replace(package_src_layout / "pyproject.toml", "src_layout.kernels", "src_layout.device")
    for kind in ("wheel", "sdist"):
        files = contents(environment.build(package_src_layout, kind))
        assert not [name for name in files if "src_layout/kernels" in name]


@pytest.mark.parametrize("manifest", [pytest.param("", marks=pytest.mark.slow), "graft src\ngraft device\n"])
def test_files_of_an_inplace_build_do_not_ship(
    manifest: str,
    environment: Environment,
    package_src_layout: Path,
    wheel_src_layout: Path,
    sdist_src_layout: Path,
) -> None:
    (package_src_layout / "MANIFEST.in").write_text(manifest, encoding="utf-8")
    gone = package_src_layout / "device" / "old.cu"
    gone.write_text('extern "C" __global__ void old(int* x) { *x = 1; }', encoding="utf-8")
    report = {"CUDA_EXT_REPORT": "device/r.html"}
    environment.run("-c", SETUP, "build_ext", "--inplace", cwd=package_src_layout, **report)
    gone.unlink()
    left = package_src_layout / "src/src_layout/kernels"
    assert (left / "old.fatbin").is_file()
    (left / "__init__.py").write_text("raise SystemError('stale')", encoding="utf-8")
    (package_src_layout / "device/compile_commands.json").write_text("[]", encoding="utf-8")
    wheel = environment.build(package_src_layout, "wheel", SOURCE_DATE_EPOCH=EPOCH)
    assert contents(wheel) == contents(wheel_src_layout)
    sdist = environment.build(package_src_layout, "sdist")
    listed = {name.partition("/")[2] for name in contents(sdist)} - {"MANIFEST.in"}
    assert listed == {name.partition("/")[2] for name in contents(sdist_src_layout)}


@current
def test_data_of_the_project_stays(environment: Environment, package_flat: Path) -> None:
    # It is called as our manifest is, and an earlier build left a copy of it in build/lib.
    (package_flat / "flat/web").mkdir()
    (package_flat / "flat/web/__init__.py").touch()
    (package_flat / "flat/web/manifest.json").write_text('{"name": "flat"}', encoding="utf-8")
    with (package_flat / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('\n[tool.setuptools.package-data]\n"*" = ["*.json"]\n')
    for _ in range(2):
        assert "flat/web/manifest.json" in contents(environment.build(package_flat, "wheel"))


# In place and editable


@pytest.mark.parametrize(
    ("package", "editable_mode"),
    [
        ("späße_und_mehr", "lenient"),
        ("with_c_extension", "strict"),
        pytest.param("späße_und_mehr", "strict", marks=pytest.mark.slow),
        pytest.param("with_c_extension", "lenient", marks=pytest.mark.slow),
    ],
)
def test_kernels_are_importable_from_an_editable_install(
    package: str, editable_mode: str, environment: Environment, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    project = request.getfixturevalue(f"editable_{package}")
    for module in MODULES[package]:
        assert str(project) in environment.run("-c", IMPORT, module, cwd=tmp_path)


@current
def test_pip_installs_editable(environment: Environment, package_src_layout: Path, tmp_path: Path) -> None:
    how = ("--no-build-isolation", "--no-deps", "--target", tmp_path / "site")
    environment.run("-m", "pip", "install", *how, "-e", package_src_layout)
    script = f"import site, sys; site.addsitedir({str(tmp_path / 'site')!r}); {IMPORT}"
    assert str(package_src_layout) in environment.run("-c", script, "src_layout.kernels", cwd=tmp_path)


@current
def test_a_strict_editable_install_links_every_generated_file(
    environment: Environment, package_src_layout: Path, wheel_src_layout: Path
) -> None:
    environment.install_editable(package_src_layout, "strict")
    (links,) = (package_src_layout / "build").glob("__editable__*/src_layout/kernels")
    linked = {file.relative_to(links.parents[1]).as_posix(): file for file in links.rglob("*.*")}
    shipped = {name for name in contents(wheel_src_layout) if name.startswith("src_layout/kernels/")}
    assert linked.keys() == shipped | {"src_layout/kernels/editable.json"}  # which warns of changed sources
    assert all(link.samefile(package_src_layout / "src" / name) for name, link in linked.items())


@current
def test_the_command_knows_its_outputs(environment: Environment, package_flat: Path) -> None:
    script = (
        "from setuptools import setup; built = setup(script_args=['-q', 'build']); "
        "print(*built.get_command_obj('build_cuda').get_outputs())"
    )
    outputs = environment.run("-c", script, cwd=package_flat).splitlines()[-1].split()
    generated = (package_flat / "build/lib/flat/kernels").rglob("*.*")
    assert sorted(outputs) == sorted(str(file.relative_to(package_flat)) for file in generated)


def test_build_ext_inplace_before_a_wheel(
    environment: Environment, package_flat: Path, wheel_flat: Path
) -> None:
    environment.run("-c", SETUP, "build_ext", "--inplace", "bdist_wheel", cwd=package_flat, **NO_CACHE)
    shipped = {n: content for n, content in contents(wheel_flat).items() if n.startswith("flat/kernels/")}
    assert {name: (package_flat / name).read_bytes() for name in shipped} == shipped
    (wheel,) = (package_flat / "dist").iterdir()
    assert shipped.items() <= contents(wheel).items()


def test_build_ext_inplace_beside_a_c_extension(
    environment: Environment, package_with_c_extension: Path
) -> None:
    environment.run("setup.py", "build_ext", "--inplace", cwd=package_with_c_extension)
    package = package_with_c_extension / "src/with_c_extension"
    assert (package / "kernels/halve.fatbin").is_file()
    assert list(package.glob("_answer.*"))


# Projects without the table


def test_a_project_without_the_table_is_left_alone(
    environment: Environment, wheel_no_table: Path, package_no_table: Path, tmp_path: Path
) -> None:
    version = environment.run("-c", "import setuptools; print(setuptools.__version__)").strip()
    plain = Environment.make(tmp_path / "plain", f"setuptools=={version}")
    wheel = plain.build(package_no_table, "wheel", SOURCE_DATE_EPOCH=EPOCH)
    assert wheel.read_bytes() == wheel_no_table.read_bytes()


@current
def test_a_project_without_the_table_is_left_alone_by_one_before_it(
    environment: Environment, package_flat: Path, package_no_table: Path
) -> None:
    script = (
        "import os, sys, setuptools; "
        "[(os.chdir(tree), setuptools.setup(script_args=['-q', 'build'])) for tree in sys.argv[1:]]"
    )
    environment.run("-c", script, package_flat, package_no_table)
    assert not list((package_no_table / "build/lib/no_table").glob("kernels"))


@pytest.mark.parametrize("text", ["", "tool = 3", "not toml", "\udcff", '[tool]\ncuda_extra = "x"', None])
def test_opening_a_project_without_the_table_loads_nothing(
    text: str | None, environment: Environment, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8", errors="surrogateescape")
    script = (
        "import sys, setuptools; setuptools.Distribution(); "
        "print(*sorted(m for m in sys.modules if m.startswith(('cuda', 'jinja2', 'numpy'))))"
    )
    assert environment.run("-c", script, cwd=tmp_path).split() == [
        "cuda_ext",
        "cuda_ext.errors",
        "cuda_ext.integrations",
        "cuda_ext.integrations.backend",
        "cuda_ext.integrations.setuptools",
    ]


# Mistakes


def test_setup_shows_one_message(environment: Environment, package_src_layout: Path) -> None:
    make_mistake(package_src_layout)
    output = environment.run("-c", SETUP, "build_ext", "--inplace", status=1, cwd=package_src_layout)
    assert_one_message(output)
    assert_one_message(output.splitlines()[-1])


def fails_to_build(environment: Environment, project: Path) -> str:
    """Build a wheel in vain; return the message."""
    return backends.fails_to_build(environment, project, "-c", SETUP, "-q", "bdist_wheel")


def test_a_build_that_leaves_the_step_out(environment: Environment, package_with_cmdclass: Path) -> None:
    replace(package_with_cmdclass / "commands.py", "*build.sub_commands", '("build_py", None)')
    assert fails_to_build(environment, package_with_cmdclass) == (
        "commands.Build: its sub_commands leave out the kernels; "
        'begin them with *setuptools.command.build.build.sub_commands, or add ("build_cuda", None)\n'
    )


def test_no_compiler(bare_environment: Environment, package_flat: Path) -> None:
    assert "cuda-ext[cu13]" in fails_to_build(bare_environment, package_flat)


# Read-only trees


def read_only(tree: Path, *command: str | Path, **options: Any) -> str:
    """Run a program in `tree` while nothing can be written there."""
    if os.geteuid() == 0:
        # Permissions do not stop root, but a read-only mount in a namespace does.
        if not (shutil.which("unshare") and shutil.which("mount")):
            pytest.skip("root needs unshare(1) and mount(8) to make a tree read-only")
        mount = 'mount --bind -o ro "$0" "$0" && cd "$0" && exec "$@"'
        return run("unshare", "--mount", "sh", "-c", mount, tree, *command, **options)
    paths = [tree, *tree.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        return run(*command, cwd=tree, **options)
    finally:
        for path in paths:
            path.chmod(path.stat().st_mode | 0o200)


@current
@pytest.mark.skipif(sys.platform != "linux", reason="needs mount namespaces")
def test_a_read_only_tree_builds_where_setuptools_can(
    environment: Environment, package_flat: Path, wheel_flat: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    setup = (environment.python, "-c", SETUP, "egg_info", "--egg-base", elsewhere, "build", "-b", elsewhere)
    wheel = ("bdist_wheel", "-b", elsewhere / "bdist", "-d", elsewhere / "dist")
    read_only(package_flat, *setup, *wheel, SOURCE_DATE_EPOCH=EPOCH, **NO_CACHE)
    (built,) = (elsewhere / "dist").iterdir()
    assert built.read_bytes() == wheel_flat.read_bytes()


@current
@pytest.mark.skipif(sys.platform != "linux", reason="needs mount namespaces")
def test_a_read_only_tree_fails_as_without_us(
    environment: Environment, package_flat: Path, package_no_table: Path
) -> None:
    command = (environment.python, "-c", SETUP, "-q", "bdist_wheel")
    outputs = [read_only(tree, *command, status=1) for tree in (package_flat, package_no_table)]
    ours, theirs = (output.splitlines()[-1] for output in outputs)
    assert ours.replace("flat", "no_table") == theirs.replace("src/", "")


# With isolation, as users build


@pytest.fixture(scope="session")
def isolated(cuda_ext_wheel: Path) -> dict[str, Any]:
    """Variables with which the front ends find this checkout's cuda-ext."""
    links = str(cuda_ext_wheel.parent)
    also = os.environ.get("PIP_FIND_LINKS", "")
    return {"PIP_FIND_LINKS": f"{links} {also}", "UV_FIND_LINKS": links, "SOURCE_DATE_EPOCH": EPOCH}


@pytest.mark.network
@pytest.mark.slow  # test_init installs a project with isolation, too
@pytest.mark.parametrize("front_end", ["pip", "build", "uv"])
def test_an_isolated_build(
    front_end: str, isolated: dict[str, Any], package_src_layout: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = {
        "pip": ("pip", "wheel", "--no-deps", "--wheel-dir", out),
        "build": ("build", "--installer", "uv", "--outdir", out),
        "uv": ("uv", "build", "--out-dir", out),
    }[front_end]
    run(sys.executable, "-m", *command, package_src_layout, **isolated)
    (wheel,) = out.glob("*.whl")
    assert kernels(contents(wheel), "src_layout.kernels") == MODULES["src_layout"]["src_layout.kernels"]
