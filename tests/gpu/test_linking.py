"""Linked programs on a real GPU: each writes the numbers that C++ says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import cuda_ext
from cuda_ext.compiler.module_plan import CompiledModule
from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.facts.architecture import ImageKind
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.module import module_from
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.cuda_libraries import library_version
from tests.fixtures.device_code import nvcc, nvrtc
from tests.fixtures.linked_programs import PROGRAMS, WITH_IMAGES, Program, link_program

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]


@pytest.mark.parametrize("compiler", [nvrtc, nvcc])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_linked_program_computes(name: str, compiler: Callable[[], Compiler], device: Device) -> None:
    program = PROGRAMS[name]
    if program.launches and cuda_packages.cudadevrt(int(compiler().version.partition(".")[0])) is None:
        pytest.skip("the device runtime library is not installed")
    check(program, link_program(program, (f"sm_{device.capability}",), compiler()))


@pytest.mark.parametrize("kind", ["cubin", "ptx", "ltoir"])
@pytest.mark.parametrize("name", WITH_IMAGES)
def test_a_program_linked_with_an_image_computes(name: str, kind: ImageKind, device: Device) -> None:
    program = PROGRAMS[name]
    check(program, link_program(program, (f"sm_{device.capability}",), nvrtc(), kind))


@pytest.fixture(autouse=True)
def newer_linker(request: pytest.FixtureRequest) -> None:
    if "weak" in request.node.name and library_version("nvjitlink") <= (13, 0):
        pytest.skip("nvJitLink 13.0 takes a weak definition for a strong one")


def check(program: Program, compiled: CompiledModule) -> None:
    """Launch ``run`` and compare what it writes."""
    kernels = module_from(compiled.manifest, compiled.files.__getitem__)
    out = np.zeros(len(program.out), "i4")
    kernels.run(out, grid=1, block=len(out), shared=program.shared)
    assert out.tolist() == list(program.out)
