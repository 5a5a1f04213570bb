"""The sample projects of ``tests/packages``, and what becomes of them, as fixtures.

Every folder ``x`` there gives ``package_x`` (a copy to play with), ``wheel_x`` and ``sdist_x`` (built from a
copy, once) and ``editable_x`` (a copy, installed in ``environment`` while the test runs).

Environments are made by uv, with a wheel of this checkout; only making them needs the registry.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = CHECKOUT / "tests" / "packages"
SETUPTOOLS = {"current": "setuptools", "oldest": "setuptools==77.*"}
NO_CACHE = {"CUDA_EXT_CACHE_SIZE": "0"}  # everything is compiled
EPOCH = "1700000000"  # for SOURCE_DATE_EPOCH, without which a wheel holds the time at which it was made


def run(*command: str | Path, status: int = 0, cwd: Path | None = None, **variables: str) -> str:
    """Run a program that must end with `status`; return all that it prints."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, "PYTHONUTF8": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


# Left alone, uv breaks the lines of longer messages.
uv = functools.partial(run, sys.executable, "-m", "uv", UV_NO_WRAP="1")


@dataclass(frozen=True)
class Environment:
    """A virtual environment apart from the one that runs the tests."""

    prefix: Path

    @classmethod
    def make(cls, prefix: Path, *requirements: str) -> Environment:
        uv("venv", "--python", sys.executable, prefix)
        uv("pip", "install", "--compile-bytecode", "--python", prefix, *requirements)
        return cls(prefix)

    @property
    def python(self) -> Path:
        return self.prefix / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def run(self, *arguments: str | Path, **options: Any) -> str:
        """Run its Python; the options are those of :func:`run`."""
        return run(self.python, *arguments, **options)

    def build(self, project: Path, kind: str, **variables: str) -> Path:
        """Build the ``wheel`` or ``sdist`` of `project` with what is installed here."""
        out = project.with_name(f"dist of {project.name}")
        shutil.rmtree(out, ignore_errors=True)
        where = ("--python", self.prefix, "--out-dir", out)
        uv("build", f"--{kind}", "--no-build-isolation", "--offline", *where, project, **variables)
        (built,) = (file for file in out.iterdir() if file.name != ".gitignore")
        return built

    def install_editable(self, project: Path, mode: str, **options: Any) -> str:
        """Install `project` in ``lenient`` or ``strict`` editable mode with what is installed here."""
        how = ("--no-build-isolation", "--no-deps", "--offline", "--config-settings", f"editable-mode={mode}")
        return uv("pip", "install", "--python", self.prefix, *how, "--editable", project, **options)


@pytest.fixture(scope="session")
def cuda_ext_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout."""

    def unneeded(directory: str, names: list[str]) -> set[str]:
        # A stale `build` would ship, and building here would leave one.
        return {n for n in names if n[0] == "." or (directory == str(CHECKOUT) and n in ("build", "tests"))}

    copy = tmp_path_factory.mktemp("checkout") / "cuda_ext"
    shutil.copytree(CHECKOUT, copy, ignore=unneeded)
    uv("build", "--wheel", "--out-dir", copy.parent, copy)
    (wheel,) = copy.parent.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def environment_with(
    cuda_ext_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Environment]:
    """All that building takes, with the setuptools that a requirement names and nvcc if wanted; made once."""

    @functools.cache
    def environment_with(setuptools: str, extra: str = "cu13") -> Environment:
        cuda_ext = f"cuda-ext[{extra}] @ {cuda_ext_wheel.as_uri()}"
        return Environment.make(tmp_path_factory.mktemp("environment"), cuda_ext, setuptools, "build", "pip")

    return environment_with


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(SETUPTOOLS["current"], id="current"),
        pytest.param(SETUPTOOLS["oldest"], id="oldest", marks=pytest.mark.slow),
    ],
)
def environment(request: pytest.FixtureRequest, environment_with: Callable[..., Environment]) -> Environment:
    """An environment with the current setuptools, and one with the oldest."""
    return environment_with(request.param)


@pytest.fixture(scope="session")
def current_environment(environment_with: Callable[..., Environment]) -> Environment:
    """The one with the current setuptools."""
    return environment_with(SETUPTOOLS["current"])


@pytest.fixture(scope="session")
def bare_environment(cuda_ext_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """cuda-ext without a compiler."""
    prefix = tmp_path_factory.mktemp("bare")
    return Environment.make(prefix, f"cuda-ext @ {cuda_ext_wheel.as_uri()}", "setuptools")


@pytest.fixture
def editable_mode() -> str:
    """How ``editable_x`` is installed; a test that wants another mode parametrizes it."""
    return "lenient"


def _fixtures_of(folder: Path) -> Iterator[tuple[str, Callable[..., Any]]]:
    def copied(to: Path) -> Path:
        if any(folder.rglob("*.c")) and not any(map(shutil.which, ("cc", "gcc", "clang", "cl"))):
            pytest.skip(f"{folder.name} has a C extension, and no C compiler is on PATH")
        return Path(shutil.copytree(folder, to / folder.name))

    @pytest.fixture
    def package(tmp_path: Path) -> Path:
        return copied(tmp_path)

    @pytest.fixture(scope="session")
    def wheel(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return environment.build(copied(tmp_path_factory.mktemp("wheel")), "wheel", SOURCE_DATE_EPOCH=EPOCH)

    @pytest.fixture(scope="session")
    def sdist(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return environment.build(copied(tmp_path_factory.mktemp("sdist")), "sdist")

    @pytest.fixture
    def editable(environment: Environment, editable_mode: str, tmp_path: Path) -> Iterator[Path]:
        project = copied(tmp_path)
        environment.install_editable(project, editable_mode)
        yield project
        name = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
        uv("pip", "uninstall", "--python", environment.prefix, name)

    name = re.sub(r"\W+", "_", folder.name)
    yield from {f"package_{name}": package, f"wheel_{name}": wheel}.items()
    yield from {f"sdist_{name}": sdist, f"editable_{name}": editable}.items()


for _folder in sorted(PACKAGES.iterdir()):
    globals().update(_fixtures_of(_folder))
