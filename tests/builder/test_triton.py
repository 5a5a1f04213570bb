"""Functions of Triton among the sources: compiled, launched under the fake driver, compiled again."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from cuda_ext.builder.package.generate import Package
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.toolchain.front_ends.triton import Triton
from tests.fixtures.loader import run_script
from tests.fixtures.messages import Messages
from tests.fixtures.projects import build, load, refusal, write_importable, write_project

pytest.importorskip("triton", reason="Triton runs under Linux only")

SCALE = """
import triton
import triton.language as tl
from .common import twice

@triton.jit
def scale(out, x, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, twice(tl.load(x + at, mask=at < n)) * factor, mask=at < n)
"""
COMMON = """
import triton

@triton.jit
def twice(x):
    return x * {factor}
"""
TABLE = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/scale.py"]
architectures = ["sm_90"]
emit = "cubin"
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/scale.py"]
instantiate = [
  {{ kernel = "{text}", T = ["fp16", "fp32"], B = [128] }},
]
"""
COMBINE = """
import triton
import triton.language as tl

@triton.jit
def relu(x):
    return tl.maximum(x, 0)

def combine(out, xs, n, bias, by: tl.constexpr, ACT: tl.constexpr = relu, BLOCK: tl.constexpr = 128,
            DTYPE: tl.constexpr = tl.float32):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    other, factor = xs[1]
    other = tl.load(other + at, mask=at < n).to(DTYPE) * factor
    value = by[0] * tl.load(xs[0] + at, mask=at < n) + by[1] * other
    if bias is not None:
        value += tl.load(bias + at, mask=at < n)
    tl.store(out + at, ACT(value), mask=at < n)

combine = triton.jit(combine)
combine = triton.heuristics({})(combine)
"""
COMBINED = """
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/combine.py"]
instantiate = [
  "combine(out: *fp32, xs: (*fp32:16, (*fp16, i32)), n: i32, bias: *fp32, by=(2, 3))",
  "combine(out: *fp32, xs: (*fp32:16, (*fp16, i32)), n: i32, bias=None, by=(2, 3))",
]
"""
TEXT = "scale(out: *{T}:16, x: *k{T}:16, n: i32, factor: fp32, BLOCK={B}, num_warps=1)"
ONE = TEXT.format(T="fp32", B=128)
SIGNATURE = "scale<fp32, BLOCK=128>(float* out, const float* x, int n, float factor)"
OTHER = TEXT.format(T="fp16", B=128).replace("num_warps=1", "num_warps=4")
LINE_TO_ADD = f'add "{OTHER}" to `instantiate` and build again'
FILES = {"device/scale.py": SCALE, "device/common.py": COMMON.format(factor=2), "p/__init__.py": ""}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Package]:
    """A project that was built, where variables would change what Triton does."""
    root = write_project(tmp_path_factory.mktemp("triton"), TABLE.format(text=TEXT), FILES)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"TRITON_INTERPRET": "1", "PTXAS_OPTIONS": "-none", "USE_IR_LOC": "?"}.items():
            patch.setenv(name, value)
        return root, build(root)["p.kernels"]


@pytest.mark.host_compiler
def test_a_function_is_launched_as_in_triton(
    project: tuple[Path, Package], tmp_path: Path, fake_driver: Path
) -> None:
    write_importable(project[1], tmp_path)
    script = """
    from p import kernels
    from tests.fixtures.device_arrays import ArrayAt

    print(kernels.scale["fp32, BLOCK=128"].signature)
    for dtype in ("<f4", "<f2"):
        x, y = ArrayAt(4096, dtype=dtype), ArrayAt(8192, dtype=dtype)
        for _ in range(2):
            kernels.scale(y, x, 60, 2.0, BLOCK=128, grid=3)
        kernels.scale(ArrayAt(8196, dtype=dtype), x, 60, 2.0, grid=3)
    kernels.scale["fp32, BLOCK=128"](ArrayAt(8192), ArrayAt(4096), 60, 2.0, grid=3, BLOCK=128)
    caught(kernels.scale, y, x, 60, 2.0, BLOCK=256, grid=3)
    caught(kernels.scale["fp16, BLOCK=128"], y, x, 60, 2.0, BLOCK=256, grid=3)
    caught(lambda: kernels.scale["fp64, BLOCK=64"])
    caught(lambda: kernels.scale["fp32"])
    caught(lambda: kernels.scale["fp32", 128])
    caught(kernels.scale, y, x, 60, 2.0, grid=3, num_warps=4)
    caught(kernels.scale["fp16, BLOCK=128"], y, x, 60, 2.0, grid=3, num_warps=4)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver), CUDA_EXT_JIT="0")
    assert done.output[0] == SIGNATURE
    assert done.output[1:] == [
        "ArgumentError: no kernel was built for BLOCK=256; nearest: scale<fp16, BLOCK=128>; jit: turned "
        f'off by CUDA_EXT_JIT=0; add "{TEXT.format(T="fp16", B=256)}" to `instantiate` and build again',
        "ArgumentError: argument 'BLOCK': scale<fp16, BLOCK=128> was compiled for BLOCK=128, not 256",
        "KernelNotFoundError: p.kernels: scale<fp64, BLOCK=64> was not built ahead; built: scale<fp16, "
        f'BLOCK=128>, scale<fp32, BLOCK=128>; add "{TEXT.format(T="fp64", B=64)}" to `instantiate` and build '
        "again",
        *(
            f"KernelNotFoundError: p.kernels: no kernel is called scale<{short}>; kernels with these "
            "arguments: scale<fp32, BLOCK=128>; choose one with all its arguments, as in "
            'scale["fp32, BLOCK=128"]'
            for short in ("fp32", "fp32, 128")
        ),
        *(
            "ArgumentError: argument 'num_warps': scale<fp16, BLOCK=128> was compiled for num_warps=1, not 4"
            f"; give it in `instantiate`, as in num_warps=4{more}"
            for more in (f"; jit: turned off by CUDA_EXT_JIT=0; {LINE_TO_ADD}", "")
        ),
    ]
    assert len(done.launches) == 7
    for launch in done.launches:
        assert "scale grid=3,1,1 block=32,1,1 shared=0" in launch
        assert launch.endswith(" 3c000000 00000040 " + " ".join(["0" * 16] * 2))
    # Each dtype has an image for aligned arguments and one for all others.
    assert done.calls.count("cuLibraryLoadData") == 4


@pytest.mark.host_compiler
def test_a_call_of_triton_is_a_call_here(
    project: tuple[Path, Package], tmp_path: Path, fake_driver: Path
) -> None:
    """After the import, not a word of a file with launches changes; repeated calls run no Python."""
    write_importable(project[1], tmp_path)
    script = """
    from tests.fixtures.device_arrays import Exchanged
    from cuda_ext.runtime.kernel import Kernel
    from p.kernels import scale

    import functools, numpy as np

    class Array(Exchanged):
        dtype = "float32"

    x, y, n = Array(np.zeros(60, "f4")), Array(np.zeros(60, "f4")), 60
    grid = lambda meta: (-(-meta["n"] // (16 * meta["BLOCK"])) + 2,)
    calls = [
        lambda: scale[(3,)](y, x, n, 2.0, BLOCK=128, num_warps=1),
        lambda: scale[3](y, x, n, 2.0, 128, num_stages=3, maxnreg=None, num_ctas=1),
        lambda: scale[grid](y, x, n, factor=2.0, BLOCK=128),
        lambda: scale[grid](y, x, n, 2.0),
        lambda: scale["fp32, BLOCK=128"][(3, 1, 1)](y, x, n, 2.0, num_warps=1),
        lambda: scale(y, x, n, 2.0, grid=grid, BLOCK=128),
        lambda: scale.choose(BLOCK=128)[3](y, x, n, 2.0),
        lambda: scale[functools.partial(grid)](y, x, n, 2.0),
        lambda: scale[[np.int32(3)]](y, x, n, 2.0),
    ]
    for call in calls:
        call()
        call()
    counted = []
    for of, name in ((Kernel, "launch"), (type(scale), "launch"), (type(scale), "select")):
        method = getattr(of, f"__{name}_carefully__")
        count = lambda *a, method=method, name=name, **k: counted.append(name) or method(*a, **k)
        setattr(of, f"__{name}_carefully__", count)
    for call in calls:
        call()
    print(*counted)
    caught(scale[(3,)], y, x, n, 2.0, BLOCK=256)
    caught(scale[(3,)], y, x, n, 2.0, BLOCK=128, num_warps=8)
    caught(scale[(3,)], y, x, n, 2.0, BLOCK=128, warps=8)
    try:
        scale[(3,)](y, x, n, 2.0, grid=4)
    except TypeError as error:
        print(error)
    caught(lambda: scale[(3,), 128])
    caught(lambda: scale["fp32, BLOCK=128"][None])
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver), CUDA_EXT_JIT="0")
    assert done.output[0] == "select select select launch"  # of a text, a functools.partial, and a list
    assert done.output[1].startswith("ArgumentError: no kernel was built for BLOCK=256; nearest: scale<fp32")
    assert [line.partition(";")[0] for line in done.output[2:]] == [
        "ArgumentError: argument 'num_warps': scale<fp32, BLOCK=128> was compiled for num_warps=1, not 8",
        "ArgumentError: no kernel has a parameter 'warps'",
        f"<variants {SIGNATURE}: compiled if out % 16 == 0 and x % 16 == 0, and for all arguments> has a "
        "grid, found another keyword 'grid'",
        "KernelNotFoundError: scale: brackets choose a kernel by its template arguments",
        "ArgumentError: scale<fp32, BLOCK=128> takes no launch configuration in brackets",
    ]
    assert len(done.launches) == 27
    for launch in done.launches:
        assert "scale grid=3,1,1 block=32,1,1 shared=0" in launch


@pytest.mark.host_compiler
def test_mistakes_in_calls_are_answered_by_the_nearest_kernels(
    tmp_path: Path, fake_driver: Path, messages: Messages
) -> None:
    sizes = TABLE.replace("B = [128]", "B = [16, 32, 64, 128]").format(text=TEXT)
    root = write_project(tmp_path / "project", sizes, FILES)
    write_importable(build(root)["p.kernels"], tmp_path)
    script = """
    from p import kernels
    from tests.fixtures.device_arrays import ArrayAt

    x, y, half = ArrayAt(4096), ArrayAt(8192), ArrayAt(8192, dtype="<f2")
    caught(kernels.scale, y, x, 60, 2.0, BLOCK=x, grid=3)
    caught(kernels.scale, y, x, 60, BLOCK=64, grid=3)
    caught(kernels.scale, half, x, 60, 2.0, BLOCK=64, grid=3)
    caught(kernels.scale, half, half, 60, fctor=2.0, BLOCK=64, grid=3)
    caught(kernels.scale, y, x, 60, 2.0, 3, 4, BLOCK=64, grid=3)
    caught(lambda: kernels.scale["fp32, BLOCK=256"])
    """
    settings = {"LD_LIBRARY_PATH": str(fake_driver), "CUDA_EXT_JIT": "0"}
    messages(*run_script(script, tmp_path, **settings).output)


def test_what_is_unchanged_is_not_compiled_again(
    project: tuple[Path, Package], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, package = project
    log: list[str] = []
    assert build(root, log)["p.kernels"].files == package.files
    assert "nothing to compile" in "".join(log)
    # What is known of Triton is remembered, too.
    monkeypatch.setattr(Triton, "capabilities", None)
    monkeypatch.setattr(Triton, "version", None)
    assert build(root)["p.kernels"].files == package.files
    monkeypatch.undo()
    (root / "device/common.py").write_text(COMMON.format(factor=3))
    assert build(root)["p.kernels"].files != package.files


@pytest.mark.host_compiler
def test_defaults_tuples_and_none_are_constants(tmp_path: Path, fake_driver: Path) -> None:
    table = TABLE.partition("[[tool")[0].replace("scale", "combine") + COMBINED
    root = write_project(tmp_path / "project", table, {"device/combine.py": COMBINE, "p/__init__.py": ""})
    write_importable(build(root)["p.kernels"], tmp_path)
    script = """
    from p import kernels
    from tests.fixtures.device_arrays import ArrayAt

    for kernel in kernels.combine.__kernels__:
        print(kernel.signature)
    out, xs, bias = ArrayAt(256), (ArrayAt(512), (ArrayAt(768, dtype="<f2"), 3)), ArrayAt(1024)
    careful = type(kernels.combine).__launch_carefully__
    counted = []
    type(kernels.combine).__launch_carefully__ = lambda *a, **k: counted.append(1) or careful(*a, **k)
    for _ in range(3):
        kernels.combine(out, xs[0], *xs[1], 64, bias=None, grid=1)
        kernels.combine(out, xs[0], *xs[1], 64, bias=bias, BLOCK=128, DTYPE="fp32", grid=1)
        kernels.combine(out, xs[0], *xs[1], 64, by=(2, 3), grid=1)
    print(len(counted))
    kernels.combine(out, xs, 64, bias, ACT="relu", by=(2, 3), grid=1)
    # Triton's own objects, as in its launches: a function by its name, a dtype, a constexpr by its value.
    import triton.language as tl
    def relu(): pass
    kernels.combine(out, xs, 64, bias, ACT=relu, DTYPE=tl.float32, BLOCK=tl.constexpr(128), grid=1)
    kernels.combine(out=out, xs=xs, n=64, grid=1)
    kernels.combine.__kernels__[0](out, xs, bias=bias, n=64, DTYPE="fp32", grid=1)
    # All as the function has them, constants too.
    kernels.combine(out, xs, 64, None, (2, 3), "relu", 128, grid=1)
    kernels.combine(out, xs, 64, bias, (2, 3), "relu", 128, grid=1)
    kernels.combine.__kernels__[1](out, *xs, 64, None, grid=1)
    caught(kernels.combine.__kernels__[1], out, xs, 64, bias, (2, 3), grid=1)
    caught(kernels.combine, out, xs, 64, None, (2, 3), "relu", 128, BLOCK=128, grid=1)
    caught(kernels.combine, out, xs, 64, bias, ACT="tanh", grid=1)
    caught(kernels.combine, out, xs, 64, bias, by=(3, 2), grid=1)
    caught(kernels.combine, out, (*xs, xs[0]), 64, bias, grid=1)
    caught(kernels.combine, out, (xs[0], xs[1][:1]), 64, bias, grid=1)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    constants = "by=(2, 3), ACT=relu, BLOCK=128, DTYPE=fp32>(float* out, float* xs_0, __half* xs_1_0"
    assert done.output[:2] == [
        f"combine<fp32, fp16, {constants}, int xs_1_1, int n, float* bias)",
        f"combine<fp32, fp16, bias=None, {constants}, int xs_1_1, int n)",
    ]
    assert done.output[2] == "3"  # the first of each kind
    answers = (
        "bias=None, not",
        "'BLOCK': is given twice",
        "ACT='tanh'",
        "by=tuple",
        "an array as 'by'",
        "argument 'n': expected int",
    )
    for line, text in zip(done.output[3:], answers, strict=True):
        assert text in line
    assert len(done.launches) == 16
    bias = "0004000000000000"
    assert [bias in launch for launch in done.launches[-3:]] == [False, True, False]


DESCRIPTORS = """
import triton
import triton.language as tl

@triton.jit
def on_host(out, x, n, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    tl.store(out + (i + tl.arange(0, BM))[:, None] * n + j + tl.arange(0, BN)[None, :], x.load([i, j]))

@triton.jit
def on_device(out, x, m, n, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BM, BN])
    at = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([at[0], at[1]], source.load([at[0], at[1]]))
"""
DESCRIBED = """
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/descriptors.py"]
instantiate = [
  "on_host(out: *fp16, x: tensordesc<fp16[64, 32]>, n: i32, BM=64, BN=32)",
  "on_device(out: *fp16:16, x: *fp16:16, m: i32, n: i32:16, BM=64, BN=32)",
]
"""


@pytest.mark.host_compiler
def test_tensor_maps_are_made_of_arrays(tmp_path: Path, fake_driver: Path) -> None:
    table = TABLE.partition("[[tool")[0].replace("scale", "descriptors") + DESCRIBED
    files = {"device/descriptors.py": DESCRIPTORS, "p/__init__.py": ""}
    root = write_project(tmp_path / "project", table, files)
    write_importable(build(root)["p.kernels"], tmp_path)
    script = """
    from p import kernels
    from tests.fixtures.device_arrays import ArrayAt

    print(kernels.on_host["fp16, BM=64, BN=32"].signature)
    shape, half = (128, 72), "<f2"
    out, x = ArrayAt(4096, shape, dtype=half), ArrayAt(8192, shape, (160, 2), half)
    for _ in range(2):
        kernels.on_host(out, x, 72, BM=64, BN=32, grid=(2, 3))
    kernels.on_device(out, x, 128, 80, grid=(2, 3))
    for wrong in (ArrayAt(8192, shape, (146, 2), half), ArrayAt(8200, shape, dtype=half),
                  ArrayAt(8192, (72,), dtype=half), 8192, ArrayAt(8192, shape), bytes(128)):
        caught(kernels.on_host["fp16, BM=64, BN=32"], out, wrong, 72, grid=1)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    assert done.output[0] == "on_host<fp16, BM=64, BN=32>(__half* out, CUtensorMap x, int n)"
    first, second, third = done.launches
    assert first == second
    # The address; two axes of halves with a swizzle of 64 bytes; extents, stride and box from the last axis.
    kinds = 6 + 256 * 2 + 65536 * 2 + (2 << 24)
    words = 8192, kinds, *(72, 128, 0, 0, 0), *(160, 0, 0, 0, 0), 32 + (64 << 12), *(0, 0, 0)
    tensor_map = "".join(word.to_bytes(8, "little").hex() for word in words)
    numbers = [(128, 4), (72, 4), (80, 8), (1, 8), (72, 4), (0, 8), (0, 8)]
    values = [tensor_map, *(number.to_bytes(size, "little").hex() for number, size in numbers)]
    assert first.endswith(f" {' '.join(values)}")
    # Descriptors on the device lie in scratch memory.
    assert "on_device grid=2,3,1" in third
    assert done.calls.count("cuMemFreeAsync stream=0") == 1
    unaligned = "expected contiguous elements on the last axis, and an address and other strides that are"
    for line, text in zip(
        done.output[1:],
        (
            *(unaligned, unaligned, "expected an array with at least 2 axes, found the shape (72,)"),
            *("expected the 128 bytes of CUtensorMap", "expected float16 (__half), found float32"),
            "expected an array, since the kernel takes its shape",
        ),
        strict=True,
    ):
        assert f"argument 'x': {text}" in line


CONFIG = {"kwargs": {"BLOCK": 64}, "num_warps": 2, "num_ctas": 1, "num_stages": 3, "maxnreg": None}
APART = """
import sys
import triton
import triton.language as tl
from .. import VERSION
from lib.shared import order
order.append("{name}")
tl.{name} = tl.constexpr(len(order))
setattr(tl.tensor, "{name}", 1)
tl.seen = tl.constexpr(sum(hasattr(owner, name) for name in "ab" for owner in (tl, tl.tensor)))
ORDER = tl.constexpr(VERSION + 10 * len(order) + tl.seen)

@triton.jit
def {name}(out):
    tl.store(out, ORDER)
"""
ROOM = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["lib/ops/*.py"]
architectures = ["sm_90"]
"""


def test_sources_are_imported_apart_from_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker imports both, one after the other: the first as a slice, the second as a whole."""
    override = """[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["lib/ops/{0}.py"]
instantiate = ["{0}(out: *i32)"]
"""
    hidden = "import lib\nglobals()['VERSION'] = lib.VERSION"  # a slice does not see what this defines
    last = APART.format(name="b").replace("from .. import VERSION", hidden)
    files = {"lib/__init__.py": "VERSION = 4", "lib/shared.py": "order = []"}
    files |= {"lib/ops/a.py": APART.format(name="a"), "lib/ops/b.py": last}
    packages = []
    for jobs in ("1", "2"):
        root = write_project(tmp_path / jobs, ROOM + "".join(map(override.format, "ab")), files)
        monkeypatch.setenv("MAX_JOBS", jobs)
        monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / f"cache{jobs}"))
        packages.append(build(root)["p.kernels"].files)
    assert packages[0] == packages[1]


SHARED = """
import triton
try:
    from .fast import by
except ImportError:
    by = triton.language.constexpr(2)

def host():
    from . import host_code

@triton.jit
def twice(x):
    return x * by
"""
# What is written, and whether it recompiles the source that calls this function.
EDITS = {
    "device/host_code.py": ("SIZE = 2", False),
    "device/other.py": ("SIZE = 2", False),
    "device/fast.py": ("import triton\nby = triton.language.constexpr(3)", True),
    "device/__init__.py": ("", False),
}


def test_files_that_a_kernel_needs_recompile_it(tmp_path: Path) -> None:
    files = {
        **FILES,
        "device/scale.py": f"from . import other\n{SCALE}",
        "device/common.py": SHARED,
        **dict.fromkeys(("device/host_code.py", "device/other.py"), "SIZE = 1"),
    }
    root = write_project(tmp_path, TABLE.format(text=TEXT), files)
    images = [build(root)["p.kernels"].files]
    for name, (content, recompiles) in EDITS.items():
        write_project(root, TABLE.format(text=TEXT), {name: content})
        log: list[str] = []
        images.append(build(root, log)["p.kernels"].files)
        assert any(line.startswith("[") for line in log) == recompiles, name
        binary = [{name: b for name, b in each.items() if name.endswith("cubin")} for each in images[-2:]]
        assert (binary[0] != binary[1]) == recompiles


# In the manner of torch.compile: a file of one kernel, and a file with kernels in strings.
GENERATED = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={{'x': 64}},
    filename=__file__,
    triton_meta={{'signature': {{'in_ptr0': '*fp32'}}, 'device': DeviceProperties(type='cuda', index=0)}},
)
@triton.jit
def {name}(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    tmp0 = tl.load(in_ptr0 + xindex, xindex < xnumel)
    tmp1 = triton_helpers.maximum(tl_math.abs(tmp0), libdevice.sin(tmp0))
    tl.store(out_ptr0 + xindex, tmp1, xindex < xnumel)
"""
WRAPPED = """
import torch
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
triton_poi_0 = async_compile.triton('triton_poi_0', '''{0}''', device_str='cuda')
triton_poi_1 = async_compile.triton('triton_poi_1', '''{1}''', device_str='cuda')
async_compile.wait(globals())
"""
TORCH = {
    "__init__.py": "raise SystemExit('PyTorch is imported')",
    "_inductor/runtime/triton_compat.py": """
import torch
try:
    import triton
except ImportError:
    triton = None
if triton is not None:
    import triton.language as tl
    from triton.language.extra import libdevice
    math = tl.math
""",
    "_inductor/runtime/triton_helpers.py": """
from .triton_compat import libdevice, math, tl, triton

def set_driver_to_gpu():
    raise RuntimeError("Could not find an active GPU backend")

@triton.jit
def maximum(a, b):
    return tl.where(a > b, a, b)
""",
}
COMPILED = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/*.py"]
architectures = ["sm_90"]
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/*.py"]
instantiate = [{}]
"""


@pytest.mark.parametrize("files", [("triton_poi_2",), ("triton_poi_0", "triton_poi_1")])
def test_kernels_of_torch_compile_need_the_text_of_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...]
) -> None:
    kernels = [GENERATED.format(name=name) for name in files]
    source = WRAPPED.format(*kernels) if len(kernels) > 1 else kernels[0]
    texts = [f'"{name}(in_ptr0: *fp32, out_ptr0: *fp32, xnumel: i32, XBLOCK=64)"' for name in files]
    root = write_project(tmp_path / "p", COMPILED.format(", ".join(texts)), {"device/output_code.py": source})
    (*_, line) = (n for n, text in enumerate(source.splitlines(), 1) if "import triton_helpers," in text)
    place = f"device/output_code.py:{line}: imports torch._inductor.runtime, which is not installed"
    assert place in refusal(root)
    for name, content in TORCH.items():
        write_project(tmp_path / "site/torch", "", {name: content})
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert build(root)["p.kernels"].kernels == tuple(f"{name}<fp32, XBLOCK=64>" for name in files)
    assert load(root).source_files() == [Path("device/output_code.py")]


TUNED = {
    "key": ["n"],
    "tuned": [
        # As triton.autotune caches them, for dtypes too.
        {
            "device": "sm_90",
            "key": [60, "torch.float32", "torch.float32"],
            "configs_timings": [[{**CONFIG, "num_warps": 8}, [0.3, 0.2, 0.4]], [CONFIG, [0.1, 0.1, 0.1]]],
        },
        {"device": "sm_90", "key": [120, "torch.float32", "torch.float32"], "config": CONFIG},
        {"device": "sm_90", "key": [60, "torch.float16", "torch.float16"], "config": {"num_warps": 1}},
        {"device": "sm_90", "when": "n >= 4096", "config": {"kwargs": {"BLOCK": 256}, "num_warps": 4}},
        {"device": "sm_75", "when": "n >= 16", "config": {"kwargs": {"BLOCK": 16}}},
    ],
    "default": {"kwargs": {"BLOCK": 32}, "num_warps": 1},
}


def write_tuned(root: Path, **changes: object) -> Path:
    table = (
        TABLE.partition("[[tool")[0]
        + """
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/scale.py"]
instantiate = ["scale(out: *fp32, x: *kfp32:16, n: i32, factor: fp32)"]
tuning = "tuning/scale.json"
"""
    )
    return write_project(root, table, {**FILES, "tuning/scale.json": json.dumps({**TUNED, **changes})})


@pytest.mark.host_compiler
def test_a_measured_table_chooses_the_configuration(
    tmp_path: Path, fake_driver: Path, messages: Messages
) -> None:
    root = write_tuned(tmp_path / "project")
    package = build(root)["p.kernels"]
    assert Path("tuning/scale.json") in load(root).source_files()
    write_importable(package, tmp_path)
    script = """
    from p import kernels

    print(kernels.scale.__kernels__[0].signature, dict(kernels.scale.__kernels__[0].constants))
    grid = lambda given: (-(-given["n"] // given["BLOCK"]), 1)
    for n, x in ((60, 4096), (120, 4100), (61, 4096), (5000, 4096), (60, 4096)):
        kernels.scale(8192, x, n, 2.0, grid=grid)
    caught(kernels.scale, 8192, 4096, 60, 2.0, grid=grid, BLOCK=64)
    kernels.scale.__kernels__[0].explain(8192, 4100, 5000, 2.0)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver), CUDA_EXT_JIT="0")
    assert done.output[0] == "scale<fp32>(float* out, const float* x, int n, float factor) {}"
    launched = [launch.partition(" shared")[0].partition("scale ")[2] for launch in done.launches]
    assert launched == [
        "grid=1,1,1 block=64,1,1",
        "grid=2,1,1 block=64,1,1",
        "grid=2,1,1 block=32,1,1",
        "grid=20,1,1 block=128,1,1",
        "grid=1,1,1 block=64,1,1",
    ]
    assert "no parameter is called 'BLOCK'" in done.output[1]
    messages(*[line.rpartition("  ")[2] for line in done.output[3:]])
    log: list[str] = []
    write_tuned(tmp_path / "project")
    assert build(root, log)["p.kernels"].files == package.files
    assert "nothing to compile" in "".join(log)


REFUSED_TABLES = {
    "key": (["m"], "tuning/scale.json: no parameter 'm' has a type; conditions compare integers: n, sm"),
    "default": (
        {"kwargs": {"BLOK": 1}},
        "tuning/scale.json: scale has no parameter 'BLOK'; did you mean 'BLOCK'?",
    ),
    "default of arrays": ({"kwargs": {"BLOCK": json.loads("[" * 99 + "]" * 99)}}, "BLOCK=((((((((("),
    "default that is infinite": (
        {"kwargs": {"BLOCK": float("inf")}},
        "table: is no measurement: inf is no constant",
    ),
    "tuned": (
        [{"device": "sm_90", "key": ["60"], "config": CONFIG}],
        'table.tuned[0].key: expected an integer for n, found "60"',
    ),
}


@pytest.mark.parametrize("key", REFUSED_TABLES)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, key: str) -> None:
    value, answer = REFUSED_TABLES[key]
    assert answer in refusal(write_tuned(tmp_path, **{key.split()[0]: value}))


REFUSED = {
    # What is written instead of the instantiation, and the answer.
    "scale": "expected a function with the types of its parameters, such as scale(x: *fp32, n: i32",
    "scales(x: *fp32)": "device/scale.py has no function 'scales'; did you mean 'scale'?",
    "scale(out: *fp32, z: i32)": "scale has no parameter 'z'",
    "scale(out: *fp32)": "the parameter 'x' of scale has neither a type nor a value",
    'scale(out: *fp32)", "scale (out: *fp32, x: *kfp32:16)': "add x: *kfp32:16, as in another instantiation",
    "scale(out: (*fp32:3, i32))": "out: *fp32:3: expected a power of two up to 256 behind the colon",
    "scale(out: (*fp32, i32)": "expected a function with the types of its parameters",
    "scale(out: ()": "expected a function with the types of its parameters",
    "scale(out: ())": "out: (): expected types in parentheses, such as (*fp32, i32)",
    "scale(out: *fp32)(out=1)": "the parameter 'out' is given twice",
    "scale(out: *fp32) if n >": "found 'n >'",
    "scale(out: *fp32) iff n > 1": "expected a condition such as 'if n >= 1024' behind the function",
    f"{ONE} if factor > 1": "'factor' is fp32; conditions compare integers: n, sm",
    f"{ONE} if N > 1": "no parameter 'N' has a type",
    f"{ONE} if n > 5 and n < 3": "x % 16 == 0 never holds; correct the condition, or the hints at the types",
    ONE.replace(
        "128", "[1]"
    ): "BLOCK=[1]: expected a number, True, False, None, a string, a dtype, or a tuple",
    ONE.replace("128", f"[{'9' * 300}]"): "999…: expected a number, True, False",
    "scale(out: (*fp32, i32), out_1: i32)": "the parameter 'out_1' is given twice",
    f"scale(out: {'(' * 9}i32{')' * 9})": "out: (i32): expected types in parentheses, such as (*fp32, i32)",
    "scale(out: *fp32, out: *fp32)": "the parameter 'out' is given twice",
    "scale(out: *fp32:3)": "expected a power of two up to 256 behind the colon",
    "scale(out: *fp32, x: *fp32, n: i32, factor: fp32, BLOCK=(1,)": "expected",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_wrong_instantiation_is_answered(tmp_path: Path, text: str) -> None:
    table = TABLE.replace('{{ kernel = "{text}", T = ["fp16", "fp32"], B = [128] }}', '"{text}"')
    answer = refusal(write_project(tmp_path, table.format(text=text), FILES))
    assert REFUSED[text] in answer
    assert "device/scale.py" in answer or "overrides[0].instantiate[0]" in answer


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("n: i32", "n: fp31", "'fp31' is not a type of a parameter; the types are i1, i8"),
        ("128", "load", "BLOCK=load is neither a value nor a dtype"),
        ("128", "100", "arange's range must be a power of 2"),
        ("num_warps", "num_warp", "no parameter 'num_warp'"),
        ("warps=1", "warps=64", "is for 2048 threads"),
        ("128", "128, arch='sm80'", "no parameter 'arch', and Triton has no such option"),
    ],
)
def test_what_triton_refuses_is_answered(old: str, new: str, answer: str) -> None:
    headers = {"device/common.py": COMMON.format(factor=2).encode()}
    text = ONE.replace(old, new)
    unit = TranslationUnit("device/scale.py", SCALE.encode(), "triton", headers, instantiate=(text,))
    with pytest.raises(CompilationError) as caught:
        Triton().compile(unit, (Architecture.parse("sm_90a"),))
    assert str(caught.value).startswith("device/scale.py: scale")
    assert answer in str(caught.value)


def test_a_mistake_has_the_line_of_its_file(tmp_path: Path) -> None:
    answer = refusal(
        write_project(
            tmp_path,
            TABLE.format(text=TEXT),
            {**FILES, "device/common.py": COMMON.format(factor="factr")},
        )
    )
    assert ": at device/common.py:6:" in answer
    # Two types, each for aligned arguments and for all.
    assert answer.count("NameError('factr is not defined')") == 1
    assert "(other compilations with this error: 3)" in answer


WHOLE = TABLE.format(text=TEXT)
REFUSED_PROJECTS = {
    # What the build says, the table, and what differs in the sources.
    "architectures: device/scale.py cannot be compiled to LTO-IR; name others": (
        WHOLE.replace("sm_90", "lto_90").replace('emit = "cubin"', ""),
        {},
    ),
    "architectures: the conditions of all instantiations exclude the architectures; add one": (
        TABLE.format(text=f"{TEXT} if sm_80"),
        {},
    ),
    "no instantiation names a function of this source, which has scale": (TABLE.partition("[[tool")[0], {}),
    "num_warps=2) have one name, 'scale<fp32, BLOCK=128>": (
        re.sub(
            r"instantiate = \[.*\n\]",
            f'instantiate = ["{ONE}", "{ONE.replace("warps=1", "warps=2")}"]',
            WHOLE,
            flags=re.DOTALL,
        ),
        {},
    ),
    "device/scale.py: has no kernel: no function has a decorator of Triton or cuTile": (
        WHOLE,
        {"device/scale.py": "def next_power(n):\n    return 1 << n.bit_length()\n"},
    ),
    "device/common.py:1: imports not_there, which is not installed; its kernels alone cannot be imported: "
    "no statement defines twice in device/common.py; install not_there for the build, or define what "
    "kernels read apart from it": (WHOLE, {"device/common.py": "import not_there\n"}),
}


@pytest.mark.parametrize("answer", REFUSED_PROJECTS)
def test_a_wrong_project_is_answered(tmp_path: Path, answer: str) -> None:
    table, files = REFUSED_PROJECTS[answer]
    assert answer in refusal(write_project(tmp_path, table, FILES | files))
