"""Damaged cubins, PTX and fatbins are errors of this package, or what their bytes say."""

from __future__ import annotations

import functools
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from cuda_ext.cli.commands import commands
from cuda_ext.compiler.module_plan import CompiledModule, LibraryPlan
from cuda_ext.errors import BuildError, FatbinError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import decode, encode
from cuda_ext.facts.manifest import FILE_NAME, dumps
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import read_cubin, read_sizes
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.toolchain.compile_library import compile_library
from tests.fixtures import device_code
from tests.fuzz.strategies import PTX_TOKENS, SOURCE, as_json, compiled, damaged_bytes, damaged_data, fatbins

cubins = st.deferred(lambda: damaged_bytes([compiled("sm_80").data, compiled("sm_90a").data]))
ptx_texts = st.one_of(
    st.deferred(lambda: damaged_bytes([compiled("compute_90").data], PTX_TOKENS)),
    st.lists(st.sampled_from(PTX_TOKENS), max_size=12).map(b"".join),
)
damaged_fatbins = st.deferred(lambda: damaged_bytes(fatbins()))
images = st.one_of(
    cubins.map(lambda data: ("cubin", data)),
    ptx_texts.map(lambda data: ("ptx", data)),
    damaged_fatbins.map(lambda data: ("fatbin", data)),
)


@given(cubins)
def test_a_cubin_is_read_or_an_error(data: bytes) -> None:
    for read in (read_cubin, read_sizes):
        try:
            result: Any = read(data)
        except BuildError:
            continue
        if read is read_cubin and result.target:
            assert Architecture.parse(str(result.target)) == result.target
        if read is read_sizes:
            assert sum(result.values()) == len(data)


@example(b".entry k(.param .b0 p, .param .b1 q)")
@given(ptx_texts)
def test_ptx_is_read(data: bytes) -> None:
    for name, parameters in ptx.kernels(data).items():
        assert name
        assert all(parameter.offset >= 0 and parameter.size > 0 for parameter in parameters)
    assert set(ptx.code(data)) <= set(ptx.kernels(data))
    assert all(name.isascii() for name in (*ptx.undefined(data), *ptx.stored_addresses(data, "table")))
    if target := ptx.target(data):
        assert Architecture.parse(str(target)) == target
    names, words = ptx.discardable_variables(data), set(re.findall(rb"[\w$]+", data))
    assert ptx.without_variables(data, names) == data
    assert {name.encode() for name in ptx.variables(ptx.without_variables(data, ()))} <= words


@example(
    struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64)
    + struct.pack("<HHIQ8xHHIII24x", 2, 0x101, 64, 0, 0, 0, 5, 64, 0)
)
@given(damaged_fatbins)
def test_a_fatbin_is_read_or_an_error(data: bytes) -> None:
    try:
        entries = read_fatbin(data)
        for entry in entries:
            assert str(Architecture.parse(entry.architecture)) == entry.architecture
            assert 0 <= entry.offset < len(data)
            assert entry.scrambled or len(entry.payload()) <= entry.size
    except FatbinError:
        return


@example(
    ("ptx", b".target sm_90\n.global .b8 v[999999999999999][999999999999999];\n.visible .entry k()\n{\n}\n")
)
@given(images)
def test_an_image_is_a_source_or_an_error(image: tuple[str, bytes]) -> None:
    kind, data = image
    targets = {"cubin": ["sm_80"], "ptx": ["compute_90"], "fatbin": ["sm_80", "sm_90a", "compute_90"]}[kind]
    unit = device_code.unit(data, name=f"device/a.{kind}")
    plan = LibraryPlan("p.kernels", (unit,), tuple(map(Architecture.parse, targets)), emit="cubin")
    try:
        library = compile_library(plan, device_code.nvrtc())
    except BuildError:
        return
    assert decode(type(library), encode(library)) == library


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images") / "image"


@given(image=images)
def test_inspect_shows_an_image_or_an_error(place: Path, image: tuple[str, bytes]) -> None:
    kind, data = image
    file = place.with_suffix(f".{kind}")
    file.write_bytes(data)
    check_inspect(file)


@functools.cache
def module() -> CompiledModule:
    return device_code.module(SOURCE, emit="cubin")


@given(data=st.data())
def test_inspect_shows_a_module_or_an_error(place: Path, data: st.DataObject) -> None:
    manifest = data.draw(damaged_data(json.loads(dumps(module().manifest))))
    for name, content in module().files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    (place / FILE_NAME).write_text(as_json(manifest))
    check_inspect(place)


def check_inspect(path: Path) -> None:
    done = CliRunner().invoke(commands, ["inspect", str(path)])
    assert done.exit_code in (0, 1), done.output
    assert "a defect" not in done.output, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
