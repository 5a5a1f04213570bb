"""Projects that cannot be built: one message with the problem, its location and a remedy."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from cuda_ext.builder.session import build_project
from cuda_ext.errors import BuildError
from cuda_ext.manifest import loads
from cuda_ext.toolchain.cuda_libraries import gpu_capabilities
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.projects import FILL, KERNELS, SCALE, SM_90, build, load, refusal, write_project

WHERE = 'tool.cuda_ext.modules."p.kernels"'


@pytest.fixture(autouse=True)
def _no_architectures_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDAARCHS", raising=False)


# What the compiler refuses.


def test_a_syntax_error_is_reported_by_the_compiler_with_file_and_line(tmp_path: Path) -> None:
    write_project(tmp_path, files={"device/a.cu": '\nextern "C" __global__ void k() {\n  int x = ;\n}\n'})
    assert refusal(tmp_path).startswith("p.kernels:\ndevice/a.cu(3): error: expected an expression\n")


def test_an_error_in_a_header_is_reported_with_the_headers_file_and_line(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        f'{KERNELS}include-dirs = ["include"]',
        {
            "device/a.cu": f"#include <deep/a.cuh>\n{FILL}",
            "include/deep/a.cuh": "\n__device__ int f() { return x; }",
        },
    )
    assert "\ninclude/deep/a.cuh(2): error: identifier " in refusal(tmp_path)


def test_an_error_directive_is_reported_with_its_text(tmp_path: Path) -> None:
    write_project(tmp_path, files={"device/a.cu": '#error "set WIDTH"\n'})
    assert 'device/a.cu(1): catastrophic error: #error directive: "set WIDTH"' in refusal(tmp_path)


def test_all_failing_units_are_reported_together_sorted_and_once_each(tmp_path: Path) -> None:
    broken = 'extern "C" __global__ void {0}() {{ missing_{0}; }}\n'
    units = {f"device/{name}.cu": broken.format(name) for name in "cab"}
    table = KERNELS.replace('"sm_90"', '"sm_80", "sm_90", "compute_90"')
    write_project(tmp_path, table, {**units, "device/good.cu": FILL})
    assert re.findall(r'(\S+)\(1\): error: identifier "(\w+)"', refusal(tmp_path)) == [
        ("device/a.cu", "missing_a"),
        ("device/b.cu", "missing_b"),
        ("device/c.cu", "missing_c"),
    ]


def test_the_failures_of_all_modules_are_reported_together(tmp_path: Path) -> None:
    table = (
        f'{SM_90}[tool.cuda_ext.modules."p.one"]\nsources = ["one.cu"]\n'
        '[tool.cuda_ext.modules."p.two"]\nsources = ["two.cu"]\n'
    )
    files = {f"{n}.cu": f'extern "C" __global__ void k() {{ missing_{n}; }}' for n in ("one", "two")}
    write_project(tmp_path, table, files)
    message = refusal(tmp_path)
    assert re.findall(r"^p\.\w+:$", message, re.MULTILINE) == ["p.one:", "p.two:"]
    assert re.findall(r"missing_\w+(?=\")", message) == ["missing_one", "missing_two"]


def test_no_package_is_built_if_one_module_fails(tmp_path: Path) -> None:
    table = (
        f'{SM_90}[tool.cuda_ext.modules."p.one"]\nsources = ["one.cu"]\n'
        '[tool.cuda_ext.modules."p.two"]\nsources = ["two.cu"]\n'
    )
    write_project(tmp_path, table, {"one.cu": FILL, "two.cu": "int x = ;"})
    with pytest.raises(BuildError, match=r"p\.two"):
        build_project(load(tmp_path))


def test_a_mistake_in_the_configuration_is_reported_before_anything_is_compiled(tmp_path: Path) -> None:
    table = f'{KERNELS}[tool.cuda_ext.modules."p.other"]\nsources = ["nowhere.cu"]\n'
    write_project(tmp_path, table)
    log: list[str] = []
    with pytest.raises(BuildError, match=r"p\.other"):
        build(tmp_path, log)
    assert log == []


def test_no_message_of_the_compiler_names_the_directory_of_the_build(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        f'{KERNELS}include-dirs = ["include"]',
        {
            "device/a.cu": f"#include <a.cuh>\n{FILL}",
            "device/b.cu": '#include <vector>\nextern "C" __global__ void b() {}',
            "device/c.cu": 'extern "C" __global__ void c() { asm("nothing;"); }',
            "device/d.cu": "",
            "include/a.cuh": "__device__ int f() { return x; }",
        },
    )
    message = refusal(tmp_path)
    assert str(tmp_path) not in message
    assert re.findall(r"(?<![\w.])/\w+", message) == []


def test_a_warning_is_reported_and_no_failure(tmp_path: Path) -> None:
    write_project(tmp_path, files={"device/a.cu": 'extern "C" __global__ void k() {\n  int unused;\n}'})
    log: list[str] = []
    assert list(build(tmp_path, log)) == ["p.kernels"]
    assert any(line.startswith("device/a.cu(2): warning ") for line in log)


def test_every_compilation_is_reported(tmp_path: Path, empty_cache: Path) -> None:
    write_project(tmp_path, KERNELS.replace('"sm_90"', '"sm_80", "sm_90"'))
    log: list[str] = []
    build(tmp_path, log)
    lines = [re.sub(r"<?[\d.]+ m?s$", "", line) for line in log]
    assert re.fullmatch(r"p\.kernels: with nvrtc \d+\.\d+", lines[0])
    assert sorted(re.sub(r"^\[\d/2\] ", "", line) for line in lines[1:-1]) == [
        "device/fill.cu sm_80 ",
        "device/fill.cu sm_90 ",
    ]
    assert lines[-1] == "2 compilations: 2 compiled, in "


# Headers.


@pytest.mark.parametrize("header", ["cstdint", "type_traits"])
def test_a_host_header_under_nvrtc_is_answered_with_the_one_to_use(tmp_path: Path, header: str) -> None:
    write_project(tmp_path, files={"device/a.cu": f"\n#include <{header}>\n{FILL}"})
    assert (
        f"\ndevice/a.cu(2): NVRTC has no host headers; include <cuda/std/{header}> instead of <{header}> "
        '(its names are in cuda::std), or set compiler = "nvcc"\n'
    ) in refusal(tmp_path)


def test_a_host_header_without_equivalent_is_answered(tmp_path: Path) -> None:
    write_project(tmp_path, files={"device/a.cu": f"#include <vector>\n{FILL}"})
    assert (
        "device/a.cu(1): NVRTC has no host headers; put <vector> between #ifndef __CUDACC_RTC__ and #endif, "
        'or set compiler = "nvcc" for host code'
    ) in refusal(tmp_path)


def test_a_missing_header_is_reported_with_file_and_line(tmp_path: Path) -> None:
    write_project(tmp_path, files={"device/a.cu": f'{FILL}#include "tiles.cuh"\n'})
    assert 'device/a.cu(2): catastrophic error: cannot open source file "tiles.cuh"' in refusal(tmp_path)


def test_a_directory_in_a_headers_place_is_reported(tmp_path: Path) -> None:
    write_project(tmp_path, files={"device/a.cu": '#include "a.cuh"\n', "device/a.cuh/b": ""})
    assert 'device/a.cu(1): catastrophic error: cannot open source file "a.cuh"' in refusal(tmp_path)


def test_a_missing_pre_include_is_reported_by_name(tmp_path: Path) -> None:
    write_project(tmp_path, f'{KERNELS}pre-include = ["first.cuh"]')
    message = refusal(tmp_path)
    assert "device/fill.cu" in message
    assert '"first.cuh"' in message


# Files that are not what they should be.


@pytest.mark.parametrize(
    "content", [b"", b"not this at all \x00\xff", b"\x7fELF"], ids=["empty", "other", "cut"]
)
@pytest.mark.parametrize("kind", ["ptx", "cubin", "fatbin", "ltoir"])
def test_a_corrupt_source_is_reported_by_name(tmp_path: Path, kind: str, content: bytes) -> None:
    table = f'{KERNELS}sources = ["device/*"]'
    write_project(tmp_path, table, {f"device/a.{kind}": content, "device/b.cu": "int x = ;"})
    message = refusal(tmp_path)
    assert message.startswith(f"p.kernels:\ndevice/a.{kind}: ")
    assert "\ndevice/b.cu(1): error: " in message


def test_a_ptx_source_with_a_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n  nothing;\n  ret;\n}\n"
    write_project(tmp_path, f'{KERNELS}sources = ["device/a.ptx"]', {"device/a.ptx": ptx})
    message = refusal(tmp_path)
    assert message.startswith("p.kernels:\ndevice/a.ptx: ")
    assert "line 5" in message


def test_a_source_that_is_not_text_is_refused(tmp_path: Path) -> None:
    # NVRTC reads up to the first zero byte, and compiles that.
    write_project(tmp_path, files={"device/a.cu": f"{FILL}\0{SCALE}"})
    assert refusal(tmp_path).startswith("device/a.cu: is not UTF-8 text")


@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "marked"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_a_source_may_come_from_any_editor(tmp_path: Path, start: str, end: str) -> None:
    text = f'#include "a.cuh"\n// Grüße\n{FILL}'.replace("\n", end)
    write_project(
        tmp_path, files={"device/a.cu": f"{start}{text}", "device/a.cuh": f"{start}#pragma once{end}"}
    )
    manifest = loads(build(tmp_path)["p.kernels"].files["manifest.json"], "manifest")
    assert [k.expression for k in manifest.kernels] == ["fill"]


# Kernels and instantiations.


@pytest.mark.parametrize("source", ["", "__device__ int f() { return 1; }", SCALE])
def test_a_unit_without_kernels_is_refused(tmp_path: Path, source: str) -> None:
    write_project(tmp_path, files={"device/a.cu": source, "device/b.cu": FILL})
    assert refusal(tmp_path) == (
        "p.kernels:\ndevice/a.cu: defines no kernel; a source needs at least one __global__ or "
        "__tile_global__ function "
        "(templates only count when instantiated: list them under instantiate), or set link = true if other "
        "sources call it"
    )


@pytest.mark.parametrize("link", ["", "link = true"])
def test_a_kernel_that_two_units_define_is_refused(tmp_path: Path, link: str) -> None:
    write_project(tmp_path, f"{KERNELS}{link}", {"device/a.cu": FILL, "device/b.cu": FILL})
    assert refusal(tmp_path) == (
        "p.kernels:\nkernel 'fill' is defined twice, in device/a.cu and in device/b.cu; rename one of them "
        "or put it into a namespace"
    )


def test_a_function_that_no_linked_unit_defines_is_reported(tmp_path: Path) -> None:
    source = 'extern __device__ int f(); extern "C" __global__ void k(int* x) { *x = f(); }'
    write_project(tmp_path, f"{KERNELS}link = true", {"device/a.cu": source})
    assert refusal(tmp_path).endswith(
        "Undefined reference to '_Z1fv' in 'device/a.cu'\n"
        "name the source that defines it in sources, or leave out what refers to it"
    )


def test_a_function_of_another_unit_is_answered_with_its_unit(tmp_path: Path) -> None:
    source = 'extern __device__ int f(); extern "C" __global__ void k(int* x) { *x = f(); }'
    write_project(tmp_path, files={"device/a.cu": source})
    message = refusal(tmp_path)
    assert "device/a.cu" in message
    assert "_Z1fv" in message


def test_an_instantiation_that_does_not_exist_is_answered_with_the_nearest(tmp_path: Path) -> None:
    write_project(tmp_path, f'{KERNELS}instantiate = ["scale<float>", "scalar<int>"]', {"device/a.cu": SCALE})
    message = refusal(tmp_path)
    answer = "instantiate: 'scalar<int>': no source defines a kernel 'scalar'; did you mean 'scale<int>'?"
    assert answer in message
    hidden = SCALE + "\n#define AS(name) name##r\n"  # a macro may define it
    write_project(tmp_path, f'{KERNELS}instantiate = ["scalar<int>"]', {"device/a.cu": hidden})
    message = refusal(tmp_path)
    assert "'scalar<int>' does not exist" in message
    assert "did you mean 'scale<int>'?" in message


def test_every_instantiation_that_does_not_exist_is_reported_with_its_reason(tmp_path: Path) -> None:
    table = f'{KERNELS}instantiate = ["scale<flot>", "scale<int, 3>", "scale"]'
    write_project(tmp_path, table, {"device/a.cu": SCALE})
    message = refusal(tmp_path)
    assert "instantiation 'scale<flot>' does not exist: identifier \"flot\" is undefined" in message
    assert "instantiation 'scale<int, 3>' does not exist: " in message
    assert (
        "instantiation 'scale' does not exist: cannot determine which instance of function template"
        in message
    )
    assert "; write its template arguments, as in 'scale<float>'" in message


def test_an_instantiation_whose_body_fails_is_reported_by_the_compiler(tmp_path: Path) -> None:
    source = 'template <class T> __global__ void k(T* x) {\n  static_assert(sizeof(T) == 8, "wide only");\n}'
    write_project(tmp_path, f'{KERNELS}instantiate = ["k<double>", "k<float>"]', {"device/a.cu": source})
    assert 'device/a.cu(2): error: static assertion failed with "wide only"' in refusal(tmp_path)


# Architectures and options.


def test_native_without_a_gpu_is_refused(tmp_path: Path) -> None:
    if gpu_capabilities():
        pytest.skip("this machine has a GPU")
    write_project(tmp_path, f'[{WHERE}]\narchitectures = ["native"]')
    assert refusal(tmp_path) == (
        f'{WHERE}.architectures: "native" means the GPUs of this machine, and it has none that can be asked; '
        'name architectures instead, such as "all-major" or "sm_90"'
    )


@pytest.mark.parametrize("line", ['options = ["--maxrregcount=many"]', 'options = ["--not-an-option"]'])
def test_an_option_that_the_compiler_refuses_is_reported_with_the_unit(tmp_path: Path, line: str) -> None:
    write_project(tmp_path, f"{KERNELS}{line}")
    message = refusal(tmp_path)
    assert "device/fill.cu" in message
    assert "option" in message or "--std" in message


# Paths, and what a build leaves behind.


def test_paths_may_have_spaces_and_any_letters(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "mein Projekt ü",
        f'{KERNELS}include-dirs = ["köpfe und mehr"]\nsources = ["größe/**/*.cu"]',
        {
            "größe/日本 1.cu": f"#include <ä b.cuh>\n{FILL}",
            "köpfe und mehr/ä b.cuh": "__constant__ float weights[4];\n__device__ int counter;\n",
        },
    )
    package = build(root)["p.kernels"]
    manifest = loads(package.files["manifest.json"], "manifest")
    assert manifest.units[0].title == "größe/日本 1.cu"
    assert [s.name for s in manifest.symbols] == ["counter", "weights"]
    assert "日本 1.fatbin" in package.files
    assert "sources/köpfe und mehr/ä b.cuh" in package.files


def tree(root: Path) -> dict[str, int]:
    return {p.relative_to(root).as_posix(): p.stat().st_mtime_ns for p in [root, *root.rglob("*")]}


def test_a_build_writes_neither_into_the_project_nor_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "project")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    before = tree(tmp_path)
    load(root).source_files()
    build(root)
    assert tree(tmp_path) == before


@needs_mount
def test_a_read_only_project_can_be_built(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project")
    with mounted(root, "-o", "bind,ro", str(root)):
        with pytest.raises(OSError, match="Read-only"):
            (root / "file").touch()
        assert list(build(root)) == ["p.kernels"]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of Unix")
def test_an_unreadable_source_is_reported(tmp_path: Path) -> None:
    write_project(tmp_path)
    source = tmp_path / "device/fill.cu"
    source.chmod(0)
    try:
        source.read_bytes()
    except PermissionError:
        assert (
            refusal(tmp_path)
            == "device/fill.cu: cannot be read: Permission denied; make it a file that you can read"
        )
    else:
        pytest.skip("root may read everything")


@pytest.mark.parametrize("setting", ['std = "c++99"', 'options = ["-O3"]', 'pre-include = ["none.cuh"]'])
def test_options_that_the_compiler_refuses_are_reported_with_their_keys(tmp_path: Path, setting: str) -> None:
    write_project(tmp_path, f"{KERNELS}{setting}")
    message = refusal(tmp_path)
    assert setting.partition(" ")[0] in message


def test_other_output_of_ptxas_does_not_hide_its_errors(tmp_path: Path) -> None:
    source = """extern "C" __global__ void k(float* x) {
      __shared__ float values[100000]; values[threadIdx.x] = *x; __syncthreads(); *x = values[5];
    }"""
    write_project(tmp_path, files={"device/a.cu": source})
    first, error, remedy, where = refusal(tmp_path).splitlines()
    assert (first, where) == ("p.kernels:", "(compiling device/a.cu for sm_90)")
    assert "ptxas error" in error
    assert "'k' uses too much shared data" in error
    assert remedy.endswith(
        "declare a larger one extern __shared__, and give its size to the launch as shared="
    )


def test_a_function_of_another_unit_is_reported_with_the_remedy(tmp_path: Path) -> None:
    source = "__device__ float f(float);\n__global__ void k(float* x) { *x = f(*x); }\n"
    write_project(tmp_path, files={"device/a.cu": source})
    assert "if another one does, set link = true" in refusal(tmp_path)
