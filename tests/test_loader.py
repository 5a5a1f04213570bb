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

    renamed = dataclasses.replace(SAMPLE, kernels=(dataclasses.replace(AXPY, expression="fresh"),), symbols=())
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
    assert (description.name, description.compiler, description.version) == ("sample.kernels", "nvrtc", "13.5")
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
