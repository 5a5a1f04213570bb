"""``[tool.cuda_ext]``: keys and their values, inheritance, and the messages for mistakes."""

from __future__ import annotations

import dataclasses
import datetime
import math
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.builder.config.keys import BuildSettings, Settings
from cuda_ext.builder.config.modules import ModuleConfig, parse_table
from cuda_ext.builder.config.tune_table import Candidate as Tuned
from cuda_ext.builder.config.tune_table import Tune
from cuda_ext.builder.project import Project, default_module_name
from cuda_ext.errors import ConfigError
from cuda_ext.facts.candidates import Candidate, Term, Tuning, Variants
from cuda_ext.facts.launches import FixedLaunch
from tests.fixtures.messages import Messages
from tests.fixtures.projects import write_project

WHERE = 'tool.cuda_ext.modules."p.kernels"'


def parse(table: str, default_name: str | None = "p.kernels") -> dict[str, ModuleConfig]:
    """The modules of ``[tool.cuda_ext]``, whose content is `table`."""
    document = tomllib.loads(f"[tool.cuda_ext]\n{table}")
    modules, _ = parse_table(document["tool"]["cuda_ext"], default_name)
    return {module.name: module for module in modules}


def settings(body: str) -> Settings:
    """The settings of a module whose own table has `body`."""
    return parse(f"[{WHERE}]\n{body}")["p.kernels"].settings


def refused(table: str, default_name: str | None = "p.kernels") -> str:
    with pytest.raises(ConfigError) as caught:
        parse(table, default_name)
    return str(caught.value)


def refused_key(body: str) -> str:
    """Return the error in the module's own table `body`, without the table's path."""
    message = refused(f"[{WHERE}]\n{body}")
    assert message.startswith(f"{WHERE}.")
    return message.removeprefix(f"{WHERE}.")


# What each key takes: TOML, and the value that it becomes.
RIGHT: dict[str, tuple[str, Any]] = {
    "sources": ('["a.cu", "b/*.ptx"]', ("a.cu", "b/*.ptx")),
    "architectures": ('["sm_90a", "native"]', ("sm_90a", "native")),
    "include-dirs": ('["device", "third party"]', ("device", "third party")),
    "compiler": ('"nvcc"', "nvcc"),
    "nvcc": ('"/opt/cuda/bin/nvcc"', "/opt/cuda/bin/nvcc"),
    "launcher": ('"sccache"', "sccache"),
    "std": ('"c++20"', "c++20"),
    "define": ('{ FAST = "1", WIDTH = 4, FLAG = "" }', {"FAST": "1", "WIDTH": "4", "FLAG": ""}),
    "options": ('["--maxrregcount=32", "-I/opt/include"]', ("--maxrregcount=32", "-I/opt/include")),
    "pre-include": ('["prelude.cuh"]', ("prelude.cuh",)),
    "fast-math": ("true", True),
    "relaxed-constexpr": ("true", True),
    "std-headers": ("false", False),
    "host-code": ('"skip"', "skip"),
    "instantiate": ('["f<int>", "g<a::b>"]', ("f<int>", "g<a::b>")),
    "constants": ('["T<4>::n", "sizeof(P)"]', ("T<4>::n", "sizeof(P)")),
    "split-instantiations": ("4", 4),
    "variants": (
        '{ gemm = [{ kernel = "hopper", when = "sm_90a" }, { kernel = "simple" }] }',
        (Variants("gemm", (Candidate("hopper", (Term("sm_90a"),)), Candidate("simple"))),),
    ),
    "tune": (
        '[{ kernel = "n::f<{T}, {N}>", T = ["int"], N = [1, 2], when = "N > 1", key = ["n"], block = 32 }]',
        (
            Tune(
                f"{WHERE}.tune[0]",
                "n::f",
                Tuning("tuning/f.json", ("n",)),
                is_python=False,
                when="N > 1",
                candidates={"n::f<int>": [Tuned("n::f<int, 2>", {"N": "2"}, FixedLaunch((32,)))]},
            ),
        ),
    ),
    "compress": ('"none"', "none"),
    "emit": ('"cubin"', "cubin"),
    "jit": ("false", False),
    "headers": ('["device/**/*.cuh"]', ("device/**/*.cuh",)),
    "link": ("true", True),
}
# What must stand beside a key.
BESIDE = dict.fromkeys(("launcher", "nvcc"), 'compiler = "nvcc"')
KEYS = [f.name.replace("_", "-") for f in dataclasses.fields(Settings)]


def test_every_key_is_tested_here() -> None:
    assert list(RIGHT) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_a_key_takes_its_value(key: str) -> None:
    toml, value = RIGHT[key]
    found = settings(f"{BESIDE.get(key, '')}\n{key} = {toml}")
    assert getattr(found, key.replace("-", "_")) == value


@pytest.mark.parametrize("key", [k for k in KEYS if RIGHT[k][0].startswith('["')])
def test_a_wrong_item_is_reported_with_its_index(key: str) -> None:
    assert refused_key(f'{key} = ["a", 2]').startswith(f"{key}[1]: expected ")


@pytest.mark.parametrize("key", [k for k in KEYS if RIGHT[k][0].startswith('["')])
def test_an_item_is_not_empty(key: str) -> None:
    assert refused_key(f'{key} = ["a", ""]') == f"{key}[1]: is empty; take it out"


TUNED = 'kernel = "f<{N}>", N = [1, 2], key = ["n"], block = "N * 32"'


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            TUNED.replace("* 32", "* M"),
            '.block: "N * M": M is not known; write an expression of N, such as N * 4',
        ),
        (f"{TUNED}, when = 'N > 2'", ": has no candidate; list values of its constants"),
        (f"{TUNED}, when = 'N +'", '.when: "N +": invalid syntax'),
        (f"{TUNED}, when = 'open(N)'", '.when: "open(N)": open(N) is not known'),
        (f"{TUNED}, when = 'next_power_of_2(N / 2)'", ".when: \"next_power_of_2(N / 2)\": 'float' object"),
        (f"{TUNED}, default = {{ N = 3 }}", ".default: is none of the candidates"),
        (f"{TUNED}, M = [1]", ".M: the expression 'f<{N}>' has no {M}; put it there, or take the key out"),
        (
            TUNED.replace('key = ["n"], ', ""),
            ".key: is missing; name the integers that the choice depends on",
        ),
        (TUNED.replace("* 32", "* 4096 * 4096"), ".block: N=256 makes "),
        (f"{TUNED}, tolerance = 1", ".tolerance: expected a number from 0 to below 1, found 1"),
    ],
)
def test_wrong_candidates_are_reported(table: str, message: str) -> None:
    table = table.replace("[1, 2]", "[256]") if "4096" in table else table
    assert refused_key(f"tune = [{{ {table} }}]").startswith(f"tune[0]{message}")


# What holds for the build as a whole.

BUILD_RIGHT = {
    "report": ('"out/report.html"', "out/report.html"),
    "trace": ('"out/trace.json"', "out/trace.json"),
    "editable-rebuild": ("true", True),
}


def test_every_key_of_the_build_is_tested_here() -> None:
    assert list(BUILD_RIGHT) == [f.name.replace("_", "-") for f in dataclasses.fields(BuildSettings)]


@pytest.mark.parametrize("key", BUILD_RIGHT)
def test_a_key_of_the_build_takes_its_value(tmp_path: Path, key: str) -> None:
    toml, value = BUILD_RIGHT[key]
    project = Project.load(write_project(tmp_path, f"[tool.cuda_ext]\n{key} = {toml}"), ["p"])
    assert project is not None
    assert project.settings == BuildSettings(**{key.replace("-", "_"): value})


@pytest.mark.parametrize("key", BUILD_RIGHT)
def test_a_key_of_the_build_is_no_key_of_a_module(key: str) -> None:
    assert refused_key(f"{key} = 1").startswith(f"{key}: ")


# The defaults, and who inherits what.


def test_an_empty_table_has_the_documented_defaults() -> None:
    (module,) = parse("").values()
    default = ModuleConfig("p.kernels", WHERE, Settings(), (), {})
    documented = Settings(
        sources=("device/*.cu",),
        architectures=("all-major",),
        compiler="nvrtc",
        launcher=None,
        std="c++17",
        split_instantiations=False,
        compress="size",
        emit="fatbin",
        jit=True,
        link=False,
    )
    assert dataclasses.asdict(module) == dataclasses.asdict(default)
    assert dataclasses.asdict(module.settings) == dataclasses.asdict(documented)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_the_table_is_a_default_that_modules_inherit(key: str) -> None:
    toml, value = RIGHT[key]
    beside = BESIDE.get(key, "")
    modules = parse(f'{beside}\n{key} = {toml}\n[tool.cuda_ext.modules."p.a"]\n[tool.cuda_ext.modules."p.b"]')
    assert [getattr(m.settings, key.replace("-", "_")) for m in modules.values()] == [value, value]


def test_a_module_replaces_inherited_values() -> None:
    modules = parse(
        """
        std = "c++20"
        define = { A = "1" }
        [tool.cuda_ext.modules."p.a"]
        define = { B = "2" }
        [tool.cuda_ext.modules."p.b"]
        """
    )
    assert {n: (m.settings.std, m.settings.define) for n, m in modules.items()} == {
        "p.a": ("c++20", {"B": "2"}),
        "p.b": ("c++20", {"A": "1"}),
    }


def test_a_key_path_leads_to_where_the_value_was_written() -> None:
    module = parse(
        f"""
        architectures = ["sm_90"]
        [{WHERE}]
        sources = ["a.cu", "b.cu"]
        [[{WHERE}.overrides]]
        sources = ["a.cu"]
        architectures = ["sm_90a"]
        """
    )["p.kernels"]
    assert module.key_path("sources") == f"{WHERE}.sources"
    assert module.key_path("architectures", "a.cu") == f"{WHERE}.overrides[0].architectures"
    assert module.key_path("architectures", "b.cu") == "tool.cuda_ext.architectures"
    assert module.key_path("include_dirs") == f"{WHERE}.include-dirs"


# Unknown keys.


def test_a_key_like_no_other_is_answered_with_all() -> None:
    message = refused_key("wheel = 1")
    assert message == f"wheel: unknown key; known keys: {', '.join(sorted([*KEYS, 'overrides']))}"


# Tables under instantiate.


@pytest.mark.parametrize(
    ("item", "expressions"),
    [
        ('"axpy<float>"', ["axpy<float>"]),
        (
            '{ kernel = "reduce<{T}, {BLOCK}>", T = ["float", "double"], BLOCK = [128, 256] }',
            ["reduce<float, 128>", "reduce<float, 256>", "reduce<double, 128>", "reduce<double, 256>"],
        ),
        (
            '{ kernel = "cast<{T}, pair<{T}>>", T = ["int", "a::b"] }',
            ["cast<int, pair<int>>", "cast<a::b, pair<a::b>>"],
        ),
        ('{ kernel = "axpy<float>" }', ["axpy<float>"]),
        # Braces of C++ are no placeholders.
        ('"tile<Shape{8, 8}>"', ["tile<Shape{8, 8}>"]),
        ('"tile<Shape{N}>"', ["tile<Shape{N}>"]),
        ('{ kernel = "copy<{FAST}>", FAST = [false, true] }', ["copy<false>", "copy<true>"]),
        ('{ kernel = "tile<Shape{1}, {T}>", T = ["float"] }', ["tile<Shape{1}, float>"]),
    ],
)
def test_a_table_is_multiplied_out(item: str, expressions: list[str]) -> None:
    assert settings(f"instantiate = [{item}]").instantiate == tuple(expressions)


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ('{ kernel = "k<{A}, {B}, {C}>", A = VALUES, B = VALUES, C = VALUES }', "more than 20,000 inst"),
        (", ".join(['{ kernel = "k<{A}, {B}>", A = VALUES, B = VALUES }'] * 3), "more than 20,000 inst"),
        ('{ kernel = "k<{A}, {B}, {C}>", A = VALUES, B = VALUES, C = [1, 2] }', ""),
    ],
)
def test_instantiations_are_counted_before_they_take_memory(items: str, problem: str) -> None:
    values = str([*range(100)])
    table = f"instantiate = [{items.replace('VALUES', values)}]"
    if problem:
        with pytest.raises(ConfigError, match=rf"instantiate: stands for {problem}"):
            settings(table)
    else:
        assert len(settings(table).instantiate) == 20_000


# Overrides.


def overridden(body: str) -> ModuleConfig:
    return parse(f"[{WHERE}]\n{body}")["p.kernels"]


def test_an_override_changes_single_sources() -> None:
    module = overridden(
        f"""
        std = "c++17"
        [[{WHERE}.overrides]]
        sources = ["device/*_hopper.cu"]
        architectures = ["sm_90a"]
        std = "c++20"
        """
    )
    hopper, other = module.for_source("device/gemm_hopper.cu"), module.for_source("device/gemm.cu")
    assert (hopper.architectures, hopper.std) == (("sm_90a",), "c++20")
    assert (other.architectures, other.std) == (("all-major",), "c++17")


def test_a_later_override_wins() -> None:
    module = overridden(
        f"""
        [[{WHERE}.overrides]]
        sources = ["device/*.cu"]
        fast-math = true
        std = "c++20"
        [[{WHERE}.overrides]]
        sources = ["device/exact.cu"]
        fast-math = false
        """
    )
    exact = module.for_source("device/exact.cu")
    assert (exact.fast_math, exact.std) == (False, "c++20")


def test_an_override_of_the_module_comes_after_those_of_the_defaults() -> None:
    module = parse(
        f"""
        [[tool.cuda_ext.overrides]]
        sources = ["device/a.cu"]
        std = "c++14"
        fast-math = true
        [[{WHERE}.overrides]]
        sources = ["device/a.cu"]
        std = "c++20"
        """
    )["p.kernels"]
    settings = module.for_source("device/a.cu")
    assert (settings.std, settings.fast_math) == ("c++20", True)


@pytest.mark.parametrize(
    ("pattern", "sources"),
    [
        ("device/a.cu", ["device/a.cu"]),
        ("./device/a.cu", ["device/a.cu"]),
        ("device/*.cu", ["device/a.cu", "device/b.cu"]),
        ("*.cu", ["top.cu"]),
        ("device/**/*.cu", ["device/a.cu", "device/b.cu", "device/deep/er/c.cu"]),
        ("**/c.cu", ["device/deep/er/c.cu"]),
        ("device/[ab].cu", ["device/a.cu", "device/b.cu"]),
        ("a.cu", []),
    ],
)
def test_patterns_of_overrides_equal_those_of_sources(
    tmp_path: Path, pattern: str, sources: list[str]
) -> None:
    everything = ["top.cu", "device/a.cu", "device/b.cu", "device/deep/er/c.cu"]
    module = overridden(f'[[{WHERE}.overrides]]\nsources = ["{pattern}"]')
    assert [s for s in everything if module.overrides[0].applies_to(s)] == sources

    write_project(tmp_path, files=dict.fromkeys(everything, ""))
    assert {p.relative_to(tmp_path).as_posix() for p in tmp_path.glob(pattern)} == set(sources)


# Modules and their names.


def test_modules_keep_their_order() -> None:
    assert list(parse('modules."p.b" = {}\nmodules."p.a" = {}\nmodules."q.sub.c" = {}')) == [
        "p.b",
        "p.a",
        "q.sub.c",
    ]


def test_a_module_may_have_a_name_beyond_ascii() -> None:
    assert list(parse('modules."größe.kernels" = {}')) == ["größe.kernels"]


@pytest.mark.parametrize(
    ("default_name", "name"), [("p.kernels", "p.kernels"), (None, "your_package.kernels")]
)
def test_the_example_of_a_table_of_modules_names_that_of_the_project(
    default_name: str | None, name: str
) -> None:
    assert refused("modules = 3", default_name) == (
        "tool.cuda_ext.modules: expected a table for each module, such as "
        f'[tool.cuda_ext.modules."{name}"], found 3'
    )


def test_the_table_is_a_table() -> None:
    with pytest.raises(ConfigError, match=r"^tool\.cuda_ext: expected a table, found 3$"):
        parse_table(3, None)


def test_a_module_without_a_default_name_must_be_named(messages: Messages) -> None:
    messages(refused("", default_name=None))


@pytest.mark.parametrize("line", ['launcher = "sccache"', 'nvcc = "/opt/nvcc"', 'options = ["-Xptxas=-v"]'])
def test_keys_of_nvcc_may_be_defaults_for_modules_of_both_compilers(line: str) -> None:
    both = f'{line}\n[{WHERE}]\n[tool.cuda_ext.modules."p.other"]\ncompiler = "nvcc"'
    assert [m.settings.compiler for m in parse(both).values()] == ["nvrtc", "nvcc"]


# Options of nvcc, and the end of the answer.
OF_NVCC = {
    '"-Xcompiler=-Wall"': "it is for the host compiler: take it out",
    '"-Xcompiler", "-fPIC"': "it is for the host compiler: take it out",
    '"-O3"': 'NVRTC optimises without it: take it out, or write "-Xptxas=-O3"',
    '"--expt-relaxed-constexpr"': "set relaxed-constexpr = true",
    '"--extended-lambda"': "NVRTC compiles lambdas in kernels without it: take it out",
    '"--threads=4"': "a build compiles in parallel without it: take it out",
    '"-g"': 'write "-G" for debug information, or "-lineinfo" for line numbers',
    '"-res-usage"': "`cuda-ext inspect` shows the resources of each kernel: take it out",
    '"-lcublas"': "it is for host code: take it out",
    '"-Xfatbin=-compress-all"': "set compress",
    '"-Xptxas=-O3,-v"': 'NVRTC passes its value on as one option: write "-Xptxas=-O3", "-Xptxas=-v"',
    '"-Xptxas", "-O3,-v"': 'NVRTC passes its value on as one option: write "-Xptxas=-O3", "-Xptxas=-v"',
}


@pytest.mark.parametrize("options", OF_NVCC)
def test_an_option_of_nvcc_is_answered_with_what_to_write_for_nvrtc(options: str) -> None:
    option = options.split('"')[1]
    answer = f"{option!r} is an option of nvcc that NVRTC does not have; {OF_NVCC[options]}; or choose"
    assert refused_key(f'options = ["-G", {options}]') == f'options[1]: {answer} compiler = "nvcc"'
    override = f"[[{WHERE}.overrides]]\nsources = ['a.cu']\noptions = [{options}]"
    assert refused(override).startswith(f"{WHERE}.overrides[0].options[0]: {answer}")
    assert settings(f'compiler = "nvcc"\noptions = [{options}]').compiler == "nvcc"


@pytest.mark.parametrize("options", ['"-Xptxas", "-O3"', '"-Xptxas=-v"', '"-lineinfo"', '"-maxrregcount=32"'])
def test_an_option_of_both_compilers_is_taken(options: str) -> None:
    assert settings(f"options = [{options}]").compiler == "nvrtc"


def test_any_toml_value_is_answered_in_one_line() -> None:
    chance = random.Random(0)
    words = [
        *KEYS,
        *BUILD_RIGHT,
        "overrides",
        "modules",
        "kernel",
        "T",
        "p.k",
        "",
        "f<{T}>",
        "{T}",
        "a\nb",
        '"',
        "\\",
        "../*",
    ]

    def anything(depth: int = 0) -> object:
        match chance.randrange(4 if depth < 4 else 2):
            case 0:
                return chance.choice(words)
            case 1:
                return chance.choice([0, -1.5, math.nan, True, datetime.date(2026, 1, 1)])
            case 2:
                return [anything(depth + 1) for _ in range(chance.randrange(3))]
            case _:
                return {chance.choice(words): anything(depth + 1) for _ in range(chance.randrange(3))}

    def answer(table: object) -> str:
        try:
            parse_table(table, "p.kernels")
        except ConfigError as error:
            return str(error)
        return "tool.cuda_ext"

    answers = [answer(anything()) for _ in range(3000)]
    assert [a for a in answers if "\n" in a or not a.startswith("tool.cuda_ext")] == []


# The name of the module that the configuration does not name.


@pytest.mark.parametrize(
    ("project", "packages", "folder", "module"),
    [
        ("Example-Project", (), "example_project", "example_project.kernels"),
        ("Example-Project", (), "src/example_project", "example_project.kernels"),
        ("other", ("pkg", "pkg.sub"), "b", "pkg.kernels"),
        ("b", ("a", "b"), "b", "b.kernels"),  # the project's name decides
        ("example", (), "b", None),
        (None, ("a", "b"), "b", None),
    ],
)
def test_the_module_goes_into_the_projects_package(
    tmp_path: Path, project: str | None, packages: tuple[str, ...], folder: str, module: str | None
) -> None:
    write_project(tmp_path, files={f"{folder}/__init__.py": "", "docs/__init__.py": ""})
    assert default_module_name(tmp_path, project, packages) == module


# pyproject.toml itself.


def test_a_project_without_pyproject_toml_is_none_of_ours(tmp_path: Path) -> None:
    assert Project.load(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[project]\nname = 'p'\ndependencies = ['cuda-ext']\n",
        "[tool.other]\ncuda_ext = 1\n",
        "# [tool.cuda_ext]\n",
        "tool = 3 # cuda_ext\n",
        "this is = not TOML",
        b"\xff\xfe not UTF-8 either",
    ],
)
def test_a_project_without_the_table_is_none_of_ours(tmp_path: Path, text: str | bytes) -> None:
    assert Project.load(write_project(tmp_path, text)) is None


def test_an_empty_table_is_ours(tmp_path: Path) -> None:
    project = Project.load(write_project(tmp_path, "[tool.cuda_ext]"), ["pkg"])
    assert project is not None
    assert [m.name for m in project.modules] == ["pkg.kernels"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.cuda_ext]\nsources = [", "pyproject.toml:2: Invalid value"),
        ("[tool.cuda_ext]\njit = yes", "pyproject.toml:2: Invalid value"),
        ("[tool.cuda_ext]\njit = true\njit = true", "pyproject.toml:3: Cannot overwrite a value"),
        (
            f"[{WHERE}]\n[{WHERE}]",
            "pyproject.toml:2: Cannot declare ('tool', 'cuda_ext', 'modules', 'p.kernels') twice; "
            "merge the two or rename one of them",
        ),
        ("[tool.cuda-ext]", "tool.cuda-ext: unknown table; did you mean [tool.cuda_ext]?"),
        (f"[tool.cuda_ext]\na = {'[' * 9999}", "pyproject.toml: is nested too deep; write it flatter"),
        (
            f"[tool.cuda_ext]\na = {'9' * 9999}",
            "pyproject.toml: Exceeds the limit (4300 digits) for integer string conversion: "
            "value has 9999 digits",
        ),
    ],
)
def test_a_damaged_pyproject_toml_is_reported_with_its_line(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    write_project(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        Project.load(tmp_path)
    assert str(caught.value) == message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"])
def test_a_wrong_encoding_is_reported(tmp_path: Path, encoding: str) -> None:
    write_project(tmp_path, "[tool.cuda_ext]\n# café".encode(encoding))
    with pytest.raises(ConfigError) as caught:
        Project.required(tmp_path)
    line = 2 if encoding == "latin-1" else 1
    problem = "is not UTF-8, or begins with a byte order mark; save the file as UTF-8 without one"
    assert str(caught.value) == f"pyproject.toml:{line}: {problem}"


def test_a_mistake_in_a_file_without_the_table_is_reported_where_it_is_required(tmp_path: Path) -> None:
    write_project(tmp_path, "x = [")
    with pytest.raises(ConfigError, match=r"^pyproject\.toml:1: Invalid value"):
        Project.required(tmp_path)


def test_pyproject_toml_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    with pytest.raises(ConfigError, match=r"^pyproject\.toml: cannot be read: Is a directory; make it a "):
        Project.load(tmp_path)


@pytest.mark.parametrize("project", ["project = 3", "project.name = 3", "[project]"])
def test_a_strange_project_table_is_for_others_to_refuse(tmp_path: Path, project: str) -> None:
    loaded = Project.load(write_project(tmp_path, f"{project}\n[tool.cuda_ext]"), ["pkg"])
    assert loaded is not None
