"""A module of kernels as a Python object: imported, copied, inspected, described."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuda_ext
from cuda_ext import errors
from cuda_ext.facts import manifest
from cuda_ext.runtime.module import module_from
from tests.fixtures.loader import (
    AXPY,
    FILES,
    SAMPLE,
    run_script,
    write_package,
)


@pytest.fixture
def kernels() -> Any:
    """The sample module, created in memory."""
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


def test_a_package_can_export_the_module_as_an_object(installed: Any) -> None:
    from sample.kernels import __kernels__  # type: ignore[import-not-found]

    assert __kernels__ is installed
    assert "__kernels__" not in dir(installed)


def test_importing_a_kernel_module_loads_no_other_module(tmp_path: Path) -> None:
    write_package(tmp_path)
    run = run_script(
        """
        before = set(sys.modules)
        from sample import kernels
        print(*sorted(set(sys.modules) - before))
        print(*(name for name in vars(kernels) if not name.startswith("__")))
        import cuda_ext
        print(cuda_ext.describe(kernels).name, hasattr(kernels, "axpy"), kernels.axpy["float"])
        print(*{"cuda.bindings", "numpy"} & (set(sys.modules) - before))
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


def test_a_package_may_be_loaded_under_several_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the Hugging Face hub does with relative imports."""
    write_package(tmp_path)
    (tmp_path / "__init__.py").write_text("from .sample import kernels\n")
    loaded = []
    for name in ("_hub_1", "_hub_2"):
        spec = importlib.util.spec_from_file_location(name, tmp_path / "__init__.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        loaded.append(module.kernels)
        kernel = pickle.loads(pickle.dumps(module.kernels.axpy["float"]))
        assert kernel is module.kernels.axpy["float"]
    assert loaded[0].axpy["float"] is not loaded[1].axpy["float"]
    assert [kernels.__name__ for kernels in loaded] == ["_hub_1.sample.kernels", "_hub_2.sample.kernels"]
    for name in [name for name in sys.modules if name.startswith("_hub_")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    import shutil

    write_package(tmp_path / "unpacked")
    shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path / "unpacked")
    run = run_script(
        f"""
        import os
        from cuda_ext import errors
        sys.path.insert(0, {str(tmp_path / "archive.zip")!r})
        from sample import kernels
        os.truncate({str(tmp_path / "archive.zip")!r}, 100)
        try:
            kernels.axpy
        except errors.ManifestError as error:
            print(error)
        """,
        tmp_path,
    )
    start = "sample.kernels: manifest.json: cannot be read: its archive is damaged: "
    assert run.output[0].startswith(start)
    assert run.output[0].endswith("; reinstall the package that holds it")


def test_import_statements_find_kernels(installed: Any) -> None:
    from sample.kernels import axpy, ns  # type: ignore[import-not-found]

    assert axpy["float"] == installed.axpy["float"]
    assert dir(ns) == ["fill", "inner", "table"]
    namespace: dict[str, Any] = {}
    exec("from sample.kernels import *", namespace)
    assert set(dir(installed)) <= set(namespace)
    with pytest.raises(ImportError):
        from sample.kernels import nothing  # noqa: F401


def test_copies_and_pickles_are_the_same_object(installed: Any) -> None:
    import copy

    for thing in (installed, installed.axpy["float"], installed.weights):
        for twin in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
            assert twin == thing
    for thing in (installed.axpy, installed.ns):
        for twin in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
            assert repr(twin) == repr(thing)


def test_modules_that_cannot_be_imported_cannot_be_pickled(kernels: Any) -> None:
    import copy

    for thing in (kernels, kernels.plain):
        with pytest.raises(TypeError, match="not an importable module"):
            pickle.dumps(thing)
    assert copy.deepcopy(kernels.plain) == kernels.plain


def test_tools_can_inspect_a_module(installed: Any) -> None:
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

    renamed = SAMPLE._replace(kernels=(AXPY._replace(expression="fresh"),), symbols=())
    assert not hasattr(installed, "fresh")
    Path(installed.__file__).with_name(manifest.FILE_NAME).write_text(manifest.dumps(renamed))
    assert not hasattr(installed, "fresh")
    assert dir(importlib.reload(installed)) == ["fresh"]


def replace_by_pipe(file: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no such files")
    file.unlink()
    os.mkfifo(file)


def make_later(file: Path) -> None:
    """Make the manifest in `file` one of the next schema."""
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"schema": manifest.SCHEMA + 1}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (make_later, "manifest.json: written in .*; upgrade cuda-ext$"),
        (lambda file: file.unlink(), "manifest.json: cannot be read: No such file or directory; reinstall"),
        (lambda file: file.write_text(file.read_text()[:100]), "manifest.json: not a manifest"),
        (replace_by_pipe, "manifest.json: cannot be read: it is not a regular file; reinstall"),
    ],
    ids=["later", "missing", "cut", "pipe"],
)
def test_an_unreadable_manifest_is_one_error(
    installed: Any, damage: Callable[[Path], Any], message: str
) -> None:
    damage(Path(installed.__file__).with_name(manifest.FILE_NAME))
    with pytest.raises(errors.ManifestError, match=f"^sample.kernels: {message}"):
        installed.axpy  # noqa: B018
    assert repr(installed).startswith("<module 'sample.kernels' from")


def test_describe_needs_no_driver(kernels: Any) -> None:
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
    assert lines[-1] == "  device/later.cu: compute_80 1000 B"
    with pytest.raises(AttributeError):
        description.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError, match="of kernels, as an import gives it, found <module 'math'"):
        cuda_ext.describe(math)
