"""Modules in C++: headers that check calls against the kernels' signatures, for any kernel names."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import cuda_ext
from cuda_ext.builder.cpp import generate_cpp
from cuda_ext.builder.cpp.device_types import DeviceTypes
from cuda_ext.builder.cpp.template_arguments import read_arguments
from cuda_ext.builder.package.generate import Package, generate
from cuda_ext.facts import manifest as manifest_file
from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.facts.constants import Constant
from cuda_ext.facts.image_choice import select_image
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.launches import FixedLaunch, TensorMap
from cuda_ext.facts.manifest import Manifest, Unit
from cuda_ext.facts.sources import Source
from cuda_ext.facts.structures import Structure
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.variant_conditions import parse
from tests.fixtures.cpp_modules import (
    INCLUDE,
    LOADER,
    MINGW,
    compile_cpp,
    package_of,
    takes_mingw,
    write_cpp,
)
from tests.fixtures.device_code import module, unit
from tests.fixtures.loader import FILES, SAMPLE, signature, single_image
from tests.fixtures.loader import unit as unit_of

PLACE = Path("/place/of the/package")
CPP = Path(__file__).parents[2] / "cpp"
ABI = f"v{cuda_ext.__version__.replace('.', '_')}"


def kernel(expression: str, *parameters: str, lowered: str = "") -> Kernel:
    return Kernel(expression, lowered or expression, 0, signature(*(parameters or ("integer 4 int n",))))


def render(
    package: Package, embed: generate_cpp.Embed = "incbin", include_dirs: Sequence[str] = ()
) -> generate_cpp.CppModule:
    return generate_cpp.render(package, include_dirs, PLACE, embed, jit=True)


def header(package: Package) -> str:
    made = render(package)
    return made.files[made.header].decode()


def source(package: Package, include_dirs: Sequence[str] = ()) -> str:
    made = render(package, include_dirs=include_dirs)
    return made.files[made.source].decode()


def packaged(made: Manifest, files: dict[str, bytes], texts: dict[str, bytes] | None = None) -> Package:
    """The package of a module with device texts."""
    texts = texts or {}
    embedded = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    made = made._replace(embedded=embedded if texts else None)
    return Package(
        made.module,
        {
            "__init__.py": b"",
            manifest_file.FILE_NAME: manifest_file.dumps(made).encode(),
            **files,
            **{f"sources/{name}": text for name, text in texts.items()},
        },
    )


TEXTS = {
    "device/axpy.cu": b'#include "device/util/vec.cuh"\n#include "device/gemm.cu"\n',
    "device/gemm.cu": b'#include "vendor/vec.cuh"\n',
    "device/util/vec.cuh": b"// mine\n",
    "util/vec.cuh": b"// another\n",
    "vendor/vec.cuh": b"",
}
WHOLE = packaged(SAMPLE, FILES, TEXTS)


# --------------------------------------------------------------------------------------------- the files


def test_files_lie_where_includes_and_build_tools_look_for_them():
    made = render(WHOLE)
    interface = {"cuda_ext.hpp", "compile.hpp"}
    assert set(made.files) == {
        *("include/sample/kernels.h", "kernels.cpp"),
        *(f"include/sample/kernels/{name}" for name in interface),
    }
    assert made.header == "include/sample/kernels.h"
    assert made.source == "kernels.cpp"
    literals = {f"kernels.{i}.inc" for i in range(len(FILES) + len(TEXTS))}
    assert set(render(WHOLE, "literal").files) == {*made.files, *literals}
    assert set(render(package_of(name="alone")).files) == {
        "include/alone.h",
        "include/alone/cuda_ext.hpp",
        "alone.cpp",
    }


@pytest.mark.parametrize("embed", ["incbin", "literal"])
def test_the_same_package_gives_the_same_bytes(embed):
    again = Package(WHOLE.name, dict(reversed(WHOLE.files.items())))
    assert render(again, embed) == render(WHOLE, embed)


@pytest.mark.parametrize("embed", ["incbin", "literal"])
@pytest.mark.parametrize("name", [*FILES, *(f"sources/{name}" for name in TEXTS)])
def test_the_source_changes_with_its_content(embed, name):
    changed = Package(WHOLE.name, {**WHOLE.files, name: WHOLE.files[name][:-1] + b"x"})
    before, after = render(WHOLE, embed), render(changed, embed)
    assert after.files[after.source] != before.files[before.source]
    assert after.files[after.header] == before.files[before.header]


def test_files_that_are_not_embedded_do_not_change_the_source():
    assert render(Package(WHOLE.name, {**WHOLE.files, "__init__.py": b"1"})) == render(WHOLE)


def test_digests_are_in_the_assembly_so_that_preprocessing_leaves_them():
    text = source(WHOLE)
    for name in (*FILES, *(f"sources/{name}" for name in TEXTS)):
        assert f'"{hashlib.sha256(WHOLE.files[name]).hexdigest()}", "{PLACE}/{name}"' in text
    assert re.search(r'__asm__\("/\* " sha256', text)


# -------------------------------------------------------------------------------------------- the tables


def headers_in(text: str) -> dict[str, str]:
    """Return the names of device headers, with the identifiers of their texts."""
    module = text[text.index(" module_data = ") :]
    tables = re.search(r"^  \{\d+, (\w+), (\w+), ", module, re.MULTILINE).groups()
    rows = (re.search(rf" {name}\[\] = \{{\n(.*?)\n\}};", text, re.DOTALL)[1] for name in tables)
    texts, names = (re.findall(r"^  (.*),$", each, re.MULTILINE) for each in rows)
    return dict(zip((name.strip('"') for name in names), texts, strict=True))


def including(name: str) -> str:
    return rf'"#include \"{name}\"\12"'


def test_headers_are_named_as_includes_may_name_them():
    found = headers_in(source(WHOLE, ["./device/", "vendor", ".", "../elsewhere", "/usr/include"]))
    canonical = {"device/gemm.cu", "device/util/vec.cuh", "util/vec.cuh", "vendor/vec.cuh"}
    assert set(found) == canonical | {"gemm.cu", "vec.cuh"}
    # A path within the project is never another header's path below an include directory.
    assert len({found[name] for name in canonical}) == 4
    assert found["util/vec.cuh"].startswith("cuda_ext_6sample7kernels_")
    assert (found["gemm.cu"], found["vec.cuh"]) == (including("device/gemm.cu"), including("vendor/vec.cuh"))


def test_the_first_include_directory_wins():
    package = packaged(SAMPLE, FILES, {"device/axpy.cu": b"", "one/x.h": b"1", "two/x.h": b"2"})
    assert headers_in(source(package, ["two", "one"]))["x.h"] == including("two/x.h")
    assert headers_in(source(package, ["one", "two"]))["x.h"] == including("one/x.h")


def test_without_device_texts_nothing_is_compiled_on_demand():
    text = source(packaged(SAMPLE, FILES))
    assert '"nvrtc 13.5",\n  false,' in text
    assert "{0, nullptr, nullptr, " in text
    assert '"nvrtc 13.5",\n  true,' in source(WHOLE)


def test_the_table_of_images_says_which_one_the_driver_takes() -> None:
    names = ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f", "sm_103", "compute_80", "compute_90a", "lto_90"]
    compiled = unit_of("device/a.cu", *names)
    made = SAMPLE._replace(units=(compiled,), kernels=(), symbols=())
    text = source(packaged(made, {"a.fatbin": b"x"}))
    rows = re.findall(r'^  \{"(\w+)", (\d+), (-?\d+), (\d+), "(.*?)", ', text, re.MULTILINE)
    assert len(rows) == len(names)
    for capability in range(70, 140):
        first = next((name for name, low, high, *_ in rows if int(low) <= capability <= int(high)), None)
        image = select_image(compiled.images, capability)
        assert first == (image and image.architecture), capability
    needed = {name: (version, reason) for name, *_, version, reason in rows}
    assert needed["sm_90"] == ("13000", "made by CUDA 13.5")
    assert needed["compute_80"] == ("13050", "made by CUDA 13.5")
    assert f'"device/a.cu", {{image_data_0, {len(names)}}}, "sm_75, sm_80, ' in text


def test_images_share_a_fatbin_or_have_files_of_their_own():
    made = SAMPLE._replace(
        kernels=(),
        symbols=(),
        units=(
            unit_of("device/axpy.cu", "sm_80", "compute_90", "lto_90"),
            Unit((Source("b.cu"),), (single_image("cubin", "sm_90", "b.sm_90.cubin"),)),
        ),
    )
    text = source(packaged(made, {"axpy.fatbin": b"12345", "b.sm_90.cubin": b"cubin!"}))
    shared, own = "cuda_ext_6sample7kernels_0", "cuda_ext_6sample7kernels_1"
    rows = [("sm_80", shared, 5), ("compute_90", shared, 5), ("lto_90", shared, 5), ("sm_90", own, 6)]
    found = re.findall(r'^  \{"(\w+)", .*, (\w+), (\d+)\},$', text, re.MULTILINE)
    assert found == [(architecture, name, str(size)) for architecture, name, size in rows]


# --------------------------------------------------------------------------------- parameters and types


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        (Parameter("x", "bool", "bool", 1, 0), "Value<bool>"),
        (Parameter("x", "char", "integer", 1, 0), "Value<char>"),
        (Parameter("x", "signed char", "integer", 1, 0), "Value<::std::int8_t>"),
        (Parameter("x", "unsigned short", "unsigned", 2, 0), "Value<::std::uint16_t>"),
        (Parameter("x", "int", "integer", 4, 0), "Value<::std::int32_t>"),
        (Parameter("x", "long", "integer", 4, 0), "Value<::std::int32_t>"),
        (Parameter("x", "unsigned long", "unsigned", 8, 0), "Value<::std::uint64_t>"),
        (Parameter("x", "__int128", "integer", 16, 0), "Structure<type_int128>"),
        (Parameter("x", "_Float16", "opaque", 2, 0), "Structure<type_Float16>"),
        (Parameter("x", "float", "float", 4, 0), "Value<float>"),
        (Parameter("x", "double", "float", 8, 0), "Value<double>"),
        (Parameter("x", "long double", "opaque", 8, 0), "Opaque<8>"),
        (Parameter("x", "ns::Mode", "enum", 1, 0), "Enumerator<type_ns_Mode>"),
        (Parameter("x", "__half", "struct", 2, 0), "Structure<type_half>"),
        (Parameter("x", ".b8[24]", "opaque", 24, 0), "Opaque<24>"),
        *(
            (Parameter("x", f"{element}*", "pointer", 8, 0, element, const), expected)
            for element, const, expected in (
                ("void", False, "Pointer<void>"),
                ("float", True, "Pointer<const float>"),
                ("unsigned char", True, "Pointer<const unsigned char>"),
                ("long", False, "Pointer<::std::int64_t>"),
                ("bool", False, "Pointer<bool>"),
                ("wchar_t", False, "Pointer<wchar_t>"),
                ("long double", False, "Pointer<void>"),
                ("__int128", True, "Pointer<const void>"),
                ("unsigned __int128", False, "Pointer<void>"),
                ("__half", False, "Pointer<type_half>"),
                ("ns::vec<float, 4>", True, "Pointer<const type_ns_vec_float_4>"),
                ("struct", False, "Pointer<void>"),
                ("float*", False, "Pointer<Pointee>"),
                ("const float* const", True, "Pointer<const Pointee>"),
                ("float[9]", False, "Pointer<void>"),
                ("float(*)[9]", False, "Pointer<void>"),
                ("void(int)", False, "Pointer<void>"),
            )
        ),
    ],
    ids=str,
)
def test_a_call_has_the_parameters_of_the_kernel(parameter, expected):
    assert DeviceTypes().parameter(parameter) == expected


def test_types_of_device_code_have_classes_of_their_own():
    elements = ("ns::A", "ns_A", "vec<float, 4>", "vec<float*, 4>", "ns::A", "f<(E)1>")
    parameters = [Parameter("x", f"{e}*", "pointer", 8, 0, e) for e in elements]
    parameters.append(Parameter("x", "ns::A", "struct", 12, 0, alignment=4))
    types = DeviceTypes(parameters)
    assert [types.parameter(parameter) for parameter in parameters] == [
        *("Pointer<type_ns_A>", "Pointer<type_ns_A_>", "Pointer<type_vec_float_4>"),
        *("Pointer<type_vec_float_4_>", "Pointer<type_ns_A>", "Pointer<type_f_E_1>", "Structure<type_ns_A>"),
    ]
    assert next(iter(types)) == ("type_ns_A", "ns::A", 12, 4, ())
    assert list(types)[-1] == ("type_f_E_1", "", 0, 0, ())  # compilers print enumerators differently
    # Of another unit, with another class of that name.
    assert types.parameter(Parameter("x", "ns::A", "struct", 16, 0, alignment=8)) == "Structure<type_ns_A__>"


# ------------------------------------------------------------------------------------ template arguments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("float", ["type float"]),
        ("unsigned long, const volatile char*", ["type unsigned long", "type const volatile char*"]),
        ("int64_t, std::size_t", ["type ::std::int64_t", "type ::std::size_t"]),
        ("cuda::std::uint8_t, ::std::int32_t", ["type unsigned char", "type int"]),
        ("const int64_t* const", ["type const ::std::int64_t* const"]),
        ("ns::vec<float, 4>, 5", ["name ns::vec<float, 4>", "value 5"]),
        ("const ns::P*, struct Q&", ["name const ns::P*", "name Q&"]),
        ("std::byte, ::ns::P", ["name std::byte", "name ns::P"]),
        (
            "0, -3, 128u, 1'000ull, 0x1F, 0b101, 017",
            [f"value {n}" for n in (0, -3, 128, 1000, 31, 5, 15)],
        ),
        ("true, false", ["value 1", "value 0"]),
        (
            r"'a', '\'', ',', '\\', '\n', '\0', '\x'",
            [*(f"value {n}" for n in (97, 39, 44, 92, 10, 0)), None],
        ),
        ("18446744073709551615ull", ["value -1"]),
        ("-9223372036854775808", ["value -9223372036854775807 - 1"]),
        ("1 << 3, f(1, 2), nullptr, &g, 2.5f, void(*)(int), '\\377', u8'a'", [None] * 8),
        ("unsigned __int128", [None]),
    ],
)
def test_arguments_are_read(text, expected):
    assert [
        argument and f"{argument.kind} {argument.text}" for argument in read_arguments(text, "")
    ] == expected


@pytest.mark.parametrize(
    ("text", "lowered", "expected"),
    [
        ("real_t, BLOCK", "_Z1kIfLi256EEvv", ["type float", "value 256"]),
        ("P, const P*", "_Z1kIN2ns8ParticleEPKfEvv", ["name ns::Particle", "type const float*"]),
        ("ns::Mode::fast", "_Z4modeILN2ns4ModeE1EEvPi", ["value 1"]),
        ("(char)1, 1<<3, -N", "_Z1kILc1ELi8ELin5EEvv", ["value 1", "value 8", "value -5"]),
        ("float", "_Z1kIfLi128EEvv", ["type float"]),
        ("int, float", "_ZN2ns4packIJifEEEvDpT_", ["type int", "type float"]),
        # Types that may differ in the host compiler are kept as they are written.
        ("int64_t, size_t", "_Z1kIxmEvv", ["type ::std::int64_t", "type ::std::size_t"]),
        ("V", "_Z1kI3vecIfLi4EEEvv", ["name V"]),
        ("2.5f, &f, nullptr", "_Z1kILf40200000EEvv", [None, None, None]),
        ("2.5f", "_Z1kILf40200000EEvv", [None]),
        ("f", "_Z1kIXadL_Z1fvEEEvv", ["name f"]),
    ],
)
def test_lowered_names_resolve_dependent_arguments(text, lowered, expected):
    assert [
        argument and f"{argument.kind} {argument.text}" for argument in read_arguments(text, lowered)
    ] == expected


# ----------------------------------------------------------------------------------------- what compiles


def check(package: Package, user: str, directory: Path, *flags: str) -> None:
    """Compile the C++ file `user` of ``tests/cpp``, which uses the header of `package`."""
    write_cpp(package, directory)
    compile_cpp(*flags, f"-I{directory / 'include'}", "-fsyntax-only", CPP / user)


@pytest.mark.host_compiler
@pytest.mark.parametrize("flags", [(), ("-fno-exceptions", "-std=c++20")], ids=["", "without exceptions"])
def test_right_calls_compile_and_wrong_ones_do_not(flags, tmp_path):
    check(WHOLE, "header_of_sample.cpp", tmp_path, *flags)


AWKWARD_NAMES = """
    Library std cuda_ext axpy_ cuda_ext_kernels cuda_ext_module cuda_ext_library kernel_0 overloads_0
    absent is_built größe linux new T0 V0 type_id Value LaunchConfig StaticKernel config n x kernel_data
    units size_t my_cast axpy<float> axpy<int> axpy__<int> T0<int> both both<int>
    ns::a ns::a_ ns::a::b ns::a::c<int> a_b<int> a::b<int> new_::k std::g ns::std::f
    ns::cuda_ext_kernels::f    cuda_ext::h cuda_ext::v1::h<int>
    values<-1> values<'a'> values<true> values<128u> values<'\\''> values<'"'> values<'\\\\'>
    values<-9223372036854775808>
    big<long> big<int64_t> big<ptrdiff_t> big<size_t> big<std::uint64_t>
    typed<ns::Particle> typed<std::byte> either<int> either<4> pack<int> pack<> defaults<float>
    ov(int) same(int) twofold<float>(int) function<void(*)(int)> function<nullptr>
    static_cast<void(*)(int)>(cast) $odd 0odd
"""
AWKWARD_PARAMETERS = """
    config class launch attempt submit kernel Value int32_t stdin I std kernel_0 cuda_ext cuda_ext_library
    cuda_ext_kernels this größe library index
"""


def awkward() -> Package:
    """A module with kernels named like keywords and library names, and with all kinds of arguments."""
    names = AWKWARD_NAMES.split()
    names += [
        *("big<long long>", "big<const int64_t*>", "big<const long*>", "big<unsigned long>"),
        *("mixed<4, long>", "mixed<256, int64_t>", "mixed<256, long>", "mixed<4, int64_t>"),
        *("typed<ns::vec<float, 4>>", "typed<ns::vec<unsigned int, 2>>", "typed<const ns::Particle*>"),
        *("typed<const volatile float&>", "pack<int, float>", "defaults<float, 4>"),
        *("(anonymous namespace)::q", "lambda<lambda [](int) -> int>"),
    ]
    return package_of(
        *map(kernel, names),
        kernel("mode<ns::Mode::fast>", lowered="_Z4modeILN2ns4ModeE1EEvPi"),
        # One kernel, spelled in two ways.
        kernel("values<256>", lowered="_Z6valuesILi256EEvi"),
        kernel("values<0x100>", lowered="_Z6valuesILi256EEvi"),
        kernel("values<(char)2>", lowered="_Z6valuesILc2EEvi"),
        kernel("ov(float, int*)", "float 4 float a", "pointer 8 int* x"),
        kernel("same(ns::A)", "struct 8 ns::A x"),
        kernel("same(ns::B)", "struct 8 ns::B x"),
        kernel("other(ns::A*)", "pointer 8 ns::A* x"),
        kernel("other(ns::B*)", "pointer 8 ns::B* x"),
        kernel("twofold<float>(float)", "float 4 float x"),
        kernel("names", *(f"integer 4 int {name}" for name in AWKWARD_PARAMETERS.split())),
        kernel("long_one", *(f"pointer 8 const float* parameter_number_{i}" for i in range(40))),
        name="awkward.class.new",
        symbols=[Symbol("axpy", "s", 0, "device", 'char\\[9]"', 9)],
        variants=[Variants("gemm", (Candidate("axpy_", parse("sm_90a and n > 3")), Candidate("Library")))],
    )


@pytest.mark.host_compiler
def test_names_and_arguments_of_all_kinds_compile(tmp_path):
    check(awkward(), "header_awkward.cpp", tmp_path)
    compile_cpp("-c", tmp_path / "new.cpp", "-o", tmp_path / "new.o")


@pytest.mark.host_compiler
def test_members_of_structures_are_compared_and_constants_are_there(tmp_path):
    scalars = signature("integer 4 int n", "float 4 float scale", "pointer 8 const float* x")
    w = Parameter("w", "short", "integer", 4, 16, extents=(2,))
    structure = Structure("Params", 24, 8, (*scalars, w), units=(0,))
    values = {
        "Traits<128, 4>::kSmemSize": ("int", "40960"),
        "half": ("float", "0.5"),
        "flag": ("bool", "True"),
        "sizeof(Params)": ("unsigned long long", "24"),
        "least": ("long long", str(-(1 << 63))),
    }
    constants = [Constant(name, *value) for name, value in values.items()]
    constants.append(Constant("tile", "int", "64", elsewhere={"sm_90": "128"}))
    p = Parameter("p", "Params", "struct", 24, 0, alignment=8)
    package = package_of(Kernel("conv", "conv", 0, (p,)), structures=(structure,), constants=constants)
    assert "// tile = 64, 128 for sm_90\n" in header(package)
    check(package, "header_structures.cpp", tmp_path)
    wrong = ("-DWRONG", f"-I{tmp_path / 'include'}", "-fsyntax-only", CPP / "header_structures.cpp")
    assert "the member n has another place or size in device code" in compile_cpp(*wrong, check=False)


@pytest.mark.host_compiler
@pytest.mark.parametrize("compiler", [None, pytest.param(MINGW, marks=takes_mingw)], ids=["", "Windows"])
def test_types_that_differ_among_hosts_compile(compiler, tmp_path):
    map_ = Parameter("x", "CUtensorMap", "struct", 128, 0, "float", alignment=64)
    (y,) = signature("pointer 8 float* y")
    by_map = Kernel("by_map", "by_map", 0, (map_, y._replace(offset=128)))
    package = package_of(by_map, kernel("wide", "pointer 8 long* x", "integer 8 long n"))
    made = manifest_file.loads(package.files[manifest_file.FILE_NAME].decode(), "")
    (of_unit,) = made.units
    fixed = FixedLaunch((128,), tensor_maps={"x": TensorMap(7, 4, (64, 32))})
    images = tuple(each._replace(launches={"by_map": fixed}) for each in of_unit.images)
    made = made._replace(units=(of_unit._replace(images=images),))
    write_cpp(packaged(made, {"axpy.fatbin": b""}), tmp_path)
    sources = CPP / "header_of_images.cpp", *tmp_path.glob("*.cpp")
    compile_cpp(f"-I{tmp_path / 'include'}", "-fsyntax-only", *sources, compiler=compiler)


@pytest.mark.host_compiler
def test_missing_instantiations_are_reported_by_the_compiler(tmp_path):
    write_cpp(WHOLE, tmp_path)
    include = f"-I{tmp_path / 'include'}"
    said = compile_cpp(include, "-fsyntax-only", CPP / "header_not_built.cpp", check=False)
    axpy = "axpy is not built for these template arguments, but as axpy<double>, axpy<float>; add the"
    fill = "ns::fill is not built for these template arguments, but as ns::fill<int, 256>; add the"
    assert said.count(f"{axpy} missing one to INSTANTIATE, or compile it on demand") == 2
    assert said.count(f"{fill} missing one to INSTANTIATE, or compile it on demand") == 1


def test_messages_name_a_few_kernels():
    text = header(package_of(*(kernel(f"k<{n}>", lowered=f"k{n}") for n in range(20))))
    assert "but as k<0>, k<1>, k<2>, k<3>, k<4>, k<5>, k<6>, k<7> and 12 more; add" in text
    assert "// k<7>(int n)\n// and 12 more\ntemplate <auto V0>" in text


INSTANTIATE = (
    *(
        "axpy<real_t>",
        "axpy<__half>",
        "axpy<long>",
        "axpy<long long>",
        "reduce<float>",
        "reduce<double, BLOCK>",
    ),
    *("reduce<float, sizeof(double) * 2>", "mode<ns::Mode::fast>", "mode<(ns::Mode)0>", "pack<int, float>"),
    *("pack<ns::vec<unsigned, 4>>", "pack<>", "ns::inner::fill<ns::Particle>"),
)


@pytest.mark.host_compiler
def test_names_from_a_compiler_compile(tmp_path):
    device = (CPP / "header_of_device.cu").read_text(encoding="utf-8")
    check(generate(module(unit(device, *INSTANTIATE))), "header_of_device.cpp", tmp_path)


@pytest.mark.host_compiler
def test_an_overload_of_exactly_these_types_is_preferred(tmp_path):
    package = package_of(
        kernel("num(float)", "float 4 float x"),
        kernel("num(double)", "float 8 double x"),
        kernel("count(int)", "integer 4 int n"),
        kernel("count(long long)", "integer 8 long_long n"),
        kernel("copy(const float*)", "pointer 8 const float* x"),
        kernel("copy(float*)", "pointer 8 float* x"),
        kernel("any(void*)", "pointer 8 void* x"),
        kernel("any(float*)", "pointer 8 float* x"),
    )
    made = write_cpp(package, tmp_path)
    program = tmp_path / "program"
    include = f"-I{tmp_path / 'include'}"
    sources = CPP / "header_overloads.cpp", tmp_path / made.source, LOADER
    compile_cpp(include, *sources, "-o", program, "-ldl")
    environment = {"LD_LIBRARY_PATH": ""}
    output = subprocess.run([program], env=environment, capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [
        *("num(float)", "num(double)", "count(int)", "count(long long)"),
        *("copy(float*)", "copy(const float*)", "copy(float*)", "any(float*)", "any(void*)"),
    ]


@pytest.mark.host_compiler
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into ELF")
def test_modules_of_two_versions_coexist_without_visible_symbols(tmp_path):
    """Two modules in a program of two sources, each of which uses both; one is of another version."""
    sources = []
    for name, parameter in (("one", "integer 4 int n"), ("two", "float 4 float a")):
        package = package_of(kernel("axpy<float>", parameter), kernel("plain"), name=f"{name}.kernels")
        made = write_cpp(package, tmp_path / name)
        copy = shutil.copytree(INCLUDE / "cuda_ext", tmp_path / name / "copy")
        sources += [tmp_path / name / made.source, copy / "loader" / LOADER.name]
    for file in (tmp_path / "two").rglob("*.[hc]*"):
        file.write_text(file.read_text(encoding="utf-8").replace(ABI, "v9_9_9"), encoding="utf-8")
    includes = [f"-I{tmp_path / name / 'include'}" for name in ("one", "two")]
    both = CPP / "header_side_by_side.cpp"
    compile_cpp(*includes, "-DUSE=use_in_other", "-c", both, "-o", tmp_path / "other.o")
    compile_cpp(*includes, "-DUSE=use_in_main", "-DOTHER=use_in_other", "-c", both, "-o", tmp_path / "main.o")
    objects = [tmp_path / "main.o", tmp_path / "other.o"]
    compile_cpp("-rdynamic", *objects, *sources, "-o", tmp_path / "program", "-ldl")
    assert subprocess.run([tmp_path / "program"], check=False).returncode == 0
    exported = subprocess.run(
        ["nm", "-D", "-C", "--defined-only", tmp_path / "program"], capture_output=True, text=True, check=True
    ).stdout
    assert "use_in_main" in exported
    assert not re.search(r"^\S+ \S (one|two)::kernels", exported, re.MULTILINE)
    assert "cuda_ext_3one" not in exported
    # A header does not compile with the interface of another version.
    interface = tmp_path / "one/include/one/kernels/cuda_ext.hpp"
    interface.write_text(interface.read_text(encoding="utf-8").replace(ABI, "v9_9_9"), encoding="utf-8")
    said = compile_cpp(*includes, "-DUSE=use", "-fsyntax-only", both, check=False)
    assert "generated one/kernels.h, and another version kernels/cuda_ext.hpp: build the module again" in said


@pytest.mark.host_compiler
def test_nothing_runs_before_main(tmp_path):
    made = write_cpp(WHOLE, tmp_path, "literal")
    compile_cpp("-O0", "-S", tmp_path / made.source, "-o", tmp_path / "kernels.s")
    assembly = (tmp_path / "kernels.s").read_text()
    assert "_GLOBAL__sub_I" not in assembly
    assert "init_array" not in assembly


# --------------------------------------------------------------------------------------- how headers read


def test_a_header_lists_its_kernels():
    text = header(WHOLE)
    assert text.startswith("// CUDA kernels of sample.kernels, generated by cuda-ext.\n")
    assert "//   #include <sample/kernels.h>\n" in text
    assert "//   sample::kernels::axpy<double>({grid, block, stream}, n, a, x, y);\n" in text
    assert "// float weights[9]\ninline constexpr " in text
    assert (
        "\n// ov(float a, int* x)\n// ov(int n)\ninline constexpr cuda_ext_kernels::wrapper<10> ov{}" in text
    )
    assert "// ns::inner::scale(float factor) in device/axpy.cu\n" in text


def test_a_volatile_variable_is_copied_from_plain_objects():
    text = header(package_of(symbols=[Symbol("v", "v", 0, "device", "const volatile float[3]", 12)]))
    assert "// const volatile float v[3]\n" in text
    assert "cuda_ext_kernels::Variable<0, 12, float> v{}" in text


def test_features_of_python_only_are_mentioned():
    assert "//   gemm: axpy_ if sm_90a and n > 3, else Library\n" in header(awkward())


@pytest.mark.parametrize("package", [WHOLE, awkward(), package_of()], ids=["sample", "awkward", "empty"])
def test_headers_are_laid_out_well(package):
    text = header(package)
    code = [line for line in text.splitlines() if '"' not in line and not line.startswith(("//", "struct"))]
    assert max(map(len, code)) <= 110
    assert "\n\n\n" not in text
    assert not re.search(r"[ \t]$|\t|\r|\\$", text, re.MULTILINE)
    assert text.endswith("}  // namespace\n".replace("\n", f" {package.name.partition('.')[0]}\n"))


def test_a_comment_ends_with_its_line():
    made = package_of(kernel("k<'\\\\'>"), symbols=[Symbol("s", "s", 0, "device", "a b\\", 4)])
    assert "// a b\\ s\n" in header(made)
