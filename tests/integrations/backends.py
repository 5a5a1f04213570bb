"""The backends that call cuda-ext in a build of Python: how a project names each, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.environments import SETUPTOOLS, Environment, uv

HATCHLING = {"current": "hatchling", "oldest": "hatchling==1.27.*"}
BUILD_SYSTEM = """\
[build-system]
requires = ["hatchling>=1.27", "cuda-ext[cu13]"]
build-backend = "hatchling.build"

[project]
requires-python = ">=3.11"
"""
HOOK = "\n[tool.hatch.build.hooks.cuda-ext]\n"
SETUP = "from setuptools import setup; setup()"


def hatch(project: Path, more: str = "") -> Path:
    """Make hatchling the build backend of `project`."""
    pyproject = project / "pyproject.toml"
    _, _, rest = pyproject.read_text(encoding="utf-8").partition("[project]\n")
    pyproject.write_text(BUILD_SYSTEM + rest + HOOK + more, encoding="utf-8")
    return project


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def make_mistake(project: Path) -> Path:
    """Misspell a key of ``src_layout``."""
    replace(project / "pyproject.toml", "sources =", "source =")
    return project


def assert_one_message(output: str) -> None:
    """Refuse an output that has the message for the mistake not at all or twice."""
    key = 'tool.cuda_ext.modules."src_layout.kernels".source'
    message = f"cuda-ext: error: {key}: unknown key; did you mean 'sources'?"
    assert [line.strip() for line in output.splitlines()].count(message) == 1
    assert "Traceback" not in output


def fails_to_build(environment: Environment, project: Path, *command: str) -> str:
    """Run `command` of Python, which builds `project` in vain; return the message."""
    output = environment.run(*command, status=1, cwd=project)
    assert "Traceback" not in output
    _, message = output.split("cuda-ext: error: ")
    return message


@dataclass(frozen=True)
class Backend:
    """An environment with a build backend, and the command that builds a wheel without a front end."""

    environment: Environment
    prepare: Callable[[Path], Path]
    wheel: tuple[str, ...]

    def fails_to_build(self, project: Path) -> str:
        return fails_to_build(self.environment, project, *self.wheel)


@pytest.fixture(scope="session", params=["current"])
def hatchling(request: pytest.FixtureRequest, environment_with: Callable[..., Environment]) -> Environment:
    """An environment with hatchling, in the current version unless a test names another."""
    environment = environment_with(SETUPTOOLS[request.param])
    uv("pip", "install", "--python", environment.prefix, HATCHLING[request.param], "editables")
    return environment


@pytest.fixture(
    scope="session",
    params=["setuptools", pytest.param("oldest setuptools", marks=pytest.mark.slow), "hatchling"],
)
def backend(
    request: pytest.FixtureRequest, environment_with: Callable[..., Environment], hatchling: Environment
) -> Backend:
    """Each backend."""
    if request.param == "hatchling":
        return Backend(hatchling, hatch, ("-m", "hatchling", "build", "-t", "wheel"))
    version = "oldest" if request.param == "oldest setuptools" else "current"
    environment = environment_with(SETUPTOOLS[version])
    return Backend(environment, lambda project: project, ("-c", SETUP, "-q", "bdist_wheel"))
