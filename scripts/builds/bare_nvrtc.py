"""Compile with NVRTC alone and measure it: ``bare_nvrtc.py SOURCE OUTPUT ARCHITECTURE...``.

Compiles for one architecture after the other, and prints one line of JSON, as ``child.py`` does.
"""

from __future__ import annotations

import time

_BEGAN = time.perf_counter()

import json  # noqa: E402 - imports from here on are measured
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from cuda.bindings import nvrtc  # noqa: E402


def compile_source(source: Path, output: Path, architecture: str) -> None:
    _, program = nvrtc.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, 1, [f"-arch={architecture}".encode()])
    if int(status) != 0:
        raise RuntimeError(f"{source}: {status.name}")
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = bytes(size)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    output.with_suffix(f".{architecture}.cubin").write_bytes(cubin)
    nvrtc.nvrtcDestroyProgram(program)


def main(source: str, output: str, *architectures: str) -> None:
    began = time.perf_counter()
    for architecture in architectures:
        compile_source(Path(source), Path(output), architecture)
    print(json.dumps({"imports": began - _BEGAN, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
