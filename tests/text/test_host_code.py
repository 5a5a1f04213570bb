"""Host code that the text of a source shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuda_ext.text.host_code import find_host_code
from cuda_ext.text.host_items import leave_out

# Sources, and what is left of each. Spaces do not count.
CASES = [
    (re.sub(r"(?m)^=>.*\n?", "", block), " ".join(re.findall(r"(?m)^=>(.*)", block)))
    for block in Path(__file__).with_name("host_code.txt").read_text(encoding="utf-8").split("\n\n")
]


@pytest.mark.parametrize(
    ("source", "expected"), CASES, ids=[source.partition("\n")[0] for source, _ in CASES]
)
def test_what_a_text_shows_is_left_out(source: str, expected: str) -> None:
    content = source.encode()
    device = frozenset({"HD"} & set(source.split()))
    items = find_host_code(content, device, frozenset({"HD", "N", "NOTHING"}))
    left = leave_out(content, [item for item in items if item.certain]).decode()
    assert left.count("\n") == source.count("\n")
    assert left.split() == expected.split()


@pytest.mark.parametrize(
    "source", ["}}} ) ( void f() {} __global__ void k() {}", "void f() {", "#endif\n#else\n("]
)
def test_broken_text_is_read(source: str) -> None:
    items = find_host_code(source.encode(), frozenset(), frozenset())
    assert len(leave_out(source.encode(), items)) == len(source)


def test_an_item_has_its_lines_and_name() -> None:
    source = "#include <vector>\n\nvoid\nf(int x) {\n  g();\n}\nint main() {}\n"
    items = find_host_code(source.encode(), frozenset(), frozenset())
    found = dict.fromkeys((item.name, item.line, item.last) for item in items)
    assert [*found] == [
        ("#include <vector>", 1, 1),
        ("f", 3, 6),
        ("main", 7, 7),
    ]
