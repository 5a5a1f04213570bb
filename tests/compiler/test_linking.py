"""Device linking under both compilers: each program links, with all of its kernels and variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import ImageKind
from cuda_ext.toolchain import cuda_packages
from tests.fixtures.device_code import module, nvcc, nvrtc, unit
from tests.fixtures.linked_programs import PROGRAMS, WITH_IMAGES, link_program

KINDS: tuple[ImageKind, ...] = ("cubin", "ptx", "ltoir")


@pytest.mark.parametrize(
    ("name", "compiler"),
    [
        *((name, nvrtc) for name in PROGRAMS),
        (WITH_IMAGES[0], nvcc),
        *(pytest.param(n, nvcc, marks=pytest.mark.slow) for n in PROGRAMS if n != WITH_IMAGES[0]),
    ],
)
def test_a_program_is_linked(name: str, compiler: Callable[[], Compiler]) -> None:
    program = PROGRAMS[name]
    if program.launches and cuda_packages.cudadevrt(int(compiler().version.partition(".")[0])) is None:
        pytest.skip("the device runtime library is not installed")
    architectures = ("sm_90",) if program.launches else ("sm_90", "compute_90")
    compiled = link_program(program, architectures, compiler())
    assert tuple(kernel.expression for kernel in compiled.manifest.kernels) == program.kernels
    # Static variables of functions have no name outside; the compilers differ in whether they list them.
    variables = [s.name for s in compiled.manifest.symbols if not s.name.startswith("local_")]
    assert tuple(variables) == program.variables
    (images,) = [unit.images for unit in compiled.manifest.units]
    assert tuple(image.architecture for image in images) == architectures
    assert not any(image.names for image in images)


@pytest.mark.parametrize(
    ("name", "kind"),
    [  # in CI one kind for each program, in turn
        pytest.param(name, kind, marks=[pytest.mark.slow] * (row % len(KINDS) != column))
        for row, name in enumerate(WITH_IMAGES)
        for column, kind in enumerate(KINDS)
    ],
)
def test_a_program_is_linked_with_an_image(name: str, kind: ImageKind) -> None:
    compiled = link_program(PROGRAMS[name], ("sm_90",), nvrtc(), kind)
    assert tuple(kernel.expression for kernel in compiled.manifest.kernels) == PROGRAMS[name].kernels
    if kind != "ltoir":  # whose variables may be those of the tool chain's headers
        variables = {symbol.name for symbol in compiled.manifest.symbols}
        assert variables >= set(PROGRAMS[name].variables)


@pytest.mark.parametrize("compiler", [nvrtc, nvcc])
def test_a_launch_without_a_link_is_answered_with_the_key(compiler: Callable[[], Compiler]) -> None:
    text = (
        "#include <cuda_fp16.h>\n__global__ void child() {}\n__global__ void parent() { child<<<1, 1>>>(); }"
    )
    with pytest.raises(CompilationError, match=r"linked with the device runtime library: set link = true"):
        module(unit(text), compiler=compiler())


def test_the_device_runtime_library_may_lie_in_the_toolkit_of_the_linker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_packages, "nvidia_packages", list)
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    linker, library = tmp_path / "libnvJitLink.so.13", tmp_path / "libcudadevrt.a"
    assert cuda_packages.cudadevrt(13, str(linker)) is None
    library.touch()
    assert cuda_packages.cudadevrt(13, str(linker)) == str(library)
