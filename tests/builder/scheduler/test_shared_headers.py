"""Precompiled headers: used, with the same images, dependencies and messages as without."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from cuda_ext.builder.scheduler import shared_headers
from cuda_ext.builder.scheduler.local_pool import WorkerPool
from cuda_ext.builder.scheduler.shared_headers import SharedHeaders, share_headers
from cuda_ext.builder.scheduler.task import Task
from cuda_ext.compiler.jobs import CompileJob
from cuda_ext.compiler.products import CompiledImage
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Options
from cuda_ext.toolchain.nvrtc import Nvrtc
from cuda_ext.toolchain.programs.nvrtc_program import NvrtcProgram
from tests.builder.scheduler.test_local_pool import SPEC
from tests.fixtures.caches import create_empty_cache
from tests.fixtures.command_line import run
from tests.fixtures.projects import KERNELS, build, write_project

SM_90 = Architecture.parse("sm_90")
SHARED = b"#include <cuda/std/type_traits>\n#include <cuda/std/limits>\n"
SOURCE = b"""// Comments and blank lines may come before.

#include  <cuda/std/type_traits>  // as a project writes it
/* several
   lines */ #include <cuda/std/limits>
#include <cuda/std/cstdint>
struct Line { int number = __LINE__; };
template <class T> __global__ void scale(T* x) {
  x[0] = x[0] * x[1] + T(cuda::std::numeric_limits<float>::max() + Line().number + NUMBER);
}
__constant__ float weights[4];
extern "C" __global__ void whole(const cuda::std::int16_t* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x] * weights[0];
}
"""


def unit(number: int, source: bytes = SOURCE, **options: object) -> TranslationUnit:
    return TranslationUnit(
        f"device/u{number}.cu",
        source.replace(b"NUMBER", str(number).encode()),
        options=Options(**options),  # type: ignore[arg-type]
        instantiate=("scale<double>", "scale<float>") if source is SOURCE else (),
    )


@pytest.fixture
def compiled_with(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How NVRTC compiled: it ``created`` precompiled headers, ``used`` or ``refused`` them, or had none."""
    how: list[str] = []
    compile_program = NvrtcProgram.compile

    def record(self: NvrtcProgram, options: list[str]) -> bool:
        succeeded = compile_program(self, options)
        if self._name == "empty.cu":  # it only ends a trace
            return succeeded
        files = [Path(o.partition("=")[2]) for o in options if "-pch=" in o]
        if not files:
            how.append("without")
        elif any(o.startswith("--create-pch=") for o in options):
            how.append("created" if files[0].exists() else "failed")
        else:
            how.append("used" if self.used_precompiled_headers else "refused")
        return succeeded

    monkeypatch.setattr(NvrtcProgram, "compile", record)
    return how


def compile_units(scratch: Path, shared: bytes, *units: TranslationUnit) -> list[tuple[CompiledImage, ...]]:
    scratch.mkdir()
    compiler = Nvrtc(scratch)
    compiler.shared_headers = shared
    return [compiler.compile(unit, (SM_90,)) for unit in units]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"raw": ("-lineinfo",), "relocatable": True, "fast_math": True},
        {"raw": ("-w",)},
    ],
    ids=["none", "several", "silent"],
)
def test_images_and_dependencies_are_those_without(
    tmp_path: Path, compiled_with: list[str], options: dict[str, object]
) -> None:
    units = [unit(number, **options) for number in range(2)]
    plain = compile_units(tmp_path / "plain", b"", *units)
    assert set(compiled_with) == {"without"}
    compiled_with.clear()
    precompiled = compile_units(tmp_path / "precompiled", SHARED, *units)
    assert compiled_with == ["created", "used", "used"]
    assert precompiled == plain
    for (with_, *_), (without, *_) in zip(precompiled, plain, strict=True):
        assert with_.trace.reads == without.trace.reads
        assert len(with_.trace.reads) > 50


KERNEL = b"""
__device__ int table[] = {1, 2};
namespace {
__device__ float scaled(float x) { return x * SCALE + table[threadIdx.x % 2]; }
}
static __global__ void scale(float* x) { x[0] = scaled(cuda::std::numeric_limits<float>::max()) + __LINE__; }
"""


@pytest.mark.parametrize(
    "between",
    [
        b"#define SCALE 2\n",
        b"#include <cuda/std/type_traits>\n#define SCALE 2\n",
        b'#include "scale.cuh"\n',
    ],
    ids=["define", "again", "own"],
)
def test_what_follows_precompiled_headers_is_as_ever(
    tmp_path: Path, compiled_with: list[str], between: bytes
) -> None:
    """Guards of the headers hold, and headers that come later see the macros before them."""
    headers = {"scale.cuh": b"#pragma once\n#include <cuda/std/limits>\n#define SCALE 3\n"}
    first, second = SHARED.splitlines(keepends=True)
    unit = TranslationUnit("device/sum.cu", first + between + second + KERNEL, headers=headers)
    plain = compile_units(tmp_path / "plain", b"", unit)
    compiled_with.clear()
    assert compile_units(tmp_path / "precompiled", first, unit) == plain
    assert compiled_with[:2] == ["created", "used"]
    assert "without" not in compiled_with


def test_headers_that_need_much_memory_are_precompiled(tmp_path: Path, compiled_with: list[str]) -> None:
    """More than the 256 MiB that NVRTC gives them by default."""
    text = b"#include <cub/block/block_radix_sort.cuh>\n" + SHARED
    define = {"_CCCL_META_UNROLL_LIMIT": "16", "SCALE": "1"}
    unit = TranslationUnit("device/sum.cu", text + KERNEL, options=Options(define=define))
    compile_units(tmp_path / "precompiled", text, unit)
    assert compiled_with == ["created", "used"]


def test_a_unit_with_a_header_of_that_name_does_without(tmp_path: Path, compiled_with: list[str]) -> None:
    """The headers of the tool chain include its header in place of their own."""
    name, shared = "cuda/std/__algorithm/equal.h", b"#include <cuda/std/array>\n"
    header = next(file for d in Nvrtc().header_directories if (file := d / name).is_file())
    own = {name: header.read_bytes() + b"#define OWN 1\n"}
    kernel = b"#ifndef OWN\n#define OWN 0\n#endif\n__global__ void k(int* x) { *x = OWN; }\n"
    units = [TranslationUnit("device/a.cu", shared + kernel, headers=headers) for headers in (own, {})]
    plain = compile_units(tmp_path / "plain", b"", *units)
    assert plain[0][0].data != plain[1][0].data
    compiled_with.clear()
    assert compile_units(tmp_path / "precompiled", shared, *units) == plain
    assert compiled_with == ["created", "without", "used"]


def test_errors_and_warnings_are_those_without(tmp_path: Path, compiled_with: list[str]) -> None:
    wrong = unit(0, SHARED + b"__global__ void k(Missing* x) {}\n")
    errors = []
    for name, shared in (("plain", b""), ("precompiled", SHARED)):
        with pytest.raises(CompilationError) as caught:
            compile_units(tmp_path / name, shared, wrong)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert "Missing" in errors[0]
    assert "used" in compiled_with
    # A header that causes a warning does so in each unit.
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "noisy.cuh").write_text("#warning noisy\n")
    noisy = b"#include <noisy.cuh>\n"
    units = [
        unit(n, noisy + b"__global__ void k() {}\n", raw=("-I", str(tmp_path / "include"))) for n in range(2)
    ]
    plain, same = (compile_units(tmp_path / str(n), s, *units) for n, s in enumerate((b"", noisy)))
    assert same == plain
    assert all("noisy" in image.log for (image,) in same)


def test_headers_that_the_compiler_does_not_take_are_read_as_ever(
    tmp_path: Path, compiled_with: list[str]
) -> None:
    """After one refusal, no unit tries them again."""
    units = [unit(number, SHARED + b"__global__ void k(int* x) { *x = NUMBER; }\n") for number in range(2)]
    plain = compile_units(tmp_path / "plain", b"", *units)
    compiled_with.clear()
    assert compile_units(tmp_path / "other", b"#include <cuda_fp16.h>\n", *units) == plain
    assert compiled_with == ["created", "refused", "without", "without"]
    compiled_with.clear()
    assert compile_units(tmp_path / "missing", b"#include <missing.h>\n", *units) == plain
    assert compiled_with == ["failed", "without", "without"]


@pytest.mark.parametrize("report", [False, True])
def test_a_build_compiles_each_source_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: bool
) -> None:
    """A source that NVRTC refused to compile with precompiled headers would show a second command."""
    monkeypatch.setenv("CUDA_EXT_CACHE", str(create_empty_cache(tmp_path / "cache")))
    source = SHARED.decode() + 'extern "C" __global__ void k{0}(int* x) {{ *x = {0}; }}\n'
    files = {f"device/u{n}.cu": source.format(n) for n in range(5)}
    root = write_project(tmp_path / "p", KERNELS, files)
    _, _, shown = run(
        "build", root, "-v", "-j1", "-o", tmp_path, *(["--report", root / "r.html"] if report else [])
    )
    used = re.findall(r"^nvrtc (.*)", shown, re.MULTILINE)
    assert len(used) == 6, shown  # with that of the headers
    assert sum("--create-pch=" in command for command in used) == 1
    assert sum("--use-pch=" in command for command in used) == 5


def jobs(*sources: bytes, **options: object) -> list[CompileJob]:
    return [CompileJob(unit(n, source, **options), (SM_90,)) for n, source in enumerate(sources)]


def test_units_share_the_headers_that_save_most() -> None:
    cub = b"#include <cuda_fp16.h>\n#include <cub/block/block_scan.cuh>\n"
    several = jobs(*[cub] * 2, *[cub + b"#include <cub/block/block_load.cuh>\n"] * 3)
    more = b"".join(b"#include <cub/%d.cuh>\n" % number for number in range(3))
    others = [
        *jobs(*[cub + more] * 2),  # too much besides
        *jobs(*[b"#include <cuda_fp16.h>\n"] * 9),  # too short
        *jobs(*[b"#define X\n" + cub] * 9),  # not the first
        *jobs(*[cub] * 3, fast_math=True),  # too few
        *jobs(*[cub] * 9, pre_include=("some.cuh",)),
    ]
    shared = share_headers([*several, *others])
    assert shared.keys() == set(several)
    (headers,) = set(shared.values())
    assert (headers.source, headers.tasks, headers.all_tasks) == (cub, 5, 37)


@pytest.mark.parametrize("comment", [b"// // " * 5000 + b"\n", b"/* */" * 5000, b" \n" * 50000])
def test_long_comments_are_read_at_once(comment: bytes) -> None:
    assert share_headers(jobs(*[comment + b"int x;"] * 4)) == {}
    assert len(share_headers(jobs(*[comment + SHARED] * 4))) == 4


def test_an_edit_of_a_precompiled_header_compiles_all_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of no project, and only the first unit of each process opens it."""
    monkeypatch.setenv("CUDA_EXT_CACHE", str(create_empty_cache(tmp_path / "cache")))
    monkeypatch.setenv("MAX_JOBS", "1")
    header = tmp_path / "include" / "cuda" / "own.cuh"
    header.parent.mkdir(parents=True)
    header.write_text("#pragma once\n#define VALUE 1\n")
    source = '#include <cuda/own.cuh>\nextern "C" __global__ void k{0}(int* x) {{ *x = VALUE + {0}; }}\n'
    files = {f"device/u{n}.cu": source.format(n) for n in range(5)}
    shared: list[SharedHeaders] = []
    monkeypatch.setattr(
        shared_headers,
        "share_headers",
        lambda jobs: (found := share_headers(jobs), shared.extend(found.values()))[0],
    )
    root = write_project(tmp_path / "p", f'{KERNELS}options = ["-I{tmp_path / "include"}"]\n', files)
    first = build(root)["p.kernels"].files
    assert [headers.tasks for headers in shared] == [5] * 5
    lines: list[str] = []
    build(root, lines)
    assert "5 from the cache" in lines[-1] or not any(line.startswith("[") for line in lines)
    header.write_text(header.read_text().replace("1\n", "2\n"))
    second = build(root)["p.kernels"].files
    names = [f"u{n}.fatbin" for n in range(5)]
    assert all(first[name] != second[name] for name in names)
    monkeypatch.setattr(shared_headers, "FEWEST", 1000)
    monkeypatch.setenv("CUDA_EXT_CACHE", str(create_empty_cache(tmp_path / "other")))
    without = build(root)["p.kernels"].files
    assert all(without[name] == second[name] for name in names)


@dataclass(frozen=True, slots=True)
class Crashing(Task):
    """A task whose process dies if it is to precompile headers."""

    def __call__(self) -> tuple[int, bool]:  # type: ignore[override]
        if self.precompiles:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid(), self.precompiles


def test_a_crash_with_precompiled_headers_falls_back_to_none() -> None:
    headers = SharedHeaders(SHARED, 6, 6)
    with WorkerPool(1) as pool:
        futures = [pool.submit(Crashing(job, SPEC, headers=headers)) for job in jobs(*[SOURCE] * 6)]
        results = [future.result() for future in futures]
    assert len({process for process, _ in results}) == 1  # only the first died
    assert not any(precompiles for _, precompiles in results)


@dataclass(frozen=True, slots=True)
class Reporting(Task):
    """A task that returns its worker, its headers, and whether it would precompile them."""

    def __call__(self) -> tuple[int, bytes, bool]:  # type: ignore[override]
        return os.getpid(), self.headers.source if self.headers else b"", self.precompiles


def test_a_worker_does_tasks_of_the_same_headers_one_after_the_other() -> None:
    groups = [SharedHeaders(name, 5, 11) for name in (b"a", b"b")]
    (job,) = jobs(SOURCE)
    started: list[bytes] = []
    with WorkerPool(1, lambda task: started.append(task.headers.source if task.headers else b"")) as pool:
        futures = [pool.submit(Reporting(job, SPEC, 9.0))]
        futures += [pool.submit(Reporting(job, SPEC, p, headers=g)) for p in range(5) for g in groups]
        results = [future.result() for future in futures]
    assert b"".join(started) in (b"aaaaabbbbb", b"bbbbbaaaaa")
    assert all(precompiles for _, name, precompiles in results if name)


def test_workers_that_get_few_tasks_of_shared_headers_do_not_precompile_them() -> None:
    few, many = (SharedHeaders(b"a", 4, all_tasks) for all_tasks in (8, 100))
    (job,) = jobs(SOURCE)
    for headers, at_most in ((few, 0), (many, 1)):
        with WorkerPool(3) as pool:
            futures = [pool.submit(Reporting(job, SPEC, headers=headers)) for _ in range(4)]
            results = [future.result() for future in futures]
        workers = {process for process, _, precompiles in results if precompiles}
        assert len(workers) == at_most
