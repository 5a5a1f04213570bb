"""From configuration to translation units: sources, headers, architectures, instantiations."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from cuda_ext.builder.sources import globs, plan
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.compiler.compile_options import common_options
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.module_plan import ModulePlan
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError
from cuda_ext.formats.spelling import normalise
from cuda_ext.toolchain.nvrtc import Nvrtc
from tests.fixtures.messages import Messages
from tests.fixtures.projects import FILL, SCALE, load, write_project

WHERE = 'tool.cuda_ext.modules."p.kernels"'
TABLE = f"[{WHERE}]\n"
OVERRIDES = f"[[{WHERE}.overrides]]\n"


Files = Mapping[str, str | bytes]


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return Nvrtc()


@pytest.fixture(autouse=True)
def _no_architectures_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDAARCHS", raising=False)


def sources(root: Path) -> list[str]:
    (module,) = load(root).modules
    return globs.find_sources(module, FileTree(root))


def planned(root: Path, nvrtc: Nvrtc) -> ModulePlan:
    """The plan of the only module."""
    (module,) = load(root).modules
    found = Sources(module, FileTree(root))
    globs.check_overrides([(module, found.names)])
    return plan.plan_module(module, found, lambda _: nvrtc)


def unit(root: Path, nvrtc: Nvrtc) -> TranslationUnit:
    """The only translation unit of the only module."""
    return planned(root, nvrtc).libraries[0].units[0]


def refused(root: Path, nvrtc: Nvrtc) -> str:
    with pytest.raises(BuildError) as caught:
        planned(root, nvrtc)
    return str(caught.value)


# Sources.


ANYWHERE = f'{TABLE}sources = ["**/*.cu"]'


@pytest.mark.parametrize(
    ("table", "files", "found"),
    [
        (
            f'{TABLE}sources = ["device/*.cu", "device/b.cu", "./device/deep/**/*.cu", "c.ptx"]',
            "device/deep/er/e.cu device/deep/d.cu device/b.cu device/a.cu c.ptx",
            "c.ptx device/a.cu device/b.cu device/deep/d.cu device/deep/er/e.cu",
        ),
        (TABLE, "device/a.cu device/a.cuh device/b.txt", "device/a.cu"),
        # Editors and file systems leave hidden files beside the real ones.
        (ANYWHERE, "device/a.cu device/._a.cu .venv/lib/b.cu", "device/a.cu"),
        # An earlier build embedded the second.
        (ANYWHERE, "device/a.cu p/kernels/sources/device/a.cu p/kernels/manifest.json", "device/a.cu"),
        # A name is taken literally before it is a glob.
        (f'{TABLE}sources = ["device/[ab].cu"]', "device/[ab].cu device/a.cu", "device/[ab].cu"),
        (TABLE, "device/größe日本.cu", "device/größe日本.cu"),
    ],
    ids=["sorted", "headers", "hidden", "embedded", "literal", "letters"],
)
def test_sources_are_what_patterns_match(tmp_path: Path, table: str, files: str, found: str) -> None:
    write_project(tmp_path, table, dict.fromkeys(files.split(), ""))
    (tmp_path / "device/.#a.cu").symlink_to("somebody@somewhere.1234")  # of an editor
    assert sources(tmp_path) == found.split()


def test_a_project_is_found_through_a_link(tmp_path: Path) -> None:
    write_project(tmp_path / "mein Projekt ü", TABLE)
    (tmp_path / "link").symlink_to("mein Projekt ü")
    assert load(tmp_path / "link").root == (tmp_path / "mein Projekt ü").resolve()
    assert sources(tmp_path / "mein Projekt ü") == ["device/fill.cu"]


def test_a_source_may_be_a_link_within_the_project(tmp_path: Path) -> None:
    write_project(tmp_path, TABLE, {"real/a.cu": "", "device/b.cu": ""})
    (tmp_path / "device/a.cu").symlink_to("../real/a.cu")
    assert sources(tmp_path) == ["device/a.cu", "device/b.cu"]


@pytest.mark.parametrize("target", ["outside/a.cu", "outside"])
def test_a_link_out_of_the_project_is_refused(
    tmp_path: Path, nvrtc: Nvrtc, target: str, messages: Messages
) -> None:
    root = write_project(tmp_path / "project", TABLE, {"README": ""})
    write_project(tmp_path, files={"outside/a.cu": FILL})
    link = root / ("device/a.cu" if target.endswith(".cu") else "device")
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / target)
    messages(refused(root, nvrtc))


def test_a_link_to_nowhere_is_refused(tmp_path: Path, nvrtc: Nvrtc, messages: Messages) -> None:
    write_project(tmp_path, TABLE)
    (tmp_path / "device/gone.cu").symlink_to("renamed.cu")
    messages(refused(tmp_path, nvrtc))


@pytest.mark.parametrize("name", ["\udc80", "a\x1b", "a\nb", "a\u202e"])
def test_a_name_that_is_no_plain_text_is_refused(tmp_path: Path, nvrtc: Nvrtc, name: str) -> None:
    complaint = "has a control character, a backslash, or bytes that are not UTF-8; rename it"
    write_project(tmp_path, TABLE)
    source, header = tmp_path / f"device/{name}.cu", tmp_path / f"device/{name}.h"
    try:
        header.touch()
    except OSError:
        pytest.skip("this file system takes no such name")
    if "\n" not in name:
        (tmp_path / "device/a.cu").write_bytes(os.fsencode(f'#include "{name}.h"\n{FILL}'))
        assert refused(tmp_path, nvrtc) == f"device/a.cu: {f'device/{name}.h'!r} {complaint}"
    source.write_text(FILL)
    assert refused(tmp_path, nvrtc) == f"{WHERE}.sources: {f'device/{name}.cu'!r} {complaint}"


# What an sdist must hold.


def test_source_files_are_the_sources_and_the_headers_that_they_reach(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        f'{TABLE}include-dirs = ["include"]\npre-include = ["first.cuh"]',
        {
            "device/a.cu": '#include "near.cuh"\n#include <cuda_fp16.h>',
            "device/near.cuh": "#include <far/deep.cuh>",
            "device/unused.cuh": "",
            "include/far/deep.cuh": "",
            "include/first.cuh": "",
        },
    )
    assert [p.as_posix() for p in load(tmp_path).source_files()] == [
        "device/a.cu",
        "device/near.cuh",
        "include/far/deep.cuh",
        "include/first.cuh",
    ]


def test_source_files_need_no_compiler_and_no_architectures(tmp_path: Path) -> None:
    write_project(tmp_path, f'{TABLE}compiler = "nvcc"\nnvcc = "/nowhere"\narchitectures = ["native"]')
    assert load(tmp_path).source_files() == [Path("device/fill.cu")]


# Include directories.


def test_an_include_directory_is_no_link_out_of_the_project(
    tmp_path: Path, nvrtc: Nvrtc, messages: Messages
) -> None:
    root = write_project(tmp_path / "project", f'{TABLE}include-dirs = ["include"]')
    (tmp_path / "elsewhere").mkdir()
    (root / "include").symlink_to("../elsewhere")
    messages(refused(root, nvrtc))


# What a unit is compiled with.


def test_a_unit_carries_its_settings(tmp_path: Path, nvrtc: Nvrtc) -> None:
    table = f"""{TABLE}
    std = "c++20"
    define = {{ B = 2, A = "1" }}
    options = ["--maxrregcount=32"]
    pre-include = ["first.cuh", "cuda_fp16.h"]
    include-dirs = ["device"]
    fast-math = true
    """
    write_project(tmp_path, table, {"device/a.cu": FILL, "device/first.cuh": ""})
    assert common_options(unit(tmp_path, nvrtc).options) == (
        "--std=c++20",
        "-DA=1",
        "-DB=2",
        "--use_fast_math",
        "--pre-include=device/first.cuh",
        "--pre-include=cuda_fp16.h",
        "--maxrregcount=32",
    )


def test_an_override_is_for_its_unit_only(tmp_path: Path, nvrtc: Nvrtc) -> None:
    table = f'{TABLE}{OVERRIDES}sources = ["device/b.cu"]\narchitectures = ["sm_90a"]\ndefine = {{ A = "1" }}'
    write_project(tmp_path, table, {"device/a.cu": "", "device/b.cu": ""})
    a, b = planned(tmp_path, nvrtc).libraries
    assert (a.units[0].options.define, b.units[0].options.define) == ({}, {"A": "1"})
    assert [str(x) for x in b.architectures] == ["sm_90a"]
    assert len(a.architectures) > 1


def test_an_override_among_the_defaults_is_for_a_source_of_any_module(tmp_path: Path) -> None:
    table = """
    [[tool.cuda_ext.overrides]]
    sources = ["b.cu"]
    [tool.cuda_ext.modules."p.a"]
    sources = ["a.cu"]
    [tool.cuda_ext.modules."p.b"]
    sources = ["b.cu"]
    """
    write_project(tmp_path, table, {"a.cu": "", "b.cu": ""})
    globs.check_overrides((m, globs.find_sources(m, FileTree(tmp_path))) for m in load(tmp_path).modules)


# Architectures. CUDA 12 and 13 both know sm_90 and sm_100.


def architectures(root: Path, nvrtc: Nvrtc, *names: str, more: str = "") -> list[str]:
    """Return the architectures for these names in the configuration."""
    listed = ", ".join(f'"{n}"' for n in names)
    write_project(root, f"{TABLE}architectures = [{listed}]\n{more}")
    return [str(a) for a in planned(root, nvrtc).libraries[0].architectures]


def test_architectures_are_sorted_by_number(tmp_path: Path, nvrtc: Nvrtc) -> None:
    names = ("compute_100", "sm_100", "lto_90", "compute_90", "sm_90a", "sm_90", "sm_100f", "sm_80", "sm_90")
    assert architectures(tmp_path, nvrtc, *names) == [
        *("sm_80", "sm_90", "compute_90", "lto_90", "sm_90a"),
        *("sm_100", "compute_100", "sm_100f"),
    ]


def test_all_is_every_architecture_and_the_newest_ptx(tmp_path: Path, nvrtc: Nvrtc) -> None:
    numbers = nvrtc.capabilities()
    assert architectures(tmp_path, nvrtc, "all") == [f"sm_{n}" for n in numbers] + [f"compute_{numbers[-1]}"]


def test_all_major_is_the_lowest_of_each_generation_and_the_newest_ptx(tmp_path: Path, nvrtc: Nvrtc) -> None:
    found = architectures(tmp_path, nvrtc, "all-major")
    assert found[-1] == found[-2].replace("sm", "compute")
    assert {"sm_80", "sm_90", "sm_100"} <= set(found)
    assert {"sm_86", "sm_89", "sm_103"}.isdisjoint(found)


def test_all_major_is_the_default(tmp_path: Path, nvrtc: Nvrtc) -> None:
    write_project(tmp_path, TABLE)
    default = [str(a) for a in planned(tmp_path, nvrtc).libraries[0].architectures]
    assert default == architectures(tmp_path, nvrtc, "all-major")


def test_native_is_the_gpus_of_the_machine(
    tmp_path: Path, nvrtc: Nvrtc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "gpu_capabilities", lambda: [90, 100, 90])
    write_project(tmp_path, TABLE)
    assert architectures(tmp_path, nvrtc, "native", "sm_80") == ["sm_80", "sm_90", "sm_100"]


@pytest.mark.parametrize(
    ("emit", "names", "targets"),
    [
        ("cubin", ["sm_90", "compute_90"], ["sm_90"]),
        ("ptx", ["sm_90a", "compute_90"], ["compute_90", "compute_90a"]),
        ("ltoir", ["sm_80", "compute_90"], ["lto_80", "lto_90"]),
    ],
)
def test_emit_decides_the_kind_of_images(
    tmp_path: Path, nvrtc: Nvrtc, emit: str, names: list[str], targets: list[str]
) -> None:
    assert architectures(tmp_path, nvrtc, *names, more=f'emit = "{emit}"') == targets


# CUDAARCHS.


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("90", ["sm_90", "compute_90"]),
        ("90-real", ["sm_90"]),
        ("90-virtual", ["compute_90"]),
        ("100;90a-real", ["sm_90a", "sm_100", "compute_100"]),
        (" 80-real, 90-real ", ["sm_80", "sm_90"]),
        ("sm_90;compute_80", ["compute_80", "sm_90"]),
        ("all-major", None),
        ("", ["sm_75"]),
        (" ; ", ["sm_75"]),
    ],
)
def test_cudaarchs_is_spelled_as_for_cmake(
    tmp_path: Path, nvrtc: Nvrtc, monkeypatch: pytest.MonkeyPatch, text: str, targets: list[str] | None
) -> None:
    wanted = targets or architectures(tmp_path, nvrtc, text)
    monkeypatch.setenv("CUDAARCHS", text)
    assert architectures(tmp_path, nvrtc, "sm_75") == wanted


def test_cudaarchs_leaves_overrides_alone(
    tmp_path: Path, nvrtc: Nvrtc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDAARCHS", "80-real")
    table = f'{TABLE}{OVERRIDES}sources = ["device/b.cu"]\narchitectures = ["sm_90a"]'
    write_project(tmp_path, table, {"device/a.cu": "", "device/b.cu": ""})
    targets = [[str(a) for a in u.architectures] for u in planned(tmp_path, nvrtc).libraries]
    assert targets == [["sm_80"], ["sm_90a"]]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("91", "nvrtc {} cannot compile for 'sm_91'; did you mean 'sm_90'?"),
        ("90-cubin", "unknown architecture '90-cubin'; did you mean 'sm_90'?"),
        ("9" * 5000, f"unknown architecture 'sm_{'9' * 9}...{'9' * 13}'; did you mean "),
        ("native", '"native" means the GPUs of this machine'),
    ],
)
def test_a_mistake_in_cudaarchs_is_reported(
    tmp_path: Path, nvrtc: Nvrtc, monkeypatch: pytest.MonkeyPatch, text: str, answer: str
) -> None:
    monkeypatch.setenv("CUDAARCHS", text)
    write_project(tmp_path, TABLE)
    assert refused(tmp_path, nvrtc).startswith(f"CUDAARCHS: {answer.format(nvrtc.version)}")


# Instantiations: each goes to the unit that defines its kernel.


def assigned(
    root: Path, nvrtc: Nvrtc, instantiate: str, files: Files, more: str = ""
) -> dict[str, list[str]]:
    write_project(root, f"{TABLE}instantiate = {instantiate}\n{more}", files)
    units = [unit for library in planned(root, nvrtc).libraries for unit in library.units]
    return {unit.name: list(unit.instantiate) for unit in units}


OTHER = "template <class T> __global__ void __launch_bounds__(256, 2) other(T* x) {}\n"


IN_B = f"namespace b {{ {SCALE} }}"
MACRO = "#define KERNEL(name) template <class T> __global__ void name(T* x) {}\nKERNEL(scale)\n"
COMMENTS = "// __global__ void scale(int)\n/* __global__ void scale(float) */\n"


@pytest.mark.parametrize(
    ("instantiate", "a", "b", "assigned_to"),
    [
        (
            ["other<int>", "scale<float>", "other<float>"],
            SCALE,
            OTHER,
            (["scale<float>"], ["other<int>", "other<float>"]),
        ),
        (["a::b::scale<c::T>"], f"namespace a::b {{ {SCALE} }}", OTHER, (["a::b::scale<c::T>"], [])),
        (["scale<float>"], '#include "scale.cuh"', OTHER, (["scale<float>"], [])),
        (["scale<float>"], MACRO, OTHER, (["scale<float>"], [])),
        (["scale<float>"], SCALE, COMMENTS + OTHER, (["scale<float>"], [])),
        (
            ["scale< float >", "scale<float>", "scale<int>"],
            SCALE,
            OTHER,
            (["scale<float>", "scale<int>"], []),
        ),
        (["scale<int>", "b::scale<float>"], SCALE, IN_B, (["scale<int>"], ["b::scale<float>"])),
    ],
    ids=["own text", "namespaces", "header", "macro", "comment", "space", "same name"],
)
def test_an_instantiation_goes_to_the_unit_that_defines_its_kernel(
    tmp_path: Path, nvrtc: Nvrtc, instantiate: list[str], a: str, b: str, assigned_to: tuple[list[str], ...]
) -> None:
    files: Files = {"device/a.cu": a, "device/b.cu": b, "device/scale.cuh": SCALE}
    found = assigned(tmp_path, nvrtc, json.dumps(instantiate), files)
    assert tuple([normalise(each) for each in own] for own in found.values()) == assigned_to


@pytest.mark.parametrize(
    ("files", "more", "owners"),
    [
        ({"device/a.cuh": SCALE}, "", ["device/a.cu"]),
        ({"device/a.cuh": SCALE}, f'{OVERRIDES}sources = ["device/b.cu"]\ninstantiate = []', ["device/a.cu"]),
        ({"device/a.cuh": SCALE}, f'{OVERRIDES}sources = ["device/b.cu"]\nstd = "c++20"', []),
        ({"device/b.cuh": SCALE, "device/c.cuh": SCALE}, "", []),
    ],
)
def test_of_two_sources_the_first_instantiates_a_template_of_a_header_of_both(
    tmp_path: Path, nvrtc: Nvrtc, files: dict[str, str], more: str, owners: list[str]
) -> None:
    headers = list(map(Path, files))
    sources: Files = {
        "device/a.cu": f'#include "{headers[0].name}"',
        "device/b.cu": f'#include "{headers[-1].name}"',
    }
    if owners:
        found = assigned(tmp_path, nvrtc, '["scale<float>"]', {**sources, **files}, more)
        assert [name for name, expressions in found.items() if expressions] == owners
    else:
        write_project(tmp_path, f'{TABLE}instantiate = ["scale<float>"]\n{more}', {**sources, **files})
        assert "device/a.cu and device/b.cu each define 'scale'" in refused(tmp_path, nvrtc)


def test_the_instantiations_of_an_override_are_its_sources_own(tmp_path: Path, nvrtc: Nvrtc) -> None:
    more = f'{OVERRIDES}sources = ["device/b.cu"]\ninstantiate = ["scale<int>"]'
    files: Files = {"device/a.cu": SCALE, "device/b.cu": IN_B + OTHER}
    assert assigned(tmp_path, nvrtc, '["other<int>"]', files, more) == {
        "device/a.cu": [],
        "device/b.cu": ["scale<int>", "other<int>"],
    }
