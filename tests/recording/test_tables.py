"""Recorded launches and the table of a project: what is not built, and what is added for it."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from cuda_ext.builder.config.instantiations import INSTANTIATIONS
from cuda_ext.errors import ConfigError
from cuda_ext.recording.added_instantiations import add_to_table, fold
from cuda_ext.recording.built_launches import compare, describe_variation
from cuda_ext.recording.records import DIRECTORY, Argument, Launch, RecordError, write_line
from tests.fixtures.command_line import run
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.projects import load, write_project

SCALE = """
import triton
import triton.language as tl

@triton.jit(do_not_specialize=["seed"])
def scale(out, x, n, seed, bias=None, BLOCK: tl.constexpr = 64, DTYPE: tl.constexpr = tl.float32):
    pass
"""
AXPY = """
namespace ns { template <class T, int N> __global__ void axpy(T* x) {} }
template __global__ void ns::axpy<double, 1>(double*);
__global__ void fill(float* x) {}
"""
FILES = {"device/axpy.cu": AXPY, "device/scale.py": SCALE}
HEAD = """\
# Mine.
[tool.cuda_ext]
[tool.cuda_ext.modules.'p.kernels']  # with single quotes
sources = ["device/*.cu", "device/*.py"]
"""


def scale(
    dtype: str = "fp16", n: int = 1000, block: int = 64, seed: int = 3, times: int = 1, **options: str
) -> Launch:
    """Return a launch as Triton specialises it."""
    number = f"n: {'i32' if n < 1 << 31 else 'i64'}{'' if n % 16 else ':16'}, " if n != 1 else ""
    constants = {"n": "1"} if n == 1 else {}
    constants |= {"bias": "None", "BLOCK": str(block), "DTYPE": "fp32", **options}
    given = ", ".join(f"{name}={text}" for name, text in constants.items())
    text = f"scale(out: *{dtype}:16, x: *{dtype}:16, {number}seed: i32, {given})"
    x = Argument("x", "float16", (n,), (1,), True)
    numbers = [Argument(name, value=str(each)) for name, each in (("n", n), ("seed", seed))]
    arguments = (x._replace(name="out"), x, *numbers[n == 1 :])
    return Launch("triton", "device.scale", "device/scale.py", text, arguments, times=times)


def axpy(expression: str) -> Launch:
    return Launch("module", "p.kernels", "device/axpy.cu", expression)


def instantiations(root: Path, launches: Sequence[Launch]) -> list[str]:
    """Return what is missing in the table of the project in `root`, and what is left out."""
    missing, _ = compare(load(root), launches)
    return [text for each in missing for text in (*each.instantiations, *(f"! {n}" for n in each.notes))]


def extend(root: Path, launches: Sequence[Launch]) -> str:
    """Add `launches` to the table of the project in `root`; return what was added to the text."""
    project = load(root)
    before = (root / "pyproject.toml").read_text()
    after = add_to_table(project, compare(project, launches)[0]).decode()
    (root / "pyproject.toml").write_text(after)
    assert compare(load(root), launches)[0] == []
    assert add_to_table(project, []).decode() == after
    lines = [*difflib.ndiff(before.splitlines(True), after.splitlines(True))]
    assert [line for line in lines if line.startswith("-")] == []
    return "".join(line[2:] for line in lines if line.startswith("+"))


def test_both_languages_are_added_once(tmp_path: Path) -> None:
    write_project(tmp_path, HEAD, FILES)
    own = [axpy(f"ns::axpy<{T}, {N}>") for T in ("float", "__half") for N in (1, 2)]
    own += axpy("ns::axpy<double, 1>"), axpy("fill")  # which the source instantiates
    launches = [*own, scale("fp16"), scale("fp32"), scale(block=128)]
    added = """\
instantiate = [
    { kernel = "ns::axpy<{T}, {U}>", T = ["float", "__half"], U = [1, 2] },
]

[[tool.cuda_ext.modules.'p.kernels'.overrides]]
sources = ["device/scale.py"]
instantiate = [
    { kernel = "FUNCTION", T = ["fp16", "fp32"] },
    "scale(out: *fp16:16, x: *fp16:16, n: i32, seed: i32, bias=None, BLOCK=128, DTYPE=fp32)",
]
"""
    assert extend(tmp_path, launches) == added.replace("FUNCTION", FUNCTION.replace("fp16", "{T}"))


# Other forms of a table, and what is added to each for `ns::axpy<float, 1>` and a function.
FUNCTION = "scale(out: *fp16:16, x: *fp16:16, n: i32, seed: i32, bias=None, BLOCK=64, DTYPE=fp32)"
NEW = f"""
[[tool.cuda_ext.{{}}overrides]]
sources = ["device/scale.py"]
instantiate = [
    "{FUNCTION}",
]
"""
NEW_OF_MODULE = NEW.format('modules."p.kernels".')
FORMS = {
    "an array on lines": (
        f'{HEAD}instantiate = [\n  # first\n  "ns::axpy<int, 1>", # one\n  # last\n]\n\n',
        f'  "ns::axpy<float, 1>"\n{NEW_OF_MODULE[1:]}'.replace('"p.kernels"', "'p.kernels'"),
    ),
    "tables": (
        f"{HEAD}[[tool.cuda_ext.modules.'p.kernels'.instantiate]]\n"
        'kernel = "ns::axpy<int, {N}>"\nN = [1]\n\n',
        "[[tool.cuda_ext.modules.'p.kernels'.instantiate]]\nkernel = \"ns::axpy<float, 1>\"\n"
        + NEW_OF_MODULE.replace('"p.kernels"', "'p.kernels'"),
    ),
    "the defaults of all modules": (
        '[project]\nname = "p"\n[tool.cuda_ext]\nsources = ["device/*"]\ninstantiate = [\n]\n',
        f'    "ns::axpy<float, 1>"\n\n[tool.cuda_ext.modules."p.kernels"]\n{NEW_OF_MODULE}',
    ),
    "overrides of one source": (
        f"{HEAD}overrides = [\n  {{ sources = ['device/scale.py'], architectures = ['sm_90'] }},\n"
        "  { sources = ['device/axpy.cu'], instantiate = ['ns::axpy<int, 1>'] },\n]\n",
        None,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_tables(tmp_path: Path, form: str) -> None:
    before, added = FORMS[form]
    write_project(tmp_path, before, {**FILES, "src/p/__init__.py": ""})
    if added is not None:
        assert extend(tmp_path, [axpy("ns::axpy<float, 1>"), scale()]) == added
        return
    project = load(tmp_path)
    missing = compare(project, [axpy("ns::axpy<float, 1>"), scale()])[0]
    after = tomllib.loads(add_to_table(project, missing).decode())
    first, second = after["tool"]["cuda_ext"]["modules"]["p.kernels"]["overrides"]
    assert first == {"sources": ["device/scale.py"], "architectures": ["sm_90"], "instantiate": [FUNCTION]}
    assert second["instantiate"] == ["ns::axpy<int, 1>", "ns::axpy<float, 1>"]
    # An array that has no override of the source gets one.
    before = before.replace("device/scale.py", "device/axpy.cu")
    write_project(tmp_path, before)
    assert extend(tmp_path, [scale()]).startswith('  {sources = ["device/scale.py"],instantiate = [')


@pytest.mark.parametrize(
    "text",
    [
        'modules = { "p.kernels" = { sources = ["device/*"], overrides = [] } }\n',
        '[tool.cuda_ext.modules]\n"p.kernels" = { sources = ["device/*"] } # of p\n',
        f"{HEAD}[[tool.cuda_ext.modules.'p.kernels'.instantiate]]\nkernel = 'ns::axpy<int, 3>'\n",
        HEAD.replace("\n", "\r\n"),
    ],
    ids=["inline", "dotted", "tables", "CRLF"],
)
def test_uncommon_forms_are_extended(tmp_path: Path, text: str) -> None:
    before = text if "[tool" in text else f"[tool.cuda_ext]\n{text}"
    write_project(tmp_path, before, FILES)
    launches = [*(axpy(f"ns::axpy<float, {n}>") for n in (1, 2)), scale(), scale("fp32")]
    project = load(tmp_path)
    after = add_to_table(project, compare(project, launches)[0])
    (tmp_path / "pyproject.toml").write_bytes(after)
    assert compare(load(tmp_path), launches)[0] == []
    assert after.count(b"\r\n") == ("\r\n" in text) * after.count(b"\n")
    assert after.count(b"#") == text.count("#")


@pytest.mark.parametrize(
    "text",
    [
        '[tool]\ncuda_ext.modules."p.kernels".sources = ["device/*"]\n',
        f'{HEAD}instantiate = [\n  "ns::axpy<int, 1>"\n  # last\n]\n',
    ],
)
def test_a_form_that_cannot_be_extended_is_refused_with_what_to_write(tmp_path: Path, text: str) -> None:
    project = load(write_project(tmp_path, text, FILES))
    missing, _ = compare(project, [axpy("ns::axpy<float, 1>"), scale()])
    with pytest.raises(ConfigError, match="cannot be extended") as caught:
        add_to_table(project, missing)
    assert 'device/axpy.cu: instantiate = ["ns::axpy<float, 1>"]; device/scale.py: ' in str(caught.value)
    assert FUNCTION in str(caught.value)


def test_records_of_kernels_that_were_renamed_stop_nothing(tmp_path: Path) -> None:
    write_project(tmp_path, HEAD, {**FILES, "device/macros.cu": "#define KERNEL(f) f##_kernel\n"})
    own = [axpy("old<float>"), axpy("ns::old<int>")]
    pasted = axpy("fill_kernel<int>")._replace(source="device/macros.cu")
    missing, unknown = compare(load(tmp_path), [*own, pasted])
    assert unknown == own
    with pytest.raises(RecordError, match="records may be older than the sources"):
        add_to_table(load(tmp_path), missing)  # a kernel of a pasted name takes an override
    assert "old" not in extend(tmp_path, [*own, axpy("ns::axpy<float, 1>")])


def test_hints_are_those_of_the_launches(tmp_path: Path) -> None:
    write_project(tmp_path, HEAD, FILES)
    start, end = "scale(out: *fp16:16, x: *fp16:16, n: ", ", seed: i32, bias=None, BLOCK=64, DTYPE=fp32)"

    def hints(*sizes: int, **more: int) -> list[str]:
        texts = instantiations(tmp_path, [scale(n=n, **more) for n in sizes])
        return [text.removeprefix(start).removesuffix(end) for text in texts]

    assert hints(1000, 1007) == ["i32"]
    assert hints(1007, 1024) == ["i32:16", "i32"]
    assert hints(1) == ["i32=1?"]
    assert hints(1, 7, 16) == ["i32:16", "i32=1?"]
    assert hints(1 << 40, 7) == ["i64:16", "i64"]  # which takes smaller numbers, too
    assert hints(3, seed=1) == ["i32"]  # the function excludes the seed


def test_one_kernel_of_a_name_has_one_set_of_options(tmp_path: Path) -> None:
    table = f"{HEAD}[[tool.cuda_ext.modules.'p.kernels'.overrides]]\nsources = ['device/*.py']\n"
    built = FUNCTION.replace("fp16", "fp32").replace("64", "32")
    write_project(tmp_path, f"{table}instantiate = ['{built}']\n", FILES)
    launches = [scale(num_warps="8"), scale(times=3), scale(num_warps="2", times=2)]
    assert instantiations(tmp_path, launches) == [
        FUNCTION,
        f"! {FUNCTION[:-1]}, num_warps=2): a kernel of this name has other types or options",
        f"! {FUNCTION[:-1]}, num_warps=8): a kernel of this name has other types or options",
    ]
    assert instantiations(tmp_path, [scale("fp32", block=32)]) == []
    assert instantiations(tmp_path, [scale("fp32", block=32, num_stages="2")]) == [
        f"! {built[:-1]}, num_stages=2): a kernel of this name has other types or options"
    ]
    assert instantiations(tmp_path, [scale("fp32", block=32, enable_fp_fusion="False")]) == [
        f"! {built[:-1]}, enable_fp_fusion=False): a kernel of this name has other types or options"
    ]
    # Where the constant makes another name, the kernel is for it alone.
    (one,) = instantiations(tmp_path, [scale("fp32", n=1, block=32, num_stages="2")])
    assert one.endswith("num_stages=2, n=1)")


def test_what_an_instantiation_leaves_out_is_the_default(tmp_path: Path) -> None:
    table = f"{HEAD}[[tool.cuda_ext.modules.'p.kernels'.overrides]]\nsources = ['device/*.py']\n"
    built = "scale(out: *fp16:16, x: *fp16:16, n: i32, seed: i32)"
    write_project(tmp_path, f"{table}instantiate = ['{built}']\n", FILES)
    assert instantiations(tmp_path, [scale()._replace(instantiation=built), scale(num_stages="3")]) == []
    (left_out,) = instantiations(tmp_path, [scale(num_stages="2")])
    assert left_out.endswith("num_stages=2): a kernel of this name has other types or options")


def test_each_combination_of_hints_is_built_once(tmp_path: Path) -> None:
    write_project(tmp_path, HEAD, FILES)
    plain = "scale(out: *fp16{}, x: *fp16{}, n: i32{}, seed: i32, bias=None, BLOCK=64, DTYPE=fp32)"
    texts = [plain.format(*hints) for hints in itertools.product((":16", ""), repeat=3)]
    launches = [scale()._replace(instantiation=text) for text in texts]
    # Beside each with hints, one without is built.
    in_order = sorted(texts[:-1], key=lambda text: -text.count(":16"))
    assert instantiations(tmp_path, launches) == in_order
    assert instantiations(tmp_path, [*launches, scale(n=1)])[0] == in_order[0]
    assert "instantiate" in extend(tmp_path, launches)


TILE = """
import cuda.tile as ct

@ct.kernel
def tile(x, n, M: ct.Constant[int]):
    pass
"""


def test_numbers_of_tiles_have_the_widest_type(tmp_path: Path) -> None:
    write_project(tmp_path, HEAD, {**FILES, "device/tile.py": TILE})
    x = Argument("x", "float16", (8, 48), (48, 1), True)
    launch = Launch("cutile", "device.tile", "device/tile.py", "", (x, Argument("n", value="5")))
    texts = [f"tile(x: f16[?, ?:16]:16, n: {type_}, M=64)" for type_ in ("bool", "i32")]
    launches = [launch._replace(instantiation=text) for text in texts]
    assert instantiations(tmp_path, launches) == texts[1:]
    # A kernel for other lengths does not take them.
    extend(tmp_path, launches)
    file = tmp_path / "pyproject.toml"
    file.write_text(file.read_text().replace("[?, ?:16]", "[?, 64]"))
    assert instantiations(tmp_path, launches) == texts[1:]


@pytest.mark.parametrize(
    ("built", "is_built"),
    [
        ("scale(out: *fp16, x: *kfp16:16, n: i64, seed: i32)", True),
        (
            "scale(out: *fp16, x: *fp16, n: i32=1?, seed=3, bias=None, BLOCK=64, DTYPE=fp32, num_warps=4)",
            True,
        ),
        ("scale(out: *fp16, x: *fp16, n: i32, seed: i32, BLOCK=128)", False),
        ("scale(out: *fp16, x: *fp16, n: i32, seed: i32, BLOCK=128 if n <= 2000)", True),
        ("scale(out: *fp16, x: *fp16, n: i32, seed: i32, BLOCK=32 otherwise)", False),
        ("scale(out: *fp16, x: *fp16, n: i32, seed: i32)(num_warps=8) if sm_90", False),
        ("scale(out: *fp16, x: *fp16, n: i32, seed: i32, bias: *fp16)", False),
        ("scale(out: *fp16, x: *fp16, n: i16, seed: i32)", False),
        ("scale(out: *fp16, x: *fp16, n=1001, seed: i32)", False),
        ("scale(out: *fp16, x: *fp32, n: i32, seed: i32)", False),
        ("scale(out: *fp16, x: *fp16, n: i32, seed: i32, DTYPE=fp16)", False),
        ("scale(out: *fp16, x: *fp16, n: i32, seed: i32, BLOCK=True if n % 16 == 0)", False),
    ],
)
def test_kernels_that_take_a_launch(tmp_path: Path, built: str, is_built: bool) -> None:
    table = f"{HEAD}[[tool.cuda_ext.modules.'p.kernels'.overrides]]\nsources = ['device/*.py']\n"
    write_project(tmp_path, f"{table}instantiate = ['{built}']\n", FILES)
    assert (instantiations(tmp_path, [scale(n=1000)]) == []) is is_built


def test_kernels_of_others_are_not_compared(tmp_path: Path) -> None:
    write_project(tmp_path, HEAD, FILES)
    launches = [
        scale()._replace(source="/usr/lib/other.py", module="other"),
        scale()._replace(instantiation="removed(x: *fp32)"),
        axpy("gone<int>")._replace(source="device/gone.cu"),
        axpy("ns::axpy<float, 1>")._replace(module="q.kernels"),
        scale()._replace(kind="module", module="q.kernels"),
    ]
    assert compare(load(tmp_path), launches) == ([], launches)
    # The file of an installed package is that of the project.
    installed = scale()._replace(source="/site-packages/device/scale.py")
    assert instantiations(tmp_path, [installed]) == [FUNCTION]


@pytest.mark.parametrize(
    "damaged",
    [
        scale()._replace(instantiation="scale((out: *fp16)"),
        scale()._replace(instantiation="scale(out: ]])"),
        scale()._replace(instantiation="scale(other: i32)"),
        scale(num_warps="'"),
        scale(num_warps="[]"),
    ],
)
def test_records_that_no_launch_makes(tmp_path: Path, damaged: Launch) -> None:
    table = f"{HEAD}[[tool.cuda_ext.modules.'p.kernels'.overrides]]\nsources = ['device/*.py']\n"
    built = "scale(out: *fp16, x: *fp16, n: i32, seed: i32, BLOCK=128 if n <= 2000)"
    write_project(tmp_path, f"{table}instantiate = ['{built}']\n", FILES)
    with pytest.raises(RecordError, match=r"a record has what no kernel can have: .*; remove the records"):
        instantiations(tmp_path, [damaged])


@needs_mount
def test_a_full_disk_leaves_the_table(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=64k", "none") as small:
        write_project(small, HEAD, FILES)
        (small / DIRECTORY).mkdir(parents=True)
        (small / DIRECTORY / "1.jsonl").write_bytes(write_line(scale()))
        with contextlib.suppress(OSError):
            (small / "full").write_bytes(bytes(64 << 10))
        status, _, errors = run("record", "--project", small, "--write")
        assert status == 1
        assert errors.endswith(f"{small}/pyproject.toml: No space left on device\n")
        assert (small / "pyproject.toml").read_text() == HEAD
        assert [path.name for path in small.iterdir() if path.name.startswith(".p")] == []


def test_cupy_kernels_are_found_by_name(tmp_path: Path) -> None:
    write_project(tmp_path, HEAD, FILES)
    launch = Launch("cupy", "", "", "ns::axpy<unsigned,2>")
    assert instantiations(tmp_path, [launch]) == ["ns::axpy<unsigned int, 2>"]


def test_products_are_exact() -> None:
    texts = [f"f<{T}, {n}>" for T in ("a", "b", "c") for n in (1, 2, 3) if (T, n) != ("b", 2)]
    items = tomllib.loads(f"items = [{', '.join(fold(texts))}]")["items"]
    assert sorted(INSTANTIATIONS.check(items, "items")) == sorted(texts)
    assert len(items) == 2


def test_constants_with_many_values_are_named() -> None:
    sizes = [scale(n=n, block=n) for n in range(100, 109)]
    advice = "make it a parameter, or derive it from one, as in {next_power_of_2(n)}"
    assert describe_variation(sizes) == [f"scale in device/scale.py: BLOCK has 9 values; {advice}"]
    assert describe_variation(sizes[1:]) == []


def test_the_command_adds_and_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_project(tmp_path, HEAD, FILES))
    records = tmp_path / DIRECTORY
    records.mkdir(parents=True)
    (records / "1.jsonl").write_bytes(b"".join(map(write_line, [scale(times=2), axpy("ns::axpy<float, 1>")])))
    status, output, errors = run("record", "--check")
    assert (status, output) == (1, "")
    where = 'pyproject.toml: tool.cuda_ext.modules."p.kernels"'
    assert errors == (
        f"{where}: 1 launch of ns::axpy in device/axpy.cu not built:\n"
        "  ns::axpy<float, 1>\n"
        f"{where}: 2 launches of scale in device/scale.py not built:\n"
        f"  {FUNCTION}\n"
        "pyproject.toml: the table does not build what was launched; run cuda-ext record --write\n"
    )
    status, output, errors = run("record", "--write")
    assert (status, errors) == (0, "")
    assert output.endswith("pyproject.toml: 2 instantiations added\n")
    file = tmp_path / "pyproject.toml"
    written = file.read_bytes(), file.stat().st_mtime_ns
    assert run("record", "--check") == (0, "pyproject.toml builds all 2 recorded launches\n", "")
    assert run("record", "--write") == (0, "pyproject.toml: 0 instantiations added\n", "")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == written
    (records / "2.jsonl").write_bytes(b"damaged\n")
    assert run("record", "--write")[2].startswith(f"{records}/2.jsonl:1: is not the record of a launch: ")
    assert run("record")[0] == run("record", "--check", "--write")[0] == 2
    file.write_text('[project]\nname = "q"\n')
    assert "has no [tool.cuda_ext] table" in run("record", "--write")[2]


def test_a_table_with_a_mistake_is_refused_as_by_a_build(tmp_path: Path) -> None:
    write_project(tmp_path, f"{HEAD}instantiate = ['ns::axpi<float, 1>']\n", FILES)
    with pytest.raises(ConfigError, match="no source defines a kernel 'axpi'; did you mean"):
        instantiations(tmp_path, [scale()])
