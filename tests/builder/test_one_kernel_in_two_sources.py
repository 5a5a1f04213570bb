"""A kernel in two sources: one and the same where C++ allows it, or an error that names both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.messages import Messages
from tests.fixtures.projects import FILL, KERNELS, build, refusal, write_project

HEADER = """#pragma once
namespace n {
template <class T, int by> __global__ void __launch_bounds__(256) scale(T* x) {
  x[threadIdx.x] *= T(by) * T(FACTOR);
}
static __global__ void clear(int* x) { x[threadIdx.x] = 0; }
}
"""
INSTANCE = "template __global__ void n::scale<double, {}>(double*);\n"
OVERRIDES = '[[tool.cuda_ext.modules."p.kernels".overrides]]\n'
TABLE = f"""{KERNELS}architectures = ["sm_90", "compute_90"]
include-dirs = ["include"]
define = {{ FACTOR = "3" }}
"""


def sources(**texts: str) -> dict[str, str]:
    """Sources with the header, and a kernel of their own each."""
    own = '#include "scale.cuh"\n__global__ void {}(float* x) {{ *x = 1; }}\n{}'
    return {"include/scale.cuh": HEADER} | {
        f"device/{name}.cu": own.format(name, text) for name, text in texts.items()
    }


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_what_two_sources_have_from_a_header_is_one_kernel(tmp_path: Path, compiler: str) -> None:
    both = INSTANCE.format(2)
    table = f'{TABLE}compiler = "{compiler}"\n'
    write_project(tmp_path, table, sources(a=both, b=both + INSTANCE.format(5)))
    manifest = json.loads(build(tmp_path)["p.kernels"].files["manifest.json"])
    kernels = {kernel["expression"]: kernel["unit"] for kernel in manifest["kernels"]}
    assert kernels == {"a": 0, "n::clear": 0, "n::scale<double, 2>": 0, "b": 1, "n::scale<double, 5>": 1}


REMEDY = (
    "; compile both for the same architectures with the same options and macros, or rename it in one of them"
)


@pytest.mark.parametrize("from_table", [True, False])
def test_different_macros_are_an_error_that_names_both(
    tmp_path: Path, from_table: bool, messages: Messages
) -> None:
    override = f'{OVERRIDES}sources = ["device/b.cu"]\ndefine = {{ FACTOR = "4" }}\n'
    files = sources(a=INSTANCE.format(2), b=INSTANCE.format(2))
    if not from_table:
        files["device/b.cu"] = f"#undef FACTOR\n#define FACTOR 4\n{files['device/b.cu']}"
    write_project(tmp_path, TABLE + override * from_table, files)
    messages(refusal(tmp_path))


def test_other_architectures_are_an_error_that_names_both(tmp_path: Path) -> None:
    table = f'{TABLE}{OVERRIDES}sources = ["device/b.cu"]\narchitectures = ["sm_80", "compute_90"]\n'
    write_project(tmp_path, table, sources(a=INSTANCE.format(2), b=INSTANCE.format(2)))
    assert "has other architectures in device/a.cu than in device/b.cu;" in refusal(tmp_path)


def test_other_parameters_are_an_error_that_names_both(tmp_path: Path) -> None:
    text = "template <class T> __global__ void only({}* x) {{ *x = 1; }}\n"
    text += "template __global__ void only<int>({}*);\n"
    write_project(tmp_path, TABLE, sources(a=text.format("T", "int"), b=text.format("float", "float")))
    assert f"kernel 'only<int>' has other parameters in device/a.cu than in device/b.cu{REMEDY}" in refusal(
        tmp_path
    )


def test_templates_of_one_name_in_two_texts_are_compared(tmp_path: Path) -> None:
    text = "template <class T> __global__ void own(T* x) {{ *x = {}; }}\n"
    text += "template __global__ void own<int>(int*);\n"
    write_project(tmp_path, TABLE, sources(a=text.format(1), b=text.format(2)))
    assert "kernel 'own<int>' has other code in device/a.cu than in device/b.cu;" in refusal(tmp_path)
    write_project(tmp_path, TABLE, sources(a=text.format(1), b=text.format(1)))
    assert "p.kernels" in build(tmp_path)


@pytest.mark.parametrize("compiler", ["nvrtc", pytest.param("nvcc", marks=pytest.mark.slow)])
def test_constants_may_lie_elsewhere_in_each_image(tmp_path: Path, compiler: str) -> None:
    header = """#pragma once
    __constant__ float table[8] = {1, 2, 3};
    template <class T> __global__ void look_up(T* x) {
      x[1] = table[threadIdx.x];
      if (x[1] < 0) printf("%f", 1.0);
    }
    """
    text = '#include "scale.cuh"\n{}template __global__ void look_up<float>(float*);\n{}'
    more = '__constant__ int {0}[5];\n__global__ void {0}_(int* x) {{ *x = {0}[*x]; printf("{0}"); }}\n'
    files = {
        "include/scale.cuh": header,
        "device/a.cu": text.format("", ""),
        "device/b.cu": text.format(more.format("before"), more.format("after")),
    }
    manifest = json.loads(
        build(write_project(tmp_path, f'{TABLE}compiler = "{compiler}"\n', files))["p.kernels"].files[
            "manifest.json"
        ]
    )
    assert [k["expression"] for k in manifest["kernels"]] == ["look_up<float>", "after_", "before_"]


# Text that defines n::k, and text that defines another kernel, or leaves that open.
K = 'namespace n {{ extern "C" {{ void f(); }} {}__global__ void k(int* x) {{ if (x) {{ *x = {}; }} }} }}\n'


def twice(tmp_path: Path, one: str, other: str, table: str = KERNELS) -> str:
    write_project(
        tmp_path, table, {"device/a.cu": one, "device/b.cu": other, "device/c.cu": "does not compile"}
    )
    return refusal(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        FILL.replace("fill", "k"),
        "template <int> __global__ void k(int* x) {}\ntemplate __global__ void k<1>(int*);",
        f"#if 0\n{K.format('', 2)}#endif\n{FILL}",
        "#define k(x) k_##x\n__global__ void k(two)(int* x) {}",
        f"#define k two\n{K.format('', 2)}",
        f"{K.format('', 2)}namespace n {{ __global__ void k(float* x) {{}} }}",
        f"__global__ void k(int* x);\n{FILL}",
        f"// {K.format('', 2)}{FILL}",
    ],
)
def test_what_the_text_leaves_open_is_compiled(tmp_path: Path, other: str) -> None:
    assert "c.cu" in twice(tmp_path, K.format("", 1), other)


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_kernel_that_is_no_template_may_be_named_where_instantiations_are_split(
    tmp_path: Path, place: str
) -> None:
    names = ['"scale<float>"', '"scale<int>"']
    names.insert(0 if place == "first" else 2, '"plain"')
    table = f"{KERNELS}split-instantiations = true\ninstantiate = [{', '.join(names)}]\n"
    text = "template <class T> __global__ void scale(T* x) {}\n"
    text += "__global__ void plain() {}\n__global__ void unnamed() {}\n"
    # One of the instantiations is in the text as well.
    text += "template __global__ void scale<int>(int*);\n"
    files = build(write_project(tmp_path, table, {"device/s.cu": text}))["p.kernels"].files
    assert {"s-0.fatbin", "s-1.fatbin"} == {name for name in files if name.endswith(".fatbin")}
    kernels = json.loads(files["manifest.json"])["kernels"]
    assert sorted(kernel["expression"] for kernel in kernels) == [
        "plain",
        "scale<float>",
        "scale<int>",
        "unnamed",
    ]


def test_plain_kernels_alone_are_not_split(tmp_path: Path) -> None:
    table = f'{KERNELS}split-instantiations = true\ninstantiate = ["fill"]\n'
    files = build(write_project(tmp_path, table, {"device/s.cu": FILL}))["p.kernels"].files
    assert "s.fatbin" in files
