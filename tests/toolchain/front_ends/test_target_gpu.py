"""Sources see the GPU that they are compiled for, whatever this machine has."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import TILE_IR, Architecture
from cuda_ext.toolchain.front_ends.source_import import forget_sources
from cuda_ext.toolchain.front_ends.target_gpu import target_gpu
from tests.fixtures.environments import NO_CACHE, run
from tests.fixtures.projects import write_project

pytest.importorskip("triton", reason="Triton runs under Linux only")

from cuda_ext.toolchain.front_ends.triton import Triton

# As in PyTorch, where there is no GPU.
TORCH = """
def is_available(): return False
def current_device(): raise RuntimeError("no GPU")
device_count = get_device_capability = get_device_name = get_device_properties = current_device
def is_ready(): return is_available() and device_count() == 1 and current_device() == 0
"""
# Installed packages that remember the answer.
TELLS = """
from triton.runtime import driver
ARCH = driver.active.get_current_target().arch
"""
REMEMBERS = """
from functools import cached_property
from triton.runtime import driver

class Gpu:
    @cached_property
    def arch(self): return driver.active.get_current_target().arch

gpu = Gpu()
"""
SOURCE = """
import remembers, tells, torch, triton
import triton.language as tl
from triton.runtime import driver

VALUE = tl.constexpr({value})

@triton.constexpr_function
def remembered(): return remembers.gpu.arch

@triton.jit
def store(out, ASKED: tl.constexpr = {asked}):
    tl.store(out, VALUE + ASKED)
"""
GEQ_90 = "+ (5 if tl.target_info.cuda_capability_geq(9, 0) else 3)"
ACTIVE = "driver.active"
SHARED = {80: 163, 90: 227}  # KiB
QUESTIONS = {
    # Questions at import, and what a kernel for a compute capability stores.
    f"{ACTIVE}.get_current_target().arch": lambda n: n,
    f"{ACTIVE}.get_device_capability({ACTIVE}.get_current_device())[0]": lambda n: n // 10,
    f"{ACTIVE}.utils.get_device_properties(0)['max_shared_mem']": lambda n: SHARED[n] << 10,
    "torch.cuda.is_ready() * torch.cuda.get_device_capability()[0]": lambda n: n // 10,
    "torch.cuda.get_device_properties(0).minor + torch.cuda.get_device_properties(0).major": lambda n: (
        n // 10
    ),
    "int(float(torch.cuda.get_device_name().split()[-1]))": lambda n: n // 10,
    "tells.ARCH": lambda n: n,
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages that sources import."""
    files = {"torch/cuda.py": TORCH, "torch/__init__.py": "from . import cuda"}
    write_project(
        tmp_path / "site",
        "",
        {**files, "tells.py": TELLS, "remembers.py": REMEMBERS, "counting.py": "counted = []"},
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield
    forget_sources()
    for name in ("torch", "torch.cuda", "tells", "remembers", "counting"):
        sys.modules.pop(name, None)


def stores(source: str, number: int, value: int) -> bool:
    """Compile `source` for a compute capability. Is `value` in its code?"""
    unit = TranslationUnit("device/a.py", source.encode(), "triton", {}, instantiate=("store(out: *i32)",))
    (image,) = Triton().compile(unit, (Architecture("cubin", number, "a" if number >= 90 else ""),))
    return value.to_bytes(4, "little") in image.data


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_at_import_are_answered_for_each_gpu(question: str) -> None:
    source = SOURCE.format(value=f"77000000 + {question}", asked=0)
    answer = QUESTIONS[question]
    for number, other in ((80, 90), (90, 80), (80, 90)):
        assert stores(source, number, 77000000 + answer(number))
        assert not stores(source, number, 77000000 + answer(other))


@pytest.mark.parametrize("asked", [GEQ_90, "+ (5 if remembered() >= 90 else 3)"])
def test_questions_of_kernels_are_answered_for_each_gpu(asked: str) -> None:
    source = SOURCE.format(value=77000000, asked=0).replace("+ ASKED", asked)
    for number, value in ((80, 77000003), (90, 77000005), (80, 77000003)):
        assert stores(source, number, value)


def test_a_source_is_imported_for_each_gpu_only_if_it_asks() -> None:
    for value, imports in (("77000000", 1), (f"77000000 + {ACTIVE}.get_current_target().arch", 3)):
        source = SOURCE.format(value=f"(counted.append(1), {value})[1]", asked=0)
        source = source.replace("tells,", "").replace("VALUE =", "from counting import counted\nVALUE =")
        import counting  # type: ignore[import-not-found]

        with target_gpu(75):
            pass  # forget what earlier sources asked
        counting.counted.clear()
        for number in (80, 90, 80):
            assert stores(source, number, 77000000 + number * (imports > 1))
        assert len(counting.counted) == imports


def test_what_only_a_gpu_knows_is_refused() -> None:
    value = "torch.cuda.get_device_properties(0).multi_processor_count"
    problem = (
        r"device/a.py: cannot be imported: .*asks for 'multi_processor_count' .* \(device/a.py, line 6\)"
    )
    with pytest.raises(CompilationError, match=problem):
        stores(SOURCE.format(value=value, asked=0), 80, 0)


def test_triton_and_pytorch_are_as_before_afterwards() -> None:
    import torch.cuda  # type: ignore[import-not-found]
    from triton.backends import backends
    from triton.runtime import driver

    before = {**backends}, {**vars(driver)}, {**vars(torch.cuda)}, [*sys.meta_path]
    with target_gpu(80):
        assert torch.cuda.get_device_capability() == (8, 0)
        assert driver.active.get_device_capability() == (8, 0)
    assert before == ({**backends}, {**vars(driver)}, {**vars(torch.cuda)}, sys.meta_path)


def test_variables_are_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TRITON_INTERPRET": "1",
        "PTXAS_OPTIONS": "-none",
        "TRITON_CACHE_DIR": "/none",
    }.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    assert stores(SOURCE.format(value=77000000, asked=0), 80, 77000000)
    assert before == dict(os.environ)


def test_a_gpu_that_a_program_uses_answers_itself() -> None:
    import torch.cuda
    from triton.runtime import driver

    torch.cuda.is_initialized = lambda: True
    torch.cuda.get_device_capability = lambda: (9, 0)
    before = {**vars(driver)}
    for number in (90, 80):
        with target_gpu(number):
            assert (before == vars(driver)) == (number == 90)


@pytest.mark.parametrize("machine", [75, 90])
def test_the_gpu_of_the_machine_makes_no_difference(machine: int) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    source = SOURCE.format(value=77000000, asked=0).replace("+ ASKED", GEQ_90)
    before = {**vars(driver)}
    driver.set_active(SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", machine, 32)))
    try:
        assert stores(source, 80, 77000003)
        assert stores(source, 90, 77000005)
        assert driver.active.get_current_target().arch == machine
    finally:
        vars(driver).update(before)


TILES = """
import cuda.tile as ct, torch

VALUE = 77000000 + torch.cuda.get_device_capability()[0]

@ct.kernel
def store(out):
    ct.store(out, (0,), ct.full((1,), VALUE, ct.int32))
"""


def test_cutile_sees_the_gpu_too() -> None:
    pytest.importorskip("cuda.tile", reason="cuTile runs under Linux and Windows only")
    from cuda_ext.toolchain.front_ends.cutile import CuTile

    unit = TranslationUnit("device/a.py", TILES.encode(), "cutile", {}, instantiate=("store(out: i32[?])",))
    for name, value in (("sm_80", 77000008), ("sm_90a", 77000009)):
        (image,) = CuTile().compile(unit, (Architecture.parse(name),))
        assert value.to_bytes(4, "little") in image.data
    with pytest.raises(CompilationError, match=r"asks for the GPU, and Tile IR is for several .*, line 4"):
        CuTile().compile(unit, (TILE_IR,))


TABLE = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/a.py"]
architectures = ["sm_80", "sm_90", "compute_80"]
instantiate = ["store(out: *i32)"]
"""


def test_a_default_that_depends_on_the_gpu_is_refused(tmp_path: Path) -> None:
    source = SOURCE.format(value=0, asked="tells.ARCH")
    root = write_project(tmp_path / "project", TABLE, {"device/a.py": source, "p/__init__.py": ""})
    answer = "store(out: *i32): ASKED has another default for sm_80; give it a value, as in ASKED=80"
    environ = {**NO_CACHE, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert answer in run(sys.executable, "-m", "cuda_ext", "build", str(root), status=1, **environ)
