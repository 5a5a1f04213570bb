"""Functions of cuTile among the sources: compiled, launched under the fake driver, compiled again."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from cuda_ext.builder.cpp.launched_kernels import launched_kernels
from cuda_ext.builder.package.generate import Package
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.manifest import loads
from cuda_ext.formats.cubin import read_code
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.toolchain.front_ends.cutile import CuTile
from cuda_ext.toolchain.front_ends.source_import import import_source
from tests.fixtures.loader import run_script
from tests.fixtures.projects import build, refusal, write_importable, write_project

pytest.importorskip("cuda.tile", reason="cuTile runs under Linux and Windows only")

SOURCE = """
import cuda.tile as ct
from .common import scaled

@ct.kernel
def scale(out, x, factor, TILE: ct.Constant[int]):
    tile = ct.load(x, (ct.bid(0), 0), (1, TILE))
    ct.store(out, (ct.bid(0), 0), scaled(tile, factor))
"""
COMMON = """
import cuda.tile as ct

def scaled(x, factor):
    return x * factor * {number}
"""
TABLE = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/scale.py"]
architectures = ["{architecture}"]
emit = "{emit}"
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/scale.py"]
instantiate = [{instantiate}]
"""
TEXT = "scale(out: f32[?, ?]:16, x: f32[?, ?:16]:16, factor: f32, TILE=128)"
FILES = {"device/scale.py": SOURCE, "device/common.py": COMMON.format(number=2), "p/__init__.py": ""}
UNIT = TranslationUnit(
    "device/scale.py", SOURCE.encode(), "cutile", {"device/common.py": FILES["device/common.py"].encode()}
)


def table(*instantiate: str, architecture: str = "sm_90", emit: str = "cubin") -> str:
    return TABLE.format(instantiate=json.dumps(instantiate)[1:-1], architecture=architecture, emit=emit)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Package]:
    """A project that was built: an image for a GPU of arrays as divisible as written, and one for others."""
    root = write_project(tmp_path_factory.mktemp("cutile"), table(TEXT), FILES)
    return root, build(root)["p.kernels"]


@pytest.mark.host_compiler
def test_arrays_give_pointers_shapes_and_strides(
    project: tuple[Path, Package], tmp_path: Path, fake_driver: Path
) -> None:
    write_importable(project[1], tmp_path)
    script = """
    from p import kernels
    from tests.fixtures.device_arrays import ArrayAt

    scale = kernels.scale["f32, TILE=128"]
    print(scale.signature)
    x, y = ArrayAt(4096, (6, 96)), ArrayAt(8192, (6, 96), (512, 4))
    for _ in range(2):
        kernels.scale(y, x, 2.0, TILE=128, grid=6)
    scale(ArrayAt(8196, (6, 96)), x, 2.0, grid=6)
    scale(y, ArrayAt(4096, (6, 88), (384, 4)), 2.0, grid=6)
    scale(ArrayAt(8192, (6, 96), (388, 4)), x, 2.0, grid=6)
    caught(scale, y, ArrayAt(4096, (96, 6), (4, 384)), 2.0, grid=6)
    caught(scale, y, ArrayAt(4096, (6, 96), (-384, 4)), 2.0, grid=6)
    caught(scale, y, ArrayAt(4096, (96,)), 2.0, grid=6)
    caught(scale, y, ArrayAt(4096, (1 << 31, 96)), 2.0, grid=6)
    caught(scale, y, 4096, 2.0, grid=6)
    caught(scale, y, x, 2.0, grid=6, block=32)
    scale.explain(y, ArrayAt(4096, (6, 88), (384, 4)), 2.0)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    signature = "(float* out, float* x, float factor)"
    assert done.output[0] == f"scale<f32, TILE=128>{signature}"
    strided, negative, flat, large, address, block, *explained = done.output[1:]
    only = "ArgumentError: scale<f32, TILE=128>: was compiled only for conditions that do not hold: "
    assert strided.startswith(f"{only}x.stride[0] % 4 is 1, x.stride[1] is 96; ")
    assert negative.startswith(f"{only}x.stride[0] is -96; ")
    assert "'x': expected an array with at least 2 axes, found the shape (96,)" in flat
    assert "'x': expected shape[0] of at most 32 bits, found 2147483648" in large
    assert "'x': expected an array, since the kernel takes its shape" in address
    assert "block" in block
    assert explained[2] == "    not taken: x.shape[1] % 16 is 8"
    assert explained[4].startswith("    taken: out.stride[0] is 128")
    assert len(done.launches) == 5
    for launch in done.launches:
        assert "scale grid=6,1,1 block=1,1,1 shared=0" in launch
    numbers = [(8192, 6, 96, 128, 1), (4096, 6, 96, 96, 1)]
    extents = [
        f"{a.to_bytes(8, 'little').hex()} " + " ".join(i.to_bytes(4, "little").hex() for i in n)
        for a, *n in numbers
    ]
    assert done.launches[0].endswith(f"{' '.join(extents)} 00000040")
    # One image for the first two launches, and one for all others.
    assert done.calls.count("cuLibraryLoadData") == 2
    loads = [i for i, call in enumerate(done.calls) if call == "cuLibraryLoadData"]
    launches = [i for i, call in enumerate(done.calls) if call.startswith("cuLaunch")]
    assert launches[1] < loads[1] < launches[2]


def test_a_launch_in_cpp_compares_the_extents_that_it_passes(project: tuple[Path, Package]) -> None:
    (kernel,) = launched_kernels(loads(project[1].files["manifest.json"], ""))
    names = [parameter.name for parameter in kernel.kernel.parameters]
    assert names[:5] == ["out", "out_shape_0", "out_shape_1", "out_stride_0", "out_stride_1"]
    compared = [[names[argument] for argument, *_ in candidate.terms] for candidate in kernel.candidates]
    assert {*compared[1]} == {"out_stride_0", "out_stride_1", "x_stride_0", "x_stride_1"}
    assert {*compared[0]} == {*compared[1], "out", "x", "x_shape_1"}


def test_bytes_do_not_depend_on_the_directory(
    project: tuple[Path, Package], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, package = project
    log: list[str] = []
    assert build(root, log)["p.kernels"].files == package.files
    assert "nothing to compile" in "".join(log)
    other = write_project(tmp_path, table(TEXT), {**FILES, "unrelated.py": ""})
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))
    assert build(other)["p.kernels"].files == package.files


def test_tile_ir_takes_the_place_of_ptx(tmp_path: Path) -> None:
    text = "scale(out: f32[?, ?], x: f32[?, ?], factor: f32, TILE=16)"
    root = write_project(tmp_path, table(text, architecture="compute_90", emit="fatbin"), FILES)
    package = build(root)["p.kernels"]
    (unit,) = loads(package.files["manifest.json"], "").units
    (image,) = unit.images
    assert (image.architecture, image.version) == ("tile_80", "13.3")
    (entry,) = read_fatbin(package.files["scale.fatbin"])
    assert entry.kind == "tileir"
    assert str(tmp_path).encode() not in entry.payload()


REFUSED = {
    TEXT.replace("f32[?, ?:16]", "f32[?]x"): "expected a type, such as i32, *fp32:16 or i32=1?",
    TEXT.replace("?:16", "x"): "[?, x]: expected axes such as [?, 64], [?:16], or with strides [?, ?; 1, ?]",
    TEXT.replace("[?, ?]", "[?; 1, 2]"): "[?; 1, 2] has 1 axes and 2 strides",
    TEXT.replace("?:16", "64") + " if x.shape[1] > 100": "x.stride[1] == 1 never holds; correct the",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_wrong_instantiation_is_answered(tmp_path: Path, text: str) -> None:
    answer = refusal(write_project(tmp_path, table(text), FILES))
    assert REFUSED[text] in answer
    assert "overrides[0].instantiate[0]" in answer


def refusal_of_cutile(text: str, common: str = FILES["device/common.py"]) -> str:
    """The message of the error that the front-end raises for an instantiation."""
    unit = UNIT.replace(headers={"device/common.py": common.encode()}, instantiate=(text,))
    with pytest.raises(CompilationError) as caught:
        CuTile().compile(unit, (Architecture.parse("sm_90a"),))
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("x: f32[?, ?:16]", "x: fp32[?]", "'fp32' is not a type of a parameter; the types are bool, i8"),
        ("factor: f32", "factor: f32:16", "factor: f32:16: cuTile supports divisors only for arrays"),
        ("TILE=128", "TILE: i32", "Invalid kernel parameter 'TILE': Expected a scalar"),
        ("TILE=128", "TILE=100", "Dimension #1 of shape (1, 100) is not a power of two"),
        (
            ")",
            ", warps=4)",
            "scale has no parameter 'warps', and cuTile has no such option; its options are num_ctas",
        ),
        ("TILE=128", "TILE=f32", "TILE=f32: constants are numbers, True, False, and tuples of these"),
        (")", ", num_ctas=3)", "num_ctas should be power of 2, got 3"),
    ],
)
def test_what_cutile_refuses_is_answered(old: str, new: str, answer: str) -> None:
    text = TEXT.replace(old, new)
    assert (message := refusal_of_cutile(text)).startswith(f"device/scale.py: {text}: ")
    assert answer in message


def test_a_kernel_may_make_tensor_maps_of_its_arrays() -> None:
    source = """
import cuda.tile as ct

@ct.kernel
def shift(out, x, N: ct.Constant[int]):
    row = ct.load(x, (ct.bid(0), 0), (1, N))
    ct.store(out, (ct.bid(0), 0), row - ct.max(row, axis=1, keepdims=True))
"""
    text = "shift(out: f16[?, ?:16]:16, x: f16[?, ?:16]:16, N=1024)"
    unit = TranslationUnit("device/shift.py", source.encode(), "cutile", instantiate=(text,))
    (image,) = CuTile().compile(unit, (Architecture.parse("sm_90a"),))
    (kernel,) = image.signatures.kernels.values()
    assert kernel.sizes == (8, 4, 4, 4, 4, 8, 4, 4, 4, 4)
    assert b"\x08\x00\x00\x04" in image.data  # how ptxas writes the size of the pointers here


def test_code_with_all_hints_is_that_of_cutile_itself(tmp_path: Path) -> None:
    """The constraints are those of cuTile for contiguous arrays whose address and lengths 16 divides."""
    import cuda.tile as ct
    from cuda.tile import compilation

    array = compilation.ArrayConstraint(
        ct.float32,
        2,
        index_dtype=ct.int32,
        stride_lower_bound_incl=(0, None),
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(None, 1),
        stride_divisible_by=(4, 1),
        shape_divisible_by=16,
        base_addr_divisible_by=16,
    )
    convention = compilation.CallingConvention.cutile_python_v2()
    parameters = [array, array, compilation.ScalarConstraint(ct.float32), 128]
    signature = compilation.KernelSignature(parameters, convention, "scale")
    kernel = import_source(UNIT).scale
    cubin = tmp_path / "cubin"
    compilation.export_kernel(kernel, [signature], cubin, gpu_code="sm_90", output_format="cubin")
    text = TEXT.replace("f32[?, ?]:16, x: f32[?, ?:16]", "f32[?:16, ?:16]:16, x: f32[?:16, ?:16]")
    (image,) = CuTile().compile(UNIT.replace(instantiate=(text,)), (Architecture.parse("sm_90a"),))
    assert read_code(image.data) == read_code(cubin.read_bytes())


# The same functions, in files that import what is not there. Of annotations, cuTile reads only its own.
ABSENT = "import not_there, not_there.nn as nn\nnot_there.ops.define('scale')\n"
HOST = """
class Scale(nn.Module):
    def forward(self, x: not_there.Tensor) -> not_there.Tensor:
        return ct.launch(not_there.cuda.current_stream(), (1,), scale, (x,))
"""


def test_code_is_that_without_host_code_and_imports_around_it() -> None:
    source = SOURCE.replace("@ct.kernel", "@nn.counted(1)\n@ct.kernel").replace(
        "out, x,", "out: nn.Tensor, x,"
    )
    common = f"{ABSENT}{COMMON.format(number='NUMBER')}\nNUMBER = 2\nSIZE = not_there.size()\n"
    around = UNIT.replace(
        source=f"{ABSENT}{source}{HOST}".encode(), headers={"device/common.py": common.encode()}
    )
    codes = []
    for unit in (UNIT, around):
        (image,) = CuTile().compile(unit.replace(instantiate=(TEXT,)), (Architecture.parse("sm_90a"),))
        codes.append(image.data)
    assert codes[0] == codes[1]


def test_what_tileiras_refuses_has_its_line() -> None:
    source = """
import cuda.tile as ct

@ct.kernel
def copy(out, x):
    ct.store(out, (0,), ct.load(x, (0,), (16,)))
"""
    text = "copy(out: f8e4m3[?], x: f8e4m3[?])"
    unit = TranslationUnit("device/copy.py", source.encode(), "cutile", instantiate=(text,))
    with pytest.raises(
        CompilationError, match=r"^device/copy\.py: tileiras: device/copy\.py:\d: error: .*sm_80"
    ):
        CuTile().compile(unit, (Architecture.parse("sm_80"),))


def test_tileiras_takes_its_own_ptxas_whatever_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = UNIT.replace(instantiate=(TEXT,))
    (expected,) = CuTile().compile(unit, (Architecture.parse("sm_90a"),))
    for variable in ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(variable, "")
    assert CuTile().compile(unit, (Architecture.parse("sm_90a"),)) == (expected,)


def test_the_level_of_optimization_is_that_of_the_instantiation() -> None:
    sizes = []
    for text in (TEXT, TEXT.replace(")", ", opt_level=0)")):
        each = UNIT.replace(instantiate=(text,))
        (image,) = CuTile().compile(each, (Architecture.parse("sm_90a"),))
        sizes += [usage.code for usage in image.usage.values()]
    assert sizes[0] < sizes[1]


def test_lines_of_the_project_are_shown() -> None:
    message = refusal_of_cutile(TEXT, COMMON.format(number="unknown"))
    assert '"device/common.py", line 5' in message
    assert "return x * factor * unknown" in message


REFUSED_PROJECTS = {
    # What the build says, the table, and what differs in the sources.
    "device/scale.py: has functions of cutile and triton; move those of one to another file": (
        table(TEXT),
        {"device/scale.py": f"{SOURCE}import triton\n@triton.jit\ndef other(x): pass\n"},
    ),
    ".link: device/scale.py has kernels of cuTile, which cannot be device-linked; give it": (
        table(TEXT).replace("emit =", "link = true\nemit ="),
        {},
    ),
    "cutile 1.7 cannot compile for 'sm_75'": (table(TEXT, architecture="sm_75"), {}),
    "Tile IR is the image of tile kernels for later GPUs; ask for it as for PTX, with compute_80": (
        table(TEXT, architecture="tile_80"),
        {},
    ),
}


@pytest.mark.parametrize("answer", REFUSED_PROJECTS)
def test_a_wrong_project_is_answered(tmp_path: Path, answer: str) -> None:
    toml, files = REFUSED_PROJECTS[answer]
    assert answer in refusal(write_project(tmp_path, toml, FILES | files))


def test_without_changes_the_front_end_is_not_imported(project: tuple[Path, Package]) -> None:
    script = """
    from pathlib import Path
    from cuda_ext.builder.project import Project
    from cuda_ext.builder.session import build_project
    build_project(Project.load(Path.cwd()), print)
    print(*(name for name in sys.modules if name.startswith("cuda.tile")))
    """
    done = run_script(f"import os; os.chdir({str(project[0])!r})\n{dedent(script)}", project[0])
    assert "nothing to compile" in "".join(done.output)
    assert done.output[-1] == ""
