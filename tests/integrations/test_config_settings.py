"""Settings that a front end of PEP 517 passes on, as in ``pip install -C architectures=sm_90``."""

from __future__ import annotations

from typing import Any

import pytest

from cuda_ext.errors import BuildError, ConfigError
from cuda_ext.integrations.backend import build_environment, exit_with_error

BACKENDS = ["setuptools.build_meta", "hatchling.build"]


def called(function: Any, settings: object, backend: str = "hatchling.build") -> Any:
    """Call `function` as a plugin of `backend`, whose hook got `settings`."""
    module = {"__name__": backend, "function": function}
    exec("def build_wheel(directory, config_settings=None):\n    return function()", module)
    return module["build_wheel"]("", settings)  # type: ignore[operator]


@pytest.mark.parametrize("backend", BACKENDS)
def test_settings_replace_variables(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAARCHS", "90")
    monkeypatch.setenv("MAX_JOBS", "3")
    settings = {"architectures": ["sm_80", "sm_90"], "report": "r.html", "editable-mode": "strict"}
    environ = called(build_environment, settings, backend)
    assert (environ["CUDAARCHS"], environ["MAX_JOBS"]) == ("sm_80;sm_90", "3")
    assert environ["CUDA_EXT_REPORT"] == "r.html"
    assert called(build_environment, None, backend)["CUDAARCHS"] == "90"
    assert build_environment()["CUDAARCHS"] == "90"


@pytest.mark.parametrize("name", ["architecture", "archs", "CUDAARCHS", "cuda-arch", "job"])
def test_a_setting_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown setting") as caught:
        called(build_environment, {name: "80"})
    assert caught.value.where == f"-C {name}"
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["--build-option", "cmake.define.CMAKE_CUDA_ARCHITECTURES", "setup-args"])
def test_settings_of_others_are_theirs(name: str) -> None:
    assert called(build_environment, {name: "80"}) == build_environment()


def test_an_error_names_the_setting() -> None:
    @exit_with_error()
    def fail() -> None:
        raise BuildError("unknown architecture", where="CUDAARCHS")

    with pytest.raises(SystemExit, match="error: -C architectures: unknown architecture"):
        called(fail, {"architectures": "sm_8"})
