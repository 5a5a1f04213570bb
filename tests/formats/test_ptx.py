"""Variables that are dropped from PTX: those to which nothing that stays refers."""

from __future__ import annotations

import pytest

from cuda_ext.formats import ptx

TEXT = b"""\
.version 8.0
.visible .global .align 8 .u64 visible = generic(of_visible);
.weak .global .align 4 .u32 of_visible = 3;
.weak .const .align 1 .b8 dead[4] = {1, 2, 3, 4};
.global .align 8 .u64 dead_too[2] = {generic(dead), generic(dead_too)};
.global .align 4 .f32 first = 0f3F800000;
.global .align 8 .u64 second[1] = {generic(first)};
.global .align 16 .v4 .u32 named_in_a_comment;
.weak .global .align 4 .u32 kept = 1;
.global .attribute(.managed) .align 4 .u32 managed;
.visible .entry k() { // named_in_a_comment
  ld.global.u64 %rd1, [second+8]; st.global.u32 [managed], 1;
}
"""


def test_variables_that_nothing_refers_to_are_dropped():
    discardable = ptx.discardable_variables(TEXT)
    assert "visible" not in discardable
    assert {"dead", "first", "managed"} <= set(discardable)
    left = ptx.without_variables(TEXT, ["kept"])
    assert set(ptx.variables(left)) == {"visible", "of_visible", "first", "second", "kept", "managed"}
    assert left.startswith(TEXT[:13])
    assert left.endswith(TEXT[-100:])


def test_ptx_without_such_variables_is_unchanged():
    text = b".visible .global .align 4 .u32 x;\n.visible .entry k() { ret; }\n"
    assert ptx.without_variables(text, []) == text


@pytest.mark.parametrize("text", [".entry a (" * 5000, "/* " * 50_000, ".entry " * 5000])
def test_absurd_text_is_read_in_linear_time(text: str) -> None:
    assert all(not parameters for parameters in ptx.kernels(text.encode()).values())
    assert not ptx.variables(text.encode())
    ptx.code(text.encode())
