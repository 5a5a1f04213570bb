"""The JSON schema of ``[tool.cuda_ext]``: shipped, documented, and as strict as a schema can be."""

from __future__ import annotations

import copy
import inspect
import json
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.builder.config import modules
from cuda_ext.builder.config.keys import BUILD_KEYS, KEYS, OVERRIDE_KEYS, TABLES
from cuda_ext.builder.config.modules import parse_table
from cuda_ext.builder.config.schema import schema, tool_schema
from cuda_ext.compiler.compile_options import SETTING_OF_OPTION
from cuda_ext.errors import ConfigError
from docs.make_configuration import EXAMPLES, SCHEMA_FILE, reference, schema_file
from tests.builder.config import test_config
from tests.builder.test_refusals import REFUSALS
from tests.formats import test_variant_conditions
from tests.test_house import loaded_by

fastjsonschema = pytest.importorskip("fastjsonschema")  # what validate-pyproject uses

ROOT = Path(__file__).parents[3]
ALL_KEYS = {**KEYS, **BUILD_KEYS}
MODULE = '[tool.cuda_ext.modules."p.kernels"]\n'
OVERRIDE = '[[tool.cuda_ext.modules."p.kernels".overrides]]\n'


# What is derived from the keys.


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    assert page == reference(), "run python docs/make_configuration.py"


def test_the_schema_in_the_package_and_on_the_site_is_current() -> None:
    assert SCHEMA_FILE.read_text("utf-8") == schema_file(), "run python docs/make_configuration.py"
    site = json.loads((ROOT / "docs" / "pyproject.json").read_text("utf-8"))
    _, own = site["allOf"]
    assert own["properties"]["tool"]["properties"]["cuda_ext"] == {"$ref": schema()["$id"]}


def test_every_key_is_documented_once() -> None:
    documents = [*(key.kind.schema["description"] for key in ALL_KEYS.values()), *TABLES.values()]
    text, page = json.dumps(schema()), reference()
    assert {d: (text.count(json.dumps(d)), page.count(d)) for d in documents} == dict.fromkeys(
        documents, (1, 1)
    )
    assert sorted(re.findall("^### `(.+)`$", page, re.MULTILINE)) == sorted(
        [*ALL_KEYS, *OVERRIDE_KEYS, *TABLES]
    )


def test_examples_of_the_reference_are_valid() -> None:
    validates = fastjsonschema.compile(schema())
    for key, example in EXAMPLES.items():
        header = "[tool.cuda_ext]\n" if key in BUILD_KEYS else MODULE
        needed = 'compiler = "nvcc"\n' if key in ("nvcc", "launcher") else ""
        text = example if example.startswith("[") else f"{header}{needed}{example}"
        table = tomllib.loads(text)["tool"]["cuda_ext"]
        assert key in json.dumps(table)
        validates(table)
        parse_table(table, "my_package.kernels")


# As validate-pyproject sees it.


def validate(*arguments: str | Path) -> tuple[list[str], list[str]]:
    """Run ``validate-pyproject``; return the valid files, and the complaints about the others."""
    command = [Path(sys.executable).with_name("validate-pyproject"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    valid = re.findall("^Valid file: (.*)$", done.stdout, re.MULTILINE)
    complaints = re.findall(r"^\[ERROR\] (.*)$", done.stderr, re.MULTILINE)
    assert (done.returncode == 0) is (not complaints)
    return valid, complaints


def written(directory: Path, texts: Iterable[str]) -> list[str]:
    """Write files with these texts."""
    files = {directory / f"{number}.toml": text for number, text in enumerate(texts)}
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(map(str, files))


def test_validate_pyproject_takes_every_example(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    examples = [
        ROOT / "example_project/pyproject.toml",
        *ROOT.glob("examples/*/pyproject.toml"),
        *ROOT.glob("tests/packages/*/pyproject.toml"),
        *ROOT.glob("tests/gallery/*/pyproject.toml"),
    ]
    files = [*map(str, examples), *written(tmp_path, blocks)]
    assert blocks
    assert validate(*files) == (files, [])


# Tables, and the key that is complained of.
BROKEN = {
    '[tool.cuda_ext]\nsource = ["a.cu"]': "tool.cuda_ext",
    "[tool.cuda_ext]\njit = 1": "tool.cuda_ext.jit",
    '[tool.cuda_ext]\ncompiler = "gcc"': "tool.cuda_ext.compiler",
    "[tool.cuda_ext]\nsources = []": "tool.cuda_ext.sources",
    f'{MODULE}report = "report.html"': "tool.cuda_ext.modules.p.kernels",
    f'{MODULE}sources = "a.cu"': "tool.cuda_ext.modules.p.kernels.sources",
    f'{MODULE}std = "17"': "tool.cuda_ext.modules.p.kernels.std",
    f'{MODULE}architectures = ["90"]': "tool.cuda_ext.modules.p.kernels.architectures[0]",
    f'{MODULE}architectures = ["all", "sm-90"]': "tool.cuda_ext.modules.p.kernels.architectures[1]",
    f'{MODULE}define = {{ "MAX(a, b)" = "a" }}': "tool.cuda_ext.modules.p.kernels.define",
    f"{MODULE}define = {{ A = true }}": "tool.cuda_ext.modules.p.kernels.define.A",
    f'{MODULE}options = ["-G", "-std=c++20"]': "tool.cuda_ext.modules.p.kernels.options[1]",
    f'{MODULE}instantiate = [{{ T = ["int"] }}]': "tool.cuda_ext.modules.p.kernels.instantiate[0]",
    f'{MODULE}instantiate = ["f<{{T}}>"]': "tool.cuda_ext.modules.p.kernels.instantiate[0]",
    f'{MODULE}variants = {{ gemm = [{{ kernel = "k", when = "sm_90" }}] }}': (
        "tool.cuda_ext.modules.p.kernels.variants.gemm"
    ),
    f'{MODULE}variants = {{ gemm = [{{ kernel = "k", when = "n = 3" }}, {{ kernel = "l" }}] }}': (
        "tool.cuda_ext.modules.p.kernels.variants.gemm[0].when"
    ),
    f'{OVERRIDE}std = "c++20"': "tool.cuda_ext.modules.p.kernels.overrides[0]",
    f'{OVERRIDE}sources = ["a.cu"]\nlink = true': "tool.cuda_ext.modules.p.kernels.overrides[0]",
    "[tool.cuda_ext.modules.kernels]": "tool.cuda_ext.modules",
    "[tool.cuda_ext.modules.p.kernels]": "tool.cuda_ext.modules.p",
    '[tool.cuda_ext.modules."my-package.kernels"]': "tool.cuda_ext.modules",
    '[tool.cuda_ext.modules."p.class"]': "tool.cuda_ext.modules",
}


def test_validate_pyproject_refuses_invalid_tables(tmp_path: Path) -> None:
    files = written(tmp_path, BROKEN)
    valid, complaints = validate(*files)
    assert valid == []
    assert [complaint.split("`")[1] for complaint in complaints] == list(BROKEN.values())
    # Without our plug-in they are valid.
    assert validate(*files, "--disable-plugins", "cuda_ext") == (files, [])


def test_validate_pyproject_finds_the_schema_with_the_standard_library_alone() -> None:
    (door,) = entry_points(group="validate_pyproject.tool_schema", name="cuda_ext")
    assert door.load() is tool_schema
    loaded = loaded_by(f"from {door.module} import {door.attr}; {door.attr}('cuda_ext')")
    assert {m.partition(".")[0] for m in loaded} <= {"cuda_ext", *sys.stdlib_module_names}


# Beside the checker of the build.


def calls(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """The parameters with which pytest calls `test`."""
    none = pytest.mark.parametrize((), [()]).mark
    for names, rows in (mark.args for mark in getattr(test, "pytestmark", [none])):
        yield from ({names: r} if isinstance(names, str) else dict(zip(names, r, strict=True)) for r in rows)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Every table that the tests of the configuration parse, and those of refused projects."""
    found = [tomllib.loads(refusal.pyproject)["tool"]["cuda_ext"] for refusal in REFUSALS]

    def recorded(table: object, default_name: str | None) -> Any:
        found.append(copy.deepcopy(table))
        return parse_table(table, default_name)

    tests = [test for name, test in vars(test_config).items() if name.startswith("test_")]
    with pytest.MonkeyPatch.context() as patch:
        for module in (modules, test_config):
            patch.setattr(module, "parse_table", recorded)
        for test in tests:
            for arguments in calls(test):
                if "tmp_path" in inspect.signature(test).parameters:
                    arguments["tmp_path"] = tmp_path_factory.mktemp("project")
                if "messages" in inspect.signature(test).parameters:
                    arguments["messages"] = str  # the texts are compared in the test itself
                test(**arguments)
    return found


def answer(table: Any) -> str:
    """Return the checker's message for `table`, or an empty string if it is valid."""
    try:
        parse_table(table, "p.kernels")
    except ConfigError as error:
        return str(error)
    return ""


validated = fastjsonschema.compile(tool_schema("cuda_ext"), use_default=False)


def complaint(table: Any) -> str:
    """Return the path within `table` of the value that the schema refuses, or an empty string."""
    try:
        validated(table)
    except fastjsonschema.JsonSchemaValueException as error:
        return str(error.name)
    return ""


# What the checker says, where no schema could.
BEYOND = [
    r"\.tune\[\d+\](?!: expected| is missing)",
    r"\{\w+\} has no values; add",
    r"the expression '.*' has no \{\w+\}",
    r"has a control character",
    r"stands for more than 20,000 instantiations",
    r"has more than 64 bits",
    r"has a comma outside of brackets",
    r"lies within the module",
    r"differs only in upper and lower case",
    r"Python imports it as",
    r"and has no effect with",
    r"is an option of nvcc that NVRTC does not have",
    r"is for another linker",
    r"has no condition, so later candidates are never taken",
    r"'(-I|-isystem)' depends on where the build happens to run",
]


def disagreement(table: Any) -> str:
    """Return the difference between the schema and the checker for `table`, or an empty string."""
    checker, schema = answer(table), complaint(table)
    if not schema:
        return "" if any(re.search(reason, checker) for reason in BEYOND) else checker
    # How architectures are spelled the build finds out later.
    return "" if checker or "architectures[" in schema else schema


def test_the_schema_agrees_with_the_checker(tables: list[Any]) -> None:
    assert sum(not answer(table) for table in tables) > 100
    assert sum(bool(answer(table)) for table in tables) > 200
    assert [table for table in tables if disagreement(table)] == []


def test_every_documented_limit_of_the_schema_occurs(tables: list[Any]) -> None:
    missed = [answer(table) for table in tables if not complaint(table)]
    assert [reason for reason in BEYOND if not any(re.search(reason, m) for m in missed)] == []


STRINGS = ("", " ", "a", "a\0", "a b", "c++20", "sm_90", "nvcc", "f<{T}>", "f<{T}, {U}>", "n > 3", "n > 3 or")
OPTIONS = ("-arch", "-arch=sm_80", "-architecture", "-I", "-I=a", "-I/a", "-isystem", "/a", "=a")
SMALL = (0, -1, True, 1.5, [], ["a"], [1], [[]], {}, {"a": 1}, {"kernel": "a"}, {"sources": ["a.cu"]})
JUNK = [*STRINGS, *OPTIONS, *SMALL]
NAMES = [*ALL_KEYS, *TABLES, "kernel", "when", "T", "p.k", "p.if", "p.k.q", "größe.é", "a-b", "2", "a::b", ""]


def changed(value: Any, choose: random.Random) -> Any:
    """Return `value` with one random part replaced."""
    if not value or not isinstance(value, dict | list) or choose.random() < 0.1:
        return choose.choice(JUNK)
    if isinstance(value, list):
        place = choose.randrange(len(value))
        return [*value[:place], changed(value[place], choose), *value[place + choose.randrange(2) :]]
    key = choose.choice(list(value))
    if choose.random() < 0.1:
        return {choose.choice(NAMES) if k == key else k: v for k, v in value.items()}
    return {**value, key: changed(value[key], choose)}


def test_the_schema_agrees_with_the_checker_on_right_tables_gone_wrong(tables: list[Any]) -> None:
    choose = random.Random(0)
    right = [table for table in tables if table and not answer(table)]
    wrong = [changed(table, choose) for table in right for _ in range(20)]
    assert [(disagreement(table), table) for table in wrong if disagreement(table)] == []


def test_options_with_keys_of_their_own_are_those_of_the_checker() -> None:
    for option in SETTING_OF_OPTION:
        assert [complaint({"options": [f"{option}{rest}"]}) for rest in ("", "=a", " a", "s")] == [
            "data.options[0]",
            "data.options[0]",
            "data.options[0]",
            "",
        ]


def is_taken_as_condition(text: str) -> bool:
    return not complaint({"variants": {"f": [{"kernel": "a", "when": text}, {"kernel": "b"}]}})


def test_conditions_are_taken() -> None:
    texts = [*test_variant_conditions.RIGHT, "sm_90a and n % 4 == 0 and x.shape[0] > 1"]
    assert [text for text in texts if not is_taken_as_condition(text)] == []


def test_invalid_conditions_are_refused_unless_that_needs_counting() -> None:
    missed = [text[:12] for text in test_variant_conditions.WRONG if is_taken_as_condition(text)]
    assert missed == ["n > 1__0", "n > 0x800000", "n > 99999999", "n % 0 == 1"]
