"""The identity of a tool: by its build ID or by all of its content."""

from __future__ import annotations

import subprocess

import pytest

from cuda_ext.toolchain.identity import identity_of

PADDING = 200_000


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "ptxas"
    path.write_bytes(bytes(PADDING))
    return path


def test_another_content_in_the_middle_is_another_program(program):
    before = identity_of("nvcc", [program])
    assert identity_of("nvcc", [program]) == before
    content = bytearray(program.read_bytes())
    content[PADDING // 2] = 1
    program.write_bytes(content)
    assert identity_of("nvcc", [program]) != before


def test_another_name_or_size_is_another_program(program):
    before = identity_of("nvcc", [program])
    renamed = program.rename(program.with_name("cicc"))
    assert identity_of("nvcc", [renamed]) != before
    renamed.rename(program).write_bytes(bytes(PADDING + 1))
    assert identity_of("nvcc", [program]) != before


def test_without_files_the_version_counts():
    assert (
        identity_of("nvcc", [], "13.0") == identity_of("nvcc", [], "13.0") != identity_of("nvcc", [], "13.1")
    )


@pytest.mark.host_compiler
def test_a_library_with_a_build_id_is_not_read_whole(tmp_path):
    source, library = tmp_path / "tool.c", tmp_path / "libtool.so"
    source.write_text("int answer(void) { return 42; }")
    try:
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,--build-id=sha1", "-o", library, source], check=True)
    except FileNotFoundError:
        pytest.skip("there is no gcc")

    def refuse(path):
        raise AssertionError(f"{path} is read whole")

    assert identity_of("nvrtc", [library], digest=refuse) == identity_of("nvrtc", [library], digest=refuse)
