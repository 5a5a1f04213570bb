"""The manifest: a written one is read back, and damage is reported with its file and field."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuda_ext import manifest
from cuda_ext.errors import ManifestError
from cuda_ext.manifest import Image, Kernel, Manifest, Options, Parameter, Source, Symbol, Unit, dumps, loads
from cuda_ext.records import Records

ROOT = Path(__file__).parent.parent
ORIGIN = "pkg/kernels/manifest.json"

SM_80 = Image("sm_80", "cubin", "a.fatbin", 100, "00" * 32, names={"ns::k<float>": None, "w": "w$1"})
SM_90 = Image("sm_90", "cubin", "a.fatbin", 120, "11" * 32)
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
    assert all([*manifest.units, *manifest.kernels, *manifest.symbols, *manifest.variants])
    return manifest


def damaged(change: Callable[[Any], object]) -> str:
    data = json.loads(dumps(MANIFEST))
    change(data)
    return json.dumps(data)


def test_a_written_manifest_is_read_back():
    assert loads(dumps(MANIFEST), ORIGIN) == MANIFEST
    assert loads(dumps(MANIFEST).encode(), ORIGIN) == MANIFEST


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


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: d.pop("module"), "manifest.module is missing"),
        (lambda d: d.update(module=3), "manifest.module is 3"),
        (lambda d: d.update(module=None), "manifest.module is None"),
        (lambda d: d.update(version="x"), "manifest.version is 'x'"),
        (
            lambda d: d["units"][0]["images"][1].update(architecture="sm_x"),
            "manifest.units[0].images[1].architecture is 'sm_x'",
        ),
        (lambda d: d.update(schema="1"), "manifest.schema is '1'"),
        (lambda d: d.update(schema=True), "manifest.schema is True"),
        (lambda d: d.update(schema=0), "manifest.schema is 0"),
        (lambda d: d.update(surprise=1), "manifest has the unknown field 'surprise'"),
        (lambda d: d.update(units={}), "manifest.units is {}"),
        (lambda d: d.update(units=[3]), "manifest.units[0] is not an object"),
        (lambda d: d["units"][0].update(sources="a.cu"), "manifest.units[0].sources is 'a.cu'"),
        (lambda d: d["units"][0].update(sources=[1]), "manifest.units[0].sources[0] is not an object"),
        (lambda d: d["units"][0]["images"][1].pop("file"), "manifest.units[0].images[1].file is missing"),
        (
            lambda d: d["units"][0]["images"][1].update(file="../a"),
            "manifest.units[0].images[1].file is '../a'",
        ),
        (lambda d: d["units"][0]["images"][1].update(file="/a"), "manifest.units[0].images[1].file is '/a'"),
        (lambda d: d["units"][0]["images"][1].update(file=".."), "manifest.units[0].images[1].file is '..'"),
        (
            lambda d: d["units"][0]["images"][1].update(kind="exe"),
            "manifest.units[0].images[1].kind is 'exe'",
        ),
        (lambda d: d["units"][0]["images"][1].update(size=1.5), "manifest.units[0].images[1].size is 1.5"),
        (lambda d: d["units"][0]["images"][1].update(size=True), "manifest.units[0].images[1].size is True"),
        (
            lambda d: d["units"][0]["images"][0]["names"].update(w=3),
            "manifest.units[0].images[0].names['w'] is 3",
        ),
        (lambda d: d["kernels"][0].update(unit=1), "manifest.kernels[0].unit is 1"),
        (lambda d: d["kernels"][0].update(unit=-1), "manifest.kernels[0].unit is -1"),
        (lambda d: d["kernels"][0].update(parameters=None), "manifest.kernels[0].parameters is None"),
        (
            lambda d: d["parameters"][1].update(kind="number"),
            "manifest.parameters[1].kind is 'number'",
        ),
        (
            lambda d: d["parameters"][0].update(element=8),
            "manifest.parameters[0].element is 8",
        ),
        (
            lambda d: d["parameters"][0].update(const=0),
            "manifest.parameters[0].const is 0",
        ),
        (lambda d: d["symbols"][0].update(space=["device"]), "manifest.symbols[0].space is ['device']"),
        (lambda d: d["symbols"][0].update(unit=7), "manifest.symbols[0].unit is 7"),
        (lambda d: d.update(embedded=[]), "manifest.embedded is []"),
        (lambda d: d.update(embedded={"../a": "33" * 32}), "manifest.embedded is '../a'"),
        (lambda d: d.update(module="p\x1b"), "manifest.module is 'p\\x1b'"),
        (lambda d: d.update(module="p\n"), "manifest.module is 'p\\n'"),
        (lambda d: d["kernels"][0].update(lowered="a\tb"), "manifest.kernels[0].lowered is 'a\\tb'"),
        *(
            (
                lambda d, name=name: d["units"][0]["images"][1].update(file=name),
                f"manifest.units[0].images[1].file is {name!r}",
            )
            for name in ("x" * 201, "NUL", "ab:c")
        ),
        (
            lambda d: d["parameters"][1].update(name="x"),
            "manifest.kernels[0].parameters is ['x', 'x']",
        ),
        (
            lambda d: d["parameters"][1].update(offset=17),
            "manifest.parameters[1].offset is 17",
        ),
        (
            lambda d: d["parameters"][1].update(kind="float"),
            "manifest.parameters[1].kind is 'float'",
        ),
        (
            lambda d: d["parameters"][0].update(kind="integer"),
            "manifest.parameters[0].kind is 'integer'",
        ),
        (
            lambda d: d["parameters"][0].update(type="Box"),
            "manifest.parameters[0].kind is 'pointer'",
        ),
        (
            lambda d: d["parameters"][0].pop("element"),
            "manifest.parameters[0].element is None",
        ),
        *(
            (
                lambda d, indices=indices: d["kernels"][0].update(parameters=indices),
                f"manifest.kernels[0].parameters is {indices!r}",
            )
            for indices in ([0, 2], [-1], [True], ["x"], [[]])
        ),
        (lambda d: d.pop("parameters"), "manifest.parameters is missing"),
        (lambda d: d["symbols"][0].update(size=32), "manifest.symbols[0].type is 'float[9]'"),
        (
            lambda d: d["units"][0]["images"][1].update(file="manifest.json"),
            "manifest.units[0].images[1].file is 'manifest.json'",
        ),
        (lambda d: d.update(module="\ud800"), "manifest.module is '\\ud800'"),
        (lambda d: d.update(compiler="gcc"), "manifest.compiler is 'gcc'"),
        (lambda d: d.update(compress="most"), "manifest.compress is 'most'"),
        (
            lambda d: d["units"][0]["images"][1].update(architecture="sm_80"),
            "manifest.units[0].images is ['sm_80', 'sm_80']",
        ),
        (
            lambda d: d["units"][0]["images"][0].update(kind="ptx"),
            "manifest.units[0].images[0].kind is 'ptx'",
        ),
        (
            lambda d: d["units"][0]["images"][0].update(sha256="00"),
            "manifest.units[0].images[0].sha256 is '00'",
        ),
        (lambda d: d["units"][0]["images"][0].update(size=-1), "manifest.units[0].images[0].size is -1"),
        (
            lambda d: d["units"][0]["images"][0]["names"].update({"": "x"}),
            "manifest.units[0].images[0].names is ''",
        ),
        (lambda d: d["units"][0].update(sources=[]), "manifest.units[0].sources is []"),
        (
            lambda d: d["parameters"][1].update(size=3),
            "manifest.parameters[1].size is 3",
        ),
        (
            lambda d: d["parameters"][1].update(offset=4),
            "manifest.kernels[0].parameters[1].offset is 4",
        ),
        (
            lambda d: d["parameters"][1].update(offset=32_763),
            "manifest.parameters[1].offset is 32763",
        ),
        (lambda d: d["symbols"][0].update(size=1 << 64), f"manifest.symbols[0].size is {1 << 64}"),
        (lambda d: d["symbols"][0].update(lowered=""), "manifest.symbols[0].lowered is ''"),
        *(
            (
                lambda d, hidden=hidden: d["kernels"][0].update(hidden=[hidden]),
                f"manifest.kernels[0].hidden[0].{field} is {hidden[field]!r}",
            )
            for field, hidden in (
                ("position", {"position": 9, "size": 8, "source": "zero"}),
                ("source", {"position": 0, "size": 4, "source": "scratch"}),
                ("source", {"position": 0, "size": 8, "source": "other.shape[0]"}),
                ("source", {"position": 0, "size": 8, "source": "one"}),
            )
        ),
        *(
            (
                lambda d, launch=launch: d["units"][0]["images"][0].update(launches={"ns::k<float>": launch}),
                f"manifest.units[0].images[0].launches['ns::k<float>'].{field} is {found}",
            )
            for field, launch, found in (
                ("block", {"block": []}, "()"),
                ("cluster", {"block": [1], "cluster": [1, 1, 1, 1]}, "(1, 1, 1, 1)"),
                ("shared", {"block": [1], "shared": 1 << 32}, 1 << 32),
                ("scratch", {"block": [1], "scratch": -8}, -8),
            )
        ),
    ],
)
def test_damage_is_reported_with_file_field_and_remedy(change, complaint):
    with pytest.raises(ManifestError) as raised:
        read(damaged(change))
    remedy = "reinstall the package that holds it"
    assert str(raised.value) == f"{ORIGIN}: damaged manifest: {complaint}; {remedy}"


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
        "import sys, cuda_ext.manifest\n"
        "loaded = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "assert loaded <= {'cuda_ext', '__main__'}, loaded\n"
        "try: cuda_ext.manifest.loads('{\"schema\": 3', 'x')\n"
        "except cuda_ext.errors.ManifestError: pass\n"
    )
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"],
        check=True,
    )
