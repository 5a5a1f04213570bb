"""The manifest: a written one is read back, and damage is reported with its file and field."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.errors import ManifestError
from cuda_ext.facts import manifest
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.manifest import Image, Manifest, Records, Unit, dumps, loads
from cuda_ext.facts.sources import Options, Source
from cuda_ext.facts.symbols import Symbol

ROOT = Path(__file__).parents[2]
ORIGIN = "pkg/kernels/manifest.json"

SM_80 = Image("sm_80", "a.fatbin", 100, "00" * 32, names={"ns::k<float>": None, "w": "w$1"})
SM_90 = Image("sm_90", "a.fatbin", 120, "11" * 32)
POINTER = Parameter("x", "const float*", "pointer", 8, 0, element="float", const=True)
KERNEL = Kernel("ns::k<float>", "_ZN2ns1kIfEEvPKfi", 0, (POINTER, Parameter("n", "int", "integer", 4, 8)))
SYMBOL = Symbol("w", "w", 0, "constant", "float[9]", 36)
SOURCE = Source("device/späße.cu", "22" * 32, Options(define={"A": "1"}), ("ns::k<float>",))
MANIFEST = Manifest(
    schema=manifest.SCHEMA,
    module="pkg.kernels",
    compiler="nvrtc",
    version="13.5",
    compress="size",
    units=(Unit((SOURCE,), (SM_80, SM_90)),),
    kernels=(KERNEL,),
    symbols=(SYMBOL,),
    embedded={"device/späße.cu": "33" * 32},
)


def read(text: str) -> Manifest:
    """Read a manifest, and all of its records."""
    manifest = loads(text, ORIGIN)
    assert isinstance(manifest.kernels, Records)
    assert manifest.kernels.names()
    assert all([*manifest.units, *manifest.kernels, *manifest.symbols, *manifest.variants])
    return manifest


def damaged(change: Callable[[Any], object]) -> str:
    data = json.loads(dumps(MANIFEST))
    change(data)
    return json.dumps(data)


def test_a_written_manifest_is_read_back():
    assert loads(dumps(MANIFEST), ORIGIN) == MANIFEST
    assert loads(dumps(MANIFEST).encode(), ORIGIN) == MANIFEST


@pytest.mark.parametrize("indent", [None, 0, 1, 2, 3])
def test_a_manifest_may_have_another_layout(indent):
    layout = json.dumps(json.loads(dumps(MANIFEST)), indent=indent)
    assert loads(layout, ORIGIN) == MANIFEST
    assert loads(layout.replace("\n", "\r\n"), ORIGIN) == MANIFEST
    assert loads(dumps(MANIFEST).replace("\n", "\r\n"), ORIGIN) == MANIFEST


def test_names_are_those_of_the_records():
    names = ["ns::k<float>", 'k<MODE="it\'s">', r"k<'\\'>", "k<ä>"]
    written = dumps(MANIFEST._replace(kernels=tuple(KERNEL._replace(expression=name) for name in names)))
    kernels = loads(written, ORIGIN).kernels
    assert isinstance(kernels, Records)
    assert kernels.names() == names == [kernel.expression for kernel in kernels]


def test_a_module_without_embedded_sources_is_read_back():
    without = loads(damaged(lambda data: data.pop("embedded")), ORIGIN)
    assert without.embedded is None
    assert loads(dumps(without), ORIGIN) == without


def test_the_text_is_json_that_people_can_read():
    text = dumps(MANIFEST)
    assert text.endswith("}\n")
    assert "späße" in text


def test_a_name_map_has_the_names_of_an_image():
    assert MANIFEST.lowered_name(KERNEL, SM_90) == KERNEL.lowered
    assert MANIFEST.lowered_name(KERNEL, SM_80) is None
    assert MANIFEST.lowered_name(SYMBOL, SM_90) == "w"
    assert MANIFEST.lowered_name(SYMBOL, SM_80) == "w$1"


def test_a_signature_is_written_as_in_cpp():
    parameters = (
        POINTER,
        Parameter("f", "void(*)(int, float)", "pointer", 8, 8, element="void(int, float)"),
        Parameter("rows", "int(*)[4]", "pointer", 8, 16, element="int[4]"),
    )
    signature = Kernel("ns::k", "_k", 0, parameters).signature
    assert signature == "ns::k(const float* x, void(*f)(int, float), int(*rows)[4])"


@pytest.mark.parametrize(
    ("type_", "declared"),
    [
        ("int(**)()", "int(**p)()"),
        ("int(* const(*)[2])(char)", "int(* const(*p)[2])(char)"),
        ("int(* const)()", "int(* const p)()"),
        ("Box<void(*)(int)>", "Box<void(*)(int)> p"),
        ("Box<int>(*)[3]", "Box<int>(*p)[3]"),
    ],
)
def test_a_declarator_has_the_name_where_cpp_has_it(type_, declared):
    assert str(Parameter("p", type_, "pointer", 8, 0)) == declared


def compared(**changes: object) -> dict[str, object]:
    """Variants whose condition is n % 2 == 0, with `changes` of this term."""
    term = {"name": "n", "operator": "==", "number": 0, "modulus": 2} | changes
    return {"name": "v", "candidates": [{"kernel": "ns::k<float>", "when": [term]}]}


IMAGE = {"architecture": "sm_90", "file": "a.fatbin", "size": 9, "sha256": "11" * 32}


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        (
            lambda d: d.pop("module"),
            "Manifest: Manifest.__new__() missing 1 required positional argument: 'module'",
        ),
        (lambda d: d.update(module=3), "found 3"),
        (lambda d: d.update(schema=True), "found True"),
        (lambda d: d.update(version="x"), "the version is x"),
        (lambda d: d.update(surprise=1), "Manifest: 'surprise'"),
        (lambda d: d.update(compress="most"), "found 'most'"),
        (lambda d: d.update(embedded=[[]]), "not enough values to unpack (expected 2, got 0)"),
        (lambda d: d.update(units={}), "units is {}"),
        (lambda d: d.pop("parameters"), "parameters is None"),
        (lambda d: d.update(units=[3]), "Unit 0: 'int' object is not a mapping"),
        *(
            (
                lambda d, file=file: d["units"][0]["images"].append(IMAGE | {"file": file}),
                f"Unit 0: {file!r} is not a file of the package",
            )
            for file in ("", "..", "../a", "/a", "C:a")
        ),
        (lambda d: d["units"][0].update(sources=[]), "Unit 0: it has no source"),
        (lambda d: d["units"][0].update(sources="a.cu"), "Unit 0: sources is 'a.cu'"),
        (lambda d: d["units"][0]["images"].append(IMAGE | {"architecture": "sm_x"}), "Unit 0: sm_x"),
        (lambda d: d["units"][0]["images"].append(IMAGE | {"size": 1.5}), "Unit 0: found 1.5"),
        (
            lambda d: d["units"][0]["images"].append(IMAGE | {"architecture": "tile_80"}),
            "Unit 0: the version is ",
        ),
        (lambda d: d["kernels"][0].update(unit=1), "Kernel 0: there is no unit 1"),
        (lambda d: d["symbols"][0].update(unit=-1), "Symbol 0: there is no unit -1"),
        (lambda d: d["symbols"][0].update(size=-1), "Symbol 0: w has -1 bytes"),
        (lambda d: d["kernels"][0].update(parameters=None), "Kernel 0: 'NoneType' object is not iterable"),
        (lambda d: d["kernels"][0].update(parameters=[2]), "Kernel 0: list index out of range"),
        (lambda d: d["variants"].append({"name": "v", "candidates": []}), "Variants 0: v has no candidate"),
        (lambda d: d["variants"].append(compared(operator="=>")), "Variants 0: found '=>'"),
        (
            lambda d: d["variants"].append(compared(number=1 << 63)),
            f"Variants 0: n % 2 == {1 << 63} has a number beyond 64 bits",
        ),
        (
            lambda d: d["variants"].append(compared(modulus=-1)),
            "Variants 0: n % -1 == 0 has a number beyond 64 bits",
        ),
        *(
            (
                lambda d, launch=launch: d["units"][0]["images"][0].update(launches={"k": launch}),
                "Unit 0: k has a launch that no GPU supports",
            )
            for launch in (
                {"block": []},
                {"block": [1, 1, 1, 1]},
                {"block": [0]},
                {"block": [1 << 31]},
                {"block": [1], "cluster": [0]},
                {"block": [1], "cluster": [1, 1, 1, 1]},
                {"block": [1], "shared": -1},
                {"block": [1], "scratch": 1 << 40},
                {"block": [1], "tensor_maps": {"x": {"data_type": 7, "item": 4, "box": [1 << 31]}}},
                {"block": [1], "tensor_maps": {"x": {"data_type": 1 << 64, "item": 4, "box": [1]}}},
            )
        ),
        (lambda d: d["kernels"][0].pop("expression"), "a Kernel has no name"),
        (lambda d: d["kernels"][0].update(expression=3), "a Kernel has no name"),
        (lambda d: d["parameters"][1].update(kind="number"), "Parameter 1: found 'number'"),
        *(
            (change, "Kernel 0: ns::k<float> has parameters that no launch can pass")
            for change in (
                lambda d: d["parameters"][1].update(size=0),
                lambda d: d["parameters"][1].update(size=1 << 15),
                lambda d: d["parameters"][1].update(type="__half", kind="struct"),
                lambda d: d["kernels"][0].update(hidden=[{"position": 9, "size": 8, "source": "zero"}]),
                lambda d: d["kernels"][0].update(hidden=[{"position": 0, "size": 4, "source": "scratch"}]),
                lambda d: d["kernels"][0].update(hidden=[{"position": 0, "size": 8, "source": "n.shape[0]"}]),
                lambda d: d["kernels"][0].update(hidden=2 * [{"position": 0, "size": 8, "source": "zero"}]),
            )
        ),
    ],
)
def test_damage_is_reported_with_file_record_and_remedy(change, flaw):
    with pytest.raises(ManifestError) as raised:
        read(damaged(change))
    remedy = "reinstall the package that holds it"
    assert str(raised.value) == f"{ORIGIN}: damaged manifest: {flaw}; {remedy}"


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "3", '"manifest"', b"\xff\xfe", b"\0" * 99, "[" * 100_000, dumps(MANIFEST)[:-20]],
)
def test_other_files_are_reported_as_no_manifest(text):
    with pytest.raises(ManifestError, match=rf"^{ORIGIN}: not a manifest: .*; reinstall the package"):
        loads(text, ORIGIN)


def test_a_newer_schema_asks_for_a_newer_package():
    newer = damaged(lambda data: data.update(schema=manifest.SCHEMA + 1, surprise=1))
    complaint = "written in manifest schema 2, and this cuda-ext reads up to 1; upgrade cuda-ext"
    with pytest.raises(ManifestError, match=rf"^{ORIGIN}: {complaint}$"):
        loads(newer, ORIGIN)


def test_every_truncation_is_noticed():
    text = dumps(MANIFEST).rstrip()
    for size in range(len(text)):
        with pytest.raises(ManifestError):
            loads(text[:size], ORIGIN)


def test_options_and_instantiations_have_tabs_and_ends_of_lines():
    source = SOURCE._replace(options=Options(define={"A": "1\n"}, raw=("\t",)), instantiate=("k<\nint>",))
    written = MANIFEST._replace(units=(Unit((source,), (SM_80, SM_90)),))
    assert loads(dumps(written), ORIGIN) == written


def test_reading_needs_nothing_but_the_standard_library():
    script = (
        "import sys, cuda_ext.facts.manifest\n"
        "loaded = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "assert loaded <= {'cuda_ext', '__main__'}, loaded\n"
        "try: cuda_ext.facts.manifest.loads('{\"schema\": 3', 'x')\n"
        "except cuda_ext.errors.ManifestError: pass\n"
    )
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"],
        check=True,
    )
