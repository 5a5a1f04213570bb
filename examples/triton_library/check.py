"""Launch each kernel from the package and by Triton, and compare both with PyTorch: ``python check.py``.

A GPU is needed, and PyTorch with its Triton. The functions of ``ops`` run twice: with the kernels of their
own files, which Triton compiles, and with those of ``triton_library.kernels`` under the same names.

Cases by name run in this process, ``python check.py rms layer``; otherwise all run, in several processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import torch
import triton
from cases import CASES
from triton_library import kernels
from triton_library import ops as _ops

MODULES = [value for value in vars(_ops).values() if isinstance(value, ModuleType)]
launched: set[str] = set()


class Counted:
    """A kernel of the package, which notes that it was launched."""

    def __init__(self, name: str) -> None:
        self.name, self.kernel = name, getattr(kernels, name)

    def __getitem__(self, grid: Any) -> Any:
        launched.add(self.name)
        return self.kernel[grid]


def take_first_configuration() -> None:
    """Let Triton compile the first of the configurations to be measured: the package was built with it."""
    for module in MODULES:
        for value in vars(module).values():
            while value is not None and not isinstance(value, triton.JITFunction):
                if isinstance(value, triton.runtime.Autotuner):
                    value.configs = value.configs[:1]
                value = getattr(value, "fn", None)


@contextlib.contextmanager
def package() -> Iterator[None]:
    """Replace the kernels in the modules of ``ops`` by those of the package, as they were built."""
    os.environ["CUDA_EXT_JIT"] = "0"
    own = [
        (module, name, vars(module)[name])
        for module in MODULES
        for name in dir(kernels)
        if name in vars(module)
    ]
    for module, name, _ in own:
        setattr(module, name, Counted(name))
    try:
        yield
    finally:
        for module, name, value in own:
            setattr(module, name, value)


def run(name: str) -> list[tuple[str, Any, Any, float, bool]]:
    torch.manual_seed(0)
    return [(what, found.clone(), *others) for what, found, *others in CASES[name]("cuda")]


def check(name: str) -> bool:
    """Print a line for each result of a case; return True if all are right."""
    by_triton = run(name)
    with package():
        results = run(name)
    all_right = True
    for (what, found, expected, tolerance, is_exact), (_, other, *_) in zip(results, by_triton, strict=True):
        largest = expected.double().abs().max().clamp(min=1e-30)
        error = float((found.double() - expected.double()).abs().max() / largest)
        difference = float((found.double() - other.double()).abs().max() / largest)
        is_right = error <= tolerance and difference <= tolerance
        same = (
            "same bits" if torch.equal(found, other) else f"{difference:.0e}{'' if is_exact else ' atomics'}"
        )
        all_right = all_right and is_right
        verdict = "ok" if is_right else "WRONG"
        print(f"{name:18} {what:26} error {error:.0e}  Triton: {same:16} {verdict}")
    print("launched:", *sorted(launched))
    return all_right


def check_in_processes() -> bool:
    """Check each case in a process of its own, since Triton takes long to compile."""

    def start(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, __file__, name]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    seen: set[str] = set()
    with ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        done = list(pool.map(start, CASES))
    lines = [line for each in done for line in each.stdout.splitlines()]
    for line in lines:
        if line.startswith("launched: "):
            seen.update(line.split()[1:])
        else:
            print(line)
    for name, each in zip(CASES, done, strict=True):
        if each.returncode and "WRONG" not in each.stdout:
            print(f"{name} failed:\n{each.stderr[-1500:]}")
    results = [line for line in lines if line.endswith(("ok", "WRONG"))]
    same, wrong = (sum(word in line for line in results) for word in ("same bits", "WRONG"))
    print(f"{len(results)} results: {wrong} wrong, {same} with the bits of Triton's JIT")
    missing = [*({*dir(kernels)} - seen)]
    print(f"{len(seen)} of {len(dir(kernels))} kernels were launched", *missing)
    return not missing and not any(each.returncode for each in done)


if __name__ == "__main__":
    take_first_configuration()
    names = sys.argv[1:]
    right = [check(name) for name in names] if names else [check_in_processes()]
    raise SystemExit(not all(right))
