"""A build compiles what has changed since an earlier one, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cuda_ext.builder.scheduler.job_cache import JobCache
from cuda_ext.builder.scheduler.remembered_compiler import RememberedCompiler
from cuda_ext.builder.session import build_project
from cuda_ext.cache.dependencies import FileDigests
from cuda_ext.cache.open_store import open_store
from cuda_ext.compiler.jobs import CompileJob
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Options
from cuda_ext.toolchain.compilers import CompilerChoice
from tests.fixtures.caches import create_empty_cache
from tests.fixtures.projects import build, load, write_project

pytestmark = pytest.mark.xdist_group("incremental")

TABLE = """
[tool.cuda_ext]
architectures = ["sm_80", "sm_90"]
[tool.cuda_ext.modules."p.kernels"]
include-dirs = ["first", "include"]
pre-include = ["before.cuh"]
instantiate = ["scale<float>"]
"""
KERNEL = 'extern "C" __global__ void {}(float* x) {{ *x = twice(VALUE); }}\n'
ABOUT_ARCHITECTURE = """
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#include "only_90.cuh"
#else
#define ONLY 80
#endif
extern "C" __global__ void arch(int* x) { *x = ONLY; }
"""
# Four sources begin with the same headers.
COMMON = '#include <vector_types.h>\n#include "common.cuh"\n'
FILES = {
    "first/other.cuh": "",
    "include/before.cuh": "#define VALUE 1\n",
    "include/common.cuh": '#pragma once\n#include "deep.cuh"\n#ifdef NEVER\n#include "unread.cuh"\n#endif\n',
    "include/deep.cuh": "__device__ inline float twice(float x) { return 2 * x; }\n",
    "include/unread.cuh": "// No unit reads this.\n",
    "include/only_90.cuh": "#define ONLY 90\n",
    "device/a.cu": COMMON + KERNEL.format("a"),
    "device/b.cu": f'{COMMON}#if 0\n#include "unread.cuh"\n#endif\n' + KERNEL.format("b"),
    "device/c.cu": COMMON + KERNEL.format("c"),
    "device/scale.cu": COMMON + "template <class T> __global__ void scale(T* x) { *x = twice(*x); }\n",
    "device/alone.cu": 'extern "C" __global__ void alone(int* x) { *x = 1; }\n',
    "device/arch.cu": ABOUT_ARCHITECTURE,
}


def compiled(root: Path) -> set[str]:
    """Build the project in `root`; return the compilations, such as ``device/a.cu sm_90``."""
    lines: list[str] = []
    build(root, lines)
    done = [match[1] for line in lines if (match := re.match(r"\[ *\d+/\d+\] (.+) <?\d+\.\d\d s$", line))]
    assert len(done) == len(set(done))
    return set(done)


def everything_of(*units: str, architectures: str = "sm_80 sm_90") -> set[str]:
    return {f"device/{unit}.cu {what}" for unit in units for what in architectures.split()}


UNITS = [Path(name).stem for name in FILES if name.endswith(".cu")]
SHARING = ["a", "b", "c", "scale"]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_empty_cache(tmp_path / "cache")
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project that was built, with the cache of that build."""
    directory = tmp_path_factory.mktemp("built")
    create_empty_cache(directory / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_EXT_CACHE", str(directory / "cache"))
        assert compiled(write_project(directory / "project", TABLE, FILES)) == everything_of(*UNITS)
    return directory


@pytest.fixture
def project(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the built project in another directory, with a copy of its cache."""
    shutil.copytree(built_once, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "project"


def edited(root: Path, name: str, edit: Callable[[str], str]) -> None:
    text = (root / name).read_text() if (root / name).exists() else ""
    write_project(root, (root / "pyproject.toml").read_text(), {name: edit(text)})


def with_comment(text: str) -> str:
    return f"{text}// A comment.\n"


def test_an_unchanged_project_compiles_nothing(project: Path) -> None:
    lines: list[str] = []
    build(project, lines)
    assert lines[-1] == "p.kernels: nothing to compile"


def test_a_project_in_another_place_with_other_times_compiles_nothing(project: Path) -> None:
    for path in project.rglob("*"):
        os.utime(path, (1, 1))
    assert compiled(project.rename(project.with_name("große Verschiebung"))) == set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("include/deep.cuh", everything_of(*SHARING)),
        ("include/before.cuh", everything_of(*UNITS)),
        ("include/unread.cuh", set()),
        ("include/only_90.cuh", everything_of("arch", architectures="sm_90")),
        ("device/a.cu", everything_of("a")),
        ("device/alone.cu", everything_of("alone")),
        # A header that no unit can include.
        ("include/new.cuh", set()),
    ],
)
def test_an_edit_compiles_the_units_that_read_it(project: Path, name: str, expected: set[str]) -> None:
    edited(project, name, with_comment)
    assert compiled(project) == expected
    assert compiled(project) == set()


def test_a_header_that_is_not_read_is_shipped_as_it_is(project: Path) -> None:
    edited(project, "include/unread.cuh", with_comment)
    shipped = build(project)["p.kernels"].files["sources/include/unread.cuh"]
    assert shipped == (project / "include/unread.cuh").read_bytes()


def test_a_reverted_edit_is_a_cache_hit(project: Path) -> None:
    before = build(project)
    edited(project, "include/deep.cuh", lambda text: text.replace("2 *", "3 *"))
    assert build(project) != before
    edited(project, "include/deep.cuh", lambda text: text.replace("3 *", "2 *"))
    lines: list[str] = []
    assert build(project, lines) == before
    assert lines[-1] == "p.kernels: nothing to compile"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            '"sm_80", "sm_90"',
            '"sm_80", "sm_90", "sm_100"',
            everything_of(*UNITS, architectures="sm_100"),
        ),
        ('"sm_80", "sm_90"', '"sm_90", "sm_80"', set()),
        ('"sm_80", "sm_90"', '"sm_80"', set()),
        ('"scale<float>"', '"scale<float>", "scale<double>"', everything_of("scale")),
        ("instantiate", 'compress = "none"\ninstantiate', set()),
        ("instantiate", 'emit = "cubin"\ninstantiate', set()),
        ("instantiate", "jit = false\ninstantiate", set()),
        ("instantiate", 'define = { NEW = "1" }\ninstantiate', everything_of(*UNITS)),
        ('pre-include = ["before.cuh"]', 'define = { VALUE = "1" }', everything_of(*UNITS)),
    ],
)
def test_a_key_compiles_the_units_that_it_affects(
    project: Path, old: str, new: str, expected: set[str]
) -> None:
    edited(project, "pyproject.toml", lambda text: text)
    (project / "pyproject.toml").write_text(TABLE.replace(old, new))
    assert compiled(project) == expected


def test_all_options_are_in_the_keys_of_a_compilation(own_cache: None) -> None:
    changed = {
        "std": "c++20",
        "define": {"NEW": "1"},
        "raw": ("-lineinfo",),
        "pre_include": ("cuda_fp16.h",),
        "fast_math": True,
        "relaxed_constexpr": True,
        "relocatable": True,
        "std_headers": False,
        "skip_host_code": True,
    }
    assert list(changed) == list(Options._fields)
    options = [Options(), *(Options(**{name: value}) for name, value in changed.items())]
    with closing(open_store(os.environ, lambda _: None)) as store:
        digests = FileDigests(store)
        compiler = RememberedCompiler.open(CompilerChoice(), os.environ, store, digests)
        jobs = JobCache(compiler, store, digests)
        units = [TranslationUnit("device/a.cu", b"", options=each) for each in options]
        units += (units[0].replace(constants=each) for each in (("1",), ("2",), ("1", "2")))
        keys = {jobs.keys(CompileJob(unit, (Architecture.parse("sm_90"),))) for unit in units}
    assert len(keys) == len(units)


def test_one_of_two_images_of_a_pass_is_known_by_itself(project: Path) -> None:
    both, cubin, ptx = ('["sm_90", "compute_90"]', '["sm_90"]', '["compute_90"]')
    old = '["sm_80", "sm_90"]'
    (project / "pyproject.toml").write_text(TABLE.replace(old, both))
    assert compiled(project) == {f"device/{unit}.cu sm_90, compute_90" for unit in UNITS}
    for one in (cubin, ptx):
        (project / "pyproject.toml").write_text(TABLE.replace(old, one))
        assert compiled(project) <= set()


def test_an_override_compiles_the_units_that_it_affects(project: Path) -> None:
    override = '[[tool.cuda_ext.modules."p.kernels".overrides]]\nsources = ["device/b.cu"]\n'
    (project / "pyproject.toml").write_text(f'{TABLE}{override}define = {{ NEW = "1" }}\n')
    assert compiled(project) == everything_of("b")


def test_an_added_or_removed_source_is_the_only_change(project: Path) -> None:
    edited(project, "device/new.cu", lambda _: COMMON + KERNEL.format("fresh"))
    (project / "device/a.cu").unlink()
    assert compiled(project) == everything_of("new")


def test_a_header_of_the_project_that_appears_earlier_on_the_path(project: Path) -> None:
    edited(project, "first/common.cuh", lambda _: FILES["include/deep.cuh"])
    assert compiled(project) == everything_of(*SHARING)
    (project / "first/common.cuh").unlink()
    assert compiled(project) == set()


def test_modules_compile_shared_units_once(project: Path) -> None:
    second = TABLE[TABLE.index("[tool.cuda_ext.modules") :].replace("p.kernels", "p.other")
    (project / "pyproject.toml").write_text(f"{TABLE}{second}")
    edited(project, "device/alone.cu", with_comment)
    lines: list[str] = []
    one, other = build(project, lines).values()
    assert one.files["alone.fatbin"] == other.files["alone.fatbin"]
    # Libraries of unedited units come from the cache.
    assert re.fullmatch(r"2 compilations: 2 compiled, in .*", lines[-1]), lines


# Headers of others: in an absolute directory that the options name.


def using(root: Path, *directories: str, source: str = "#include <x.h>\n", options: str = "") -> Path:
    """A project whose kernel needs ``V``, with `directories` below `root` on the search path."""
    named = "".join(f'"-I{root / directory}", ' for directory in directories)
    table = f'[tool.cuda_ext]\narchitectures = ["sm_90"]\noptions = [{named}{options}]\n'
    module = '[tool.cuda_ext.modules."p.kernels"]\ninclude-dirs = ["include"]\n'
    files = {"device/u.cu": source + SETS_V, "include/other.cuh": ""}
    return write_project(root / "project", f"{table}{module}", files)


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


SETS_V = 'extern "C" __global__ void kernel(int* x) { *x = V; }\n'
ALL = everything_of("u", architectures="sm_90")


def test_a_header_of_others_that_changes(own_cache: None, tmp_path: Path) -> None:
    directives = [
        "#include <x.h>",
        '#include "x.h"',
        "#/* */include <x.h>",
        "# \\\n include <x.h>",
        "%:include <x.h>",
        "#define HEADER <x.h>\n#include HEADER",
    ]
    written(tmp_path / "lib/x.h", "#define V 1\n")
    root = using(tmp_path, "lib")
    for number, directive in enumerate(directives):
        text = f"{directive}\n{SETS_V.replace('kernel', f'kernel{number}')}"
        edited(root, f"device/u{number}.cu", lambda _, text=text: text)
    units = ["u", *(f"u{number}" for number in range(len(directives)))]
    build(root)
    written(tmp_path / "lib/x.h", "#define V 2\n")
    assert compiled(root) == everything_of(*units, architectures="sm_90")
    os.utime(tmp_path / "lib/x.h", (1, 1))
    assert compiled(root) == set()


@pytest.mark.parametrize("link", ["true", "false"])
def test_headers_of_one_name_in_different_directories(own_cache: None, tmp_path: Path, link: str) -> None:
    for name in "ab":
        written(tmp_path / name / "x.h", "#define V 1\n")
    overrides = "".join(
        f'[[tool.cuda_ext.modules."p.kernels".overrides]]\n'
        f'sources = ["device/{name}.cu"]\noptions = ["-I{tmp_path / name}"]\n'
        for name in "ab"
    )
    table = (
        f'[tool.cuda_ext]\narchitectures = ["sm_90"]\n[tool.cuda_ext.modules."p.kernels"]\nlink = {link}\n'
    )
    sources = {f"device/{name}.cu": "#include <x.h>\n" + SETS_V.replace("kernel", name) for name in "ab"}
    root = write_project(tmp_path / "project", table + overrides, sources)
    build(root)
    for name in "ba":
        written(tmp_path / name / "x.h", "#define V 2\n")
        assert compiled(root) >= everything_of(name, architectures="sm_90")
        assert compiled(root) == set()


@pytest.mark.parametrize("option", ['"--pre-include={}"', '"-include", "{}"', '"-include={}"'])
def test_a_header_that_an_option_includes(own_cache: None, tmp_path: Path, option: str) -> None:
    written(tmp_path / "x.h", "#define V 1\n")
    root = using(tmp_path, source="", options=option.format(tmp_path / "x.h"))
    assert compiled(root) == ALL
    written(tmp_path / "x.h", "#define V 2\n")
    assert compiled(root) == ALL


V1, V2 = "#define V 1\n", "#define V 2\n"
ASKS = "#define NAME <y.h>\n#if __has_include({})\n#define V 2\n#else\n#define V 1\n#endif\n"
# The source, the headers of others, and the one that appears or changes; the content of a header counts, and
# not its path.
OTHERS = {
    "an earlier directory": ("#include <x.h>\n", {"two/x.h": V1}, ("one/x.h", V2), ALL),
    "a directory of the project": ("#include <x.h>\n", {"two/x.h": V1}, ("project/include/x.h", V2), ALL),
    "the same in an earlier directory": ("#include <x.h>\n", {"two/x.h": V1}, ("one/x.h", V1), set[str]()),
    "one that another hides from its shorter name": (
        "#include <detail/config.h>\n",
        {"one/config.h": "#define OTHER 1\n", "one/detail/config.h": V1},
        ("one/detail/config.h", V2),
        ALL,
    ),
    "the directory of the includer": (
        "#include <sub/x.h>\n",
        {"one/sub/x.h": '#include "y.h"\n', "one/y.h": V1},
        ("one/sub/y.h", V2),
        ALL,
    ),
    "one that another asks for": (
        "#include <x.h>\n",
        {"one/x.h": ASKS.format("<y.h>")},
        ("one/y.h", ""),
        ALL,
    ),
    **{
        f"{asked} in {place}": (ASKS.format(asked), dict[str, str](), (f"{place}/y.h", ""), ALL)
        for asked, place in (
            *(("<y.h>", "one"), ('"y.h"', "one"), ("NAME", "one")),
            *(("<y.h>", "project/include"), ('"y.h"', "project/device")),
        )
    },
}


@pytest.mark.parametrize("where", OTHERS)
def test_a_header_of_others_that_appears(own_cache: None, tmp_path: Path, where: str) -> None:
    source, headers, (name, text), expected = OTHERS[where]
    for each, content in headers.items():
        written(tmp_path / each, content)
    root = using(tmp_path, "one", "one/detail", "two", source=source)
    assert compiled(root) == ALL
    written(tmp_path / name, text)
    assert compiled(root) == expected
    if name not in headers:
        (tmp_path / name).unlink()
        assert compiled(root) == set()


def test_headers_with_odd_names(own_cache: None, tmp_path: Path) -> None:
    names = ["größe.h", "a b.h", "it's.h", "a#b.h", "a$b.h", "a%b.h"]
    source = "".join(f'#include <{name}>\n#include "own {name}"\n' for name in names)
    root = using(tmp_path, "lib", source=f"{source}#define V 1\n")
    for name in names:
        written(tmp_path / "lib" / name, "")
        written(root / "device" / f"own {name}", "")
    build(root)
    places = [
        *(tmp_path / "lib" / name for name in names),
        *(root / "device" / f"own {name}" for name in names),
    ]
    for place in places[::3]:
        place.write_text("// A comment.\n")
        assert compiled(root) == ALL, place


def test_a_header_of_others_that_changes_while_it_is_compiled(own_cache: None, tmp_path: Path) -> None:
    """Which of the two was compiled is unknown, so the next build compiles again."""
    header = tmp_path / "lib/x.h"
    written(header, "#define V 1\n")
    os.utime(header, ns=(0, header.stat().st_mtime_ns))
    root = using(tmp_path, "lib")

    is_built = threading.Event()

    def edit() -> None:
        while header.stat().st_atime_ns == 0 and not is_built.wait(0.001):
            pass
        header.write_text("#define V 2\n")

    editing = threading.Thread(target=edit)
    editing.start()
    build(root)
    is_built.set()
    editing.join()
    after = build(root)
    shutil.rmtree(tmp_path / "cache/objects")
    assert build(root) == after


# nvcc tells what it read in another way.


@pytest.mark.host_compiler
@pytest.mark.slow
def test_nvcc_compiles_the_units_that_read_a_change(own_cache: None, tmp_path: Path) -> None:
    written(tmp_path / "lib/x y$z.h", "#define V 1\n")
    source = '#include <x y$z.h>\n#include "own.cuh"\n#if 0\n#include "unread.cuh"\n#endif\n'
    root = using(tmp_path, "early", "lib", source=source)
    table = (root / "pyproject.toml").read_text() + 'compiler = "nvcc"\n'
    (root / "pyproject.toml").write_text(table)
    for name in ("include/own.cuh", "include/unread.cuh"):
        edited(root, name, with_comment)
    edited(root, "device/alone.cu", lambda _: FILES["device/alone.cu"])
    assert compiled(root) == everything_of("u", "alone", architectures="sm_90")
    edited(root, "include/unread.cuh", with_comment)
    for path in root.rglob("*"):
        os.utime(path, (1, 1))
    root = root.rename(root.with_name("moved"))
    assert compiled(root) == set()
    edited(root, "include/own.cuh", with_comment)
    assert compiled(root) == ALL
    for directory in ("lib", "early"):
        written(
            tmp_path / directory / "x y$z.h",
            "#define V 2 // Changed.\n" if directory == "lib" else "#define V 3\n",
        )
        assert compiled(root) == ALL, directory
    (root / "pyproject.toml").write_text(table.replace('"sm_90"', '"sm_90", "sm_100"'))
    assert compiled(root) == everything_of("u", "alone", architectures="sm_100")


OUTSIDE = """
[tool.cuda_ext]
architectures = ["sm_90"]
[tool.cuda_ext.modules."p.kernels"]
options = ["-I{first}", "-I{second}"]
"""


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("name", ["first", "second"])
def test_what_was_compiled_while_a_header_changed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Which state of the header the compiler read is unknown."""
    monkeypatch.setenv("MAX_JOBS", "1")
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
    (second / "outside.h").write_text("#define VALUE 2")
    source = '#include <outside.h>\nextern "C" __global__ void k{0}(int* x) {{ *x = VALUE; }}\n'
    files = {f"device/u{i}.cu": source.format(i) for i in range(4)}
    root = write_project(tmp_path / "p", OUTSIDE.format(first=first, second=second), files)
    header = tmp_path / name / "outside.h"

    def change(line: str) -> None:
        if line.startswith("[1/"):
            header.write_text("#define VALUE 3")

    build_project(load(root), change)
    header.unlink()
    (second / "outside.h").write_text("#define VALUE 2")
    after = build(root)
    create_empty_cache(tmp_path / "other cache")
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "other cache"))
    assert build(root) == after
