"""Constants that a call leaves out: derived from its arguments, or of integers that are equal to one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_ext.builder.package.generate import Package
from cuda_ext.compiler.front_ends.derived_constants import derive_values
from cuda_ext.formats.variant_conditions import holds, parse
from tests.fixtures.loader import run_script
from tests.fixtures.projects import build, refusal, write_importable, write_project

pytest.importorskip("triton", reason="Triton runs under Linux only")

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def rows(out, x, stride, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = x + tl.program_id(0) * stride
    value = tl.load(row + at) if EVEN else tl.load(row + at, mask=at < n)
    tl.store(out + at, value, mask=at < n)

@triton.jit
def between(out, BLOCK: tl.constexpr, x, n, by=3, factor=0.5):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at + by, mask=at < n) * factor, mask=at < n)

@triton.jit
def strided(out, x, n, sx, bias, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at * sx, mask=at < n)
    if bias is not None:
        value += tl.load(bias + at, mask=at < n)
    tl.store(out + at, value, mask=at < n)
"""
ROWS = "rows(out: *fp32:16, x: *fp32:16, stride: i32, n: i32, BLOCK={next_power_of_2(n)}, EVEN={n % 64 == 0})"
STRIDED = "strided(out: *fp32, x: *fp32, n: i32, sx: i32=1?, bias: *fp32=None?, BLOCK=64)"
BETWEEN = "between(out: *fp32, x: *fp32, n: i32, by: i32, factor: fp32, BLOCK=64)"
OTHER = BETWEEN.replace("64", "128")
TABLE = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/rows.py"]
architectures = ["sm_90"]
emit = "cubin"
instantiate = [{ITEMS}]
"""
FILES = {"device/rows.py": SOURCE, "p/__init__.py": ""}


def table(*items: str) -> str:
    return TABLE.replace("{ITEMS}", ", ".join(items))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    items = f'{{ kernel = "{ROWS}", BLOCK = [256, 64] }}', f'"{STRIDED}"', f'"{BETWEEN}"', f'"{OTHER}"'
    root = write_project(tmp_path_factory.mktemp("derived"), table(*items), FILES)
    return build(root)["p.kernels"]


PRELUDE = """
    import numpy as np
    import cuda_ext
    from cuda_ext.runtime.kernel import Kernel
    from p import kernels
    from p.kernels import rows, strided
    from tests.fixtures.device_arrays import Exchanged

    class Array(Exchanged):
        dtype = "float32"

    x, y = Array(np.zeros(4096, "f4")), Array(np.zeros(4096, "f4"))
    counted = []

    def count(of, name):
        method = getattr(of, name)
        setattr(of, name, lambda *a, **k: counted.append(name) or method(*a, **k))

    def repeat(calls):
        for call in calls:
            call()
            call()
        count(Kernel, "__launch_carefully__")
        count(type(rows), "__launch_carefully__")
        for call in calls:
            call()
        print(counted)
"""


@pytest.mark.host_compiler
def test_a_launch_derives_the_constants_that_a_call_leaves_out(
    package: Package, tmp_path: Path, fake_driver: Path
) -> None:
    write_importable(package, tmp_path)
    script = f"""{PRELUDE}
    sizes = []
    grid = lambda meta: sizes.append((meta["BLOCK"], meta["EVEN"])) or (1,)
    repeat([
        lambda: rows[grid](y, x, 4, 50),
        lambda: rows[grid](y, x, 4, 64),
        lambda: rows[grid](y, x, 4, 65),
        lambda: rows[grid](y, x, 4, 192, num_warps=4),
        # As in Triton. What was built is taken, and the next larger one for all else.
        lambda: rows[grid](y, x, 4, 50, BLOCK=256, EVEN=False),
        lambda: rows[grid](y, x, 4, 128, BLOCK=128),
        lambda: rows[grid](y, x, 4, 50, 16, False),
        lambda: kernels["rows<fp32>"](y, x, 4, 50, grid=grid),
        lambda: rows.choose(BLOCK=64, EVEN=True)[grid](y, x, 4, 64),
    ])
    print(*sizes[-9:])
    caught(rows[1], y, x, 4, 1000)
    caught(rows[1], y, x, 4, 1000, BLOCK=1024)
    caught(rows[1], y, x, 4, 50, BLOCK="x")
    print(*[line for line in str(cuda_ext.describe(kernels)).splitlines() if "EVEN=True if" in line])
    kernels["rows<fp32>"].explain(y, x, 4, 65)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    small, large = "(64, False) (64, True)", "(256, False) (256, True)"
    assert done.output[:2] == ["[]", f"{small} {large} {large} (64, False) {small}"]
    too_large = (
        "ArgumentError: rows<fp32>: was compiled only for conditions that do not hold: n is 1000; the "
        "largest is BLOCK=256; add 1024 to BLOCK in `instantiate`"
    )
    assert [line.partition("   in a launch")[0] for line in done.output[2:5]] == [
        too_large,
        too_large,
        "ArgumentError: argument 'BLOCK': rows<fp32> takes a number, not 'x'",
    ]
    assert done.output[5] == (
        "  rows<fp32>: BLOCK=64, EVEN=True if n <= 64 and n % 64 == 0; BLOCK=64, EVEN=False if n <= 64; "
        "BLOCK=256, EVEN=True if n <= 256 and n % 64 == 0; BLOCK=256, EVEN=False if n <= 256"
    )
    taken = "rows<fp32, BLOCK=256, EVEN=False> if n <= 256 and out % 16 == 0 and x % 16 == 0 taken: n is 65"
    assert sum(" ".join(line.split()).startswith(taken) for line in done.output[6:]) == 1


@pytest.mark.host_compiler
def test_an_integer_equal_to_one_takes_the_kernel_for_it(
    package: Package, tmp_path: Path, fake_driver: Path
) -> None:
    write_importable(package, tmp_path)
    script = f"""{PRELUDE}
    repeat([
        lambda: strided[1](y, x, 60, 1, None, 64),
        lambda: strided[1](y, x, 60, 2, x, 64),
        lambda: strided[1](y, x, n=60, sx=1, bias=None),
        lambda: strided[1](y, x, n=60, sx=1, bias=x),
        lambda: strided[1](y, x, 60, 3, x, BLOCK=64),
    ])
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    assert done.output == ["[]"]
    # Two arrays, n, perhaps the stride and the bias, and what Triton adds.
    counts = [len(launch.partition("device=0 ")[2].split()) - 5 for launch in done.launches]
    assert counts[10:] == [0, 2, 0, 1, 2]


@pytest.mark.host_compiler
def test_defaults_and_constants_between_parameters_are_those_of_the_function(
    package: Package, tmp_path: Path, fake_driver: Path
) -> None:
    write_importable(package, tmp_path)
    script = f"""{PRELUDE}
    from p.kernels import between
    repeat([
        lambda: between[1](y, 64, x, 60, 3, 0.5),
        lambda: between[1](y, 64, x, 60),
        lambda: between[1](y, BLOCK=64, x=x, n=60, factor=1.0),
        lambda: between[1](y, 64, x, by=4, n=60),
        lambda: between["fp32, BLOCK=64"](y, 64, x, 60, grid=1),
    ])
    between[lambda meta: (meta["n"], 1)](y, 64, x, 0)
    between["fp32, BLOCK=64"].bind(grid=0)(y, x, 60, 3, 0.5)
    for block in (64, 128, 64):
        between[1](y, block, x=x, n=60)
    caught(between[1], y, 64, x)
    caught(between[1], y, x, 60)
    caught(between[1], y, 64, x, 60, x=x)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    numbers = [launch.partition("device=0 ")[2].split()[3:5] for launch in done.launches[10:]]
    three, four, half, one = "03000000", "04000000", "0000003f", "0000803f"
    assert numbers == [[three, half], [three, half], [three, one], [four, half], *[[three, half]] * 4]
    assert done.output[0] == "[]"
    problems = (
        "lacks int n; built",
        "no kernel was built for an array as 'BLOCK'",
        "argument 'x': is given twice",
    )
    for line, problem in zip(done.output[1:], problems, strict=True):
        assert problem in line


REFUSED = {
    ROWS.replace("next_power_of_2", "log2"): (
        "BLOCK: 'log2(n)' cannot be derived; write an expression such as next_power_of_2(n), cdiv(n, 4), "
        "n // 2, n + 1, max(m, n), min(n, 4096), or n % 16 == 0"
    ),
    ROWS.replace("next_power_of_2(n)", "max(512, n)"): "BLOCK: max(512, n) is never at most 64; take it out",
    ROWS.replace("of_2(n)", "of_2(m)"): "no parameter 'm' has a type",
    ROWS.replace("of_2(n)", "of_2(x)"): "'x' is float*; conditions compare integers: stride, n, sm",
    ROWS.replace("EVEN", "EVEN=True, LAST"): "rows has no parameter 'LAST'",
    STRIDED.replace("1?", "1"): "sx: i32=1: expected a type, such as i32, *fp32:16 or i32=1?",
    STRIDED.replace("1?", "one two?"): "sx=one two: expected a number, True, False, None",
}


@pytest.mark.parametrize(("item", "problem"), REFUSED.items())
def test_expressions_that_no_condition_expresses_are_refused(item: str, problem: str, tmp_path: Path) -> None:
    text = f'{{ kernel = "{item}", BLOCK = [256, 64] }}' if "{" in item else f'"{item}"'
    write_project(tmp_path, table(text), FILES)
    assert problem in str(refusal(tmp_path))


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("n", "4", "4 if n <= 4"),
        ("triton.next_power_of_2(n)", "1000", "1000 if n <= 512"),
        ("triton.cdiv(n, 4)", "64 8", "8 if n <= 32, 64 if n <= 256"),
        ("min(next_power_of_2(n), 1024)", "256 1024", "256 if n <= 256, 1024 otherwise"),
        ("max(16, next_power_of_2(d), k - 1)", "16", "16 if d <= 16 and k <= 17"),
        ("n * 3 // 2 + 1", "10", "10 if n <= 6"),
        ("x.shape[1]", "64", "64 if x.shape[1] <= 64"),
        ("n < 4 and m > 2", "", "True if n <= 3 and m >= 3, False otherwise"),
    ],
)
def test_an_expression_becomes_comparisons(expression: str, values: str, expected: str) -> None:
    assert ", ".join(derive_values(expression, values.split())) == expected


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()


EXPRESSIONS: dict[str, Callable[[int], int]] = {
    "next_power_of_2(n)": next_power_of_2,
    "cdiv(n, 4)": lambda n: -(-n // 4),
    "n * 3 // 2 + 1": lambda n: n * 3 // 2 + 1,
    "max(n - 5, n // 7)": lambda n: max(n - 5, n // 7),
    "next_power_of_2(min(n, 64))": lambda n: next_power_of_2(min(n, 64)),
}


@given(n=st.integers(1, 3000), values=st.sets(st.integers(1, 4096), min_size=1, max_size=5))
def test_a_condition_holds_where_the_value_suffices(n: int, values: set[int]) -> None:
    for expression, exact in EXPRESSIONS.items():
        for text in derive_values(expression, [str(value) for value in values]):
            value, _, condition = text.partition(" if ")
            holding = all(holds(term, n) for term in parse(condition)) if condition else True
            assert holding == (exact(n) <= int(value.split()[0])), (expression, text)
