"""Signatures: how the compiler describes kernels, parameters and variables, for every kind of declaration."""

from __future__ import annotations

import pytest

from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.text import declarations, macros
from tests.fixtures.device_code import image, nvcc, nvrtc, signatures, unit

TYPES = """
struct Pair { float x; double y; };
struct Empty {};
struct alignas(64) Map { unsigned long long opaque[16]; };
enum Plain { A, B };
enum class Narrow : unsigned char { C, D };
union Either { int i; float f; };
namespace ns { struct Point { int x; }; enum class Mode { E }; template <class T> struct Box { T v; }; }
"""
HEADERS = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/std/array>
#include <cuda/std/cstdint>
"""


def kernel(source: str, *instantiate: str) -> Kernel:
    (found,) = signatures(unit(source, *instantiate)).kernels.values()
    return found


def parameters(declarations: str, headers: str = "") -> tuple[Parameter, ...]:
    return kernel(f'{headers}{TYPES}extern "C" __global__ void k({declarations}) {{}}').parameters


def symbol(source: str) -> Symbol:
    (found,) = signatures(source + "\n__global__ void k() {}").symbols.values()
    return found


# ------------------------------------------------------------------------------------------- parameters


# Declaration, type, kind, size. The names of types in namespaces and of the library's 64-bit integers depend
# on the compiler.
VALUES = [
    ("bool", "bool", "bool", 1),
    ("char", "char", "integer", 1),
    ("signed char", "signed char", "integer", 1),
    ("unsigned char", "unsigned char", "unsigned", 1),
    ("short", "short", "integer", 2),
    ("unsigned short", "unsigned short", "unsigned", 2),
    ("int", "int", "integer", 4),
    ("unsigned", "unsigned int", "unsigned", 4),
    ("long", "long", "integer", 8),
    ("long long", "long long", "integer", 8),
    ("size_t", "unsigned long", "unsigned", 8),
    ("ns::Box<char>", None, "struct", 1),
    ("char16_t", "char16_t", "unsigned", 2),
    ("char32_t", "char32_t", "unsigned", 4),
    ("cuda::std::int8_t", "signed char", "integer", 1),
    ("cuda::std::uint32_t", "unsigned int", "unsigned", 4),
    ("float", "float", "float", 4),
    ("double", "double", "float", 8),
    ("const int", "int", "integer", 4),
    ("__half", "__half", "struct", 2),
    ("__half2", "__half2", "struct", 4),
    ("__nv_bfloat16", "__nv_bfloat16", "struct", 2),
    ("cuda::std::array<int, 3>", None, "struct", 12),
    ("float4", "float4", "struct", 16),
    ("Pair", "Pair", "struct", 16),
    ("Empty", "Empty", "struct", 1),
    ("Either", "Either", "struct", 4),
    ("Map", "Map", "struct", 128),
    ("const __grid_constant__ Map", "Map", "struct", 128),
    ("Plain", "Plain", "enum", 4),
    ("Narrow", "Narrow", "enum", 1),
    ("ns::Mode", "ns::Mode", "enum", 4),
]


@pytest.fixture(scope="module")
def values() -> tuple[Parameter, ...]:
    return parameters(", ".join(f"{declared} p{i}" for i, (declared, *_) in enumerate(VALUES)), HEADERS)


@pytest.mark.parametrize("index", range(len(VALUES)), ids=lambda i: VALUES[i][0])
def test_values_are_described(values, index):
    _, type_, kind, size = VALUES[index]
    found = values[index]
    assert (found.name, found.kind, found.size) == (f"p{index}", kind, size)
    assert type_ is None or found.type == type_


@pytest.mark.parametrize(
    ("declared", "type_", "element", "const"),
    [
        ("float* p", "float*", "float", False),
        ("const float* p", "const float*", "float", True),
        ("float* const p", "float*", "float", False),
        ("const float* __restrict__ p", "const float*", "float", True),
        ("const volatile int* p", "const volatile int*", "int", True),
        ("float** p", "float**", "float*", False),
        ("const float* const* p", "const float* const*", "const float*", True),
        ("void* p", "void*", "void", False),
        ("const void* p", "const void*", "void", True),
        ("Pair* p", "Pair*", "Pair", False),
        ("int (*p)[4]", "int(*)[4]", "int[4]", False),
        ("const float (*p)[3][2]", "const float(*)[3][2]", "const float[3][2]", True),
        ("float p[8]", "float*", "float", False),
        ("void (*p)(int, const float*)", "void(*)(int, const float*)", "void(int, const float*)", False),
        ("int (*p[2])(void)", "int(**)()", "int(*)()", False),
        ("int (*const (*p)[2])(char)", "int(* const(*)[2])(char)", "int(* const[2])(char)", True),
        ("int* (*p)(int)", "int*(*)(int)", "int*(int)", False),
        ("int (*(*p)(char))()", "int(*(*)(char))()", "int(*(char))()", False),
        ("decltype(nullptr) p", "void*", "void", False),
    ],
)
def test_pointers_are_described_with_their_element(declared, type_, element, const):
    (found,) = parameters(declared)
    assert (found.kind, found.size, found.const) == ("pointer", 8, const)
    assert (found.type, found.element) == (type_, element)


def test_a_type_behind_typedefs_has_its_own_name():
    source = "using real = float; using rows = const real*; __global__ void k(real a, rows x) {}"
    assert [p.type for p in kernel(source).parameters] == ["float", "const float*"]


def test_unnamed_parameters_are_numbered():
    assert [p.name for p in parameters("int, float* x, Pair*")] == ["arg0", "x", "arg2"]


def test_offsets_follow_the_alignment():
    found = parameters("char a, Map map, bool b, double d, short s, float4 f, int i")
    assert {p.name: p.offset for p in found} == {
        "a": 0,
        "map": 64,
        "b": 192,
        "d": 200,
        "s": 208,
        "f": 224,
        "i": 240,
    }


@pytest.mark.parametrize(
    "declarations",
    [
        "",
        "char a, bool b, double d, short s, float4 f, int i",
        "Narrow n, Plain p, ns::Mode m, Either e, Empty y, bool c, Pair q",
        "float3 a, char b, double3 c, char d, uchar4 e, longlong2 f, int4 g, short2 h, ns::Box<char> i",
        "const float* x, int n, void (*f)(int), int (*rows)[4], char c, float** p",
    ],
)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_100"])
def test_places_and_sizes_are_those_of_the_cubin(declarations, architecture):
    source = f'{TYPES}extern "C" __global__ void k({declarations}) {{}}'
    described = [(p.offset, p.size) for p in signatures(source).kernels["k"].parameters]
    built = [(p.offset, p.size) for p in read_cubin(image(source, architecture).data).kernels["k"]]
    assert described == built


@pytest.mark.parametrize("size", [4, 4092, 4096, 16000, 32744])
def test_parameters_of_all_sizes_are_read_from_a_cubin(size):
    source = f"struct S {{ char c[{size}]; }}; __global__ void k(S s, char c, S* p) {{}}"
    (found,) = read_cubin(image(source).data).kernels.values()
    assert [(p.size, p.offset) for p in found] == [(size, 0), (1, size), (8, -(-(size + 1) // 8) * 8)]


def test_a_cubin_has_its_own_offsets_for_alignment_to_64_bytes():
    source = f'{TYPES}extern "C" __global__ void k(char c, Map map, int i) {{}}'
    assert [p.offset for p in signatures(source).kernels["k"].parameters] == [0, 64, 192]
    built = [read_cubin(image(source, a).data).kernels["k"] for a in ("sm_80", "sm_90", "sm_100")]
    assert all([p.size for p in parameters] == [1, 128, 4] for parameters in built)
    assert len({parameters[1].offset for parameters in built}) > 1


# ---------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ('extern "C" __global__ void k() {}', "k"),
        ("__global__ void k(int*) {}", "k"),
        ("static __global__ void k() {}", "k"),
        ("namespace { __global__ void k(int) {} }", "k"),
        ("namespace a::b { __global__ void k(int) {} }", "a::b::k"),
        ("namespace a { namespace { __global__ void k(int) {} } }", "a::k"),
        ("namespace a { inline namespace v1 { __global__ void k(int) {} } }", "a::v1::k"),
        ("#define K(n) __global__ void n##_k() {}\nK(made)", "made_k"),
        ("template <class T> __global__ void k(T) {} template __global__ void k<float>(float);", "k<float>"),
        (
            "template <class T> __global__ void k(T) {}\n"
            "template __global__ void k<const float*>(const float*);",
            "k<const float*>",
        ),
        (
            "namespace a { template <int N, bool B> __global__ void k() {}\n"
            "template __global__ void k<3, true>(); }",
            "a::k<3, true>",
        ),
        (
            "template <class T> struct V {};\n"
            "template <class T> __global__ void k(T) {} template __global__ void k<V<V<int>>>(V<V<int>>);",
            "k<V<V<int>>>",
        ),
        (
            "template <class T> struct W {};\n"
            "template <template <class> class C, class T> __global__ void k(C<T>) {}\n"
            "template __global__ void k<W, float>(W<float>);",
            "k<W, float>",
        ),
    ],
)
def test_kernels_have_their_name_with_its_namespaces(source, name):
    assert kernel(source).expression == name


@pytest.mark.parametrize("compiler", [nvrtc, nvcc])
def test_types_of_anonymous_namespaces_are_described(compiler):
    source = (
        "namespace { struct P { int x; }; enum class E { A };\n"
        "__global__ void k(P p, E* e) { e[p.x] = E::A; } }\n"
        'extern "C" __global__ void c(P p, int n) {}\n__device__ int v;\n'
        "__global__ void known(int n, float* x) { x[n] = v; }"
    )
    (image,) = compiler().compile(unit(source, "k", "c", "known"), [Architecture.parse("sm_90")])
    found = image.signatures
    signatures_ = {kernel.signature for kernel in found.kernels.values()}
    assert {"k(P p, E* e)", "known(int n, float* x)"} <= signatures_
    assert [symbol.type for symbol in found.symbols.values()] == ["int"]


@pytest.mark.parametrize(
    "source",
    [
        "#define KERNEL __global__ void\n#define K(name) KERNEL name(int n, float* x) {}\nK(k)",
        "#define ARGS(T) int n, T* x\n__global__ void k(ARGS(float)) {}",
        "#define NAME(x) x\n#define BOUNDS(n) __launch_bounds__(n)\n"
        "__global__ void BOUNDS(64) NAME(k)(int n, float* x) {}",
        "#define ALL(X) X(k)\n#define K(name) __global__ void name(int n, float* x) {}\nALL(K)",
        "#if 0\n#define n count\n#define x y\n#endif\n"
        "__global__ void __launch_bounds__(64) k(int n, float* x) {}",
    ],
)
def test_parameters_in_macros_have_their_names(source):
    assert kernel(source).signature == "k(int n, float* x)"


def test_macros_in_a_table_are_searched_for_with_one_pattern():
    defined = "".join(f"#define M{i} {i}\n" for i in range(50))
    before = macros._uses.cache_info().misses
    table = f"__constant__ int table[] = {{{', '.join(f'M{i}' for i in range(50))}}};"
    found = declarations.find_declarations([f"{defined}{table}".encode()])
    assert [variable.name for variable in found.variables] == ["table"]
    assert macros._uses.cache_info().misses - before == 1


def test_a_macro_may_paste_the_name_of_one_that_declares_kernels():
    source = (
        b"#define KERNEL_copy(T) __global__ void copy(T* x) {}\n"
        b"#define KERNEL(name) KERNEL_##name(float)\n"
        b"#define LAUNCHER(name) void launch_##name(float* x);\n"
        b"KERNEL(copy)\nLAUNCHER(copy)\n"
    )
    assert [kernel.name for kernel in declarations.find_declarations([source]).kernels] == ["copy"]
    declaring = macros.declaring_macros(macros.find_macros(source))
    assert {macro.name for macro in declaring} == {"KERNEL_copy", "KERNEL"}


def test_parameters_of_dependent_types_are_resolved():
    source = (
        "template <class T> struct P { using type = T*; };\n"
        "template <class T, int N> __global__ void k(typename P<T>::type x, const T (*y)[N]) {}"
    )
    found = kernel(source, "k<double, 4>")
    assert [p.type for p in found.parameters] == ["double*", "const double(*)[4]"]


@pytest.mark.parametrize(
    ("instantiation", "signature"),
    [
        ("k<int, const float>", "k<int, const float>(int n, int* xs0, const float* xs1)"),
        ("k<int>", "k<int>(int n, int* xs0)"),
        ("k<>", "k<>(int n)"),
    ],
)
def test_a_parameter_pack_becomes_numbered_parameters(instantiation, signature):
    source = "template <class... T> __global__ void k(int n, T*... xs) {}"
    assert kernel(source, instantiation).signature == signature


def test_every_overload_has_parameters_of_its_own():
    found = signatures("__global__ void k(int n) {} __global__ void k(float x, int n) {}").kernels
    assert {name: [p.type for p in k.parameters] for name, k in found.items()} == {
        "_Z1ki": ["int"],
        "_Z1kfi": ["float", "int"],
    }


def test_names_fit_those_in_the_image():
    source = "namespace { __global__ void a() {} } static __global__ void b() {} __global__ void c() {}"
    assert set(signatures(source).kernels) == set(image(source).entries)


def test_instructions_of_one_architecture_survive_debugging():
    source = """
    __global__ void __launch_bounds__(128) k(float* d, unsigned long long a) {
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(0) : "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }"""
    (found,) = signatures(source, "sm_90a").kernels.values()
    assert [p.name for p in found.parameters] == ["d", "a"]


# --------------------------------------------------------------------------------------------- variables


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__constant__ float w[9];", ("w", "constant", "float[9]", 36)),
        ("__device__ int counter;", ("counter", "device", "int", 4)),
        ("__device__ double m[2][3];", ("m", "device", "double[2][3]", 48)),
        ("static __device__ int s;", ("s", "device", "int", 4)),
        ("namespace a::b { __constant__ int w; }", ("a::b::w", "constant", "int", 4)),
        ("namespace a { static __device__ int s; }", ("a::s", "device", "int", 4)),
        ("namespace a { namespace { __device__ int s; } }", ("a::s", "device", "int", 4)),
        ("struct P { int x, y; }; __device__ P p;", ("p", "device", "P", 8)),
        ("__device__ const float* p;", ("p", "device", "const float*", 8)),
        ("__constant__ int* p;", ("p", "constant", "int*", 8)),
        ("__device__ volatile int v;", ("v", "device", "volatile int", 4)),
        ("__managed__ int m;", ("m", "device", "int", 4)),
        ("__device__ int initialised[2] = {1, 2};", ("initialised", "device", "int[2]", 8)),
    ],
)
def test_variables_are_described(source, expected):
    found = symbol(source)
    assert (found.name, found.space, found.type, found.size) == expected


@pytest.mark.parametrize(
    "source",
    [
        "constexpr int c = 3;",
        "constexpr float table[4] = {1, 2};",
        "const int c = 3;",
        "struct S { static constexpr int c = 3; };\n__device__ int f() { return S::c; }",
        "__device__ const int c = 3;",
        "__device__ constexpr int c = 3;",
        "__device__ const int table[2] = {1, 2};",
        "__constant__ const float table[2] = {1, 2};",
        "#include <cuda/std/utility>",
    ],
)
def test_unnamed_variables_are_no_symbols(source):
    assert signatures(source + "\n__global__ void k() {}").symbols == {}


def test_variables_of_project_headers_are_symbols():
    source = unit(
        '#include "device/h.cuh"\n__global__ void k() {}', headers={"device/h.cuh": "__constant__ int w;"}
    )
    assert [s.name for s in signatures(source).symbols.values()] == ["w"]


# ---------------------------------------------------------------------------------------------- assembly

HAND_WRITTEN = b"""
.version 6.0
.target sm_50 // (a comment)
.address_size 64
.visible .const .align 4 .b8 weights[36];
.global .align 16 .v4 .f32 vectors[2];
/* .global .u32 not_me; */
.visible .entry clamp(
    .param .u64 .ptr .global .align 4 x, // what is clamped (in place)
    .param .u32 n,
    .param .s64 offset,
    .param .f32 low,
    .param .align 8 .b8 pair[16],
    .param .u64 handle
) { ret; }
.entry bare { ret; }
.weak .entry numbered(.param .f64 numbered_param_0) { ret; }
"""


def test_ptx_tells_places_sizes_and_plain_types():
    found = read_image(Architecture.parse("compute_50"), HAND_WRITTEN).signatures.kernels
    assert [str(p) for p in found["clamp"].parameters] == [
        *("void* x", ".u32 n", "long long offset", "float low", ".b8[16] pair", ".u64 handle"),
    ]
    assert [p.offset for p in found["clamp"].parameters] == [0, 8, 16, 24, 32, 48]
    assert found["bare"].parameters == ()


def test_parameters_that_a_compiler_numbered_have_no_names():
    (found,) = (
        read_image(Architecture.parse("compute_50"), HAND_WRITTEN).signatures.kernels["numbered"].parameters
    )
    assert found == Parameter("arg0", "double", "float", 8, 0)


def test_ptx_tells_its_variables():
    found = read_image(Architecture.parse("compute_50"), HAND_WRITTEN).signatures.symbols
    assert {s.name: (s.space, s.size) for s in found.values()} == {
        "weights": ("constant", 36),
        "vectors": ("device", 32),
    }
