"""Measure each step from the start of a process to its first result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from _environment import ROOT
from bench.tables import format_spread

from cuda_ext.facts.manifest import FILE_NAME, loads
from launching.kernels import NAME

_SCRIPT = f"""
import time
steps = [("interpreter", time.time())]
def step(name):
    steps.append((name, time.time()))
import {NAME} as kernels
step("import of the module")
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.driver.functions import OUT
driver = open_driver()
step("driver: its library and cuInit")
device = driver.device(0)
device.context
step("primary context")
with device.current():
    x, y = (driver.query("cuMemAlloc", OUT, 128) for _ in range(2))
    driver.call("cuMemsetD8", x, 0, 128)
    driver.call("cuMemsetD8", y, 0, 128)
step("memory, by hand")
axpy = kernels.axpy["float"]
step("manifest and look-up")
axpy(32, 2.0, x, y, grid=1, block=32)
step("first launch: image, kernel, launch")
with device.current():
    driver.call("cuCtxSynchronize")
step("result")
axpy(32, 2.0, x, y, grid=1, block=32)
step("second launch")
import json
print(json.dumps(steps))
"""
_TIMES = 7


# What a process has to do in any language. It takes a fatbin and the lowered name of a kernel.
_C_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void* library;

static void call(const char* name, void* a, void* b, void* c, void* d, void* e, void* f, void* g, void* h) {
  int (*function)(void*, void*, void*, void*, void*, void*, void*, void*) = dlsym(library, name);
  const int status = function ? function(a, b, c, d, e, f, g, h) : -1;
  if (!status) return;
  fprintf(stderr, "%s: %d\n", name, status);
  exit(1);
}

int main(int count, char** arguments) {
  static char image[1 << 24];
  FILE* file = fopen(arguments[count - 2], "rb");
  if (!file || !fread(image, 1, sizeof image, file)) return 1;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  void *context, *module, *kernel, *function, *x, *y;
  call("cuInit", 0, 0, 0, 0, 0, 0, 0, 0);
  call("cuDevicePrimaryCtxRetain", &context, 0, 0, 0, 0, 0, 0, 0);
  call("cuCtxSetCurrent", context, 0, 0, 0, 0, 0, 0, 0);
  call("cuMemAlloc_v2", &x, (void*)128, 0, 0, 0, 0, 0, 0);
  call("cuMemAlloc_v2", &y, (void*)128, 0, 0, 0, 0, 0, 0);
  call("cuLibraryLoadData", &module, image, 0, 0, 0, 0, 0, 0);
  call("cuLibraryGetKernel", &kernel, module, arguments[count - 1], 0, 0, 0, 0, 0);
  call("cuKernelGetFunction", &function, kernel, 0, 0, 0, 0, 0, 0);
  int n = 32;
  float factor = 2;
  void* parameters[] = {&n, &factor, &x, &y};
  int (*launch)(void*, int, int, int, int, int, int, int, void*, void**, void**);
  launch = dlsym(library, "cuLaunchKernel");
  if (launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL)) return 1;
  call("cuCtxSynchronize", 0, 0, 0, 0, 0, 0, 0, 0);
  quick_exit(0);
}
"""


def measure(package: Path, directory: Path) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (package, ROOT)))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = _compile_c_program(package, directory)
    taken: dict[str, list[float]] = {}
    for _ in range(_TIMES):
        before = time.time()
        subprocess.run(program, check=True)
        c_program = 1e3 * (time.time() - before)
        each = _run(_SCRIPT, environment)
        result = sum(each[name] for name in each if name != "second launch")
        each["import, look-up, image and kernel"] = _ours(each)
        # As programs do that have arrays: the standard library's modules that numpy loads are there.
        each["the same after numpy"] = _ours(_run(f"import numpy\n{_SCRIPT}", environment))
        each["from the start to the result"] = result
        each["C program"] = c_program
        each["/ interpreter and C program"] = result / (each["interpreter"] + c_program)
        for name, figure in each.items():
            taken.setdefault(name, []).append(figure)
    return {name: format_spread(samples, 2) for name, samples in taken.items()}


def _run(script: str, environment: Mapping[str, str]) -> dict[str, float]:
    """Return the milliseconds of each step of `script` in a new process."""
    before = time.time()
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    steps: dict[str, float] = {}
    for name, at in json.loads(done.stdout):
        steps[name] = 1e3 * (at - before)
        before = at
    return steps


def _ours(steps: Mapping[str, float]) -> float:
    ours = ("import of the module", "manifest and look-up", "first launch: image, kernel, launch")
    return sum(steps[name] for name in ours)


def _compile_c_program(package: Path, directory: Path) -> list[str]:
    """The command of the program, with the image of the package and its kernel."""
    module = package.joinpath(*NAME.split("."))
    described = loads((module / FILE_NAME).read_bytes(), NAME)
    kernel = next(kernel for kernel in described.kernels if kernel.expression == "axpy<float>")
    image = described.units[kernel.unit].images[0]
    source, program = directory / "first.c", directory / "first"
    source.write_text(_C_PROGRAM)
    subprocess.run(["cc", "-O2", "-w", "-o", program, source, "-ldl"], check=True)
    return [str(program), str(module / image.file), described.lowered_name(kernel, image) or kernel.lowered]
