"""Builds of many units: the same bytes with any executor, and all failures reported at once."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cuda_ext.builder.scheduler import batch
from cuda_ext.builder.session import build_project
from cuda_ext.compiler.jobs import Job, Product, decode_product
from cuda_ext.errors import BuildError, CompilationError, ConfigError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.manifest import Compression, loads
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.toolchain import cuda_libraries, nvfatbin
from tests.fixtures.caches import create_empty_cache
from tests.fixtures.projects import FILL, KERNELS, SM_90, build, load, write_project

TABLE = """
[tool.cuda_ext]
architectures = ["sm_90", "compute_90"]
compress = "none"
[tool.cuda_ext.modules."p.kernels"]
include-dirs = ["include"]
"""
# What could tell one way of compiling from another: paths, lines, and names of one unit alone.
COMMON = """#pragma once
static __device__ int in_header = 3;
namespace { __device__ const char* where() { return __FILE__; } }
struct Header { int line = __LINE__; };
"""
KERNEL = """// A comment, before which nothing is.

#include <vector_types.h>
#include "common.cuh"  // another
/* and
   another */
#include "more.cuh"

static __device__ int own = 4;
namespace {{ __global__ void hidden{0}(int* x) {{ *x = own + in_header + Header().line + __LINE__; }} }}
extern "C" __global__ void kernel{0}(int* x, const char** y) {{
  *x = more(*x); *y = where(); y[1] = __FILE__;
}}
template <class T> __global__ void scale{0}(T* x) {{ *x *= {0}; }}
"""
FILES = {
    "include/common.cuh": COMMON,
    "include/more.cuh": "static __device__ int sum;\n__device__ inline int more(int) { return ++sum; }\n",
    **{f"device/u{i}.cu": KERNEL.format(i) for i in range(4)},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for each test."""
    directory = create_empty_cache(tmp_path / "cache")
    monkeypatch.setenv("CUDA_EXT_CACHE", str(directory))
    return directory


def forget(cache: Path) -> None:
    shutil.rmtree(cache / "objects")


def built(root: Path, table: str = TABLE, files: Mapping[str, str] = FILES) -> Mapping[str, bytes]:
    return build(write_project(root, table, files))["p.kernels"].files


# The same bytes.


@pytest.mark.parametrize(
    "options",
    [
        "",
        "link = true",
        # test_reproducible has them in two directories.
        pytest.param('options = ["-lineinfo"]', marks=pytest.mark.slow),
        pytest.param('options = ["-G"]', marks=pytest.mark.slow),
    ],
)
def test_all_ways_to_build_give_the_same_bytes(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    table = f'{TABLE}instantiate = ["scale0<int>", "scale0<float>"]\n{options}\n'
    monkeypatch.setenv("MAX_JOBS", "1")
    alone = built(tmp_path / "one", table)
    assert built(tmp_path / "one", table) == alone, "warm"
    forget(own_cache)
    monkeypatch.setenv("MAX_JOBS", "2")
    # Fewer units first, so that some images come from the cache then.
    few = {name: text for name, text in FILES.items() if name.endswith((".cuh", "u0.cu", "u3.cu"))}
    part = table.replace('["sm_90", "compute_90"]', '["compute_90"]')
    if "link" not in options:
        two = built(tmp_path / "two", part, few)
        assert len(two) > 1
    assert built(tmp_path / "two", table) == alone, "partly from the cache, two workers"
    forget(own_cache)
    monkeypatch.setenv("CUDA_EXT_CACHE_SIZE", "0")
    assert built(tmp_path / "größe/three", table) == alone, "in another place, without a cache"


def test_units_are_equal_with_and_without_shared_headers(tmp_path: Path, own_cache: Path) -> None:
    together = built(tmp_path / "together")
    forget(own_cache)
    for number in range(2):
        files = {n: t for n, t in FILES.items() if n.endswith((".cuh", f"u{number}.cu"))}
        alone = built(tmp_path / f"alone{number}", TABLE, files)
        assert alone[f"u{number}.fatbin"] == together[f"u{number}.fatbin"]


def test_a_library_that_waits_for_a_product_holds_none_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an architecture was added, all libraries wait."""
    decoded: list[tuple[str, str]] = []

    def decode(job: Job, contents: Sequence[bytes]) -> Product:
        decoded.append((job.name, str(job).removeprefix(f"{job.name} ")))
        return decode_product(job, contents)

    table = TABLE.replace(', "compute_90"', "")
    root = write_project(tmp_path / "project", table, FILES)
    build(root)
    monkeypatch.setattr(batch, "decode_product", decode)
    write_project(root, table.replace('"sm_90"', '"sm_80", "sm_90"'), FILES)
    lines: list[str] = []
    build(root, lines)
    assert re.match(r"8 compilations: 4 compiled, 4 from the cache, in ", lines[-1])
    units = [name for name in FILES if name.endswith(".cu")]
    assert sorted(decoded) == sorted((unit, what) for unit in units for what in ("sm_80", "sm_90"))
    for start in range(0, 8, 2):
        of_one = decoded[start : start + 2]
        assert of_one == [(of_one[0][0], what) for what in ("sm_80", "sm_90")]


def test_an_image_is_compressed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compressed: list[str] = []
    write_image = nvfatbin.write_image

    def write(architecture: Architecture, image: bytes, compress: Compression) -> bytes:
        compressed.append(f"{architecture} {len(image) // 1000}")
        return write_image(architecture, image, compress)

    monkeypatch.setattr(nvfatbin, "write_image", write)
    large = f"__device__ int large[15000] = {{{', '.join(map(str, range(15000)))}}};\n{FILL}"
    root = write_project(tmp_path / "project", KERNELS, {"device/large.cu": large})
    first = build(root)["p.kernels"].files["large.fatbin"]
    (image,) = compressed
    assert image.startswith("sm_90 6")
    two = KERNELS.replace('"sm_90"', '"sm_80", "sm_90"')
    write_project(root, two, {"device/large.cu": f"{large}// new\n"})
    both = build(root)["p.kernels"].files["large.fatbin"]
    assert [line.split()[0] for line in compressed] == ["sm_90", "sm_80"]
    (own,), (_, same) = read_fatbin(first), read_fatbin(both)
    assert (own.stored, own.codec) == (same.stored, "zstd")


def test_a_product_that_vanishes_from_the_cache_is_compiled_again(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    table = TABLE.replace(', "compute_90"', "")
    root = write_project(tmp_path / "project", table, FILES)
    build(root)
    write_project(root, table.replace('"sm_90"', '"sm_80", "sm_90"'), FILES)

    def forget_all(line: str) -> None:
        if line.startswith("[5/"):
            forget(own_cache)

    packages = {package.name: package for package in build_project(load(root), forget_all)}
    forget(own_cache)
    assert build(root) == packages


# Failures.

BROKEN = {
    "include/broken.cuh": "__device__ int broken() { return nowhere; }\n",
    "device/a.cu": 'extern "C" __global__ void a(int* x) { *x = 1; }\n',
    "device/b.cu": '#include "broken.cuh"\nextern "C" __global__ void b(int* x) { *x = broken(); }\n',
    "device/c.cu": 'extern "C" __global__ void c(int* x) { *x = missing; }\n',
    "device/d.cu": 'extern "C" __global__ void d(int* x) { *x = absent; }\n',
}


# Order.


def test_the_longest_compile_first_in_the_first_build_of_all_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    short = 'extern "C" __global__ void NAME(int* x) { *x = 1; }\n'
    files = {
        "device/a.cu": short.replace("NAME", "a"),
        "device/b.cu": short.replace("NAME", "b") + "// text\n" * 20,
        "device/c.cu": "#include <math_constants.h>\n" + short.replace("NAME", "c"),
        "device/d.cu": "template <class T> __global__ void d(T* x) { *x = x[1]; }\n",
        "device/e.cu": '#include "deep.cuh"\n' + short.replace("NAME", "e"),
        "device/deep.cuh": "#include <cuda/std/limits>\n",
    }
    types = ("char", "short", "int", "unsigned", "long", "float", "double", "bool")
    module = '[tool.cuda_ext.modules."p.{0}"]\nsources = ["device/[{0}].cu"]\n{1}\n'
    instantiate = [f"d<{qualifier}{t}>" for t in types for qualifier in ("", "volatile ")]
    table = SM_90 + "".join(
        module.format(name, f"instantiate = {instantiate}" if name == "d" else "") for name in "abcde"
    )
    lines: list[str] = []
    build(write_project(tmp_path, table, files), lines)
    assert re.findall(r"device/(.)\.cu", "\n".join(lines)) == ["e", "c", "d", "b", "a"]


def failure(root: Path, lines: list[str] | None = None) -> str:
    with pytest.raises(CompilationError) as caught:
        build_project(load(root), (lines if lines is not None else []).append)
    return str(caught.value)


def test_all_failures_are_reported_at_once_and_successes_are_kept(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project", TABLE, BROKEN)
    lines: list[str] = []
    text = failure(root, lines)
    assert text.startswith("p.kernels:\n")
    assert re.findall(r"^(\S+)\(\d+\): error: identifier \"(\w+)\" is undefined", text, re.MULTILINE) == [
        ("include/broken.cuh", "nowhere"),
        ("device/c.cu", "missing"),
        ("device/d.cu", "absent"),
    ]
    assert text.count("for compute_90, sm_90)") + text.count("for sm_90, compute_90)") == 3
    assert str(tmp_path) not in text
    assert re.match(r"4 compilations: 1 compiled, 3 failed, in ", lines[-1])
    # After the correction, only the failed compilations run.
    assert failure(root, lines) == text
    assert re.match(r"3 compilations: 3 failed, in ", lines[-1])
    write_project(root, TABLE, {"include/broken.cuh": "__device__ int broken() { return 1; }\n"})
    for name in ("c", "d"):
        (root / f"device/{name}.cu").unlink()
    build(root, lines)
    assert re.match(r"1 compilation: 1 compiled, in ", lines[-1])


def test_a_broken_shared_header_is_reported_for_each_unit(tmp_path: Path) -> None:
    text = '#include "broken.cuh"\nextern "C" __global__ void k{0}(int* x) {{ *x = broken(); }}\n'
    files = {f"device/u{i}.cu": text.format(i) for i in range(4)}
    files["include/broken.cuh"] = BROKEN["include/broken.cuh"]
    root = write_project(tmp_path / "project", TABLE.replace(', "compute_90"', ""), files)
    message = failure(root)
    assert message.count('include/broken.cuh(1): error: identifier "nowhere" is undefined') == 4
    assert re.findall(r"^\(compiling (\S+) for sm_90\)$", message, re.MULTILINE) == sorted(
        set(files) - {"include/broken.cuh"}
    )


def test_failures_that_differ_between_architectures(tmp_path: Path) -> None:
    source = """
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#error new
#else
#error old
#endif
"""
    table = TABLE.replace('"sm_90", "compute_90"', '"sm_75", "sm_80", "sm_90"')
    message = failure(
        write_project(tmp_path / "project", table, {"device/a.cu": source, "include/x.cuh": ""})
    )
    old, _, new = message.partition("(compiling device/a.cu for sm_75, sm_80)")
    assert "old" in old
    assert "new" in new
    assert new.rstrip().endswith("(compiling device/a.cu for sm_90)")
    assert message.count("#error directive: ") == 2


def test_sources_that_refuse_debug_information_compile(tmp_path: Path) -> None:
    source = '#ifdef __CUDACC_DEBUG__\n#error debugging\n#endif\nextern "C" __global__ void a(int* x) {}\n'
    files = {"device/a.cu": source, "include/x.cuh": ""}
    (package,) = build(write_project(tmp_path / "project", TABLE, files)).values()
    manifest = loads(package.files["manifest.json"], "manifest")
    assert [kernel.signature for kernel in manifest.kernels] == ["a(int* x)"]


def test_a_failing_link_is_reported_and_compiled_units_are_kept(tmp_path: Path) -> None:
    files = {
        "include/x.cuh": "",
        "device/a.cu": '__device__ int other();\nextern "C" __global__ void a(int* x) { *x = other(); }\n',
        "device/b.cu": "__device__ int another() { return 1; }\n",
    }
    table = f"{TABLE}link = true\n".replace(', "compute_90"', "")
    root = write_project(tmp_path / "project", table, files)
    assert "other" in failure(root)
    write_project(root, table, {"device/b.cu": "__device__ int other() { return 1; }\n"})
    lines: list[str] = []
    build(root, lines)
    done = {match[1] for line in lines if (match := re.match(r"\[.*?\] (\S+ \S+)", line))}
    assert done == {"device/b.cu sm_90", "p.kernels sm_90"}


def test_a_unit_of_two_modules_that_fails_is_compiled_once(tmp_path: Path) -> None:
    table = f'{TABLE}[tool.cuda_ext.modules."p.other"]\n'
    root = write_project(
        tmp_path / "project", table, {"device/c.cu": BROKEN["device/c.cu"], "include/x.cuh": ""}
    )
    lines: list[str] = []
    message = failure(root, lines)
    assert "p.kernels:" in message
    assert "p.other:" in message
    assert re.match(r"1 compilation: 1 failed, in ", lines[-1])


def test_a_warning_is_repeated_while_it_holds(tmp_path: Path, own_cache: Path) -> None:
    files = {
        "device/a.cu": 'extern "C" __global__ void a(int* x) { int unused_here; }\n',
        "include/x.cuh": "",
    }
    root = write_project(tmp_path / "project", TABLE, files)
    logs = []
    for table in (TABLE, TABLE, f"{TABLE}jit = false\n"):
        lines: list[str] = []
        (root / "pyproject.toml").write_text(table)
        build(root, lines)
        logs.append([line for line in lines if "unused_here" in line])
    assert len(logs[0]) == 1
    assert "device/a.cu(1)" in logs[0][0]
    assert logs[0] == logs[1] == logs[2]


def test_mistakes_in_the_configuration_are_reported_before_any_compilation(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "many")
    lines: list[str] = []
    with pytest.raises(ConfigError, match="MAX_JOBS"):
        build_project(load(write_project(tmp_path / "project", TABLE, FILES)), lines.append)
    monkeypatch.delenv("MAX_JOBS")
    second = f'{TABLE}[tool.cuda_ext.modules."p.other"]\nsources = ["nowhere/*.cu"]\n'
    with pytest.raises(BuildError, match="nowhere"):
        build_project(load(write_project(tmp_path / "project", second, FILES)), lines.append)
    assert not any(line.startswith("[") for line in lines)


def test_without_nvfatbin_nothing_is_compiled(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", TABLE, FILES)
    load(root)  # NVRTC is open
    found = cuda_libraries.library_files
    monkeypatch.setattr(cuda_libraries, "library_files", lambda name: [] if "fat" in name else found(name))
    monkeypatch.setattr(cuda_libraries, "system_library", lambda name: f"/not/there/lib{name}.so")
    cuda_libraries.open_library.cache_clear()
    with pytest.raises(
        ToolchainError, match=r'nvFatbin cannot be loaded .*; install it with "cuda-ext\[cu13]'
    ):
        build(root)
    assert not [*(own_cache / "objects").rglob("*.*")]
