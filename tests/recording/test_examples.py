"""The examples, whose tables are written anew from what programs launch under the fake driver.

The programs launch each kernel in the way of the examples' own tests, with stand-ins for tensors.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from cuda_ext.builder.config.instantiations import INSTANTIATIONS
from cuda_ext.facts.manifest import loads
from cuda_ext.recording.built_launches import compare
from cuda_ext.recording.records import DIRECTORY, read_records
from tests.fixtures.command_line import run
from tests.fixtures.environments import CHECKOUT
from tests.fixtures.projects import load

pytest.importorskip("triton", reason="Triton runs under Linux only")
pytest.importorskip("cuda.tile", reason="cuTile runs under Linux and Windows only")
pytestmark = pytest.mark.host_compiler

EXAMPLES = CHECKOUT / "examples"
# A PyTorch with as much as the examples take.
TORCH = """
import sys
from types import SimpleNamespace
import numpy as np
from tests.fixtures import device_arrays

device_arrays.import_torch({})
torch = sys.modules["torch"]

class Tensor(device_arrays.Tensor):
    def __init__(self, array, dtype=""):
        super().__init__(array, 0, dtype)
    def new_empty(self, shape): return Tensor(np.empty(shape, self.array.dtype), self.name)
    def contiguous(self): return self
    def is_contiguous(self): return True
    def dim(self): return self.array.ndim
    def stride(self, axis=None):
        return super().stride() if axis is None else super().stride()[axis]
    def to(self, dtype): return self
    name = property(lambda self: self.dtype.removeprefix("torch."))

def make(*shape, dtype="float32"):
    return Tensor(np.ones(shape, "float16" if dtype == "bfloat16" else dtype), dtype)

def zeros_like(x, dtype=""): return make(*x.shape, dtype=(dtype or x.dtype).removeprefix("torch."))

class Function:
    @classmethod
    def apply(cls, *arguments):
        context = SimpleNamespace(save_for_backward=lambda *saved: setattr(context, "saved_tensors", saved))
        result = cls.forward(context, *arguments)
        cls.backward(context, make(*result.shape, dtype=result.name))
        return result

torch.Tensor, torch.make, torch.empty_like, torch.zeros_like = Tensor, make, zeros_like, zeros_like
torch.autograd = SimpleNamespace(Function=Function)
"""
PROGRAMS = {
    "ported/cupy_heat/after": """
import heat, numpy as np, pytest
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_step(dtype):
    x = np.ones((20, 30), dtype)
    heat.step(x, x.copy())
def test_hottest():
    heat.hottest(np.ones((4, 5), "float32"))
""",
    "ported/torch_gelu/after": """
import torch, activations
for dtype in ("float32", "float64", "float16"):
    activations.gelu(torch.make(8, dtype=dtype))
""",
    "ported/triton_softmax/after": """
import torch, rowwise
for dtype in ("float32", "float16"):
    for columns in (1024, 1000, 4096):
        rowwise.softmax(torch.make(4, columns, dtype=dtype))
""",
    "ported/torch_conv/after": """
import itertools, torch, depthwise
for dtype, width, bias, silu, last in itertools.product(
        ("float32", "float16", "bfloat16"), (2, 3, 4), (False, True), (False, True), (False, True)):
    x = torch.make(2, 3, 9, dtype=dtype)
    if last:
        x = torch.Tensor(torch.make(2, 9, 3, dtype=dtype).array.swapaxes(1, 2), dtype)
    depthwise.conv(x, torch.make(3, width, dtype=dtype), torch.make(3, dtype=dtype) if bias else None, silu)
""",
    "ported/torch_scan/after": """
import itertools, torch, scanning
types = ("float32", "float16"), ("float32", "complex64")
for dtype, wide, length in itertools.product(*types, (5, 700, 4500)):
    x, b = torch.make(2, 3, length, dtype=dtype), torch.make(2, 4, length, dtype=wide)
    scanning.scan(x, x, torch.make(3, 4, dtype=wide), b, b, None, True)
""",
    "front_ends": """
import torch, front_ends
from front_ends import kernels
for dtype in ("float16", "float32"):
    for columns in (1024, 1000, 4096):
        x = torch.make(4, columns, dtype=dtype)
        front_ends.softmax(x, 1.5)
        front_ends.layer_norm(x, torch.make(columns, dtype=dtype), torch.make(columns, dtype=dtype))
        front_ends.layer_norm(x, torch.make(columns, dtype=dtype))
        kernels.simt.softmax(x, x, columns, columns, 1.5, grid=4, block=32)
    q = torch.make(1, 2, 64, 64, dtype=dtype)
    for causal in (False, True):
        front_ends.attention(q, q, q, causal)
    square = torch.make(64, 64, dtype=dtype)
    front_ends.matmul(square, square)
    kernels.ct_softmax(square, square, N=1024, grid=64)
half, wide = torch.make(128, 128, dtype="float16"), torch.make(128, 128)
front_ends.matmul_tma(half, half)
kernels.ct_matmul(half, half, half, M=128, N=128, K=64, grid=(1, 1))
kernels.axpy(64, 2.0, wide, wide, threads=64)
kernels.tile.axpy(64, 2.0, wide, wide, grid=1)
kernels.tile.matmul(64, 64, 64, half, half, wide, grid=(1, 1))
kernels.transpose(wide, wide, 32, 32, grid=1)
""",
}
FAST = "ported/cupy_heat/after"


def names(root: Path) -> list[str]:
    """Build the project in `root`; return the names of its kernels, without those for conditions."""
    status, _, errors = run("build", root)
    assert status == 0, errors
    (file,) = root.glob("src/*/kernels/manifest.json")
    return sorted(kernel.expression for kernel in loads(file.read_text(), "example").named_kernels)


def items_of(document: tomlkit.TOMLDocument) -> list[tuple[Any, Any]]:
    """Return the items of all keys ``instantiate`` with their arrays."""
    modules = document["tool"]["cuda_ext"]["modules"].values()
    tables = [table for module in modules for table in (module, *module.get("overrides", ()))]
    return [(table["instantiate"], item) for table in tables for item in table.get("instantiate", ())]


def kernels_of(item: Any) -> set[str]:
    """Return what an item stands for, without hints."""
    plain = tomlkit.item(item).unwrap() if isinstance(item, str) else item.unwrap()
    return {re.sub(r":16|=1\?", "", text) for text in INSTANTIATIONS.check([plain], "instantiate")}


def without_instantiations(text: str) -> str:
    document = tomlkit.parse(text)
    for module in document["tool"]["cuda_ext"]["modules"].values():
        for table in (module, *module.get("overrides", ())):
            for key in ("instantiate", "tuning"):
                table.pop(key, None)
    return tomlkit.dumps(document)


def check_written_table(root: Path, built: Sequence[str]) -> None:
    """Write the table of the project in `root` anew from its records, which name all kernels that it `built`.

    It must build the same, and lack something without any of its items.
    """
    assert run("record", "--project", root, "--check")[0] == 0
    table = root / "pyproject.toml"
    table.write_text(without_instantiations(table.read_text()))
    if "<" in "".join(built):
        assert run("record", "--project", root, "--check")[0] == 1
    status, _, errors = run("record", "--project", root, "--write")
    assert (status, errors) == (0, "")
    written = table.read_text()
    assert run("record", "--project", root, "--check")[0] == 0
    # A configuration from a table of measurements is one of constants.
    tuned = {name for name in built if name.startswith("matmul<")}
    anew = names(root)
    assert [name for name in anew if not name.startswith("matmul<")] == sorted({*built} - tuned)
    assert len([name for name in anew if name.startswith("matmul<")]) >= len(tuned)
    ran = {launch.kernel for launch in read_records(root / DIRECTORY)}
    assert {name.partition("<")[0] for name in ran} == {name.partition("<")[0] for name in anew}
    # Each item is needed, unless others differ from it in hints alone: one of them takes all launches.
    launches = read_records(root / DIRECTORY)
    texts = [kernels_of(item) for _, item in items_of(tomlkit.parse(written))]
    for number, own in enumerate(texts):
        document = tomlkit.parse(written)
        array, item = items_of(document)[number]
        array.remove(item)
        table.write_text(tomlkit.dumps(document))
        others = set().union(*texts[:number], *texts[number + 1 :])
        missing, _ = compare(load(root), launches)
        assert bool(missing) == bool(own - others), item
    assert texts


@pytest.mark.parametrize(
    "example", [pytest.param(name, marks=[pytest.mark.slow] * (name != FAST)) for name in PROGRAMS]
)
def test_the_written_table_builds_what_ran(
    example: str, tmp_path: Path, fake_driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(EXAMPLES / example, tmp_path / "project"))
    table = root / "pyproject.toml"
    head = r"(\[tool\.cuda_ext\.modules\.[^\]]*\]\n)(?!\[)"
    table.write_text(re.sub(head, r'\1emit = "cubin"\n', table.read_text(), count=1))
    if 'emit = "cubin"' not in table.read_text():  # its table consists of tables
        table.write_text(table.read_text().replace("[tool.cuda_ext]\n", '[tool.cuda_ext]\nemit = "cubin"\n'))
    for name, text in {"site/torch.py": TORCH, "test_program.py": PROGRAMS[example]}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setenv("CUDAARCHS", "90-real")
    built = names(root)
    path = os.pathsep.join(map(str, (root / "src", root / "site", CHECKOUT)))
    variables = {"PYTHONPATH": path, "LD_LIBRARY_PATH": fake_driver, "FAKE_CUDA_LOG": tmp_path / "log"}
    program = ["-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-c", os.devnull] * (
        example == FAST
    )
    command = ["record", "--project", root, "--", sys.executable, *program, root / "test_program.py"]
    status, output, errors = run(*command, CUDA_EXT_JIT=0, **variables)
    assert (status, errors) == (0, ""), output
    check_written_table(root, built)
