"""Structures that kernels may take by value: their declarations, and the type of the parameter.

Each of the first has a layout that the build finds out, and each of the others stays opaque.
"""

from __future__ import annotations

# By title: the type of the parameter and the source.
KNOWN: dict[str, tuple[str, str]] = {
    "one member": ("P", "struct P { int n; };"),
    "scalars": ("P", "struct P { char a; short b; int c; long long d; float e; double f; bool g; };"),
    "unsigned": ("P", "struct P { unsigned char a; unsigned short b; unsigned c; unsigned long d; };"),
    "several declarators": ("P", "struct P { int a, b = 3, *c, d[2]; const float *e, f; };"),
    "pointers": (
        "P",
        "struct P { const float* __restrict__ x; float* y; void* z; const char* const* names; };",
    ),
    "pointers to itself": ("Node", "struct Node { Node* next; struct Node* last; int value; };"),
    "function pointer": ("P", "struct P { int n; float (*f)(float, int); };"),
    "arrays": ("P", "struct P { char a[3]; int b[2][3]; const float* c[4]; bool d[5]; };"),
    "extents of constants": (
        "P",
        "constexpr int N = 4;\nstruct P { int a[N]; float b[N * 2][sizeof(int)]; };",
    ),
    "nested": (
        "P",
        "struct Inner { short a; double b; };\nstruct P { char c; Inner inner; Inner more[2]; };",
    ),
    "nested twice": (
        "P",
        "struct A { int a; };\nstruct B { A a; char c; A more[2]; };\nstruct P { B b; B array[2][2]; A a; };",
    ),
    "nested definition": (
        "P",
        "struct P { struct Inner { int a; float b; } x, y[2]; struct { int c; } z; };",
    ),
    "anonymous member": ("P", "struct P { int a; struct { int b; float c; }; double d; };"),
    "namespace": ("ns::P", "namespace ns { struct P { int a; }; }"),
    "nested namespaces": ("a::b::P", "namespace a::b { struct Q { int i; };\nstruct P { Q q; double d; }; }"),
    "inline namespace": ("ns::P", "namespace ns { inline namespace v1 { struct P { int a; double b; }; } }"),
    "same names": ("b::P", "namespace a { struct P { int x; }; }\nnamespace b { struct P { float y, z; }; }"),
    "in a class": ("Outer::P", "struct Outer { struct P { int a; char b; }; int c; };"),
    "in a template": ("Outer<float>::P", "template <class T> struct Outer { struct P { T a; char b; }; };"),
    "template": ("P<double>", "template <class T> struct P { int n; T value; const T* x; };"),
    "template of values": ("P<char, 3>", "template <class T, int N = 4> struct P { T a[N]; int n; };"),
    "template of templates": (
        "P<Q<float>>",
        "template <class T> struct Q { T x; };\ntemplate <class T> struct P { T q; int n; };",
    ),
    "specialised": (
        "P<int>",
        "template <class T> struct P { T a; };\ntemplate <> struct P<int> { char b; int c; };",
    ),
    "typedef": ("P", "typedef struct { int a; float* b; } P;"),
    "tagged typedef": ("P", "typedef struct P_ { int a; float* b; } P;"),
    "alias": ("P", "template <class T> struct Q { T a; int b; };\nusing P = Q<float>;"),
    "class": ("P", "class P { public: int a; float b; };"),
    "functions": (
        "P",
        "struct P { int a; float b; __host__ __device__ P() : a{1}, b(2) {} __host__ __device__ int f(int) "
        "const { struct L { int q; }; return a; } __host__ __device__ P& operator=(const P&) = default; };",
    ),
    "constants and types": (
        "P",
        "struct P { static constexpr int N = 3; enum Kind { A, B }; using T = float; typedef int I; Kind "
        "kind; T t; I i[N]; friend struct Q; };",
    ),
    "initialisers": (
        "P",
        "struct P { int a = 1; float b{2}; int c[2] = {1, 2}; bool d = sizeof(int) > 3 ? true : false; };",
    ),
    "enumerations": (
        "P",
        "enum A { X = 0xffffffff };\nenum class B : unsigned char { Y };\nenum class C { W };\n"
        "struct P { A a; B b; enum A c; enum { Z = 0x80000000 } d; enum { V = -1 } e[2]; C f; };",
    ),
    "an anonymous namespace": (
        "P",
        "namespace { struct Q { short a; double b; }; namespace n { enum E { X }; }\n"
        "struct P { int a; Q q; Q more[2]; n::E e; }; }",
    ),
    "a template in an anonymous namespace": (
        "n::P<float>",
        "namespace n { namespace { template <class T> struct P { T a; char b; }; } }",
    ),
    "inheritance": ("P", "struct Base { int n; float* x; };\nstruct P : Base { int flag; };"),
    "two bases": ("P", "struct A { int a; };\nstruct B { double b; };\nstruct P : public A, B { char c; };"),
    "empty base": ("P", "struct Empty {};\nstruct P : Empty { int a; };"),
    "base of a template": (
        "P<float>",
        "template <class T> struct Base { T t; };\ntemplate <class T> struct P : Base<T> { int a; };",
    ),
    "alignas": ("P", "struct alignas(32) P { int a; alignas(16) float b[3]; char c; };"),
    "__align__": ("P", "struct __align__(16) P { int a; __align__(8) int b; };"),
    "attributes": ("P", "struct [[nodiscard]] P { [[maybe_unused]] int a; char b; };"),
    "conditions": ("P", "struct P {\n#ifdef NONE\nint a;\n#else\nfloat b;\n#endif\nint c; };"),
    "two under conditions": (
        "P",
        "#ifdef NONE\nstruct P { int a; };\n#else\nstruct P { char b; float c; };\n#endif",
    ),
    "macro for members": (
        "P",
        "#define MEMBER(type, name) type name;\nstruct P { MEMBER(char, a) MEMBER(float, b) };",
    ),
    "macro for the head": ("P", "#define ALIGNED __align__(16)\nstruct ALIGNED P { int a; };"),
    "comments": ("P", "struct P { // int x;\n int /* here */ a; /* int b; */ float c; };"),
    "volatile and const": ("P", "struct P { volatile int a; const float b; int* volatile c; };"),
    "names of the probe": ("P", "struct P { int object, field, number, member, T, layout; float size; };"),
    "deduced parameter": ("P", "struct P { int a; };\nstruct Unused { int b; };"),
}
OPAQUE: dict[str, tuple[str, str]] = {
    "bit-fields": ("P", "struct P { int a : 3; int b; };"),
    "bit-field in padding": ("P", "struct P { char a; int b : 3; int c; };"),
    "private members": ("P", "struct P { __host__ __device__ P(); int a; private: char b; };"),
    "private in padding": (
        "P",
        "struct P { __host__ __device__ P(); char a; private: char b; public: int c; };",
    ),
    "private base": ("P", "struct A { int a; };\nstruct P : private A { __host__ __device__ P(); int b; };"),
    "anonymous union": ("P", "struct P { int a; union { int b; float c; }; };"),
    "virtual functions": ("P", "struct P { __host__ __device__ P(); __device__ virtual void f(); int a; };"),
    "empty": ("P", "struct P {};"),
    "hidden by an own member": ("P", "struct A { int a; };\nstruct P : A { int a; };"),
    "hidden in padding": (
        "P",
        "struct A { char c, x; };\nstruct B : A { };\nstruct P : B { short x; };",
    ),
    "reference": ("P", "struct P { __host__ __device__ P(); int& a; int b; };"),
}
