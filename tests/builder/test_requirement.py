"""What a project with kernels requires of cuda-ext."""

from __future__ import annotations

import tomllib

import pytest

from cuda_ext.builder.requirement import FIRST_READER, find_flaw, read_requirements
from cuda_ext.facts.manifest import SCHEMA
from tests.fixtures.projects import KERNELS, build, write_project


def problem(table: str, first_reader: str = "0.3") -> str:
    return str(find_flaw(read_requirements(tomllib.loads(table)), first_reader) or "")


@pytest.mark.parametrize(
    "requirement",
    [
        "cuda-ext>=0.3",
        "CUDA_ext >= 0.3.1, < 1",
        "cuda.ext[cu13]~=0.3.0; sys_platform == 'linux'",
        "cuda-ext==0.3.*",
        "cuda-ext<2,>=1",
        "cuda-ext @ git+https://example.org/cuda_ext",
    ],
)
def test_a_lower_bound_that_reads_the_package_is_right(requirement):
    assert problem(f'name = "p"\ndependencies = ["numpy", "{requirement}"]') == ""
    assert problem(f'name = "p"\noptional-dependencies.gpu = ["{requirement}"]') == ""


@pytest.mark.parametrize(
    ("requirement", "oldest"),
    [
        ("cuda-ext", "0.1"),
        ("cuda-ext<2", "0.1"),
        ("cuda_ext[cu13]>=0.2.9", "0.2.9"),
        ("cuda-ext!=0.3", "0.1"),
    ],
)
def test_a_requirement_that_admits_older_versions_is_told_what_to_write(requirement, oldest):
    assert problem(f'name = "p"\ndependencies = ["{requirement}"]') == (
        f"project.dependencies: {requirement!r} admits cuda-ext {oldest}, which cannot read the built "
        'package; write "cuda-ext>=0.3"'
    )


def test_every_release_reads_the_present_schema():
    assert (SCHEMA, FIRST_READER) == (1, "0.1")  # both change together, and docs/explanation/versions.md
    assert problem('name = "p"\ndependencies = ["cuda-ext"]', FIRST_READER) == ""


@pytest.mark.parametrize("table", ["", 'name = "p"\ndynamic = ["dependencies"]', "version = '1'"])
def test_requirements_that_pyproject_does_not_have_are_not_judged(table):
    assert problem(table) == ""


def test_a_build_tells_a_package_that_does_not_require_cuda_ext(tmp_path):
    log: list[str] = []
    build(write_project(tmp_path, f'[project]\nname = "p"\ndependencies = ["cuda-extra"]\n{KERNELS}'), log)
    assert [line for line in log if line.startswith("project.dependencies")] == [
        "project.dependencies: the built package imports cuda_ext, but does not require it; "
        f'write "cuda-ext>={FIRST_READER}"'
    ]
