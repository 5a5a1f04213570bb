"""What holds for every backend that builds wheels of Python: one fact for each test, with each backend."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.fixtures.environments import run, uv
from tests.integrations.backends import Backend, assert_one_message, backend, hatchling, make_mistake, replace

__all__ = ["backend", "hatchling"]  # fixtures

pytestmark = pytest.mark.xdist_group("environments")

ALONE = ("--no-build-isolation", "--no-deps")


@pytest.fixture
def mistaken(backend: Backend, package_src_layout: Path) -> Path:
    """A project with a mistaken key."""
    return backend.prepare(make_mistake(package_src_layout))


@pytest.mark.parametrize("command", ["wheel", pytest.param("install -e", marks=pytest.mark.slow)])
def test_pip_shows_one_message(command: str, backend: Backend, mistaken: Path) -> None:
    assert_one_message(
        backend.environment.run("-m", "pip", *command.split(), ".", *ALONE, status=1, cwd=mistaken)
    )


def test_uv_shows_one_message(backend: Backend, mistaken: Path) -> None:
    how = ("--no-build-isolation", "--offline", "--python", backend.environment.prefix)
    assert_one_message(uv("build", *how, mistaken, status=2))
    assert_one_message(backend.environment.install_editable(mistaken, "lenient", status=1))


THERE = "{} is where it would be generated; move it, or rename the module"
OUTSIDE = "is not in a package of this project; it has src_layout; begin the name with one\n"
# Mistakes: the file, what is replaced in it (nothing: the file is new), by what, and the answer.
MISTAKES = {
    "a compiler error": ("device/scale.cu", "*=", "*= b", '(3): error: identifier "b" is undefined'),
    "a module outside": ("pyproject.toml", '"src_layout.kernels"', '"src_lay0ut.kernels"', OUTSIDE),
    "a misspelt table": (
        "pyproject.toml",
        "[tool.cuda_ext",
        "[tool.cuda-ext",
        "did you mean [tool.cuda_ext]?",
    ),
    **{
        f"{name} is there": (f"src/src_layout/{name}", "", "precious = True", THERE.format(name))
        for name in ("kernels/__init__.py", "kernels/axpy.cu")
    },
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake(mistake: str, backend: Backend, package_src_layout: Path) -> None:
    name, old, new, answer = MISTAKES[mistake]
    path = package_src_layout / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    replace(path, old, new)
    project = backend.prepare(package_src_layout)
    mistaken = path.read_bytes()
    assert answer in backend.fails_to_build(project)
    assert path.read_bytes() == mistaken
    assert not list(project.rglob("*.fatbin"))


def test_an_editable_install_is_importable_and_git_ignores_its_files(
    backend: Backend, package_several_modules: Path, tmp_path: Path
) -> None:
    backend.environment.install_editable(backend.prepare(package_several_modules), "lenient")
    script = "from several_modules.signal import kernels; print(kernels.__file__)"
    assert str(package_several_modules) in backend.environment.run("-c", script, cwd=tmp_path)
    run("git", "init", "--quiet", cwd=package_several_modules)
    seen = run("git", "status", "--porcelain", "--untracked-files=all", "src", cwd=package_several_modules)
    assert sorted(seen.split()[1::2]) == [
        "src/several_modules/__init__.py",
        "src/several_modules/signal/__init__.py",
    ]
    uv("pip", "uninstall", "--python", backend.environment.prefix, "several-modules")


def test_a_wheel_has_the_architectures_of_a_setting_of_the_front_end(
    backend: Backend, package_flat: Path, tmp_path: Path
) -> None:
    setting = ("-C", "architectures=sm_80")
    backend.environment.run(
        "-m", "pip", "wheel", backend.prepare(package_flat), *ALONE, *setting, "-w", tmp_path
    )
    (wheel,) = tmp_path.glob("*.whl")
    manifest = zipfile.ZipFile(wheel).read("flat/kernels/manifest.json").decode()
    assert '"sm_80"' in manifest
    assert '"sm_90"' not in manifest
