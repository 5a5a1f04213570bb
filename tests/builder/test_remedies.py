"""Sources that a compiler refuses for a common reason: the message says what to write instead, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.toolchain.remedies.failed_compilation import explain
from cuda_ext.toolchain.remedies.missing_headers import explain_missing_headers
from tests.fixtures.messages import Messages
from tests.fixtures.projects import FILL, KERNELS, SCALE, SM_90, refusal, write_project

SOFTMAX = "namespace fusedops {\ntemplate <class T, int N> __global__ void softmax(T* x) { *x = N; }\n}\n"
HALF = "namespace q { struct Half { float x; }; }\n"


def with_each_compiler(name: str, *cases: str) -> pytest.MarkDecorator:
    """Run each case with NVRTC, and the first with nvcc, which takes seconds: its others are slow."""
    marks_of_each = [
        [pytest.mark.host_compiler],
        *[[pytest.mark.host_compiler, pytest.mark.slow]] * len(cases[1:]),
    ]
    return pytest.mark.parametrize(
        (name, "compiler"),
        [
            *((case, "nvrtc") for case in cases),
            *(
                pytest.param(case, "nvcc", marks=marks)
                for case, marks in zip(cases, marks_of_each, strict=True)
            ),
        ],
        ids=lambda value: value,
    )


def missing_header(log: str, directory: Path) -> str:
    """The remedy for the header that `log` of NVRTC, with headers in `directory`, says is missing."""
    unit = TranslationUnit("a.cu", b"")
    return explain_missing_headers(log, unit, lambda: [directory], lambda _: "")[1][0]


def instantiating(root: Path, compiler: str, expression: str, source: str, **more: str) -> str:
    """The answer to a module that instantiates `expression`."""
    table = f'{KERNELS}compiler = "{compiler}"\ninstantiate = ["{expression}"]'
    write_project(root, table, {"device/a.cu": source, **{f"device/{n}.cuh": t for n, t in more.items()}})
    return refusal(root)


# Instantiations.


@with_each_compiler("written", "softmax<float, 4>", "fused_ops::softmax<float, 4>")
def test_a_kernel_without_its_namespace_is_answered_with_it(
    tmp_path: Path, written: str, compiler: str
) -> None:
    in_a_header = '#include "s.cuh"'
    for source in (SOFTMAX, in_a_header) if compiler == "nvrtc" else (in_a_header,):
        message = instantiating(tmp_path, compiler, written, source, s=SOFTMAX)
        assert f"instantiation '{written}' does not exist: " in message
        assert message.endswith(
            "; did you mean 'fusedops::softmax<float, 4>'?\n(compiling device/a.cu for sm_90)"
        )


@with_each_compiler("argument", "flaot", "Half", "__half", "__nv_bfloat61", "real")
def test_an_unknown_template_argument_is_answered_as_such(
    tmp_path: Path, compiler: str, argument: str, messages: Messages
) -> None:
    messages(instantiating(tmp_path, compiler, f"scale<{argument}>", HALF + SCALE))


# Headers.


@pytest.mark.parametrize(
    "header",
    [
        "vector",
        "unistd.h",
        "curand_kernel.h",
        "cublas_v2.h",
        "ATen/ATen.h",
        "torch/extension.h",
        "pybind11/pybind11.h",
        "cutlass/cutlass.h",
    ],
    ids=str,
)
def test_a_missing_header_is_answered_with_what_has_it(
    tmp_path: Path, header: str, messages: Messages
) -> None:
    write_project(tmp_path, files={"device/a.cu": f'#include "{header}"\n{FILL}'})
    messages(refusal(tmp_path))


@pytest.mark.host_compiler
@pytest.mark.parametrize(("name", "answer"), [("a" * 300, "NVRTC has no host"), ("a/" * 2100, "neither in")])
def test_a_header_of_a_name_that_the_system_refuses_is_missing(
    tmp_path: Path, name: str, answer: str
) -> None:
    log = f'a.cu(1): catastrophic error: cannot open source file "{name}": File name too long\n'
    assert answer in missing_header(log, tmp_path)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (
            "cub/block_redcue.cuh",
            "<cub/> of the CUDA headers has no 'block_redcue.cuh'; did you mean <cub/block_reduce.cuh>?",
        ),
        ("cub/x", "correct its name"),
        ("../cub/x", "neither in the include directories"),
        ("thrust/x", "is in another package"),
    ],
)
def test_a_misspelt_cuda_header_is_not_sought_in_another_package(
    tmp_path: Path, name: str, answer: str
) -> None:
    (tmp_path / "headers/cub").mkdir(parents=True)
    (tmp_path / "cub").mkdir()
    (tmp_path / "headers/cub/block_reduce.cuh").touch()
    log = f'a.cu(1): catastrophic error: cannot open source file "{name}"\n'
    assert answer in missing_header(log, tmp_path / "headers")


def test_the_output_of_a_compiler_is_cut() -> None:
    log = "\n".join(f"a.cu({n}): error: {'x' * 10_000}" for n in range(300))
    lines = str(explain(log, TranslationUnit("a.cu", b""))).splitlines()
    assert lines[0] == f"a.cu(0): error: {'x' * 484}…"
    assert lines[200:] == ["… and 100 more lines"]


def test_values_of_the_configuration_are_cut(tmp_path: Path) -> None:
    write_project(tmp_path, f'{KERNELS}instantiate = ["{"k<" * 10_000}int{">" * 10_000}"]')
    message = refusal(tmp_path)
    assert "k<k<k<…'" in message
    assert len(message) < 1000


@pytest.mark.parametrize("header", ["curand_kernel.h", "ATen/ATen.h", "absent.h"])
def test_nvcc_lacks_a_header_and_is_not_recommended(tmp_path: Path, header: str, messages: Messages) -> None:
    write_project(tmp_path, f'{KERNELS}compiler = "nvcc"', {"device/a.cu": f'#include "{header}"\n{FILL}'})
    messages(refusal(tmp_path))


# Tools: the key that names them.


@pytest.mark.host_compiler
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ('nvcc = "/opt/none/nvcc"', "nvcc: no nvcc can be used:\n  configured: /opt/none/nvcc cannot be run"),
        ('launcher = "no-such"', "launcher: 'no-such' is not on PATH; install it, or remove the key"),
        ('launcher = "false"', "launcher: 'false' ended with exit code 1 and wrote no output"),
    ],
)
def test_a_tool_that_fails_is_reported_with_its_key(
    tmp_path: Path, empty_cache: Path, line: str, answer: str
) -> None:
    own, default = f"{KERNELS}{line}", f"{SM_90}{line}\n{KERNELS.removeprefix(SM_90)}"
    for table, where in ((own, 'tool.cuda_ext.modules."p.kernels"'), (default, "tool.cuda_ext")):
        project = write_project(tmp_path, f'{table}\ncompiler = "nvcc"\n')
        assert refusal(project).startswith(f"{where}.{answer}")
