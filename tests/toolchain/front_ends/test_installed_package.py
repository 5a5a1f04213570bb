"""Front-ends that are missing, damaged, or of a version that is not supported."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.front_ends import installed_package
from cuda_ext.toolchain.front_ends.cutile import CuTile
from cuda_ext.toolchain.front_ends.triton import Triton
from cuda_ext.toolchain.tileiras import Tileiras

FRONT_ENDS = {
    CuTile: ("cuTile", "cutile", "1.7", "1.7 is"),
    Triton: ("Triton", "triton", "3.9", "3.4 to 3.9 are"),
}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_front_end_that_is_missing_or_another_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, front_end: type[CuTile | Triton]
) -> None:
    title, extra, newest, supported = FRONT_ENDS[front_end]
    for other in ("2.0.1", f"{newest}0.1"):
        monkeypatch.setattr(metadata, "version", lambda _, other=other: other)
        with pytest.raises(ToolchainError, match=f"{title} {other} is installed, and {supported} supported"):
            _ = front_end().version

    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(installed_package, "find_spec", lambda _: None)
    answer = rf'{title} is not installed; install "cuda-ext\[{extra}\]"'
    for ask in (lambda: front_end().version, lambda: front_end().files()):
        with pytest.raises(ToolchainError, match=answer):
            ask()


def test_a_directory_of_its_name_is_no_front_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a_front_end").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    package = installed_package.InstalledPackage("It", "a_front_end", "a-front-end", ("1.0",), "it")
    with pytest.raises(ToolchainError, match="It is not installed"):
        package.files("*.py")


def test_tileiras_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cuda_packages, "wheel_programs", list)
    with pytest.raises(
        ToolchainError, match=r'tileiras, .* is not installed; install "cuda-ext\[tile\]", or'
    ):
        Tileiras({"PATH": str(tmp_path)}).files()
