"""A damaged manifest is a ``ManifestError``, or one that can be used."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

from hypothesis import example, given

import cuda_ext
from cuda_ext.errors import CudaExtError, ManifestError
from cuda_ext.facts.manifest import Manifest, dumps, loads
from cuda_ext.runtime.module import module_from
from tests.fuzz.strategies import MANIFEST, as_json, damaged_bytes, damaged_data, texts

DATA = json.loads(dumps(MANIFEST))
KERNELS = [kernel.expression for kernel in MANIFEST.kernels]


def read(data: Any) -> Manifest | None:
    """Read a manifest, and all of its records."""
    try:
        manifest = loads(data, "manifest.json")
        dumps(manifest)
    except ManifestError:
        return None
    return manifest


def changed(change: Callable[[Any], object]) -> str:
    """The manifest with one change."""
    data = json.loads(dumps(MANIFEST))
    change(data)
    return json.dumps(data)


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


def test_the_manifest_is_valid() -> None:
    assert read(dumps(MANIFEST)) == MANIFEST


@example(changed(lambda data: data["units"][0]["images"][0].update(architecture="sm_080")))
@given(damaged_data(DATA).map(as_json))
def test_a_damaged_manifest_is_refused_or_written_alike(text: str) -> None:
    if manifest := read(text):
        assert read(dumps(manifest)) == manifest


@example(dumps(MANIFEST).encode().replace(b"{\n", b"{\n  {}\n", 1))
@example(dumps(MANIFEST).encode().replace(b'"kernels": [', b'"kernels": ["'))
@given(
    damaged_bytes([dumps(MANIFEST).encode()], [b"[" * 2000, b"{", b'"', b"\\u0000", b"1e999", b"NaN", b"-"])
)
def test_damaged_text_is_refused_or_written_alike(text: bytes) -> None:
    if manifest := read(text):
        assert read(dumps(manifest)) == manifest


@example(changed(lambda data: data["parameters"][2].update(type="void (*")), "plain")
@example(
    changed(lambda data: data["variants"][1]["candidates"].append({"kernel": "gemm n if n > 2"})), "gemm"
)
@example(changed(lambda data: data["variants"][0].update(candidates=[])), "best")
@example(changed(lambda data: data["variants"][1].update(name="other")), "other")
@example(changed(lambda data: data["parameters"][0].update(size=1)), "ns::k<float>")
@example(changed(lambda data: data["variants"][0]["candidates"][0]["when"][1].update(name="q")), "best")
@example(changed(lambda data: data["kernels"][2]["hidden"].pop(0)), "gemm")
@example(changed(lambda data: data["kernels"][2]["hidden"][1].update(size=4)), "gemm")
@example(changed(lambda data: data["kernels"][2]["hidden"][0].update(source="y.shape[0]")), "gemm")
@given(damaged_data(DATA).map(as_json), texts)
def test_what_a_manifest_says_is_shown_and_launches_or_is_an_error(text: str, name: str) -> None:
    try:
        module = module_from(loads(text, "manifest.json"), no_file)
    except ManifestError:
        return
    names = [name, *KERNELS]
    with contextlib.suppress(ManifestError):
        names += dir(module)
        assert str(cuda_ext.describe(module))
    for each in names:
        with contextlib.suppress(CudaExtError):
            found = module[each]
            repr(found)
            for arguments in ((), (1, 2), (1, 2, 3, 4)):
                with contextlib.suppress(CudaExtError):
                    callable(found) and found(*arguments, grid=1, block=32)
