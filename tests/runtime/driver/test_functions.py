"""The functions of the driver's library: how they are called, and what ``cuda.h`` says of them."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cuda_ext.runtime.driver import ctypes_calls, cuda_h
from tests.fixtures.loader import Run, run_script, write_package
from tests.fixtures.messages import Messages

try:
    from cuda_ext.runtime.driver import _calls
except ImportError:  # it was not compiled
    compiled = []
else:
    compiled = [_calls]

pytestmark = [
    pytest.mark.host_compiler,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compiles a library for Linux"),
]
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or "cc"

LIBRARY = r"""
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct Options { int kind; uint64_t size; };

/* As of the driver: numbers of all widths, handles, bytes, structures and results, on the stack, too. */
int everything(int* first, void* handle, unsigned a, const char* name, uint64_t* second, size_t b, int c,
               const struct Options* options, void* null, unsigned short d, char e) {
  *first = a + c + d + e;
  *second = (uint64_t)(uintptr_t)handle + b + options->kind + options->size;
  return null ? -1 : (int)strlen(name);
}

int nothing(void) { return -5; }
"""


def build(directory: Path, source: str, name: str = "library.so", *options: str) -> Path:
    path = directory / name
    path.with_suffix(".c").write_text(source)
    command = [COMPILER, *options, "-o", str(path), str(path.with_suffix(".c"))]
    subprocess.run(command, check=True)
    return path


@pytest.mark.parametrize("calls", [*compiled, ctypes_calls], ids=lambda module: module.__name__)
def test_functions_take_integers_bytes_and_places_for_results(calls: ModuleType, tmp_path: Path) -> None:
    library = calls.open_library(str(build(tmp_path, LIBRARY, "library.so", "-shared", "-fPIC")))
    everything = calls.find_symbol(library, "everything")
    options = struct.pack("iQ", 7, 1 << 40)
    handle, name = (1 << 63) + 5, b"axpy"
    arguments = None, handle, (1 << 32) - 3, name, None, 1 << 50, -4, options, 0, 40000, 9
    first = 40000 + 9 - 7
    assert calls.call(everything, *arguments) == (4, first, (1 << 63) + (1 << 50) + (1 << 40) + 12)
    assert calls.call(everything, *arguments[:8], 1, 0, 0)[0] == -1
    assert calls.call(calls.find_symbol(library, "nothing")) == (-5,)
    assert calls.find_symbol(library, "missing") == 0
    with pytest.raises(OSError, match="missing-library"):
        calls.open_library("missing-library.so")


@pytest.mark.parametrize("calls", [*compiled, ctypes_calls], ids=lambda module: module.__name__)
def test_only_numbers_of_eight_bytes_and_bytes_are_passed(calls: ModuleType, tmp_path: Path) -> None:
    library = calls.open_library(str(build(tmp_path, LIBRARY, "library.so", "-shared", "-fPIC")))
    nothing = calls.find_symbol(library, "nothing")
    for right in (-1 << 63, (1 << 64) - 1, True, b"text"):
        assert calls.call(nothing, right) == (-5,)
    for wrong in ("text", 1.5, bytearray(8), object()):
        with pytest.raises(TypeError, match="expected an int, bytes or None, found"):
            calls.call(nothing, wrong)
    for large in (1 << 64, (-1 << 63) - 1, 1 << 70):
        with pytest.raises(OverflowError):
            calls.call(nothing, large)


@pytest.mark.parametrize("calls", compiled)
def test_wrong_arguments_are_refused(calls: ModuleType) -> None:
    for wrong in (
        (),
        (0,),
        (None,),
        (b"code",),
        (1 << 64,),
        (1, "text"),
        (1, 1.5),
        (1, 1 << 64),
        (1,) * 14,
    ):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            calls.call(*wrong)
    for wrong in ((), ("library", "name"), (1 << 64, "name"), (1, b"name")):
        with pytest.raises((TypeError, OverflowError)):
            calls.find_symbol(*wrong)
    with pytest.raises(TypeError):
        calls.open_library(b"name")


def test_constants_and_structures_are_those_of_cuda_h(tmp_path: Path) -> None:
    headers = [path / "nvidia/cu13/include" for path in map(Path, sys.path)]
    include = next((path for path in headers if (path / "cuda.h").exists()), None)
    if include is None:
        pytest.skip("there is no cuda.h")
    constants = {name: value for name, value in vars(cuda_h).items() if name.startswith("CU")}
    assert len(constants) > 50
    source = r"""
#include <cuda.h>
#include <stdio.h>
#include <string.h>

static void print(const void* structure, size_t size) {
  for (size_t i = 0; i < size; i++) printf("%02x", ((const unsigned char*)structure)[i]);
  printf("\n");
}

#define PRINT(type, ...)            \
  do {                              \
    type s;                         \
    memset(&s, 0, sizeof s);        \
    __VA_ARGS__;                    \
    print(&s, sizeof s);            \
  } while (0)

int main(void) {
  PRINT(CUlaunchConfig, s.gridDimX = 1; s.gridDimY = 2; s.gridDimZ = 3; s.blockDimX = 4; s.blockDimY = 5;
        s.blockDimZ = 6; s.sharedMemBytes = 7; s.hStream = (CUstream)8; s.attrs = (void*)9; s.numAttrs = 10);
  PRINT(CUlaunchAttribute, s.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION; s.value.clusterDim.x = 2;
        s.value.clusterDim.y = 3; s.value.clusterDim.z = 4);
  PRINT(CUlaunchAttribute, s.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE; s.value.cooperative = 1);
  PRINT(CUlaunchAttribute, s.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        s.value.programmaticStreamSerializationAllowed = 1);
  PRINT(CUmemPoolProps, s.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        s.location.type = CU_MEM_LOCATION_TYPE_DEVICE; s.location.id = 5);
}
"""
    source += "".join(f'_Static_assert({name} == {value}, "");\n' for name, value in constants.items())
    program = build(tmp_path, source, "layouts", "-isystem", str(include))
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    attribute = cuda_h.LAUNCH_ATTRIBUTE
    assert printed == [
        structure.hex()
        for structure in (
            struct.pack(cuda_h.LAUNCH_CONFIG, *range(1, 11)),
            struct.pack(attribute, cuda_h.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 2, 3, 4),
            struct.pack(attribute, cuda_h.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1, 0, 0),
            struct.pack(attribute, cuda_h.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 1, 0, 0),
            struct.pack(cuda_h.MEM_POOL_PROPS, 1, 0, 1, 5),
        )
    ]


USE = """
from sample import kernels
caught(kernels.plain, grid=1, block=1)
"""


@pytest.mark.parametrize(
    "source",
    [
        "int cuInit(unsigned flags) { return flags; }\n"
        "int cuDriverGetVersion(int* version) { *version = 11080; return 0; }\n",
        "int cuInit(unsigned flags) { return 34; }\n"
        "int cuGetProcAddress_v2(void) { return 34; }\n"
        "int cuGetErrorName(void) { return 34; }\n"
        "int cuGetErrorString(void) { return 34; }\n",
        "int something;\n",
    ],
    ids=["of CUDA 11", "a stub", "something else"],
)
def test_other_libraries_are_refused(source: str, tmp_path: Path, messages: Messages) -> None:
    write_package(tmp_path)
    build(tmp_path, source, "libcuda.so.1", "-shared", "-fPIC", "-w")
    run = run_script(USE, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    messages(run.output[0])


def test_an_invalid_setting_of_the_default_stream_is_named(
    with_driver: Callable[..., Run], messages: Messages
) -> None:
    run = with_driver(
        """
        import os
        os.environ["CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"] = "yes"
        import cuda_ext
        from sample import kernels
        print(cuda_ext.gpu_available())
        caught(kernels.plain, grid=1, block=1)
        """
    )
    messages(*run.output)


@pytest.mark.parametrize("lacking", ["cuda_ext.runtime.driver._calls", "cuda.bindings"])
def test_launching_takes_neither_compiled_calls_nor_cuda_bindings(
    lacking: str, with_driver: Callable[..., Run]
) -> None:
    run = with_driver(
        f"""
        sys.modules[{lacking!r}] = None
        import numpy as np
        from sample import kernels
        kernels.axpy["float"](3, 2.5, 0x10, None, grid=4, block=32)
        kernels.axpy["float"](3, 2.5, np.zeros(3, "f4"), np.zeros(3, "f4"), threads=3)
        kernels.plain(grid=8, block=1, cluster=4, dependent=True)
        kernels.plain(grid=1, block=1, cooperative=True)
        kernels.weights.copy_from(np.arange(9, dtype="f4"))
        frozen = kernels.weights.numpy()
        frozen.flags.writeable = False
        kernels.weights.copy_from(frozen)
        print(kernels.weights.numpy().tolist())
        caught(kernels.plain, grid=1, block=1, shared=1 << 30)
        """
    )
    assert run.output[0] == str([float(number) for number in range(9)])
    assert run.output[1].startswith("ArgumentError: shared: expected at most")
    assert [line.split()[0] for line in run.launches] == [
        "cuLaunchKernel",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuLaunchKernelEx",
    ]
