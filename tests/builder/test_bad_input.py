"""Projects that cannot be built: one message with the problem, its location and a remedy."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from cuda_ext.facts.manifest import loads
from cuda_ext.toolchain.cuda_libraries import gpu_capabilities
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.messages import Messages
from tests.fixtures.projects import FILL, KERNELS, SCALE, build, load, refusal, write_project

WHERE = 'tool.cuda_ext.modules."p.kernels"'


@pytest.fixture(autouse=True)
def _no_architectures_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDAARCHS", raising=False)


# What the compiler refuses.


def test_no_message_of_the_compiler_names_the_directory_of_the_build(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        f'{KERNELS}include-dirs = ["include"]',
        {
            "device/a.cu": f"#include <a.cuh>\n{FILL}",
            "device/b.cu": '#include <vector>\nextern "C" __global__ void b() {}',
            "device/c.cu": 'extern "C" __global__ void c() { asm("nothing;"); }',
            "device/d.cu": "",
            "include/a.cuh": "__device__ int f() { return x; }",
        },
    )
    message = refusal(tmp_path)
    assert str(tmp_path) not in message
    assert re.findall(r"(?<![\w.])/\w+", message) == []


# Files that are not what they should be.


@pytest.mark.parametrize("kind", ["ptx", "cubin", "fatbin", "ltoir"])
def test_a_corrupt_source_is_reported_by_name(tmp_path: Path, kind: str) -> None:
    table = f'{KERNELS}sources = ["device/*"]'
    content = b"not this at all \x00\xff"  # tests of compiler/module_plan have other junk
    write_project(tmp_path, table, {f"device/a.{kind}": content, "device/b.cu": "int x = ;"})
    message = refusal(tmp_path)
    assert message.startswith(f"p.kernels:\ndevice/a.{kind}: ")
    assert "\ndevice/b.cu(1): error: " in message


def test_a_source_that_is_not_text_is_refused(tmp_path: Path) -> None:
    # NVRTC reads up to the first zero byte, and compiles that.
    write_project(tmp_path, files={"device/a.cu": f"{FILL}\0{SCALE}"})
    assert refusal(tmp_path).startswith("device/a.cu: is not UTF-8 text")


@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "marked"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_a_source_may_come_from_any_editor(tmp_path: Path, start: str, end: str) -> None:
    text = f'#include "a.cuh"\n// Grüße\n{FILL}'.replace("\n", end)
    write_project(
        tmp_path, files={"device/a.cu": f"{start}{text}", "device/a.cuh": f"{start}#pragma once{end}"}
    )
    manifest = loads(build(tmp_path)["p.kernels"].files["manifest.json"], "manifest")
    assert [k.expression for k in manifest.kernels] == ["fill"]


# Architectures and options.


def test_native_without_a_gpu_is_refused(tmp_path: Path, messages: Messages) -> None:
    if gpu_capabilities():
        pytest.skip("this machine has a GPU")
    write_project(tmp_path, f'[{WHERE}]\narchitectures = ["native"]')
    messages(refusal(tmp_path))


# Paths, and what a build leaves behind.


def test_paths_may_have_spaces_and_any_letters(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "mein Projekt ü",
        f'{KERNELS}include-dirs = ["köpfe und mehr"]\nsources = ["größe/**/*.cu"]',
        {
            "größe/日本 1.cu": f"#include <ä b.cuh>\n{FILL}",
            "köpfe und mehr/ä b.cuh": "__constant__ float weights[4];\n__device__ int counter;\n",
        },
    )
    package = build(root)["p.kernels"]
    manifest = loads(package.files["manifest.json"], "manifest")
    assert manifest.units[0].title == "größe/日本 1.cu"
    assert [s.name for s in manifest.symbols] == ["counter", "weights"]
    assert "日本 1.fatbin" in package.files
    assert "sources/köpfe und mehr/ä b.cuh" in package.files


def tree(root: Path) -> dict[str, int]:
    return {p.relative_to(root).as_posix(): p.stat().st_mtime_ns for p in [root, *root.rglob("*")]}


def test_a_build_writes_neither_into_the_project_nor_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "project")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    before = tree(tmp_path)
    load(root).source_files()
    build(root)
    assert tree(tmp_path) == before


@needs_mount
def test_a_read_only_project_can_be_built(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project")
    with mounted(root, "-o", "bind,ro", str(root)):
        with pytest.raises(OSError, match="Read-only"):
            (root / "file").touch()
        assert list(build(root)) == ["p.kernels"]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of Unix")
def test_an_unreadable_source_is_reported(tmp_path: Path) -> None:
    write_project(tmp_path)
    source = tmp_path / "device/fill.cu"
    source.chmod(0)
    try:
        source.read_bytes()
    except PermissionError:
        assert (
            refusal(tmp_path)
            == "device/fill.cu: cannot be read: Permission denied; make it a file that you can read"
        )
    else:
        pytest.skip("root may read everything")
