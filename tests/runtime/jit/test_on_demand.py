"""Kernels that were not built are compiled on first use, once for all processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import cuda_ext
from cuda_ext import errors
from cuda_ext.cache.local_store import LocalStore
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Options, Source
from cuda_ext.filesystem.locks import lock
from cuda_ext.runtime.jit.compile_request import compile_request
from cuda_ext.runtime.jit.request import Request
from cuda_ext.runtime.module import library_of
from cuda_ext.toolchain.identity import installed_nvrtc
from tests.fixtures.device_code import module, nvrtc, unit
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.loader import CHECKOUT, Run, run_script, write_package
from tests.fixtures.messages import Messages

host_compiler = pytest.mark.host_compiler

SOURCE = """
#include "scale.h"
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) { if (n) *y = scaled(a) * *x; }
namespace ns {
template <class T, int BLOCK> __global__ void reduce(const T* x, T* sum) { *sum = x[BLOCK]; }
}
template <class T> __global__ void never(T* x) { *x = 1; }
"""
HEADER = """
#pragma once
template <class T> __device__ T scaled(T x) { return x * FACTOR; }
"""
WITH_VARIABLE = """
__constant__ float weights[4];
template <class T> __global__ void weigh(T* x) { *x *= weights[threadIdx.x]; }
"""


def build(directory: Path, *architectures: str, **changes: object) -> Path:
    """Save the sample module for these architectures; `changes` are arguments of ``cuda_ext.compile``."""
    arguments: dict[str, object] = {
        "headers": {"scale.h": HEADER},
        "define": {"FACTOR": "3"},
        "instantiate": ["axpy<float>", "ns::reduce<float, 4>"],
        "options": ["-lineinfo"],
        "compress": "none",
    }
    source = changes.pop("source", SOURCE)
    compiled = cuda_ext.compile(source, architectures=architectures or ("sm_80",), **{**arguments, **changes})  # type: ignore[arg-type]
    cuda_ext.save(compiled, directory)
    return directory


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("saved") / "sample")


@pytest.fixture
def on_gpu(fake_driver: Path, tmp_path: Path, saved: Path, empty_cache: Path) -> Callable[..., Run]:
    """Runs a script that has the sample module as ``kernels``, under the fake driver."""

    def run(script: str, *, directory: Path = saved, **variables: str | int) -> Run:
        prelude = f"import cuda_ext\nkernels = cuda_ext.load({str(directory)!r})\n"
        settings = {name: str(value) for name, value in variables.items()}
        code = LOGGING + prelude + textwrap.dedent(script)
        return run_script(code, tmp_path, LD_LIBRARY_PATH=str(fake_driver), **settings)

    return run


# Print the log of compilations.
LOGGING = """
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
"""


def compilations(lines: list[str]) -> list[str]:
    return [
        found[1] for line in lines if (found := re.fullmatch(r"[\w.]+: compiled (.*) in [0-9.]+ s", line))
    ]


# --- Instantiations and architectures that were not built.


@host_compiler
def test_an_instantiation_is_compiled_once_for_all_processes(on_gpu: Callable[..., Run]) -> None:
    script = """
    kernel = kernels.axpy["double"]
    print(kernel.signature)
    assert kernels.axpy["double"] is kernel and kernels["axpy< double >"] is kernel
    print(kernels.ns.reduce.choose(T="float64", BLOCK=512).signature)
    compiled = kernels.axpy.choose(T="float64")
    assert compiled is kernel
    assert kernels.ns.reduce.choose(T="float64", BLOCK=512) is kernels["ns::reduce<double, 512>"]
    assert kernels.ns.reduce["double", 512] is kernels["ns::reduce<double, 512>"]
    kernel(4, 1.5, None, None, grid=2, block=32)
    caught(kernel, 4.5, 1.5, None, None, grid=2, block=32)
    print("compiler" if "cuda_ext.toolchain.nvrtc" in sys.modules else "no compiler")
    """
    expected = [
        "axpy<double>(int n, double a, const double* x, double* y)",
        "ns::reduce<double, 512>(const double* x, double* sum)",
        "ArgumentError: argument 'n': expected int, found 4.5   in a launch of "
        "axpy<double>(int n, double a, const double* x, double* y)",
    ]
    first = on_gpu(script)
    compiled = ["axpy<double> for sm_90", "ns::reduce<double, 512> for sm_90"]
    assert compilations(first.output) == compiled
    assert [line for line in first.output if "compiled" not in line] == [*expected, "compiler"]
    assert [call.split()[:2] for call in first.launches] == [["cuLaunchKernel", "_Z4axpyIdEviT_PKS0_PS0_"]]
    second = on_gpu(script)
    assert second.output == [*expected, "no compiler"]
    assert second.launches == first.launches


@host_compiler
def test_templates_of_a_string_need_no_list_on_a_gpu(on_gpu: Callable[..., Run]) -> None:
    run = on_gpu(f"""
    template = cuda_ext.compile({SOURCE!r}, headers={{"scale.h": {HEADER!r}}}, define={{"FACTOR": "3"}})
    print(dir(template), template.axpy.__doc__)
    print(template.axpy["double"].signature, template["ns::reduce<float, 4>"].signature)
    template.axpy["double"](4, 1.5, None, None, grid=2, block=32)
    caught(template.axpy, 4, 1.5, None, None, grid=2, block=32)
    variable = cuda_ext.compile({WITH_VARIABLE!r})
    try:
        variable.weigh["float"]
    except cuda_ext.errors.KernelNotFoundError as error:
        print(error)
    """)
    assert [line for line in run.output if ": compiled " not in line] == [
        "['axpy', 'never'] CUDA kernel template axpy, compiled on demand",
        "axpy<double>(int n, double a, const double* x, double* y) "
        "ns::reduce<float, 4>(const float* x, float* sum)",
        'ArgumentError: axpy: none was built ahead; choose one as in axpy["float"]',
        "kernels: weigh<float> uses the variable 'weights', of which each kernel that is compiled on demand "
        "would have a copy of its own; list all instantiations in the call of cuda_ext.compile",
    ]
    assert len(run.launches) == 1


@host_compiler
def test_what_was_built_is_taken_if_nvrtc_lowers_another_spelling_to_it(on_gpu: Callable[..., Run]) -> None:
    script = """
    kernel = kernels["ns::reduce<float, sizeof(float)>"]
    assert kernel is kernels["ns::reduce<float, 4>"] is kernels.ns.reduce["float", "2 + 2"], kernel
    assert kernels["ns::reduce<float, 0x4u>"] is kernel
    """
    compiled = ["ns::reduce<float, sizeof(float)> for sm_90", "ns::reduce<float, 2+2> for sm_90"]
    assert compilations(on_gpu(script).output) == compiled
    assert compilations(on_gpu(script).output) == []


@host_compiler
@pytest.mark.parametrize("kernel", ["axpy<double>", "axpy<float>"])
def test_a_cached_kernel_needs_few_imports(on_gpu: Callable[..., Run], kernel: str) -> None:
    pytest.importorskip("cuda_ext.runtime.launch._launch", reason="launches in Python take more")
    script = f"""
    before = set(sys.modules)
    kernels["{kernel}"](4, 1.5, None, None, grid=1, block=32)
    slow = {{"ctypes", "dataclasses", "hashlib", "inspect", "json", "pathlib", "shutil"}}
    slow |= {{"cuda_ext.runtime.launch.launcher", "cuda_ext.toolchain.compile_library"}}
    print(sorted(slow & (sys.modules.keys() - before)))
    """
    on_gpu(script)
    second = on_gpu(script)
    assert second.output == ["[]"]
    assert len(second.launches) == 1


@host_compiler
def test_for_a_gpu_without_an_image_the_whole_unit_is_compiled(on_gpu: Callable[..., Run]) -> None:
    script = """
    for _ in range(2):
        kernels.axpy["float"](4, 1.5, None, None, grid=1, block=32)
        kernels.ns.reduce["float, 4"](None, None, grid=1, block=32)
    """
    first = on_gpu(script)
    assert compilations(first.output) == ["axpy<float>, ns::reduce<float, 4> for sm_90"]
    assert len(first.launches) == 4
    loads = [call for call in first.calls if call.startswith("cuLibraryLoadData")]
    assert len(loads) == 1
    assert on_gpu(script).output == []
    assert compilations(on_gpu(script, FAKE_CUDA_CAPABILITY=120).output) == [
        "axpy<float>, ns::reduce<float, 4> for sm_120"
    ]


@host_compiler
def test_with_an_image_nothing_is_compiled(on_gpu: Callable[..., Run]) -> None:
    script = """
    kernels.axpy["float"](4, 1.5, None, None, grid=1, block=32)
    print("cuda_ext.runtime.jit.on_demand" in sys.modules)
    """
    assert on_gpu(script, FAKE_CUDA_CAPABILITY=86).output == ["False"]


@host_compiler
def test_one_kernel_is_compiled_for_each_gpu_that_it_runs_on(on_gpu: Callable[..., Run]) -> None:
    script = """
    kernel = kernels.axpy["double"]
    first, second = 1 << 20, 1 << 30
    kernel(1, 2.0, first, first, grid=1, block=32)
    from cuda_ext.runtime.driver.driver import open_driver
    kernel(1, 2.0, 0, 0, grid=1, block=32, stream=1009)
    with open_driver().device(1).current():
        kernel(1, 2.0, 0, 0, grid=1, block=32)
        for stream in (9, 2009):
            kernel(1, 2.0, 0, 0, grid=1, block=32, stream=stream)
    """
    run = on_gpu(script, FAKE_CUDA_DEVICES=3, FAKE_CUDA_CAPABILITY="90,100,90")
    assert compilations(run.output) == ["axpy<double> for sm_90", "axpy<double> for sm_100"]
    assert [launch.partition("device=")[2][0] for launch in run.launches] == [*"01102"]
    assert run.calls.count("cuLibraryLoadData") == 2


@host_compiler
def test_a_template_without_built_instantiations(on_gpu: Callable[..., Run], messages: Messages) -> None:
    script = """
    print(kernels.never)
    print(kernels.never["int"].signature)
    caught(kernels.never, 3, grid=1, block=1)
    caught(lambda: kernels.nothing)
    """
    messages(*(line for line in on_gpu(script).output if "compiled" not in line))


@host_compiler
def test_linked_units_are_linked_again(tmp_path: Path, on_gpu: Callable[..., Run]) -> None:
    caller = unit(
        "__device__ int twice(int); template <class T> __global__ void use(T* x) { *x = twice(3); }",
        "use<int>",
        name="device/caller.cu",
        relocatable=True,
    )
    callee = unit("__device__ int twice(int x) { return 2 * x; }", name="device/twice.cu", relocatable=True)
    made = module(caller, callee, link=True, architectures=("sm_80",))
    directory = write_package(tmp_path / "linked", made.manifest, {}).parent / "kernels"
    for name, content in made.files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    script = """
    kernels.use["int"](None, grid=1, block=1)
    kernels.use["long long"](None, grid=1, block=1)
    """
    run = on_gpu(script, directory=directory)
    assert compilations(run.output) == ["use<int> for sm_90", "use<long long> for sm_90"]
    assert len(run.launches) == 2
    assert on_gpu(script, directory=directory).output == []


@host_compiler
def test_threads_launch_while_one_compiles(on_gpu: Callable[..., Run]) -> None:
    script = """
    import threading
    kernel = kernels.axpy["float"]
    kernel(1, 2.0, None, None, grid=1, block=1)
    done = threading.Event()
    def compile():
        kernels.axpy["double"]
        done.set()
    thread = threading.Thread(target=compile)
    thread.start()
    launched = 0
    while not done.is_set():
        kernel(1, 2.0, None, None, grid=1, block=1)
        launched += 1
    thread.join()
    print(launched > 20)
    """
    assert on_gpu(script, FAKE_CUDA_CAPABILITY=80).output[-1] == "True"


@host_compiler
def test_threads_that_request_one_kernel_compile_it_once(on_gpu: Callable[..., Run]) -> None:
    script = """
    import threading
    found = []
    barrier = threading.Barrier(8)
    def look_up():
        barrier.wait()
        found.append(kernels.axpy["double"])
    threads = [threading.Thread(target=look_up) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(len(found), len(set(map(id, found))))
    """
    assert [line.partition(" in ")[0] for line in on_gpu(script).output] == [
        "kernels: compiled axpy<double> for sm_90",
        "8 1",
    ]


# --- Where nothing is compiled, and why.

LOOK_UP = "caught(lambda: kernels.axpy['double'])"


@host_compiler
@pytest.mark.parametrize(
    ("call", "variables"),
    [
        (LOOK_UP, {"CUDA_EXT_JIT": 0}),
        ("caught(lambda: kernels['axpy<double>'])", {"CUDA_EXT_JIT": 0}),
        ("caught(kernels.axpy['float'], 1, 2.0, None, None, grid=1, block=1)", {"CUDA_EXT_JIT": 0}),
        ("caught(lambda: kernels['never<int>'])", {"CUDA_EXT_JIT": 0}),
        (LOOK_UP, {"FAKE_CUDA_VERSION": 12080}),
        ("caught(lambda: kernels.axpy['no_such_type'])", {}),
    ],
    ids=str,
)
def test_what_is_not_compiled_has_a_reason(
    on_gpu: Callable[..., Run], messages: Messages, call: str, variables: dict[str, object]
) -> None:
    messages(*on_gpu(call, **variables).output)


@host_compiler
def test_an_author_may_keep_the_sources(
    on_gpu: Callable[..., Run], saved: Path, tmp_path: Path, messages: Messages
) -> None:
    library = library_of(cuda_ext.load(saved))  # type: ignore[arg-type]
    write_package(tmp_path / "closed", library.manifest._replace(module="c.kernels", embedded=None), {})
    messages(*on_gpu(LOOK_UP, directory=tmp_path / "closed" / "c" / "kernels").output)


def test_without_a_gpu_the_error_names_the_driver(saved: Path, tmp_path: Path) -> None:
    script = f"import cuda_ext\nkernels = cuda_ext.load({str(saved)!r})\n" + LOOK_UP
    (message,) = run_script(script, tmp_path, CUDA_VISIBLE_DEVICES="").output
    start = "KernelNotFoundError: kernels: axpy<double> was not built ahead; built: axpy<float>; jit: "
    end = '; add "axpy<double>" to `instantiate` and build again'
    assert re.fullmatch(f"{re.escape(start)}the(re is no)? CUDA driver .*{re.escape(end)}", message)


@host_compiler
def test_without_nvrtc_the_extra_is_named(fake_driver: Path, saved: Path, tmp_path: Path) -> None:
    """Another interpreter with only the dependencies of a package that uses kernels."""
    packages = Path(__import__("cuda.bindings").bindings.__file__).parents[2]
    for name in ("cuda", *(each.name for each in packages.glob("cuda_bindings*"))):
        (tmp_path / name).symlink_to(packages / name)
    script = (
        "import cuda_ext\nfrom cuda_ext import errors\n"
        f"kernels = cuda_ext.load({str(saved)!r})\n"
        "try:\n    kernels.axpy['double']\nexcept errors.KernelNotFoundError as error:\n    print(error)"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_PATH", "CUDA_HOME", "VIRTUAL_ENV")}
    environment |= {"PYTHONPATH": f"{tmp_path}{os.pathsep}{CHECKOUT}", "LD_LIBRARY_PATH": str(fake_driver)}
    python = sys._base_executable  # type: ignore[attr-defined]
    if subprocess.run([python, "-c", "import nvidia"], env=environment, capture_output=True).returncode == 0:
        pytest.skip("the interpreter itself has packages of CUDA")
    done = subprocess.run([python, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        "axpy<double> was not built ahead; built: axpy<float>; jit: NVRTC cannot be loaded (" in done.stdout
    )
    assert '); install it with "cuda-ext[cu13]" (or "cuda-ext[cu12]"); add "axpy<double>"' in done.stdout


@host_compiler
def test_an_instantiation_has_no_variables_of_its_own(
    on_gpu: Callable[..., Run], tmp_path: Path, messages: Messages
) -> None:
    """A new image would have a copy of the variable, which the host does not write."""
    directory = build(tmp_path / "weighing", source=WITH_VARIABLE, instantiate=["weigh<float>"], headers={})
    run = on_gpu(
        """
        caught(lambda: kernels.weigh["double"])
        kernels.weigh["float"](None, grid=1, block=1)
        print(kernels.weights.address)
        """,
        directory=directory,
    )
    messages(run.output[0])
    # A GPU without an image gets all of the unit, variables included.
    assert compilations(run.output) == ["weigh<float> for sm_90"]
    assert int(run.output[-1])


@host_compiler
def test_headers_outside_the_module_are_not_read(
    on_gpu: Callable[..., Run], tmp_path: Path, messages: Messages
) -> None:
    directory = build(tmp_path / "elsewhere", options=[f"-I{tmp_path}"])
    messages(*on_gpu(LOOK_UP, directory=directory).output)


@host_compiler
def test_a_template_is_no_sequence(on_gpu: Callable[..., Run]) -> None:
    """Python would request the instantiations with 0, 1, 2, ... endlessly."""
    script = """
    for attempt in (list, iter, lambda each: 3 in each, lambda each: [*each]):
        for each in (kernels.axpy, kernels.ns, kernels.ns.reduce):
            try:
                attempt(each)
            except TypeError:
                continue
            print("no TypeError")
    """
    assert on_gpu(script).output == []


@host_compiler
def test_a_source_that_was_changed_afterwards_is_not_compiled(
    on_gpu: Callable[..., Run], saved: Path, tmp_path: Path, messages: Messages
) -> None:
    directory = shutil.copytree(saved, tmp_path / "changed")
    header = directory / "sources" / "scale.h"
    header.write_text(header.read_text().replace("*", "+"))
    messages(*on_gpu(LOOK_UP, directory=directory).output)


# --- The same image as a build.


def test_the_image_equals_that_of_a_build() -> None:
    source = unit(SOURCE, "axpy<float>", headers={"scale.h": HEADER}, define={"FACTOR": "3"}, std="c++20")
    built = module(source, architectures=("sm_90",), compress="none", emit="cubin")
    request = Request((source.described,), Architecture.parse("sm_90"))
    entry = compile_request(request, {source.name: source.source, **source.headers}, nvrtc())
    assert entry.image == built.files["unit.sm_90.cubin"]
    assert entry.kernels == built.manifest.kernels
    assert entry.architecture == "sm_90"


def test_a_gpu_newer_than_the_compiler_gets_a_compatible_image() -> None:
    source = unit("__global__ void k(int* x) { *x = 1; }")
    newest = max(nvrtc().capabilities())

    def compiled_for(wanted: str) -> str:
        request = Request((source.described,), Architecture.parse(wanted))
        return compile_request(request, {source.name: source.source}, nvrtc()).architecture

    assert compiled_for(f"sm_{newest + 1}") == compiled_for(f"sm_{newest + 1}a") == f"sm_{newest}"
    assert compiled_for(f"sm_{newest + 20}") == f"compute_{newest}"
    assert compiled_for("sm_90a") == "sm_90a"
    with pytest.raises(errors.CompilationError, match="cannot compile for sm_35: it begins with sm_75; old"):
        compiled_for("sm_35")


def test_everything_that_determines_an_entry_is_in_its_key() -> None:
    source = Source("device/a.cu", "11" * 32, Options(define={"A": "1"}), ("k<int>", "k<float>"))
    request = Request((source,), Architecture.parse("sm_90"))
    others = [
        Request((source,), Architecture.parse("sm_90a")),
        Request((source,), Architecture.parse("sm_80")),
        Request((source,), request.architecture, "pkg.kernels"),
        Request((source, source), request.architecture),
        *(
            Request((source._replace(**change),), request.architecture)  # type: ignore[arg-type]
            for change in (
                {"name": "device/b.cu"},
                {"sha256": "22" * 32},
                {"instantiate": ("k<int>",)},
                {"options": Options()},
                {"options": Options(define={"A": "1"}, fast_math=True)},
                {"options": Options(define={"A": "1"}, relaxed_constexpr=True)},
                {"options": Options(define={"A": "1"}, std_headers=False)},
                {"options": Options(define={"A": "1"}, skip_host_code=True)},
                {"options": Options(define={"A": "1"}, std="c++20")},
                {"options": Options(define={"A": "1"}, raw=("-lineinfo",))},
            )
        ),
    ]
    keys = [request.key("nvrtc 1"), request.key("nvrtc 2"), *(other.key("nvrtc 1") for other in others)]
    assert len(set(keys)) == len(keys)
    same = source._replace(instantiate=("k< float >", "k<int>", "k<int>"))
    assert Request((same,), request.architecture).key("nvrtc 1") == request.key("nvrtc 1")


def test_the_compiler_is_identified_without_loading_it(tmp_path: Path) -> None:
    script = """
    from cuda_ext.toolchain.identity import installed_nvrtc
    print(installed_nvrtc().identity)
    from cuda_ext.toolchain.cuda_libraries import open_library
    print(open_library.cache_info().currsize)
    """
    found = installed_nvrtc()
    assert run_script(script, tmp_path).output == [found.identity, "0"]
    assert found.major == int(nvrtc().version.partition(".")[0])


# --- Entries.


@host_compiler
def test_a_damaged_entry_is_compiled_again(on_gpu: Callable[..., Run], empty_cache: Path) -> None:
    script = "kernels.axpy['double'](1, 2.0, None, None, grid=1, block=1)"
    on_gpu(script)
    (entry,) = (path for path in empty_cache.glob("objects/??/*") if path.is_file())
    whole = entry.read_bytes()
    flipped = [3, 20, 50, len(whole) - 40, len(whole) // 2]  # magic, digest, key, names, image
    for damaged in (
        *(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :] for place in flipped),
        whole[: len(whole) // 2],
        # A poisoned one: the form is right, the digest is of something else.
        whole[:40] + whole[40:].replace(b"axpy<double>", b"axpy<doub1e>"),
    ):
        assert damaged != whole
        entry.write_bytes(damaged)
        assert len(compilations(on_gpu(script).output)) == 1
        assert entry.read_bytes() == whole


# --- Many at once.


def prepared(saved: Path, *expressions: str) -> subprocess.Popen[str]:
    script = (
        f"import sys, cuda_ext\n{LOGGING}"
        f"kernels = cuda_ext.load({str(saved)!r})\n"
        f"print(cuda_ext.prepare(kernels, {list(expressions)!r}, architectures=['sm_90']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def outputs(processes: list[subprocess.Popen[str]]) -> list[str]:
    lines = []
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        lines += output.splitlines()
    return lines


def test_of_16_processes_one_compiles(saved: Path, empty_cache: Path) -> None:
    lines = outputs([prepared(saved, "axpy<double>") for _ in range(16)])
    assert compilations(lines) == ["axpy<double> for sm_90"]
    assert len(lines) == 17
    assert len(list(empty_cache.glob("objects/??/.*"))) == 0


def test_many_instantiations_are_compiled_in_one_go(saved: Path, empty_cache: Path) -> None:
    expressions = [f"axpy<{type_}>" for type_ in ("double", "int", "short", "unsigned", "float")]
    lines = outputs([prepared(saved, *expressions)])
    together = "axpy<double>, axpy<int>, axpy<short>, axpy<unsigned int>"
    assert compilations(lines[:1]) == ["axpy<float>, ns::reduce<float, 4> for sm_90"]
    assert compilations(lines[1:2]) == [f"{together} for sm_90"]
    assert lines[2] == (
        "Preparation(compiled=('axpy<float>, ns::reduce<float, 4> for sm_90', 'axpy<double> for sm_90', "
        "'axpy<int> for sm_90', 'axpy<short> for sm_90', 'axpy<unsigned int> for sm_90'), known=(), "
        "skipped=())"
    )
    again = outputs([prepared(saved, *expressions, "ns::reduce<int, 2>")])
    assert compilations(again) == ["ns::reduce<int, 2> for sm_90"]
    assert again[-1].startswith(
        "Preparation(compiled=('ns::reduce<int, 2> for sm_90',), known=('axpy<float>, "
    )
    # Each of them leads to the one image.
    sizes = sorted(path.stat().st_size for path in empty_cache.glob("objects/[0-9a-f][0-9a-f]/*"))
    assert [size < 300 for size in sizes] == [True] * 4 + [False] * 3


@host_compiler
def test_prepared_instantiations_are_cached_one_by_one(saved: Path, on_gpu: Callable[..., Run]) -> None:
    outputs([prepared(saved, "axpy<double>", "axpy<int>")])
    script = """
    for type_ in ("double", "int"):
        kernels.axpy[type_](1, 2, None, None, grid=1, block=1)
    """
    run = on_gpu(script)
    assert run.output == []
    assert len([call for call in run.calls if call.startswith("cuLibraryLoadData")]) == 1
    assert len(run.launches) == 2


@host_compiler
def test_a_template_is_prepared_for_the_gpus_of_the_machine(on_gpu: Callable[..., Run]) -> None:
    run = on_gpu(
        "print(kernels.axpy.prepare(['double', 'int']))", FAKE_CUDA_CAPABILITY="90,80", FAKE_CUDA_DEVICES=2
    )
    assert len(compilations(run.output)) == 2
    assert run.output[-1] == (
        "Preparation(compiled=('axpy<double> for sm_80', 'axpy<int> for sm_80', 'axpy<double> for sm_90', "
        "'axpy<int> for sm_90'), known=(), skipped=())"
    )


def test_unpreparable_kernels_are_errors(
    saved: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    kernels = cuda_ext.load(saved)

    def refuse(expressions: list[str] | None, *architectures: str) -> None:
        with pytest.raises(errors.CudaExtError) as raised:
            cuda_ext.prepare(kernels, expressions, architectures=architectures)
        messages(raised.value)

    refuse(["nothing<int>"], "sm_90")
    refuse(["nothing"], "sm_90")
    for unknown in ("sm_999", "sm_9x", "native", "compute_90"):
        refuse(None, unknown)
    with pytest.raises(TypeError, match=r'expressions: expected a list of strings; write \["axpy<int>"\]'):
        cuda_ext.prepare(kernels, "axpy<int>")
    with pytest.raises(TypeError, match="of kernels, as an import gives it, found <module 'os'"):
        cuda_ext.prepare(os)
    monkeypatch.setenv("CUDA_EXT_JIT", "0")
    refuse(None, "sm_90")


# --- Caches that cannot be used.


@needs_mount
def test_a_full_disk_costs_only_a_warning(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4k", "tmpfs") as disk:
        monkeypatch.setenv("CUDA_EXT_CACHE", str(disk))
        kernels = cuda_ext.load(saved)
        with pytest.warns(errors.CacheWarning, match="goes on without a cache: No space left on device"):
            first = cuda_ext.prepare(kernels, ["axpy<double>"], architectures=["sm_90"])
        assert first.compiled == ("axpy<double> for sm_90",)
        # It has been said once.
        again = cuda_ext.prepare(kernels, ["axpy<int>"], architectures=["sm_90"])
        assert again.compiled == ("axpy<int> for sm_90",)


def test_waiting_for_a_lock_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder of the lock may be stopped, by a debugger or on another machine."""
    monkeypatch.setattr("cuda_ext.cache.local_store.lock", partial(lock, patience=0.2))
    store = LocalStore(tmp_path, 1 << 20, print)
    with store.lock("ab" * 32), store.lock("ab" * 32):
        store.put("ab" * 32, b"it saves work, and guards nothing")
    assert store.get("ab" * 32)


# --- Source strings.

FILL = "template <class T> __global__ void fill(T* x, T value) { x[threadIdx.x] = value; }"


def compiled_from_string(tmp_path: Path, **changes: object) -> list[str]:
    """Whether a process loaded the compiler, and its result."""
    arguments = {"instantiate": ["fill<float>"], "architectures": ["sm_90"], **changes}
    script = f"""
    import cuda_ext
    said = []
    module = cuda_ext.compile({FILL!r}, report=said.append, **{arguments!r})
    print("compiler" if "cuda_ext.toolchain.nvrtc" in sys.modules else "no compiler")
    print([kernel.signature for kernel in cuda_ext.describe(module).kernels], said)
    """
    return run_script(script, tmp_path).output


def test_a_string_is_compiled_once(tmp_path: Path, empty_cache: Path) -> None:
    first = compiled_from_string(tmp_path)
    assert first == ["compiler", "['fill<float>(float* x, float value)'] []"]
    assert compiled_from_string(tmp_path) == ["no compiler", first[1]]


def test_whatever_changes_is_compiled(tmp_path: Path, empty_cache: Path) -> None:
    changes: list[dict[str, object]] = [
        {"define": {"A": "1"}},
        {"std": "c++20"},
        {"instantiate": ["fill<int>"]},
        {"architectures": ["sm_80"]},
        {"name": "other"},
        {"headers": {"a.h": "// nothing"}},
        {"fast_math": True},
    ]
    script = f"""
    import cuda_ext
    from pathlib import Path
    usual = {{"instantiate": ["fill<float>"], "architectures": ["sm_90"]}}
    for changes in {[{}, *changes, {}]}:
        before = len(list(Path({str(empty_cache)!r}).glob("objects/??/*")))
        cuda_ext.compile({FILL!r}, **usual | changes)
        print(len(list(Path({str(empty_cache)!r}).glob("objects/??/*"))) > before)
    """
    assert run_script(script, tmp_path).output == ["True", *["True" for _ in changes], "False"]


@pytest.mark.parametrize("option", ["-I{}", "--pre-include={}/a.h", "-include={}/a.h"])
def test_options_that_name_files_are_not_cached(tmp_path: Path, empty_cache: Path, option: str) -> None:
    (tmp_path / "a.h").touch()
    for _ in range(2):
        assert compiled_from_string(tmp_path, options=[option.format(tmp_path)])[0] == "compiler"


@pytest.mark.parametrize(
    "text", ['#include "local.h"', '#define LOCAL "local.h"\n#include LOCAL', '#include "{}/local.h"']
)
def test_unknown_includes_are_not_cached(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for type_ in ("int", "double"):
        (tmp_path / "local.h").write_text(f"typedef {type_} Number;\n")
        source = text.replace("{}", str(tmp_path)) + "\n__global__ void k(Number* x) {}"
        made = cuda_ext.compile(source, architectures=["sm_90"])
        assert cuda_ext.describe(made).kernels[0].signature == f"k({type_}* x)"


def test_a_changed_header_is_compiled_again(tmp_path: Path, empty_cache: Path) -> None:
    (tmp_path / "value.h").write_text("#define VALUE 1\n")
    source = '#include "value.h"\n__global__ void k(int (*x)[VALUE]) {}'

    def signature() -> str:
        made = cuda_ext.compile(source, architectures=["sm_90"], include_dirs=[tmp_path])
        return cuda_ext.describe(made).kernels[0].signature

    assert signature() == "k(int(*x)[1])"
    (tmp_path / "value.h").write_text("#define VALUE 2\n")
    assert signature() == "k(int(*x)[2])"


def test_warnings_are_cached(tmp_path: Path, empty_cache: Path) -> None:
    source = "__global__ void k(int* x) { int unused; *x = 1; }"
    for _ in range(2):
        said: list[str] = []
        cuda_ext.compile(source, architectures=["sm_90"], report=said.append)
        assert "unused" in said[0]


@host_compiler
def test_a_compiled_string_compiles_more_on_demand(on_gpu: Callable[..., Run]) -> None:
    script = f"""
    module = cuda_ext.compile({FILL!r}, instantiate=["fill<float>"])
    print(module.fill["short"].signature)
    """
    assert on_gpu(script).output[-1] == "fill<short>(short* x, short value)"
