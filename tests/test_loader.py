"""The loader: what names lead to, what reaches the driver, and what every failure says.

Nothing here needs a GPU. Scripts run in processes of their own, most of them under the fake driver.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import math
import pickle
import re
import struct
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext import errors, manifest
from cuda_ext.errors import ArgumentError, KernelNotFoundError, NoImageError, PtxTooNewError
from cuda_ext.manifest import Manifest, Unit
from cuda_ext.runtime.arguments import pack
from cuda_ext.runtime.elements import accepted_dtypes
from cuda_ext.runtime.images import image_for, select_image
from cuda_ext.runtime.launch import Launch
from cuda_ext.runtime.module import KernelModule, module_from
from tests.loader_fixtures import (
    AXPY,
    FILES,
    SAMPLE,
    Run,
    fatbin,
    run_script,
    signature,
    single_image,
    unit,
    write_package,
)

WithDriver = Callable[..., Run]


def driver_library_exists() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


without_driver = pytest.mark.skipif(driver_library_exists(), reason="this machine has a CUDA driver")
host_compiler = pytest.mark.host_compiler


@pytest.fixture
def kernels() -> Any:
    """The sample module, made in memory."""
    return module_from(SAMPLE, FILES.__getitem__)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The sample module, imported from a package."""
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("sample", "sample.kernels"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from sample import kernels  # type: ignore[import-not-found]

    yield kernels
    for name in ("sample", "sample.kernels"):
        sys.modules.pop(name, None)


# --- Names ------------------------------------------------------------------------------------------------


def test_attributes_follow_namespaces_and_brackets_take_expressions(kernels: Any) -> None:
    assert kernels.plain.expression == "plain"
    assert kernels.ns.inner.scale.expression == "ns::inner::scale"
    assert kernels.axpy["float"] == kernels["axpy<float>"] == kernels["::axpy< float >"]
    assert kernels.axpy["float"] != kernels.axpy["double"]
    assert kernels.axpy["float"].signature == AXPY.signature
    assert [p.name for p in kernels.axpy["float"].parameters] == ["n", "a", "x", "y"]
    assert kernels.ns["fill<int,256>"] == kernels["ns::fill<int, 256>"]
    assert kernels["ns"].fill["int", 256] == kernels.ns.fill["int,256"] == kernels["ns::fill<int, 256>"]


def test_overloads_are_one_attribute(kernels: Any) -> None:
    assert kernels["ov(int)"].expression == kernels.ov["(int)"].expression == "ov(int)"
    assert kernels["ov( float,int * )"].expression == "ov(float, int*)"


def test_symbols_are_found_as_kernels_are(kernels: Any) -> None:
    assert (kernels.weights.name, kernels.weights.type, kernels.weights.size) == ("weights", "float[9]", 36)
    assert kernels.ns.table == kernels["ns::table"]
    assert repr(kernels.ns.table) == "<device symbol unsigned char[4] ns::table>"


def test_a_kernel_and_a_namespace_may_share_a_name() -> None:
    blur, sobel = (dataclasses.replace(AXPY, expression=e, lowered=e) for e in ("blur", "blur::sobel"))
    kernels = module_from(dataclasses.replace(SAMPLE, kernels=(blur, sobel)), FILES.__getitem__)
    assert kernels["blur"].expression == "blur"
    assert kernels.blur.sobel.expression == "blur::sobel"
    assert kernels["blur::sobel"] == kernels.blur.sobel
    assert dir(kernels.blur) == ["sobel"]
    with pytest.raises(ArgumentError, match="expected 4 arguments"):
        kernels.blur(grid=1, block=1)


def test_overloaded_templates_narrow_step_by_step() -> None:
    overloads = [dataclasses.replace(AXPY, expression=e) for e in ("f<int>(int)", "f<int>(int*)", "f<char>")]
    kernels = module_from(dataclasses.replace(SAMPLE, kernels=tuple(overloads)), FILES.__getitem__)
    assert repr(kernels.f["int"]) == "<kernel template f<int>: f<int>(int), f<int>(int*)>"
    assert kernels.f["int"]["(int)"].expression == "f<int>(int)"
    assert kernels.f["char"].expression == "f<char>"
    assert kernels["f<int>(int *)"].expression == "f<int>(int*)"


def test_template_arguments_may_be_numbers() -> None:
    expressions = ("scan<128, true>", "scan<128, false>")
    instances = tuple(dataclasses.replace(AXPY, expression=expression) for expression in expressions)
    kernels = module_from(dataclasses.replace(SAMPLE, kernels=instances), FILES.__getitem__)
    assert kernels.scan[128, True].expression == "scan<128, true>"
    with pytest.raises(TypeError, match=r"as C\+\+ spells it, found 1\.5"):
        kernels.scan[1.5]


def test_names_of_ours_do_not_hide_kernels() -> None:
    words = ("bind", "name", "library", "manifest", "read", "compile", "_path", "items", "_library", "__call")
    instances = tuple(dataclasses.replace(AXPY, expression=word) for word in words)
    nested = tuple(dataclasses.replace(AXPY, expression=f"ns::{word}") for word in words)
    kernels = module_from(dataclasses.replace(SAMPLE, kernels=instances + nested), FILES.__getitem__)
    for word in words:
        assert getattr(kernels, word).expression == word
        assert getattr(kernels.ns, word).expression == f"ns::{word}"
    assert all(re.fullmatch("__.*__", name) for name in vars(KernelModule))


def test_unknown_names_are_told_with_the_nearest_one(kernels: Any) -> None:
    everything = "axpy<double>, axpy<float>, gemm, later, ns::fill<int, 256>, ns::inner::scale, "
    everything += "ov(float, int*), ov(int), plain, tiled, ns::table, weights"
    with pytest.raises(KernelNotFoundError) as raised:
        kernels.plane  # noqa: B018
    assert str(raised.value) == (
        f"sample.kernels has no kernel or symbol 'plane'; did you mean 'plain'?; it has: {everything}"
    )
    with pytest.raises(KernelNotFoundError, match="did you mean 'ns::fill<int, 256>'"):
        kernels["ms::fill<int, 256>"]
    with pytest.raises(KernelNotFoundError, match="no kernel or symbol 'ns::zzz'; it has"):
        kernels.ns.zzz  # noqa: B018
    assert not hasattr(kernels, "zzz")
    with pytest.raises(KeyError):
        kernels["zzz"]


def test_a_missing_instantiation_is_told_with_those_that_were_built(kernels: Any) -> None:
    message = (
        "sample.kernels: axpy<__half> was not built ahead; built: axpy<double>, axpy<float>; "
        'add "axpy<__half>" to `instantiate` and build again'
    )
    for look_up in (lambda: kernels.axpy["__half"], lambda: kernels["axpy<__half>"]):
        with pytest.raises(KernelNotFoundError) as raised:
            look_up()
        assert str(raised.value) == message
    with pytest.raises(KernelNotFoundError, match="plain is not a template; built: plain$"):
        kernels["plain<float>"]
    with pytest.raises(KernelNotFoundError, match=re.escape("built: ov(float, int*), ov(int)")):
        kernels["ov(double)"]


def test_a_long_list_is_cut() -> None:
    many = tuple(dataclasses.replace(AXPY, expression=f"k{i}") for i in range(500))
    kernels = module_from(dataclasses.replace(SAMPLE, kernels=many, symbols=()), FILES.__getitem__)
    with pytest.raises(KernelNotFoundError, match="k18, k19 and 480 more$"):
        kernels.other  # noqa: B018


def test_several_kernels_cannot_be_called_at_once(kernels: Any) -> None:
    with pytest.raises(ArgumentError) as raised:
        kernels.axpy(1, 2.0, 0, 0, grid=1, block=1)
    assert str(raised.value) == (
        "axpy stands for several kernels: axpy<double>, axpy<float>; choose one with brackets, "
        'as in kernels["axpy<double>"]'
    )
    with pytest.raises(ArgumentError, match=r"in a launch of ns::fill<int, 256>\(int\* x, int value\)"):
        kernels.ns.fill(grid=1, block=1)


def test_representations_are_worth_reading(kernels: Any) -> None:
    members = ["axpy", "gemm", "later", "ns", "ov", "plain", "tiled", "weights"]
    assert dir(kernels) == members
    assert repr(kernels) == f"<kernels of sample.kernels: {', '.join(members)}>"
    assert repr(kernels.ns) == "<namespace ns: fill, inner, table>"
    assert dir(kernels.ns.inner) == ["scale"]
    assert repr(kernels.axpy) == "<kernel template axpy: axpy<double>, axpy<float>>"
    assert repr(kernels.plain) == "<kernel plain()>"
    assert repr(kernels.weights) == "<constant symbol float[9] weights>"


# --- The module as a Python object -------------------------------------------------------------------------


def test_importing_a_module_of_kernels_loads_nothing(tmp_path: Path) -> None:
    write_package(tmp_path)
    run = run_script(
        """
        before = set(sys.modules)
        from sample import kernels
        print(*sorted(set(sys.modules) - before))
        print(*(name for name in vars(kernels) if not name.startswith("__")))
        import cuda_ext
        print(cuda_ext.describe(kernels).name, hasattr(kernels, "axpy"), kernels.axpy["float"])
        print(*(name for name in ("cuda", "numpy") if name in sys.modules))
        """,
        tmp_path,
    )
    imported, names, use, heavy = run.output
    expected = {"cuda_ext.runtime", "cuda_ext.runtime.module", "sample", "sample.kernels"}
    assert expected <= set(imported.split()) <= expected | {"types"}
    assert (names, heavy) == ("", "")
    assert use == f"sample.kernels True <kernel {AXPY.signature}>"


def test_a_package_may_lie_in_a_zip_archive(tmp_path: Path) -> None:
    import shutil

    write_package(tmp_path / "unpacked")
    shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path / "unpacked")
    run = run_script(
        f"""
        sys.path.insert(0, {str(tmp_path / "archive.zip")!r})
        from sample import kernels
        print(kernels.axpy["float"].expression, type(kernels.__loader__).__name__)
        """,
        tmp_path,
    )
    assert run.output == ["axpy<float> zipimporter"]


def test_import_statements_find_kernels(installed: Any) -> None:
    from sample.kernels import axpy, ns  # type: ignore[import-not-found]

    assert axpy["float"] == installed.axpy["float"]
    assert dir(ns) == ["fill", "inner", "table"]
    namespace: dict[str, Any] = {}
    exec("from sample.kernels import *", namespace)
    assert set(dir(installed)) <= set(namespace)
    with pytest.raises(ImportError):
        from sample.kernels import nothing  # noqa: F401


def test_copies_and_pickles_are_the_thing_itself(installed: Any) -> None:
    import copy

    for thing in (installed, installed.axpy["float"], installed.weights):
        for twin in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
            assert twin == thing
    for thing in (installed.axpy, installed.ns):
        for twin in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
            assert repr(twin) == repr(thing)


def test_what_cannot_be_imported_cannot_be_pickled(kernels: Any) -> None:
    import copy

    for thing in (kernels, kernels.plain):
        with pytest.raises(TypeError, match="no importable module"):
            pickle.dumps(thing)
    assert copy.deepcopy(kernels.plain) == kernels.plain


def test_tools_may_look_at_a_module(installed: Any) -> None:
    import doctest
    import inspect
    import pydoc

    assert "axpy" in pydoc.render_doc(installed)
    assert doctest.DocTestFinder().find(installed) is not None
    assert {name for name, _ in inspect.getmembers(installed)} == set(dir(installed))
    assert inspect.getfile(installed).endswith("__init__.py")
    assert inspect.unwrap(installed.plain) == installed.plain
    assert hasattr(installed, "__path__")
    for name in ("__wrapped__", "__test__", "__array_interface__", "__cuda_array_interface__"):
        assert not hasattr(installed, name)
        assert not hasattr(installed.axpy, name)
        assert not hasattr(installed.ns, name)
    assert inspect.signature(installed.axpy["float"]).parameters["grid"].kind.name == "KEYWORD_ONLY"


def test_a_reload_reads_the_files_again(installed: Any) -> None:
    import importlib

    renamed = dataclasses.replace(
        SAMPLE, kernels=(dataclasses.replace(AXPY, expression="fresh"),), symbols=()
    )
    assert not hasattr(installed, "fresh")
    Path(installed.__file__).with_name(manifest.FILE_NAME).write_text(manifest.dumps(renamed))
    assert not hasattr(installed, "fresh")
    assert dir(importlib.reload(installed)) == ["fresh"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.unlink(), "manifest.json cannot be read: No such file or directory; reinstall"),
        (lambda file: file.write_text(file.read_text()[:100]), "manifest.json: not a manifest"),
    ],
    ids=["missing", "cut"],
)
def test_a_damaged_manifest_is_one_error(installed: Any, damage: Callable[[Path], Any], message: str) -> None:
    damage(Path(installed.__file__).with_name(manifest.FILE_NAME))
    with pytest.raises(errors.ManifestError, match=f"^sample.kernels: {message}"):
        installed.axpy  # noqa: B018
    assert repr(installed).startswith("<module 'sample.kernels' from")


def test_describe_tells_all_without_a_driver(kernels: Any) -> None:
    description = cuda_ext.describe(kernels)
    assert (description.name, description.compiler, description.version) == (
        "sample.kernels",
        "nvrtc",
        "13.5",
    )
    assert [u.source for u in description.units] == ["device/axpy.cu", "device/gemm.cu", "device/later.cu"]
    images = [(i.architecture, i.kind, i.size) for i in description.units[0].images]
    assert images == [("sm_80", "cubin", 1000), ("sm_90", "cubin", 1000), ("compute_90", "ptx", 1000)]
    assert AXPY.signature in [k.signature for k in description.kernels]
    assert [(s.name, s.type, s.size) for s in description.symbols][1] == ("weights", "float[9]", 36)
    lines = str(description).splitlines()
    assert lines[0] == "sample.kernels, compiled by nvrtc 13.5"
    assert "  axpy<float>(int n, float a, const float* x, float* y)" in lines
    assert "  __constant__ float[9] weights, 36 bytes" in lines
    assert lines[-1] == "  device/later.cu: compute_80 1.0 kB"
    with pytest.raises(dataclasses.FrozenInstanceError):
        description.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError, match="expected a module of kernels, found <module 'math'"):
        cuda_ext.describe(math)


# --- Which image ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("built", "capability", "expected"),
    [
        ("sm_80 sm_90", 90, "sm_90"),
        ("sm_80 sm_86", 89, "sm_86"),
        ("sm_80 sm_90", 86, "sm_80"),
        ("sm_90 sm_80", 75, None),
        ("sm_80", 90, None),
        ("sm_89 compute_80", 86, "compute_80"),
        ("sm_90 sm_90a", 90, "sm_90a"),
        ("sm_90a", 90, "sm_90a"),
        ("sm_100a sm_100 compute_90", 103, "sm_100"),
        ("sm_100a compute_90", 103, "compute_90"),
        ("sm_100f compute_90", 103, "sm_100f"),
        ("sm_100f", 120, None),
        ("sm_103f", 100, None),
        ("sm_100 sm_100f sm_100a", 100, "sm_100a"),
        ("compute_75 compute_90 compute_120", 100, "compute_90"),
        ("compute_90a compute_80", 90, "compute_90a"),
        ("compute_90a", 100, None),
        ("compute_100f", 103, "compute_100f"),
        ("compute_100f", 120, None),
        ("sm_90 compute_100", 100, "compute_100"),
        ("lto_90", 90, None),
        ("", 90, None),
    ],
)
def test_the_image_that_the_driver_takes(built: str, capability: int, expected: str | None) -> None:
    image = select_image(unit("x.cu", *built.split()).images, capability)
    assert (image and image.architecture) == expected


def told_for(built: str, capability: int = 90, driver: tuple[int, int] = (13, 0), **changes: Any) -> str:
    """What is said, with the name of its exception, where a unit of these architectures is wanted."""
    source = changes.pop("source", "device/x.cu")
    module = dataclasses.replace(SAMPLE, **changes)
    try:
        image = image_for(module, unit(source, *built.split()), capability, driver)
    except errors.DriverError as error:
        return f"{type(error).__name__}: {error}"
    return image.architecture


def test_no_image_is_told_with_everything_that_there_is() -> None:
    assert told_for("sm_80 sm_120") == (
        "NoImageError: sample.kernels: device/x.cu has no image for this GPU: device is sm_90; built for sm_80, "
        'sm_120; PTX: none; jit: off; add "sm_90" to architectures and build again'
    )
    assert "built for none; PTX: compute_100; jit: off" in told_for("compute_100")
    assert "jit: not in this version of cuda-ext" in told_for("sm_80", embedded={"device/x.cu": ""})
    assert "PTX: none; LTO-IR, which has to be linked first: lto_90; jit" in told_for("lto_90")


def test_minor_versions_of_a_driver_are_compatible() -> None:
    assert told_for("sm_90", driver=(13, 0), version="13.5") == "sm_90"
    assert told_for("sm_90", driver=(14, 0), version="13.5") == "sm_90"
    assert told_for("sm_90", driver=(12, 4), version="12.9") == "sm_90"
    assert told_for("sm_90", driver=(12, 9), version="13.0") == (
        "DriverTooOldError: sample.kernels: the NVIDIA driver supports CUDA up to 12.9, and x.fatbin, made by CUDA "
        "13.0, needs 13.0 or newer; upgrade the driver"
    )


def test_zstd_takes_a_driver_that_reads_it() -> None:
    for compress in ("balance", "size"):
        assert told_for("sm_90", driver=(12, 3), version="12.9", compress=compress) == (
            "DriverTooOldError: sample.kernels: the NVIDIA driver supports CUDA up to 12.3, and x.fatbin, compressed "
            "with zstd, needs 12.4 or newer; upgrade the driver"
        )
    for compress in ("none", "speed"):
        assert told_for("sm_90", driver=(12, 0), version="12.9", compress=compress) == "sm_90"


def test_ptx_takes_a_driver_that_is_as_new() -> None:
    assert told_for("compute_80", driver=(13, 5)) == "compute_80"
    assert told_for("compute_80", driver=(13, 4)) == (
        "PtxTooNewError: sample.kernels: of device/x.cu only PTX (compute_80) fits this GPU; CUDA 13.5 made it, and "
        "the NVIDIA driver reads PTX up to CUDA 13.4; upgrade the driver, or add this GPU to architectures and "
        "build again"
    )


def test_nobody_knows_which_cuda_made_what_arrived_compiled() -> None:
    assert told_for("compute_80", driver=(13, 0), source="device/x.ptx") == "compute_80"
    assert told_for("sm_90", driver=(12, 9), source="device/x.cubin") == "sm_90"
    assert told_for("sm_90", driver=(12, 9), source="device/x.ptx").startswith("DriverTooOldError")


# --- Arguments --------------------------------------------------------------------------------------------


class Level(enum.IntEnum):
    HIGH = 3


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("z", ctypes.c_float))


class Tensor:
    """What the loader sees of a torch tensor."""

    def __init__(self, dtype: str, address: int = 0x7F00, device: str = "cuda:0") -> None:
        self.dtype = f"torch.{dtype}"
        self.device = device
        self.is_cuda = device.startswith("cuda")
        self._address = address

    def data_ptr(self) -> int:
        return self._address

    def __index__(self) -> int:
        raise AssertionError("would wait for the GPU")

    __float__ = __index__


class Array:
    """What the loader sees of a CuPy array."""

    def __init__(
        self, typestr: str, address: int | None = 0x7F00, read_only: bool = False, **more: Any
    ) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (3,),
            "typestr": typestr,
            "data": (address, read_only),
            **more,
        }


def packed(parameter: str, value: object) -> bytes:
    return bytes(pack(signature(parameter), (value,), {}))


ADDRESS = struct.pack("<Q", 0x7F00)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("integer 1 char v", -128, b"\x80"),
        ("integer 2 short v", np.int16(-2), b"\xfe\xff"),
        ("integer 4 int v", -2, struct.pack("<i", -2)),
        ("integer 4 int v", True, struct.pack("<i", 1)),
        ("integer 4 int v", np.array(7), struct.pack("<i", 7)),
        ("integer 4 int v", np.uint64(7), struct.pack("<i", 7)),
        ("integer 8 long long v", -(2**63), struct.pack("<q", -(2**63))),
        ("unsigned 1 unsigned char v", 255, b"\xff"),
        ("unsigned 4 unsigned int v", 2**32 - 1, b"\xff" * 4),
        ("unsigned 8 unsigned long v", 2**64 - 1, b"\xff" * 8),
        ("float 4 float v", 2.5, struct.pack("<f", 2.5)),
        ("float 4 float v", 0.1, struct.pack("<f", 0.1)),
        ("float 4 float v", 3, struct.pack("<f", 3)),
        ("float 4 float v", np.float64(2.5), struct.pack("<f", 2.5)),
        ("float 4 float v", np.float16(2.5), struct.pack("<f", 2.5)),
        ("float 4 float v", Fraction(5, 2), struct.pack("<f", 2.5)),
        ("float 4 float v", math.inf, struct.pack("<f", math.inf)),
        ("float 8 double v", 0.1, struct.pack("<d", 0.1)),
        ("float 8 double v", np.int64(3), struct.pack("<d", 3)),
        ("struct 2 __half v", 2.5, struct.pack("<e", 2.5)),
        ("struct 2 __half v", np.float16(0.1), np.float16(0.1).tobytes()),
        ("struct 2 __half v", b"\x01\x02", b"\x01\x02"),
        ("struct 2 __nv_bfloat16 v", 2.5, b"\x20\x40"),
        ("struct 2 __nv_bfloat16 v", -0.0, b"\x00\x80"),
        ("struct 2 __nv_bfloat16 v", math.inf, b"\x80\x7f"),
        ("struct 2 __nv_bfloat16 v", 1 + 2**-8, b"\x80\x3f"),  # a tie goes to the even neighbour
        ("struct 2 __nv_bfloat16 v", 1 + 3 * 2**-8, b"\x82\x3f"),
        ("struct 2 __nv_bfloat16 v", 1 + 2**-8 + 2**-40, b"\x81\x3f"),  # not rounded twice
        ("struct 2 __nv_bfloat16 v", 2.0**-133, b"\x01\x00"),  # the least subnormal number
        ("struct 2 __nv_bfloat16 v", 2.0**-140, b"\x00\x00"),
        ("bool 1 bool v", True, b"\x01"),
        ("bool 1 bool v", 0, b"\x00"),
        ("bool 1 bool v", np.True_, b"\x01"),
        ("enum 4 Level v", Level.HIGH, struct.pack("<i", 3)),
        ("enum 4 Level v", -1, b"\xff" * 4),
        ("enum 1 Level v", 255, b"\xff"),
        ("struct 12 Point v", Point(1, 2, 3), struct.pack("<3f", 1, 2, 3)),
        ("struct 12 Point v", bytearray(range(12)), bytes(range(12))),
        ("struct 12 Point v", np.array([1, 2, 3], "f4"), struct.pack("<3f", 1, 2, 3)),
        ("struct 8 float2 v", np.complex64(1 + 2j), struct.pack("<2f", 1, 2)),
        ("struct 8 Pair v", np.array([(1, 2)], "i4,i4")[0], struct.pack("<2i", 1, 2)),
        ("pointer 8 float* v", 0, bytes(8)),
        ("pointer 8 float* v", None, bytes(8)),
        ("pointer 8 float* v", 2**64 - 1, b"\xff" * 8),
        ("pointer 8 float* v", np.uint64(0x7F00), ADDRESS),
        ("pointer 8 float* v", Tensor("float32"), ADDRESS),
        ("pointer 8 void* v", Tensor("float64"), ADDRESS),
        ("pointer 8 Particle* v", Tensor("uint8"), ADDRESS),
        ("pointer 8 __nv_bfloat16* v", Tensor("bfloat16"), ADDRESS),
        ("pointer 8 float* v", Array("<f4"), ADDRESS),
        ("pointer 8 float* v", Array("<f4", None), bytes(8)),
        ("pointer 8 const float* v", Array("<f4", read_only=True), ADDRESS),
        ("pointer 8 float2* v", Array("<c8"), ADDRESS),
        ("pointer 8 float4* v", Array("<f4"), ADDRESS),
        ("pointer 8 bool* v", Array("|b1"), ADDRESS),
        ("pointer 8 char* v", Array("|u1"), ADDRESS),
        ("pointer 8 float** v", Array("<u8"), ADDRESS),
        ("pointer 8 __half2* v", Array("<f2"), ADDRESS),
        ("opaque 8 unsigned_char[8] v", Tensor("float32"), ADDRESS),
        ("opaque 8 unsigned_char[8] v", Array("<f4"), ADDRESS),
        ("opaque 8 unsigned_char[8] v", 0x7F00, ADDRESS),
        ("opaque 8 unsigned_char[8] v", None, bytes(8)),
        ("opaque 8 unsigned_char[8] v", np.float64(2.5), struct.pack("<d", 2.5)),
        ("opaque 4 unsigned_char[4] v", np.float32(2.5), struct.pack("<f", 2.5)),
        ("opaque 4 unsigned_char[4] v", ctypes.c_float(2.5), struct.pack("<f", 2.5)),
        ("opaque 4 unsigned_char[4] v", -1, b"\xff" * 4),
        ("opaque 12 unsigned_char[12] v", Point(1, 2, 3), struct.pack("<3f", 1, 2, 3)),
    ],
)
def test_arguments_become_the_bytes_of_their_parameter(
    parameter: str, value: object, expected: bytes
) -> None:
    assert packed(parameter, value) == expected


INT = "int from -2147483648 to 2147483647"
ARRAY = "an array in device memory or an address (float*)"


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("integer 4 int v", 2**31, f"expected {INT}, found 2147483648"),
        ("integer 4 int v", -(2**31) - 1, f"expected {INT}, found -2147483649"),
        ("integer 4 int v", np.int64(2**40), f"expected {INT}, found np.int64(1099511627776)"),
        ("integer 4 int v", 3.0, "expected int, found 3.0"),
        ("integer 4 int v", "3", "expected int, found '3'"),
        ("integer 4 int v", None, "expected int, found None"),
        ("integer 4 int v", np.array([3]), "expected int, found numpy.ndarray in host memory"),
        ("integer 4 int v", Tensor("int32"), "expected int, found tests.test_loader.Tensor"),
        ("unsigned 4 unsigned int v", -1, "expected unsigned int from 0 to 4294967295, found -1"),
        ("unsigned 1 unsigned char v", 256, "expected unsigned char from 0 to 255, found 256"),
        ("float 4 float v", "2.5", "expected float, found '2.5'"),
        ("float 4 float v", 1j, "expected float, found 1j"),
        ("float 4 float v", 1e39, "1e+39 is out of the range of float"),
        ("float 8 double v", 2**1024, "is out of the range of double"),
        ("float 4 float v", np.array([1.0]), "expected float, found numpy.ndarray in host memory"),
        ("float 4 float v", Tensor("float32"), "expected float, found tests.test_loader.Tensor"),
        ("struct 2 __half v", 1e6, "1000000.0 is out of the range of __half"),
        ("struct 2 __nv_bfloat16 v", 1e39, "1e+39 is out of the range of __nv_bfloat16"),
        ("struct 2 __half v", b"123", "expected the 2 bytes of __half, found 3"),
        ("bool 1 bool v", 2, "expected bool, found 2"),
        ("bool 1 bool v", None, "expected bool, found None"),
        ("enum 1 Level v", 256, "expected Level from -128 to 255, found 256"),
        ("enum 1 Level v", "HIGH", "expected Level, found 'HIGH'"),
        ("struct 12 Point v", b"123", "expected the 12 bytes of Point, found 3"),
        ("struct 12 Point v", (1, 2, 3), "(bytes, a ctypes.Structure or a numpy scalar), found tuple"),
        ("struct 12 Point v", 5, "found 5"),
        ("pointer 8 float* v", -1, "expected an address, found -1"),
        ("pointer 8 float* v", 2**64, "expected an address, found 18446744073709551616"),
        ("pointer 8 float* v", True, f"expected {ARRAY}, found True"),
        ("pointer 8 float* v", 1.5, f"expected {ARRAY}, found 1.5"),
        ("pointer 8 float* v", [1.0], f"expected {ARRAY}, found list"),
        ("pointer 8 float* v", np.zeros(3, "f4"), f"expected {ARRAY}, found numpy.ndarray in host memory"),
        ("pointer 8 float* v", np.array(3), f"expected {ARRAY}, found numpy.ndarray in host memory"),
        ("pointer 8 float* v", Tensor("float64"), "expected float32 (float), found float64"),
        (
            "pointer 8 float* v",
            Tensor("float32", device="cpu"),
            "expected device memory, found a tensor on cpu",
        ),
        ("pointer 8 float* v", Array("<f8"), "expected float32 (float), found float64"),
        ("pointer 8 float* v", Array(">f4"), "expected float32 (float), found >f4"),
        ("pointer 8 float* v", Array("<c8"), "expected float32 (float), found complex64"),
        ("pointer 8 unsigned int* v", Array("<i4"), "expected uint32 (unsigned int), found int32"),
        ("pointer 8 __half* v", Tensor("bfloat16"), "expected float16 (__half), found bfloat16"),
        ("pointer 8 float* v", Array("<f4", read_only=True), "(float*), found a read-only array"),
        ("opaque 4 unsigned_char[4] v", 2.5, "a value that knows its size, such as numpy.float32(2)"),
        ("opaque 4 unsigned_char[4] v", np.float64(2), "expected the 4 bytes of unsigned_char[4], found 8"),
        ("opaque 4 unsigned_char[4] v", Tensor("float32"), "expected 4 bytes: a value that knows its size"),
        ("opaque 8 unsigned_char[8] v", np.zeros(1), "found numpy.ndarray in host memory"),
        ("opaque 8 unsigned_char[8] v", Tensor("float32", device="cpu"), "found a tensor on cpu"),
    ],
)
def test_what_does_not_fit_is_named(parameter: str, value: object, message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        packed(parameter, value)
    assert str(raised.value).startswith("argument 'v': ")
    assert message in str(raised.value)


def test_arguments_lie_at_their_offsets() -> None:
    parameters = signature("bool 1 bool a", "float 8 double b", "struct 3 Rgb c", "integer 2 short d")
    content = pack(parameters, (True, 1.0, b"rgb", -1), {})
    assert content == b"\x01" + bytes(7) + struct.pack("<d", 1.0) + b"rgb\0" + b"\xff\xff"


def test_arguments_may_be_named() -> None:
    by_position = pack(AXPY.parameters, (3, 2.0, 16, 32), {})
    assert pack(AXPY.parameters, (3,), {"y": 32, "x": 16, "a": 2.0}) == by_position


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((1, 2.0, 0), {}, "expected 4 arguments, found 3"),
        ((1, 2.0, 0, 0, 0), {}, "expected 4 arguments, found 5"),
        ((1, 2.0), {"x": 0, "yy": 0}, "no parameter 'yy' is left to be given by name; did you mean 'y'?"),
        ((1, 2.0, 0), {"x": 0, "y": 0}, "no parameter 'x' is left to be given by name"),
        ((1,), {"x": 0}, "missing: a, y"),
    ],
)
def test_every_parameter_is_given_once(arguments: Any, named: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        pack(AXPY.parameters, arguments, named)
    assert str(raised.value) == message


def test_kernels_without_parameters_take_none() -> None:
    assert pack((), (), {}) == b""
    with pytest.raises(ArgumentError, match="^expected no arguments, found 1$"):
        pack((), (1,), {})


def test_element_types_are_known_by_their_dtypes() -> None:
    assert accepted_dtypes("unsigned long long") == ("uint64",)
    assert accepted_dtypes("ulonglong2") == ("uint64",)
    assert accepted_dtypes("uchar4") == ("uint8",)
    assert accepted_dtypes("char3") == ("int8",)
    assert accepted_dtypes("double2") == ("complex128", "float64")
    assert accepted_dtypes("int[4][4]") == ("int32",)
    assert accepted_dtypes("void") == accepted_dtypes("Particle") == ()


# --- Launches ---------------------------------------------------------------------------------------------


class CoreStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7


class TorchStream:
    cuda_stream = 7


class CupyStream:
    ptr = 7


def checked(**launch: Any) -> Launch:
    return Launch.checked(
        **{"grid": 1, "block": 1, "stream": 0, "shared": 0, "cooperative": False, **launch}  # type: ignore[arg-type]
    )


def test_extents_are_filled_up_with_ones() -> None:
    assert checked(grid=5, block=(32, 4)).grid == (5, 1, 1)
    assert checked(grid=[np.int64(5)], block=(32, 4)).block == (32, 4, 1)


@pytest.mark.parametrize("stream", [7, np.int64(7), CoreStream(), TorchStream(), CupyStream()])
def test_a_stream_may_be_anything_with_a_handle(stream: Any) -> None:
    assert checked(stream=stream).stream == 7


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"grid": 0}, "grid: expected at least 1 and at most (2147483647, 65535, 65535), found 0"),
        ({"grid": (1, 65536)}, "found (1, 65536)"),
        ({"grid": ()}, "grid: expected an int or up to three, found ()"),
        ({"grid": (1, 1, 1, 1)}, "grid: expected an int or up to three, found (1, 1, 1, 1)"),
        ({"grid": 1.5}, "grid: expected an int or up to three, found 1.5"),
        ({"block": (1, 1, 65)}, "block: expected at least 1 and at most (1024, 1024, 64), found (1, 1, 65)"),
        ({"block": (64, 32)}, "block: expected at most 1024 threads, found 2048: (64, 32, 1)"),
        ({"block": -1}, "found -1"),
        ({"shared": -1}, "shared: expected a number of bytes, found -1"),
        ({"shared": 1.5}, "shared: expected a number of bytes, found 1.5"),
        ({"stream": None}, "stream: expected a stream or its handle, found None"),
        ({"stream": -1}, "stream: expected a stream or its handle, found -1"),
    ],
)
def test_what_no_gpu_can_do_is_not_launched(launch: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        checked(**launch)


@host_compiler
def test_a_launch_reaches_the_driver_as_it_was_asked_for(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from sample import kernels
        print(kernels.axpy["float"](3, 2.5, 0x10, None, grid=(4, 5), block=(32, 2, 3), stream=9, shared=100))
        kernels.ns.fill(x=0x20, value=-1, grid=1, block=64)
        kernels["ov(int)"](7, grid=1, block=1)
        kernels.plain(grid=2, block=1, cooperative=True)
        """
    )
    assert run.output == ["None"]
    assert run.launches == [
        "cuLaunchKernel _Z4axpyIfEv grid=4,5,1 block=32,2,3 shared=100 stream=9 device=0 "
        "03000000 00002040 1000000000000000 0000000000000000",
        "cuLaunchKernel _ZN2ns4fill grid=1,1,1 block=64,1,1 shared=0 stream=0 device=0 "
        "2000000000000000 ffffffff",
        "cuLaunchKernel _Z2ovi grid=1,1,1 block=1,1,1 shared=0 stream=0 device=0 07000000",
        "cuLaunchCooperativeKernel plain grid=2,1,1 block=1,1,1 shared=0 stream=0 device=0",
    ]
    assert run.calls.count("cuLibraryLoadData") == 1


@host_compiler
def test_wrong_arguments_never_reach_the_driver(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from sample import kernels
        axpy = kernels.axpy["float"]
        caught(axpy, 2**31, 2.5, 0, 0, grid=1, block=1)
        caught(axpy, 3, 2.5, 0, grid=1, block=1)
        caught(axpy, 3, 2.5, 0, 0, grid=0, block=1)
        caught(axpy, 3, 2.5, 0, 0, grid=1, block=2048)
        caught(kernels.axpy, 3, 2.5, 0, 0, grid=1, block=1)
        caught(kernels.weights.copy_from, b"short")
        """
    )
    assert all(line.startswith("ArgumentError: ") for line in run.output)
    assert run.output[0].endswith(f"found 2147483648   in a launch of {AXPY.signature}")
    assert run.calls == []


@host_compiler
def test_the_context_is_the_current_one_or_that_of_the_first_device(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from cuda.bindings import driver
        from sample import kernels
        kernels.plain(grid=1, block=1)
        kernels.plain(grid=1, block=1)
        print(int(driver.cuCtxGetCurrent()[1]))
        context = driver.cuDevicePrimaryCtxRetain(1)[1]
        driver.cuCtxPushCurrent(context)
        kernels.plain(grid=1, block=1)
        print(int(driver.cuCtxGetCurrent()[1]) == int(context))
        """,
        devices=2,
    )
    assert run.output == ["0", "True"]
    contexts = [call for call in run.calls if "Ctx" in call or "Launch" in call]
    here = ["cuCtxPushCurrent 0", "cuLaunchKernel", "cuCtxPopCurrent"]
    there = ["cuDevicePrimaryCtxRetain 1", "cuCtxPushCurrent 1", "cuLaunchKernel"]
    assert [c.partition(" plain")[0] for c in contexts] == [
        "cuDevicePrimaryCtxRetain 0",
        *here,
        *here,
        *there,
    ]
    assert [launch.partition("device=")[2] for launch in run.launches] == ["0", "0", "1"]
    assert run.calls.count("cuLibraryLoadData") == 1


@host_compiler
def test_a_failed_launch_leaves_no_context_behind(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from cuda.bindings import driver
        from sample import kernels
        caught(kernels.plain, grid=1, block=1)
        print(int(driver.cuCtxGetCurrent()[1]))
        """,
        fail="cuLaunchKernel=1",
    )
    assert run.output[1] == "0"


@host_compiler
def test_names_belong_to_the_image(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from sample import kernels
        kernels.plain(grid=1, block=1)
        caught(kernels.tiled, grid=1, block=1)
        """,
        capability=86,
    )
    assert [launch.split()[1] for launch in run.launches] == ["plain_of_sm_80"]
    assert run.output == [
        "NoImageError: sample.kernels: tiled is not built for this GPU: device is sm_86, whose image, sm_80, lacks "
        "it; built for sm_90, compute_90"
    ]


@host_compiler
def test_images_may_have_files_of_their_own(with_driver: WithDriver, tmp_path: Path) -> None:
    texts = {"x.sm_80.cubin": "kernel plain_80 0\n", "x.compute_90.ptx": "kernel plain_90 0\n"}
    images = tuple(
        dataclasses.replace(single_image(text, file.split(".")[1], file), names={"plain": text.split()[1]})
        for file, text in texts.items()
    )
    plain = dataclasses.replace(AXPY, expression="plain", parameters=())
    module = dataclasses.replace(
        SAMPLE, units=(Unit(("x.cu",), "", (), images),), kernels=(plain,), symbols=(), version="13.0"
    )
    files = {file: text.encode() for file, text in texts.items()}
    package = write_package(tmp_path / "own", module, files)
    script = f"sys.path.insert(0, {str(tmp_path / 'own')!r})\n"
    script += "from sample import kernels; caught(kernels.plain, grid=1, block=1)"
    assert with_driver(script, capability=90).launches[0].split()[1] == "plain_90"
    assert with_driver(script, capability=80).launches[0].split()[1] == "plain_80"
    (package / "x.sm_80.cubin").write_text("kernel plain_81 0\n")
    assert with_driver(script, capability=80).output == [
        "LoadError: sample.kernels: x.sm_80.cubin is damaged: it is not what the manifest describes; "
        "reinstall the package that holds it"
    ]


@host_compiler
def test_shared_memory_beyond_the_default_is_allowed_when_asked_for(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from sample import kernels
        for size in (48 << 10, 100000, 60000, 232448):
            kernels.plain(grid=1, block=1, shared=size)
        kernels.tiled(grid=1, block=1)
        kernels.tiled(grid=1, block=1, shared=8 << 10)
        kernels.tiled(grid=1, block=1, shared=(8 << 10) + 1)
        caught(kernels.plain, grid=1, block=1, shared=232449)
        caught(kernels.tiled, grid=1, block=1, shared=232448)
        """
    )
    allowed = [call.split()[1:] for call in run.calls if call.startswith("cuKernelSetAttribute")]
    assert allowed == [
        ["plain", "8", "100000", "0"],
        ["plain", "8", "232448", "0"],
        ["tiled", "8", "8193", "0"],
    ]
    assert len(run.launches) == 7
    assert run.output == [
        "ArgumentError: shared: expected at most 232448 bytes, found 232449; a block on this GPU, sm_90, has 232448, "
        "of which the kernel's own variables take 0   in a launch of plain()",
        "ArgumentError: shared: expected at most 191488 bytes, found 232448; a block on this GPU, sm_90, has 232448, "
        "of which the kernel's own variables take 40960   in a launch of tiled()",
    ]


@host_compiler
@pytest.mark.parametrize(
    ("code", "name", "note"),
    [
        (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", ""),
        (719, "CUDA_ERROR_LAUNCH_FAILED", "; the fault may be of earlier work on this GPU"),
    ],
)
def test_a_refused_launch_says_what_was_launched(
    with_driver: WithDriver, code: int, name: str, note: str
) -> None:
    run = with_driver(
        """
        from sample import kernels
        caught(kernels.axpy["float"], 3, 2.5, 0, 0, grid=(4, 2), block=128, shared=16)
        """,
        fail=f"cuLaunchKernel={code}",
    )
    assert run.output == [
        f"LaunchError: axpy<float>: cuLaunchKernel failed: {name} ({code}): fake description of {code}; launched "
        f"with grid (4, 2, 1), block (128, 1, 1), 16 bytes of dynamic shared memory{note}"
    ]


# --- Symbols ----------------------------------------------------------------------------------------------


@host_compiler
def test_symbols_are_copied_to_and_from(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        import numpy
        from sample import kernels
        weights = kernels.weights
        weights.copy_from(numpy.arange(9, dtype="f4").reshape(3, 3))
        print(numpy.frombuffer(weights.tobytes(), "f4"))
        host = numpy.zeros(9, "f4")
        weights.copy_to(host)
        print(host.sum(), weights.address == weights.address != 0)
        kernels.ns.table.copy_from(b"abcd")
        print(kernels.ns.table.tobytes())

        class OnDevice:
            def __init__(self, array, **more):
                self.__cuda_array_interface__ = {**array.__array_interface__, **more}

        there = numpy.ones(9, "f4")
        weights.copy_to(OnDevice(there))
        print(there.sum())
        weights.copy_from(OnDevice(2 * there))
        print(weights.tobytes() == (2 * there).tobytes())

        caught(weights.copy_from, numpy.zeros(8, "f4"))
        caught(weights.copy_from, numpy.zeros(9, "i4"))
        caught(weights.copy_from, numpy.zeros(18, "f4")[::2])
        caught(weights.copy_from, OnDevice(numpy.zeros(18, "f4")[::2]))
        caught(weights.copy_from, [1.0] * 9)
        caught(weights.copy_to, bytes(36))
        caught(weights.copy_to, OnDevice(there, data=(there.ctypes.data, True)))
        """
    )
    assert run.output == [
        "[0. 1. 2. 3. 4. 5. 6. 7. 8.]",
        "36.0 True",
        "b'abcd'",
        "36.0",
        "True",
        *(
            f"ArgumentError: symbol 'weights' (float[9]): {problem}"
            for problem in (
                "expected 36 bytes, found 32",
                "expected float32 (float[9]), found int32",
                "expected a contiguous buffer, found one with gaps",
                "expected a contiguous array, found one with gaps",
                "expected a buffer or an array in device memory, found list",
                "expected memory that may be written, found it read-only",
                "expected memory that may be written, found it read-only",
            )
        ),
    ]
    assert sum(call.startswith("cuMemcpy") for call in run.calls) == 8


# --- What can go wrong with the driver ---------------------------------------------------------------------

USE = """
from sample import kernels
import cuda_ext
for _ in range(100):
    try:
        kernels.plain(grid=1, block=1)
    except errors.CudaExtError as error:
        outcome = f"{type(error).__name__}: {error}"
    else:
        outcome = "launched"
print(outcome)
print(cuda_ext.gpu_available())
"""


@without_driver
def test_without_a_driver_every_call_says_so_and_none_hangs(tmp_path: Path) -> None:
    write_package(tmp_path)
    message, available = run_script(USE, tmp_path).output
    assert message.startswith("NoDriverError: there is no CUDA driver on this machine (")
    assert message.endswith("launching kernels takes an NVIDIA GPU and its driver")
    assert available == "False"


def test_without_cuda_bindings_kernels_can_be_looked_at(tmp_path: Path) -> None:
    write_package(tmp_path)
    script = "sys.modules['cuda.bindings'] = None\n" + USE + "print(kernels.axpy['float'].expression)"
    on_linux = run_script("sys.platform = 'linux'\n" + script, tmp_path).output
    assert re.fullmatch("NoDriverError: .* cuda-bindings: .*; install cuda-bindings", on_linux[0])
    on_macos = run_script("sys.platform = 'darwin'\n" + script, tmp_path).output
    assert on_macos == [
        "NoDriverError: there is no CUDA driver for macOS: kernels can be built and inspected here, and launched "
        "under Linux and Windows",
        "False",
        "axpy<float>",
    ]


@host_compiler
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"fail": "cuInit=100"},
            "NoDeviceError: the CUDA driver finds no GPU; see whether nvidia-smi lists one",
        ),
        ({"devices": 0}, "NoDeviceError: the CUDA driver finds no GPU; see whether nvidia-smi lists one"),
        ({"fail": "cuInit=34"}, "NoDriverError: the CUDA library that was found is a stub for linking"),
        ({"fail": "cuInit=36"}, "DriverTooOldError: the NVIDIA driver is too old: cuInit failed: "),
        ({"fail": "cuInit=3"}, "DriverError: CUDA was used before this process was forked"),
        *(
            (
                {"fail": f"cuInit={code}"},
                f"DriverError: the CUDA driver cannot be used: cuInit failed: {name}",
            )
            for code, name in {
                802: "CUDA_ERROR_SYSTEM_NOT_READY (802): fake description of 802; the machine is still starting",
                803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): fake description of 803; the driver's library",
                804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804): fake description of 804; this GPU does not",
                999: "CUDA_ERROR_UNKNOWN (999): fake description of 999; see whether nvidia-smi works",
                54321: "54321 is not",
            }.items()
        ),
        (
            {"fail": "cuDeviceGetCount=999"},
            "DriverCallError: cuDeviceGetCount failed: CUDA_ERROR_UNKNOWN (999)",
        ),
        (
            {"version": 11080},
            "DriverTooOldError: the NVIDIA driver supports CUDA up to 11.8, and launching takes 12.0",
        ),
    ],
)
def test_a_driver_that_cannot_be_used_says_why_every_time(
    with_driver: WithDriver, settings: dict[str, Any], expected: str
) -> None:
    run = with_driver(USE, **settings)
    message, available = run.output
    assert message.startswith(expected)
    assert available == "False"
    assert run.calls == ["cuInit"]


@host_compiler
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "launched"),
        ({"capability": 100, "version": 13050}, "launched"),
        (
            {"version": 12090},
            "DriverTooOldError: sample.kernels: the NVIDIA driver supports CUDA up to 12.9, and ",
        ),
        (
            {"capability": 75},
            "NoImageError: sample.kernels: device/axpy.cu has no image for this GPU: device is sm_75",
        ),
        (
            {"capability": 100},
            "PtxTooNewError: sample.kernels: of device/axpy.cu only PTX (compute_90) fits this GPU",
        ),
        (
            {"fail": "cuDevicePrimaryCtxRetain=2"},
            "DriverCallError: cuDevicePrimaryCtxRetain failed: CUDA_ERROR_OUT",
        ),
        (
            {"fail": "cuLibraryLoadData=209"},
            "NoImageError: sample.kernels: device/axpy.cu has no image for this GPU",
        ),
        ({"fail": "cuLibraryLoadData=222"}, "PtxTooNewError: sample.kernels: of device/axpy.cu only PTX"),
        ({"fail": "cuLibraryGetKernel=209"}, "NoImageError: "),
        (
            {"fail": "cuLibraryLoadData=200"},
            "LoadError: sample.kernels: the driver refuses axpy.fatbin (sm_90) on sm_90: cuLibraryLoadData failed: "
            "CUDA_ERROR_INVALID_IMAGE (200): fake description of 200",
        ),
        (
            {"fail": "cuLibraryGetKernel=500"},
            "LoadError: sample.kernels: the driver refuses axpy.fatbin (sm_90) on",
        ),
    ],
)
def test_an_image_that_cannot_be_used_says_why(
    with_driver: WithDriver, settings: dict[str, Any], expected: str
) -> None:
    run = with_driver(USE, **settings)
    message, available = run.output
    assert message.startswith(expected)
    assert available == "True"
    assert run.calls.count("cuInit") == 1
    assert len(run.launches) == (100 if expected == "launched" else 0)


@host_compiler
def test_the_variable_that_hides_devices_is_named(with_driver: WithDriver) -> None:
    script = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''\n" + USE
    assert with_driver(script, fail="cuInit=100").output[0] == (
        "NoDeviceError: the CUDA driver finds no GPU among CUDA_VISIBLE_DEVICES=''; change or unset that"
    )


@host_compiler
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (Path.unlink, "axpy.fatbin cannot be read: No such file or directory; reinstall"),
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "axpy.fatbin is damaged: fatbin, offset"),
        (lambda file: file.write_bytes(b""), "axpy.fatbin is damaged: fatbin: empty; reinstall"),
    ],
    ids=["missing", "cut", "empty"],
)
def test_a_damaged_image_never_reaches_the_driver(
    with_driver: WithDriver, tmp_path: Path, damage: Callable[[Path], Any], expected: str
) -> None:
    with_driver("pass")
    damage(tmp_path / "sample" / "kernels" / "axpy.fatbin")
    run = with_driver(USE)
    assert run.output[0].startswith(f"LoadError: sample.kernels: {expected}")
    assert "cuLibraryLoadData" not in run.calls


@host_compiler
def test_a_unit_is_loaded_by_its_first_kernel_only(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from sample import kernels
        kernels.plain(grid=1, block=1)
        kernels.gemm(grid=1, block=1)
        kernels.gemm(grid=1, block=1)
        caught(kernels.later, grid=1, block=1)
        """
    )
    assert run.calls.count("cuLibraryLoadData") == 2
    assert run.output[0].startswith(
        "PtxTooNewError: sample.kernels: of device/later.cu only PTX (compute_80)"
    )


# --- Threads and processes --------------------------------------------------------------------------------


@host_compiler
def test_many_threads_may_use_a_module_first(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        import threading
        sys.setswitchinterval(1e-6)
        start = threading.Barrier(32)

        def use(number):
            start.wait()
            from sample import kernels
            kernels.ns.fill(number, number, grid=1, block=1)
            kernels.tiled(grid=1, block=1, shared=10000 + number)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    assert run.calls.count("cuInit") == 1
    assert run.calls.count("cuLibraryLoadData") == 1
    fills = [launch.split()[-2:] for launch in run.launches if "fill" in launch]
    assert sorted(fills) == [[struct.pack("<Q", n).hex(), struct.pack("<i", n).hex()] for n in range(32)]
    limits = [int(call.split()[3]) for call in run.calls if call.startswith("cuKernelSetAttribute")]
    assert limits == sorted(set(limits))
    assert limits[-1] == 10031


FORK = """
import os
from sample import kernels

def in_child(call):
    process = os.fork()
    if process == 0:
        call()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(process, 0)
"""


@host_compiler
def test_a_child_of_a_process_that_used_cuda_is_told(with_driver: WithDriver) -> None:
    run = with_driver(
        FORK
        + """
kernels.plain(grid=1, block=1)
in_child(lambda: caught(kernels.plain, grid=1, block=1))
in_child(lambda: caught(lambda: kernels.weights.address))
kernels.plain(grid=1, block=1)
"""
    )
    assert run.output == 2 * [
        "DriverError: CUDA was used before this process was forked, and the driver does not survive that; use CUDA "
        'in child processes only, or start them with multiprocessing.get_context("spawn")'
    ]
    assert len(run.launches) == 2


@host_compiler
def test_a_process_may_fork_before_it_uses_cuda(with_driver: WithDriver) -> None:
    run = with_driver(
        FORK
        + """
kernels.axpy["float"].signature
for _ in range(3):
    in_child(lambda: caught(kernels.plain, grid=1, block=1))
kernels.plain(grid=1, block=1)
"""
    )
    assert run.output == 3 * ["nothing raised"]
    assert run.calls.count("cuInit") == 4


@host_compiler
def test_a_fork_while_another_thread_opens_the_driver_does_not_hang(with_driver: WithDriver) -> None:
    run = with_driver(
        FORK
        + """
import threading
from cuda_ext.runtime import driver
held, done = threading.Event(), threading.Event()

def hold():
    with driver.lock:
        held.set()
        done.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
in_child(lambda: caught(kernels.plain, grid=1, block=1))
done.set()
thread.join()
kernels.plain(grid=1, block=1)
""",
        "-Wignore::DeprecationWarning",
    )
    assert run.output[0].startswith("DriverError: CUDA was used before this process was forked")
    assert len(run.launches) == 1
