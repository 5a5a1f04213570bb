"""Host code is found in any text: lines and what is the device's stay."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cuda_ext.text.host_code import find_host_code
from cuda_ext.text.host_items import leave_out
from cuda_ext.text.lexer import read_text

_PARTS = [
    *(
        "{",
        "}",
        "(",
        ")",
        "<",
        ">",
        "[",
        "]",
        ";",
        ":",
        "=",
        ",",
        "\n",
        " ",
        "::",
        "~",
        "*",
        "&",
        "->",
        "\\\n",
    ),
    *(
        "struct S",
        "class C : B",
        "namespace n {",
        'extern "C" {',
        "template <class T>",
        "template",
        "using X =",
    ),
    *(
        "operator+",
        "operator()",
        "operator=",
        "constexpr",
        "static",
        "friend",
        "virtual",
        "const",
        "requires",
        "S",
        "f",
        "x",
    ),
    *("void f(int x)", "S() : a(1), b{2}", "public:", "int x", "M(x)", "MACRO", "= delete", "enum class E"),
    *(
        "#if A\n",
        "#else\n",
        "#endif\n",
        "#define M(x) {\n",
        "#include <vector>\n",
        "// } {\n",
        "/* ; */",
        "'{'",
    ),
    *('"}"', 'R"(', ')"', "1'000", "\t", "\r\n"),
]
_DEVICE = ["__global__ void k() { x; }", "__device__ int n;", "HD float g() { return 1; }"]


@given(st.lists(st.sampled_from(_PARTS + _DEVICE), max_size=40).map(" ".join))
@example("struct A { " * 100)
@example("template <" * 100)
@example("void f(" * 1000)
def test_lines_stay(text: str) -> None:
    content = text.encode()
    items = find_host_code(content, frozenset({"HD"}), frozenset({"M", "HD"}))
    left = leave_out(content, items)
    assert left.count(b"\n") == content.count(b"\n")
    for item in items:
        assert 0 <= item.start <= item.end <= len(text)
        assert 1 <= item.line <= item.last <= text.count("\n") + 1
    certain = leave_out(content, [item for item in items if item.certain])
    assert read_text(certain).plain.count("__global__") == read_text(content).plain.count("__global__")
