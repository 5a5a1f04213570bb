"""Includes of any form lead where host compilers, NVRTC and nvcc find them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import cuda_ext
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.headers import Headers
from cuda_ext.compiler.translation_unit import NAMED, TranslationUnit
from cuda_ext.errors import BuildError, CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Options
from cuda_ext.runtime.module import module_from
from cuda_ext.text.directives import definitions_of
from cuda_ext.text.macros import find_macros
from cuda_ext.toolchain.programs.nvcc_inputs import write_files
from cuda_ext.toolchain.programs.nvrtc_program import NvrtcProgram
from tests.fixtures.device_code import module, nvcc
from tests.text.include_cases import BY_NVCC, CASES, INCLUDE_DIRS, QUICKLY_BY_NVCC, TREE, Case

SOURCE = "device/a.cu"
COMPUTE_80 = Architecture.parse("compute_80")


def write(root: Path, files: Mapping[str, str | bytes], links: Mapping[str, str] = {}) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    for seconds, name in enumerate(files, 1_000_000_000):
        os.utime(root / name, (seconds, seconds))
    for name, target in links.items():
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)


def written(directory: Path, case: Case) -> Path:
    root = Path(os.path.realpath(directory)) / "project"
    write(root, {**TREE, **case.files, SOURCE: case.source}, case.links)
    return root


def gather(root: Path, define: Mapping[str, str] = {}) -> TranslationUnit:
    headers = Headers(FileTree(root), [root / name for name in INCLUDE_DIRS])
    text, found = headers.gather(SOURCE, definitions=definitions_of(define, ()))
    return TranslationUnit(SOURCE, text, headers=found, options=Options(define=dict(define)))


class Preprocessed:
    """What g++ makes of the source in `root`, and the files that it reads; ``None`` if it refuses."""

    def __init__(self, root: Path, case: Case, *options: str) -> None:
        macros = [f"-D{name}={value}" for name, value in case.define.items()]
        command = [
            "g++",
            "-x",
            "c++",
            f"-std={case.std}",
            "-w",
            "-E",
            "-P",
            "-MMD",
            "-MF",
            "a.d",
            *options,
            *macros,
            SOURCE,
        ]
        ended = subprocess.run(command, cwd=root, capture_output=True, check=False)
        self.text = ended.stdout if ended.returncode == 0 else None
        self.tokens = None if self.text is None else self.text.split()
        rule = (root / "a.d").read_text() if (root / "a.d").exists() else ":"
        names = re.findall(r"(?:\\.|\S)+", rule.partition(":")[2].replace("\\\n", " "))
        self.reads = {os.path.realpath(root / re.sub(r"\\(.)", r"\1", name)) for name in names}


def kernels(unit: TranslationUnit) -> set[str] | None:
    """The kernels in NVRTC's image of `unit`; ``None`` if it refuses."""
    program = NvrtcProgram(unit)
    macros = [f"-D{name}={value}" for name, value in unit.options.define.items()]
    if not program.try_compile(["-arch=compute_80", "-std=c++17", *macros]):
        return None
    return entries(program.image("ptx"))


def entries(ptx: bytes) -> set[str]:
    return set(re.findall(r"\.entry (\w+)", ptx.decode()))


@pytest.mark.host_compiler
@pytest.mark.parametrize("name", CASES)
def test_all_that_a_host_compiler_reads_is_gathered(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    root = written(tmp_path, case)
    plain = Preprocessed(root, case, *(f"-I{each}" for each in INCLUDE_DIRS))
    unit = gather(root, case.define)
    ours = {os.path.realpath(root / each) for each in (SOURCE, *unit.header_files)}
    if plain.text is not None:
        assert plain.reads <= ours

    write_files(tmp_path / "copy", {**unit.headers, SOURCE: unit.source})
    copied = Preprocessed(tmp_path / "copy", case, "-iquote.", f"-I{NAMED}")
    assert copied.tokens == plain.tokens
    if case.comparable:
        expected = None if plain.text is None else kernels(TranslationUnit(SOURCE, plain.text))
        assert kernels(unit) == expected


@pytest.mark.host_compiler
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICKLY_BY_NVCC)) for n in BY_NVCC]
)
def test_nvcc_reads_what_plain_nvcc_reads(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    root = written(tmp_path, case)
    macros = [f"-D{macro}={value}" for macro, value in case.define.items()]
    directories = [f"-I{each}" for each in INCLUDE_DIRS]
    options = ["-ptx", "-arch=compute_80", f"-std={case.std}", "-o", "a.ptx", *directories, *macros]
    plain = subprocess.run([nvcc().executable, *options, SOURCE], cwd=root, capture_output=True, check=False)
    unit = gather(root, case.define)
    if plain.returncode:
        with pytest.raises(CompilationError):
            nvcc().compile(unit, [COMPUTE_80])
        return
    (image,) = nvcc().compile(unit, [COMPUTE_80])
    assert entries(image.data) == entries((root / "a.ptx").read_bytes())


@pytest.mark.parametrize(
    ("files", "others"),
    [
        (
            {
                "device/a.cu": '#define N "n.h"\n#include N\n#include "../common/b.h"',
                "common/b.h": "#include N",
            },
            "common/n.h",
        ),
        ({"device/a.cu": "#define N <n.h>\n#include N", "inc/n.h": ""}, "n.h"),
    ],
)
def test_a_name_that_a_macro_makes_leads_to_one_file(
    files: dict[str, str], others: str, tmp_path: Path
) -> None:
    """In memory, a header has one name."""
    root = Path(os.path.realpath(tmp_path))
    write(root, {"device/n.h": "", **files, others: ""})
    with pytest.raises(BuildError, match=rf"'n\.h', which a macro makes, may be .*{others}|device/n\.h"):
        gather(root)


def test_a_line_keeps_its_number(tmp_path: Path) -> None:
    root = written(tmp_path, Case('#include \\\n"co\\\nnfig.h" /*\n*/\nthis is no declaration;\n'))
    program = NvrtcProgram(gather(root))
    assert not program.try_compile(["-arch=compute_80"])
    assert program.log.startswith("device/a.cu(5): error")


@pytest.mark.parametrize("condition", ["#ifndef A\n", "#if !defined(A)\n", "#if "])
def test_many_comments_behind_a_condition_are_read_once(condition: str) -> None:
    """A pattern that tried each way to divide them into comments would not come to an end."""
    comments = "/* a */ " * 200 + "\n" + "/* b */\n" * 200
    text = f"{condition}{comments}int x;\n#define B\n"
    assert [macro.name for macro in find_macros(text.encode())] == ["B"]


def test_names_that_macros_make_are_embedded(tmp_path: Path, empty_cache: Path) -> None:
    text = "#define NAME <n.h>\n#include NAME\ntemplate <class T> __global__ void k(T* x) { *x = n; }\n"
    root = written(tmp_path, Case(text, {"inc/n.h": "constexpr int n = 1;\n"}))
    compiled = module(gather(root).replace(instantiate=("k<int>",)))
    assert {name.removeprefix("sources/") for name in compiled.files if name.startswith("sources/")} == {
        SOURCE, f"{NAMED}n.h", "inc/n.h",
    }  # fmt: skip
    loaded = module_from(compiled.manifest, compiled.files.__getitem__)
    prepared = cuda_ext.prepare(loaded, ["k<double>"], architectures=["sm_90"])
    assert prepared.compiled == ("k<double> for sm_90",)
