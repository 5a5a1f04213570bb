"""Compiled modules: the requested images and kernels with their names, or an error with the reason."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.compiler.module_plan import CompiledModule
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError, CompilationError
from cuda_ext.facts import manifest as manifest_file
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.manifest import Image
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.nvrtc import Nvrtc
from tests.fixtures.device_code import KERNEL, image, kernels, library, module, nvrtc, unit

AXPY = "template <class T> __global__ void axpy(int n, T a, const T* x, T* y) { y[n] = a * x[n]; }"


def names(compiled: CompiledModule) -> list[str]:
    return [kernel.expression for kernel in compiled.manifest.kernels]


def symbols(compiled: CompiledModule) -> list[str]:
    return [symbol.name for symbol in compiled.manifest.symbols]


def images(compiled: CompiledModule) -> dict[str, Image]:
    return {i.architecture: i for u in compiled.manifest.units for i in u.images}


def ready_made(source: str, kind: str, architecture: str, **options) -> TranslationUnit:
    """Return a prebuilt unit, ``device/made.<kind>``."""
    return unit(image(unit(source, **options), architecture).data, name=f"device/made.{kind}")


# ------------------------------------------------------------------------------------------------ images


def test_every_requested_architecture_is_in_the_fatbin():
    asked = ("sm_80", "sm_90", "sm_90a", "sm_120", "compute_120", "lto_90")
    compiled = module(KERNEL, architectures=asked)
    assert tuple(images(compiled)) == asked
    assert tuple(e.architecture for e in read_fatbin(compiled.files["unit.fatbin"])) == asked


def test_images_are_recorded_with_size_and_digest():
    compiled = module(KERNEL)
    (found,) = images(compiled).values()
    file = compiled.files[found.file]
    assert (found.size, found.sha256) == (len(image(KERNEL).data), hashlib.sha256(file).hexdigest())


@pytest.mark.parametrize(
    ("emit", "architectures", "files"),
    [
        ("fatbin", ["sm_80", "compute_90"], {"unit.fatbin"}),
        ("cubin", ["sm_80", "sm_90a"], {"unit.sm_80.cubin", "unit.sm_90a.cubin"}),
        ("ptx", ["compute_80", "compute_90"], {"unit.compute_80.ptx", "unit.compute_90.ptx"}),
        ("ltoir", ["lto_80"], {"unit.lto_80.ltoir"}),
    ],
)
def test_compilation_stops_at_the_requested_kind(emit, architectures, files):
    compiled = module(unit(AXPY, "axpy<float>"), architectures=architectures, emit=emit, embed=False)
    assert set(compiled.files) == files
    assert {i.file for i in images(compiled).values()} == files
    assert names(compiled) == ["axpy<float>"]
    assert [p.name for p in compiled.manifest.kernels[0].parameters] == ["n", "a", "x", "y"]


def test_lto_ir_alone_tells_its_symbols_too():
    compiled = module("__constant__ float w[3];\n" + KERNEL, architectures=["lto_90"], emit="ltoir")
    assert symbols(compiled) == ["w"]


def test_sources_and_headers_travel_with_the_module():
    source = unit('#include "device/h.cuh"\n' + KERNEL, headers={"device/h.cuh": "struct S {};"})
    compiled = module(source)
    assert compiled.files["sources/device/unit.cu"] == source.source
    assert compiled.files["sources/device/h.cuh"] == b"struct S {};"
    assert compiled.manifest.embedded == {
        name: hashlib.sha256(compiled.files[f"sources/{name}"]).hexdigest()
        for name in ("device/h.cuh", "device/unit.cu")
    }


def test_the_manifest_survives_being_written():
    compiled = module(unit(AXPY, "axpy<float>"), architectures=["sm_80", "compute_90"])
    assert manifest_file.loads(manifest_file.dumps(compiled.manifest), "manifest.json") == compiled.manifest


# ------------------------------------------------------------------------------------------------- names


REAL = f"using real = float;\n{AXPY}"
NAMES = {
    # The source, what is requested, and the names of all kernels.
    "as the author gave them": (REAL, ("axpy< real >", "axpy<double>"), ["axpy<double>", "axpy<real>"]),
    "the first of several spellings": (REAL, ("axpy<real>", "axpy<float>"), ["axpy<real>"]),
    "unlisted kernels as the compiler gives them": (
        f"{AXPY}template __global__ void axpy<double>(int, double, const double*, double*);\n{KERNEL}",
        ("axpy<float>",),
        ["axpy<double>", "axpy<float>", "kernel"],
    ),
    "overloads with their parameters": (
        "__global__ void k(int n) {} __global__ void k(const float* x, int n) {} __global__ void other() {}",
        (),
        ["k(const float*, int)", "k(int)", "other"],
    ),
    "a variable by its address": (
        f"namespace n {{ template <class T> __device__ T v; }}\n{KERNEL}",
        ("&n::v<float>",),
        ["kernel"],
    ),
}


@pytest.mark.parametrize("how", NAMES)
def test_kernels_are_named(how):
    source, instantiate, expected = NAMES[how]
    assert names(module(unit(source, *instantiate))) == expected


def test_a_cast_chooses_an_overload():
    source = "__global__ void k(int* p) {} __global__ void k(float* p) {}"
    found = kernels(module(unit(source, "(void (*)(int*))k")))
    assert found["(void(*)(int*))k"].lowered == "_Z1kPi"
    assert found["k(float*)"].lowered == "_Z1kPf"


def test_kernels_may_be_compiled_for_some_architectures_only():
    source = """
    __global__ void always(int* p) { *p = 1; }
    #if __CUDA_ARCH__ >= 900
    __constant__ float only_new[4];
    __global__ void newer(int* p, float x) { *p = only_new[0]; }
    #else
    __global__ void older(int* p, double x) { *p = 2; }
    #endif
    """
    compiled = module(source, architectures=["sm_80", "sm_90", "compute_100"])
    found, built = kernels(compiled), images(compiled)
    assert {name: [p.type for p in k.parameters] for name, k in found.items()} == {
        "always": ["int*"],
        "newer": ["int*", "float"],
        "older": ["int*", "double"],
    }
    assert built["sm_80"].names == {"newer": None, "only_new": None}
    assert built["sm_90"].names == built["compute_100"].names == {"older": None}
    assert compiled.manifest.lowered_name(compiled.manifest.symbols[0], built["sm_80"]) is None


def test_a_variable_may_be_compiled_for_some_architectures_only():
    source = "#if __CUDA_ARCH__ >= 900\n__constant__ float w[4];\n#endif\n" + KERNEL
    assert symbols(module(source, architectures=["sm_80", "sm_90"])) == ["w"]


@pytest.mark.parametrize(
    "space", ["_V_300500_SM_", "CUB_300001_SM_", "CUB_200200_", "THRUST_200200_"], ids=lambda s: s.strip("_")
)
@pytest.mark.parametrize("ours", [False, True])
def test_variables_that_cub_names_by_architecture_are_one(tmp_path, space, ours):
    header = (
        f"#define JOIN_(a, b) a##b\n#define JOIN(a, b) JOIN_(a, b)\n"
        f"namespace cub {{ inline namespace JOIN({space}, __CUDA_ARCH__) {{ __device__ int counter; }} }}\n"
    )
    include = tmp_path / "include"
    include.mkdir()
    (include / "cub.cuh").write_text(header)
    source = "#include <cub.cuh>\n__global__ void k() { cub::counter = 1; }"
    own = {"name": "device/a.cu", "headers": {"cub.cuh": header}} if ours else {"raw": (f"-I{include}",)}
    architectures = [Architecture.parse(f"sm_{n}") for n in (80, 90, 120)]
    _, signatures = library(unit(source, **own), architectures, Nvrtc())
    assert [symbol.name for symbol in signatures.symbols.values()] == ["cub::counter"] * (3 * ours)


def test_a_name_that_each_image_lowers_differently_is_one_kernel():
    # What is in an anonymous namespace is named after the first name that others see.
    source = """
    #if __CUDA_ARCH__ >= 900
    __global__ void newer() {}
    #else
    __global__ void older() {}
    #endif
    namespace { __global__ void hidden(int n) {} }
    namespace n { static __device__ int counter; }
    __global__ void uses() { n::counter = 1; }
    """
    compiled = module(source, architectures=["sm_80", "sm_90"])
    assert names(compiled) == ["hidden", "newer", "older", "uses"]
    assert symbols(compiled) == ["n::counter"]
    for entity in (kernels(compiled)["hidden"], compiled.manifest.symbols[0]):
        lowered = [compiled.manifest.lowered_name(entity, i) for i in images(compiled).values()]
        assert None not in lowered
        assert len(set(lowered)) == 2


@pytest.mark.parametrize(
    ("newer", "older", "message"),
    [
        ("__global__ void k(int n) {}", "__global__ void k(float x) {}", "kernel 'k' has other parameters"),
        (
            'extern "C" __global__ void k(int n) {}',
            'extern "C" __global__ void k(double x) {}',
            "kernel 'k' has other parameters",
        ),
        ("__device__ int v[4];", "__device__ int v[8];", "variable 'v' has another size"),
    ],
)
@pytest.mark.parametrize("newest", ["sm_90", "compute_90"])
def test_one_name_for_different_things_is_refused(newer, older, message, newest):
    source = f"#if __CUDA_ARCH__ >= 900\n{newer}\n#else\n{older}\n#endif\n{KERNEL}"
    with pytest.raises(
        BuildError, match=rf"^device/unit\.cu: {message} for (sm_80|{newest}); give it another name"
    ):
        module(source, architectures=["sm_80", newest])


# ------------------------------------------------------------------------------------------------ errors


def test_warnings_are_reported_once():
    reports: list[str] = []
    module("__global__ void k() { int unused; }", architectures=["sm_80", "sm_90"], reports=reports)
    (warning,) = reports
    assert "never referenced" in warning
    assert "(1): warning" in warning


# ----------------------------------------------------------------------------------- what arrives compiled


def test_ptx_is_assembled_for_every_architecture_that_it_serves():
    source = ready_made(KERNEL, "ptx", "compute_80")
    compiled = module(source, architectures=["sm_80", "sm_90a", "compute_90"])
    assert {a: i.kind for a, i in images(compiled).items()} == {
        "sm_80": "cubin",
        "sm_90a": "cubin",
        "compute_90": "ptx",
    }
    assert names(compiled) == ["_Z6kernelPi"]


@pytest.mark.parametrize("kind", ["ptx", "cubin", "fatbin", "ltoir"])
@pytest.mark.parametrize("content", [b"", b"junk", b"\x7fELF" + bytes(99), b"\0" * 200])
def test_junk_is_refused_by_name(kind, content):
    with pytest.raises(BuildError, match=rf"^device/a\.{kind}: "):
        module(unit(content, name=f"device/a.{kind}"))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_90a", "sm_100"])
def test_a_cubin_is_packed_for_its_own_architecture(architecture):
    source = ready_made("__constant__ float w[4];\n" + KERNEL, "cubin", architecture)
    compiled = module(source, architectures=["sm_75", "compute_120"])
    assert list(images(compiled)) == [architecture]
    assert names(compiled) == ["_Z6kernelPi"]
    assert symbols(compiled) == ["w"]
    (entry,) = read_fatbin(compiled.files["made.fatbin"])
    assert entry.payload().rstrip(b"\0") == source.source.rstrip(b"\0")


def test_every_truncated_cubin_is_refused():
    data = image(KERNEL).data
    for size in [*range(0, len(data) - 8, 97), len(data) - 8]:
        with pytest.raises(CompilationError, match=r"^device/a\.cubin: is not a cubin, or is damaged"):
            module(unit(data[:size], name="device/a.cubin"))


def test_a_fatbin_is_packaged_unchanged():
    content = module(KERNEL, architectures=["sm_80", "sm_90a", "compute_90"]).files["unit.fatbin"]
    compiled = module(unit(content, name="device/made.fatbin"))
    assert compiled.files["made.fatbin"] == content
    assert list(images(compiled)) == ["sm_80", "sm_90a", "compute_90"]
    assert names(compiled) == ["_Z6kernelPi"]


def test_a_fatbin_may_hold_unused_lto_ir():
    content = module(KERNEL, architectures=["sm_80", "lto_90"]).files["unit.fatbin"]
    assert list(images(module(unit(content, name="device/made.fatbin")))) == ["sm_80", "lto_90"]


@pytest.mark.parametrize(
    "architectures", [["sm_90", "sm_100"], ["compute_90"], ["sm_90", "compute_90", "lto_90"]]
)
def test_lto_ir_becomes_the_requested_kind(architectures):
    compiled = module(ready_made(KERNEL, "ltoir", "lto_90"), architectures=architectures)
    assert list(images(compiled)) == sorted(architectures, key=architectures.index)
    assert names(compiled) == ["_Z6kernelPi"]


# ---------------------------------------------------------------------------------------------- linking

CALLS = """
extern __device__ int f(int);
extern __constant__ int c;
__global__ void calls(int* p) { *p = f(c); }
"""
CALLED = """
__constant__ int c;
__device__ int f(int i) { return i + 1; }
__global__ void other(float* x) { *x = c; }
"""


def relocatable(source: str, *instantiate: str, name: str = "device/a.cu") -> TranslationUnit:
    return unit(source, *instantiate, name=name, relocatable=True)


def linked(*sources: str | TranslationUnit, **options) -> CompiledModule:
    """The units ``device/a.cu``, ``device/b.cu`` and so on, linked."""
    units = [
        source if isinstance(source, TranslationUnit) else relocatable(source, name=f"device/{letter}.cu")
        for letter, source in zip("abcd", sources, strict=False)
    ]
    return module(*units, link=True, **options)


def test_units_are_linked_into_one_library():
    compiled = linked(CALLS, CALLED, architectures=["sm_80", "sm_90", "compute_90"])
    assert [u.title for u in compiled.manifest.units] == ["device/a.cu, device/b.cu"]
    assert list(images(compiled)) == ["sm_80", "sm_90", "compute_90"]
    assert {i.file for i in images(compiled).values()} == {"kernels.fatbin"}
    assert kernels(compiled)["other"].signature == "other(float* x)"
    assert names(compiled) == ["calls", "other"]
    assert symbols(compiled) == ["c"]


@pytest.mark.parametrize(
    ("declared", "memory"),
    [("__device__ int x[4]", "16 bytes of device"), ("__constant__ int x[8]", "32 bytes of constant")],
)
def test_a_variable_that_another_unit_declares_otherwise_is_refused(declared, memory, capfd):
    message = (
        rf"device/a\.cu declares x with {memory} memory, but device/b\.cu defines it with 32 bytes of device"
    )
    with pytest.raises(CompilationError, match=message):
        linked(
            f"extern {declared};\n__global__ void a(int* p) {{ *p = x[2]; }}",
            "__device__ int x[8];\n__global__ void b(int* p) { *p = x[2]; }",
        )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("architecture", ["sm_90", "compute_90"])
@pytest.mark.parametrize(
    ("source", "lowered"),
    [
        ("__global__ void twice() {}", "_Z5twicev"),
        (
            "__device__ int twice(int i) { return i; }\n__global__ void NAME(int* p) { *p = twice(*p); }",
            "_Z5twicei",
        ),
        ("__constant__ int twice;\n__global__ void NAME(int* p) { *p = twice; }", "twice"),
        ("__device__ int twice;\n__global__ void NAME(int* p) { *p = twice; }", "twice"),
    ],
)
def test_a_definition_in_two_units_is_refused(source, lowered, architecture, capfd):
    others = ("__global__ void x() {}", "__global__ void y() {}")
    with pytest.raises(CompilationError, match=rf"device/b\.cu and device/d\.cu both define {lowered};"):
        linked(
            others[0],
            source.replace("NAME", "b"),
            others[1],
            source.replace("NAME", "d"),
            architectures=[architecture],
        )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("architecture", ["sm_90", "compute_90"])
@pytest.mark.parametrize("name", ["v", "n::v"])
def test_static_variables_of_one_name_in_several_units_are_no_symbols(name, architecture):
    variable = "static __device__ int v;"
    variable = variable if name == "v" else f"namespace n {{ {variable} }}"
    source = f"{variable}\n__global__ void NAME(int* p) {{ *p = atomicAdd(&{name}, 1); }}"
    sources = [source.replace("NAME", kernel) for kernel in "abc"]
    reports: list[str] = []
    compiled = linked(*sources, architectures=[architecture], reports=reports)
    assert symbols(compiled) == []
    assert f"several units define a {name!r} of their own" in reports[-1]


def test_lto_ir_is_linked_to_ptx():
    made = ready_made(CALLED, "ltoir", "lto_90", relocatable=True)
    compiled = linked(CALLS, made, architectures=["sm_90", "compute_90"])
    assert {a: i.kind for a, i in images(compiled).items()} == {"sm_90": "cubin", "compute_90": "ptx"}


LAUNCHES = "__global__ void child(int* p) { *p = 1; }\n__global__ void parent(int* p) { child<<<1, 1>>>(p); }"


def device_runtime() -> Path | None:
    return cuda_packages.cudadevrt(int(nvrtc().version.partition(".")[0]))


@pytest.mark.skipif(device_runtime() is None, reason="the device runtime library is not installed")
def test_kernels_in_lto_ir_may_launch_kernels():
    assert names(linked(ready_made(LAUNCHES, "ltoir", "lto_90", relocatable=True))) == [
        "_Z5childPi",
        "_Z6parentPi",
    ]


@pytest.mark.skipif(device_runtime() is not None, reason="the device runtime library is installed")
def test_a_missing_device_runtime_is_reported_with_the_remedy():
    with pytest.raises(
        CompilationError, match=r'linking for sm_90: .* \(cudadevrt\); add "cuda-ext\[cu13\]"'
    ):
        linked(LAUNCHES)


# --------------------------------------------------------------------------------------------- refusals

PTX = ".version {}\n.target sm_50\n.address_size 64\n.visible .entry k() {{ {}; }}\n"
OPEN = "extern __device__ int f(int);\n__global__ void k(int* p) { *p = f(1); }"
HIDING = "static __global__ void twice() {}\n__global__ void %s() {}"


def written_ptx(version: str, instruction: str) -> TranslationUnit:
    return unit(PTX.format(version, instruction), name="device/a.ptx")


def refuse_ptx(target: str, architecture: str) -> CompiledModule:
    return module(ready_made(KERNEL, "ptx", target), architectures=[architecture])


# The beginning of a message, or what is in it, and the module that is refused.
REFUSED: dict[str, Callable[[], CompiledModule]] = {
    r"kernel 'k' is defined twice, in device/a\.cu and in device/b\.cu;": lambda: module(
        unit("__global__ void k() {}", name="device/a.cu"),
        unit("static __global__ void k() {}", name="device/b.cu"),
    ),
    r"device/unit\.cu: defines no kernel; .* or set link = true if": lambda: module(
        "__device__ int f() { return 1; }"
    ),
    r"[\s\S]*\(compiling device/unit\.cu for sm_90\)$": lambda: module(
        f"#if __CUDA_ARCH__ >= 900\n#error too new\n#endif\n{KERNEL}", architectures=["sm_80", "sm_90"]
    ),
    r"device/made\.ptx: is PTX for sm_90, .* for sm_80; ": lambda: refuse_ptx("compute_90", "sm_80"),
    r"device/made\.ptx: is PTX for sm_90, .* for compute_80; ": lambda: refuse_ptx(
        "compute_90", "compute_80"
    ),
    r"device/made\.ptx: is PTX for sm_90a, .* for sm_90; ": lambda: refuse_ptx("compute_90a", "sm_90"),
    r"device/made\.ptx: is PTX for sm_100f, .* for sm_120; ": lambda: refuse_ptx("compute_100f", "sm_120"),
    r"device/made\.ptx: PTX cannot become LTO-IR for lto_90": lambda: refuse_ptx("compute_80", "lto_90"),
    r"device/a\.ptx: assembling for sm_90: .*[Uu]nsupported .version 99\.9": lambda: module(
        written_ptx("99.9", "ret")
    ),
    r"device/a\.ptx: assembling for sm_90: .*line 4;.*'rett'": lambda: module(written_ptx("6.0", "rett")),
    r"device/a\.cubin: is not a cubin, or is damaged: it has no 64-bit ELF header; make": lambda: module(
        unit(b"no code", name="device/a.cubin")
    ),
    r"device/a\.cubin: is not a cubin, or is damaged: it is cut off after 6 bytes; make": lambda: module(
        unit(b"\x7fELF\2\1", name="device/a.cubin")
    ),
    r"device/made\.ltoir: assembling for sm_80: .*newer": lambda: module(
        ready_made(KERNEL, "ltoir", "lto_90"), architectures=["sm_80"]
    ),
    r"pkg\.kernels: linking for sm_90: .*_Z1fi": lambda: linked(OPEN),
    r"pkg\.kernels: linking for compute_90: .*_Z1fi": lambda: linked(OPEN, architectures=["compute_90"]),
    r"device/made\.cubin: is a cubin for sm_80, not for sm_90": lambda: linked(
        CALLS, ready_made(CALLED, "cubin", "sm_80", relocatable=True)
    ),
    r"device/made\.fatbin: a fatbin cannot be device-linked": lambda: linked(
        CALLS, unit(module(KERNEL).files["unit.fatbin"], name="device/made.fatbin")
    ),
    r"pkg\.kernels: link = true makes cubins and PTX; leave out lto_90": lambda: linked(
        KERNEL, architectures=["sm_90", "lto_90"]
    ),
    r"pkg\.kernels: none of its sources defines a kernel": lambda: linked("__device__ int f() { return 1; }"),
    r".*PTX cannot hold the device runtime library.* leave compute_90 out": lambda: linked(
        LAUNCHES, architectures=["compute_90"]
    ),
    r".*a\.cu and device/b\.cu both define _Z5twicev": lambda: linked(HIDING % "a", HIDING % "b"),
    r".*two sources define _Z5twicev": lambda: linked(
        HIDING % "a", HIDING % "b", architectures=["compute_90"]
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_module_is_refused_with_the_reason(message: str) -> None:
    with pytest.raises(BuildError, match=f"^{message}"):
        REFUSED[message]()


def test_a_fatal_error_has_no_effect_on_later_links() -> None:
    with pytest.raises(CompilationError, match=r"Unsupported .version"):
        module(written_ptx("99.9", "ret"))
    with pytest.raises(CompilationError, match=r"linking for sm_90: .*_Z1fi"):
        linked(OPEN)
