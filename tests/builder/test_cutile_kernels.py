"""Five kernels of a cuTile library, built as they are, and launched with what was not built."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.fixtures.loader import CHECKOUT, run_script
from tests.fixtures.projects import build, write_importable, write_project

pytest.importorskip("cuda.tile", reason="cuTile runs under Linux and Windows only")
pytestmark = pytest.mark.host_compiler

SOURCE = CHECKOUT / "tests" / "fixtures" / "cutile_kernels.py"
ARRAY = "f16[?:16, ?:16]:16"
INSTANTIATE = [
    f"transpose(x: {ARRAY}, out: {ARRAY}, ROWS=64, COLUMNS=64)",
    f"softmax(out: {ARRAY}, x: {ARRAY}, SIZE=1024 if x.shape[1] <= 1024)",
    f"layer_norm(out: {ARRAY}, x: {ARRAY}, weight: f16[?:16]:16, bias: f16[?:16]:16, SIZE=1024)",
    f"matmul(a: {ARRAY}, b: {ARRAY}, out: {ARRAY}, M=128, N=128, K=64)",
    "attention({}, scale: f32, M=64, N=64, D=64)".format(
        ", ".join(f"{name}: f16[?, ?:16, ?:16]:16" for name in ("out", "q", "k", "v"))
    ),
]
TABLE = f"""
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/cutile_kernels.py"]
architectures = ["sm_90"]
emit = "cubin"
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/cutile_kernels.py"]
instantiate = {json.dumps(INSTANTIATE)}
"""
SCRIPT = """
import logging
import numpy as np
from p import kernels
from tests.fixtures.device_arrays import Tensor, import_torch

logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
import_torch()

def at(*shape, dtype="float16"):
    return Tensor(np.zeros(shape, dtype), address=4096)

kernels.softmax[64](at(64, 64), at(64, 64))  # the size that suffices
for _ in range(2):
    for dtype in ("float16", "float32"):
        x, line, heads = at(64, 64, dtype=dtype), at(64, dtype=dtype), at(2, 64, 64, dtype=dtype)
        kernels.transpose[1, 1](x, x, 64, 64)
        kernels.softmax[64](x, x, 1024)
        kernels.softmax[64](x, x, SIZE=512)
        kernels.layer_norm[64](x, x, line, line, 1024)
        kernels.matmul[1, 1](x, x, x, 128, 128, 64)
        kernels.attention[1, 2](heads, heads, heads, heads, 0.125, 64, 64, 64)
"""


@pytest.mark.slow
def test_a_library_is_built_as_it_is_and_compiled_on_demand(
    tmp_path: Path, fake_driver: Path, empty_cache: Path
) -> None:
    files = {"device/cutile_kernels.py": SOURCE.read_text(), "p/__init__.py": ""}
    root = write_project(tmp_path / "project", TABLE, files)
    write_importable(build(root)["p.kernels"], tmp_path)
    done = run_script(SCRIPT, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    pattern = re.compile(r"p\.kernels: compiled (\w+)\(.*?([A-Z]+=.*)\) for sm_90a in [0-9.]+ s")
    compiled = [match.groups() for match in map(pattern.fullmatch, done.output) if match]
    assert compiled == [  # of float16, 1024 is the next larger SIZE
        ("transpose", "ROWS=64, COLUMNS=64"),
        ("softmax", "SIZE=1024"),
        ("softmax", "SIZE=512"),
        ("layer_norm", "SIZE=1024"),
        ("matmul", "M=128, N=128, K=64"),
        ("attention", "M=64, N=64, D=64"),
    ]
    kernels = ["transpose", "softmax", "softmax", "layer_norm", "matmul", "attention"]
    derived, *launches = done.launches
    assert [launch.split()[1] for launch in launches] == 4 * kernels
    assert launches[:6] == launches[6:12] == launches[12:18]
    assert derived == launches[1] == launches[2]
