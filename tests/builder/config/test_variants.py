"""Variants: conditions, the errors for invalid tables, and the packages of valid ones."""

from __future__ import annotations

import json
import pickle
import random
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import cuda_ext
from cuda_ext.builder.config.modules import parse_table
from cuda_ext.builder.config.resolve_variants import with_variants
from cuda_ext.builder.package.generate import generate
from cuda_ext.compiler.module_plan import CompiledModule
from cuda_ext.errors import ConfigError, KernelNotFoundError, ManifestError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.variant_conditions import (
    Comparison,
    Condition,
    ConditionError,
    Junction,
    Leaf,
    arguments,
    decide,
    parse,
    write,
)
from cuda_ext.manifest import Candidate, Manifest, Variants, dumps, loads
from cuda_ext.runtime.module import module_from
from tests.builder.package.test_generate import check, stub
from tests.fixtures.device_code import module, unit
from tests.fixtures.loader import AXPY, FILES, SAMPLE, signature
from tests.fixtures.projects import KERNELS, build, refusal, write_project

WHERE = 'tool.cuda_ext.modules."p.kernels".variants'

# ------------------------------------------------------------------------------------------ conditions


def holding(values: Mapping[str, int], *targets: str) -> Any:
    """Evaluate terms for these values of the names and these targets of the GPU."""

    def evaluate(leaf: Leaf) -> tuple[bool, Leaf]:
        holds = str(leaf) in targets if isinstance(leaf, Architecture) else leaf.holds(values[leaf.name])
        return holds, leaf

    return evaluate


target = Architecture.parse
RIGHT = {
    "sm_90a": [target("sm_90a")],
    "sm_100f": [target("sm_100f")],
    "sm_75": [target("sm_75")],
    "sm >= 80": [Comparison("sm", None, ">=", 80)],
    "n>=65_536": [Comparison("n", None, ">=", 65536)],
    "n % 4 == 0": [Comparison("n", 4, "==", 0)],
    " größe < -0x10 ": [Comparison("größe", None, "<", -16)],
    "sm_count != 3": [Comparison("sm_count", None, "!=", 3)],
    "((v1 > -3))": [Comparison("v1", None, ">", -3)],
    # Names that Python keeps for itself or normalises.
    "in > 3": [Comparison("in", None, ">", 3)],
    "from % 0x4 >= 2": [Comparison("from", 4, ">=", 2)],
    "True == 1": [Comparison("True", None, "==", 1)],
    "\u00b5 < 5": [Comparison("\u00b5", None, "<", 5)],
    "\ufb01 < 5": [Comparison("\ufb01", None, "<", 5)],
    "not lambda == 1 and (is > 2 or sm_90a)": [
        Junction(
            "and",
            (
                Junction("not", (Comparison("lambda", None, "==", 1),)),
                Junction("or", (Comparison("is", None, ">", 2), target("sm_90a"))),
            ),
        )
    ],
}


@pytest.mark.parametrize("text", RIGHT)
def test_a_condition_is_a_target_or_a_comparison(text: str) -> None:
    assert [parse(text)] == RIGHT[text]


@pytest.mark.parametrize(
    "text",
    [
        "n > 3 or m > 3 and k > 3",
        "(n > 3 or m > 3) and k > 3",
        "not n > 3 and m > 3",
        "not (n > 3 and m > 3)",
        "not not n > 3 or not m <= 3",
        "n % 3 == 1 and (m % 2 != 0 or not (k < 2 or n >= 4))",
        "n == 1 or n == 2 or n == 3 and m < 2",
    ],
)
def test_conditions_have_the_meaning_of_python(text: str) -> None:
    condition = parse(text)
    for number in range(6**3):
        values = {"n": number % 6, "m": number // 6 % 6, "k": number // 36}
        assert decide(condition, holding(values))[0] is bool(eval(text, dict(values)))


LEAF = "a target such as sm_90a, or a comparison such as sm >= 80 or n >= 65536"
TERM = "expected the name of an argument or its remainder, such as n or n % 4"
WRONG = {
    "": f"invalid syntax at the end; write {LEAF}, and join several with 'and' or 'or'",
    "n": f"expected {LEAF}, found 'n'",
    "n = 3": "found '='; did you mean '=='?",
    "n > 3 && m > 3": "found '&&'; did you mean 'and'?",
    "n > 3 || m > 3": "found '||'; did you mean 'or'?",
    "!(n > 3)": "found '!'; did you mean 'not'?",
    "n => 3": "found '=>'; did you mean '>='?",
    "n > m": "expected an integer after '>', found 'm'",
    "n > 1e5": "expected an integer, found '1e5'",
    "n > 1.5": "'.' is not supported; write a target",
    "n > 010": "expected an integer, found '010'",
    "n > --1": "expected an integer after '>', found '--1'",
    "n > " + "9" * 5000: "expected an integer, found '9999",
    "64 <= n": f"{TERM}, found '64'",
    "0 < n < 9": f"expected {LEAF}, found '0 < n < 9'",
    "n > 1 < 9": f"expected {LEAF}, found 'n > 1 < 9'",
    "n > 1 m > 1": f"invalid syntax at 'm > 1'; write {LEAF}, and join several with 'and' or 'or'",
    "(n > 1": "'(' was never closed",
    "n > 1)": "unmatched ')'",
    "n > 1 and": "invalid syntax at the end",
    "and n > 1": "invalid syntax at 'and n > 1'",
    "n % 0 == 1": "expected a number from 1 on after '%', found 0",
    "n % m == 1": "expected an integer after '%', found 'm'",
    "n - 1 > 2": f"{TERM}, found 'n - 1'",
    "n if n else n": "invalid syntax at 'if n else n'",
    "n > True": "expected an integer after '>', found 'True'",
    "in > 1 from > 1": "invalid syntax at 'from > 1'",
    "(n) > 3": "parentheses must enclose whole comparisons, found '(n) > 3'; write n > 3",
    "n > (3)": "parentheses must enclose whole comparisons, found 'n > (3)'; write n > 3",
    "n > (-3)": "parentheses must enclose whole comparisons, found 'n > (-3)'; write n > -3",
    "n % (4) == 0": "parentheses must enclose whole comparisons, found 'n % (4) == 0'; write n % 4 == 0",
    "(n % 4) == 0": "parentheses must enclose whole comparisons, found '(n % 4) == 0'; write n % 4 == 0",
    "sm_90 or (((n)) % (4) == (0))": "found '((n)) % (4) == (0)'; write n % 4 == 0",
    "n > - 5": "expected an integer after '>', found '- 5'",
    "n > -(5)": "expected an integer after '>', found '-(5)'",
    "n > 1 # one": "'#' is not supported",
    "sm_90b": "'sm_90b' is not a target; targets are spelled as sm_90, sm_90a or sm_100f",
    "sm_9": "'sm_9' is not a target",
    "sm_90 > 3": f"{TERM}, found 'sm_90'",
    "sm >= 90a": "expected an integer, found '90a'",
    "sm >= 90and n > 1": "expected an integer, found '90and'",
    "__import__('os').system('true')": '"\'" is not supported; write a target',
    "__import__(n) > 1": f"{TERM}, found '__import__(n)'",
    "n.bit_length() > 3": "'.' is not supported; write a target",
    "(" * 300 + "n > 1" + ")" * 300: "too many nested parentheses",
    "not " * 40 + "n > 1": "is nested more than 32 deep; write it with fewer parentheses",
    "not " * 99_999 + "n > 1": "is nested more than 32 deep",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_an_invalid_condition_is_reported_with_its_remedy(text: str) -> None:
    with pytest.raises(ConditionError) as raised:
        parse(text)
    assert WRONG[text] in str(raised.value)


def any_condition(choose: random.Random, depth: int = 3) -> Condition:
    match choose.randrange(5) if depth else choose.randrange(2):
        case 0:
            return target(choose.choice(("sm_80", "sm_80a", "sm_90", "sm_90a")))
        case 1:
            modulus = choose.choice((None, 2, 3))
            return Comparison(choose.choice(("sm", "n", "m")), modulus, choose.choice(("<", "==")), 2)
        case 2:
            return Junction("not", (any_condition(choose, depth - 1),))
        case _:
            word = choose.choice(("and", "or"))
            return Junction(
                word, tuple(any_condition(choose, depth - 1) for _ in range(choose.randint(2, 3)))
            )


@pytest.mark.parametrize("seed", range(200))
def test_the_deciding_leaves_alone_determine_the_value(seed: int) -> None:
    choose = random.Random(seed)
    condition = any_condition(choose)
    values = {name: choose.randrange(4) for name in ("sm", "n", "m")}
    evaluate = holding(values, *choose.sample(("sm_80", "sm_80a", "sm_90", "sm_90a"), 2))
    value, deciding = decide(condition, evaluate)
    assert decide(parse(write(condition)), evaluate)[0] is value

    def evaluate_deciding(leaf: Leaf) -> tuple[bool, Leaf]:
        return evaluate(leaf) if leaf in deciding else (choose.random() < 0.5, leaf)

    assert {decide(condition, evaluate_deciding)[0] for _ in range(20)} == {value}


@pytest.mark.parametrize("seed", range(200))
def test_conditions_are_written_as_python(seed: int) -> None:
    choose = random.Random(seed)
    condition = any_condition(choose)
    values = {name: choose.randrange(4) for name in ("sm", "n", "m")}
    evaluate = holding(values, "sm_80", "sm_90a")
    code = write(condition, lambda leaf: str(leaf if isinstance(leaf, Comparison) else evaluate(leaf)[0]))
    assert bool(eval(code, values)) is decide(condition, evaluate)[0]
    assert set(arguments(condition)) == {"n", "m"}.intersection(re.findall(r"\w+", code))


# --------------------------------------------------------------------------------------- configuration


def refused(variants: str) -> str:
    table = tomllib.loads(f'[modules."p.kernels"]\nvariants = {variants}')
    with pytest.raises(ConfigError) as raised:
        parse_table(table, "p.kernels")
    message = str(raised.value)
    assert message.startswith(f"{WHERE}.")
    return message.removeprefix(f"{WHERE}.")


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ("{ gemm = [] }", "gemm: is empty; name the kernels, the default last"),
        (
            '{ gemm = "simple" }',
            "gemm: expected an array of candidates, each a table such as "
            '{ kernel = "gemm_large", when = "sm >= 80 and n >= 65536" }, found "simple"',
        ),
        (
            '{ gemm = ["simple"] }',
            "gemm[0]: expected a table such as "
            '{ kernel = "gemm_large", when = "sm >= 80 and n >= 65536" }, found "simple"',
        ),
        ('{ gemm = [{ when = "sm_90" }] }', "gemm[0].kernel: is missing; name the kernel that is taken"),
        (
            '{ gemm = [{ kernel = "k", if = "sm_90" }] }',
            "gemm[0].if: unknown key; known keys: kernel, when",
        ),
        (
            "{ gemm = [{ kernel = 1 }] }",
            'gemm[0].kernel: expected a name expression such as "gemm<float>", found 1',
        ),
        (
            '{ gemm = [{ kernel = "k", when = 90 }] }',
            'gemm[0].when: expected a condition such as "sm >= 80 and n >= 65536", found 90',
        ),
        (
            '{ gemm = [{ kernel = "k", when = "n = 3" }, { kernel = "l" }] }',
            "gemm[0].when: \"n = 3\": found '='; did you mean '=='?",
        ),
        (
            '{ gemm = [{ kernel = "k" }, { kernel = "l" }] }',
            "gemm[0]: has no condition, so that what follows is never taken; give it one with when, or move "
            "it to the end",
        ),
        (
            '{ gemm = [{ kernel = "k", when = "sm_90" }] }',
            "gemm[0].when: the last candidate is the default, which is taken where no other is; take the "
            "condition out, or add a candidate without one",
        ),
        (
            '{ "ge mm" = [{ kernel = "k" }] }',
            '"ge mm": not a name that a kernel could have; write it as C++ does',
        ),
    ],
)
def test_a_mistake_in_the_table_is_reported_with_its_path(variants: str, message: str) -> None:
    assert refused(variants) == message


SOURCE = """
template <class T> __global__ void large(int n, const T* x, T* y) {}
__global__ void simple(int n, const float* x, float* y) {}
__global__ void shorter(int n, const float* x) {}
__global__ void longer(long long n, const float* x, float* y) {}
__global__ void renamed(int count, const float* x, float* y) {}
__global__ void bool_(bool flag, float f) {}
__global__ void over(int* p) {}
__global__ void over(float* p) {}
namespace ns { __global__ void inner(int n, const float* x, float* y) {} __device__ int counter; }
__constant__ float weights[4];
"""


def made() -> CompiledModule:
    return module(unit(SOURCE, "large<float>"))


@pytest.fixture(scope="module")
def compiled() -> Manifest:
    return made().manifest


def named(name: str, *candidates: str) -> Variants:
    """Return variants of kernels; each but the last has a condition after a colon."""
    pairs = [candidate.partition(": ") for candidate in candidates]
    return Variants(name, tuple(Candidate(kernel, when or None) for kernel, _, when in pairs))


def test_kernels_are_recorded_as_the_compiler_spells_them(compiled: Manifest) -> None:
    found = with_variants(compiled, [named("fit", "::large< float >: n > 3", "ns ::inner")], WHERE)
    assert found.variants == (named("fit", "large<float>: n > 3", "ns::inner"),)
    assert found._replace(variants=()) == compiled


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        (
            named("fit", "large<flaot>: sm_90", "simple"),
            "fit[0].kernel: there is no kernel 'large<flaot>'; built: large<float>; "
            'add "large<flaot>" to instantiate',
        ),
        (
            named("fit", "simple: sm_90", "simpel"),
            "fit[1].kernel: there is no kernel 'simpel'; did you mean 'simple'?",
        ),
        (named("fit", "large"), "fit[0].kernel: there is no kernel 'large'; choose one of large<float>"),
        (
            named("fit", "over"),
            "fit[0].kernel: there is no kernel 'over'; choose one of over(float*), over(int*)",
        ),
        (
            named("fit", "zzzzzz"),
            "fit[0].kernel: there is no kernel 'zzzzzz'; the module has bool_, large<float>, longer, "
            "ns::inner, over(float*), over(int*), renamed, shorter, simple",
        ),
        (
            named("fit", "simple: sm_90", "shorter"),
            "fit[1].kernel: shorter(int n, const float* x) has 2 parameters, and "
            "simple(int n, const float* x, float* y) has 3; candidates take the same arguments",
        ),
        (
            named("fit", "simple: sm_90", "large<float>: sm_80", "longer"),
            'fit[2].kernel: longer(long long n, const float* x, float* y) has "long long n" (8 bytes) where '
            'simple(int n, const float* x, float* y) has "int n" (4 bytes); candidates '
            "take the same arguments",
        ),
        (
            named("fit", "simple: sm_90", "renamed"),
            'fit[1].kernel: renamed(int count, const float* x, float* y) has "int count" (4 bytes) where '
            'simple(int n, const float* x, float* y) has "int n" (4 bytes); candidates '
            "take the same arguments",
        ),
        (
            named("fit", "renamed: sm >= 80 and cont > 3", "renamed"),
            "fit[0].when: \"sm >= 80 and cont > 3\": renamed has no parameter 'cont'; did you mean 'count'?",
        ),
        (
            named("fit", "simple: zzz > 3", "simple"),
            "fit[0].when: \"zzz > 3\": simple has no parameter 'zzz'; conditions compare n, sm",
        ),
        (
            named("fit", "simple: x > 3", "simple"),
            "fit[0].when: \"x > 3\": 'x' is const float*; conditions compare integers: n, sm",
        ),
        *(
            (
                named("fit", f"bool_: {name} > 0", "bool_"),
                f"fit[0].when: \"{name} > 0\": '{name}' is {type_}; conditions compare integers: sm",
            )
            for name, type_ in (("flag", "bool"), ("f", "float"))
        ),
        (named("simple", "simple"), "simple: 'simple' is a kernel already; choose another name"),
        (named("large", "simple"), "large: 'large' is a kernel already; choose another name"),
        (named("over", "simple"), "over: 'over' is a kernel already; choose another name"),
        (named("weights", "simple"), "weights: 'weights' is a variable already; choose another name"),
        (named("ns", "simple"), "ns: 'ns' is a namespace already; choose another name"),
        (
            named("ns::counter", "simple"),
            "\"ns::counter\": 'ns::counter' is a variable already; choose another name",
        ),
        (
            named("weights::fit", "simple"),
            "\"weights::fit\": 'weights' is a variable already; choose another name",
        ),
    ],
)
def test_variants_that_do_not_fit_the_kernels_are_reported_with_their_path(
    compiled: Manifest, variants: Variants, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        with_variants(compiled, [variants], WHERE)
    assert str(raised.value) == f"{WHERE}.{message}"


def test_variants_are_not_called_like_others(compiled: Manifest) -> None:
    for one, other, taken in (("a", "a::b", "'a' is variants"), ("a::b", "a", "'a' is a namespace")):
        with pytest.raises(ConfigError, match=f"{taken} already"):
            with_variants(compiled, [named(one, "simple"), named(other, "simple")], WHERE)


# -------------------------------------------------------------------------------------------- building

FITTING = """
extern "C" __global__ void large(int n, float* x) { x[threadIdx.x] = n; }
extern "C" __global__ void simple(int n, float* x) { x[threadIdx.x] = n; }
"""
TABLE = KERNELS + 'variants = { fit = [{ kernel = "large", when = "n >= 100" }, { kernel = "simple" }] }\n'


def test_a_project_with_variants_is_built(tmp_path: Path) -> None:
    write_project(tmp_path, TABLE, {"device/fit.cu": FITTING})
    manifest = loads(build(tmp_path)["p.kernels"].files["manifest.json"], "manifest.json")
    assert manifest.variants == (named("fit", "large: n >= 100", "simple"),)


def test_a_mistake_is_one_message_once_the_kernels_are_known(tmp_path: Path) -> None:
    write_project(tmp_path, TABLE.replace('"simple"', '"simpel"'), {"device/fit.cu": FITTING})
    assert refusal(tmp_path) == f"{WHERE}.fit[1].kernel: there is no kernel 'simpel'; did you mean 'simple'?"


def test_a_mistake_in_a_default_is_reported_at_its_own_path(tmp_path: Path) -> None:
    variants = TABLE.splitlines()[-1].replace('"large"', '"huge"')
    table = KERNELS.replace("[tool.cuda_ext]\n", f"[tool.cuda_ext]\n{variants}\n")
    write_project(tmp_path, table, {"device/fit.cu": FITTING})
    assert refusal(tmp_path).startswith("tool.cuda_ext.variants.fit[0].kernel: there is no kernel 'huge'")


def test_another_condition_makes_another_package_and_compiles_nothing(tmp_path: Path) -> None:
    root = write_project(tmp_path, TABLE, {"device/fit.cu": FITTING})
    before = build(root)["p.kernels"]
    log: list[str] = []
    write_project(root, TABLE.replace("n >= 100", "n >= 200"), {"device/fit.cu": FITTING})
    after = build(root, log)["p.kernels"]
    assert log[-1] == "p.kernels: nothing has changed since it was compiled"
    changed = {name for name in before.files if before.files[name] != after.files[name]}
    assert changed == {"__init__.pyi", "manifest.json"}
    write_project(root, TABLE, {"device/fit.cu": FITTING})
    assert build(root, log)["p.kernels"] == before
    assert log[-1] == "p.kernels: nothing has changed since it was compiled"


# -------------------------------------------------------------------------------------------- manifest

KERNEL = AXPY._replace(expression="large", parameters=signature("integer 4 int n", "pointer 8 float* x"))
WITH_VARIANTS = SAMPLE._replace(
    kernels=(KERNEL, KERNEL._replace(expression="simple")),
    variants=(named("fit", "large: n >= 100 and sm_90", "simple"), named("ns::fit", "simple")),
)


def test_variants_are_read_back() -> None:
    assert loads(dumps(WITH_VARIANTS), "m.json") == WITH_VARIANTS


def test_a_manifest_of_before_there_were_variants_is_read() -> None:
    data = json.loads(dumps(SAMPLE))
    data.pop("variants", None)
    assert loads(json.dumps(data), "m.json") == SAMPLE


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("candidates",), []),
        (("candidates", 0, "kernel"), "zzz"),
        (("candidates", 0, "when"), None),
        (("candidates", 1, "when"), "n > 3"),
    ],
)
def test_damaged_variants_are_reported(path: tuple[Any, ...], value: object) -> None:
    data = json.loads(dumps(WITH_VARIANTS))
    here = data["variants"][0]
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    field = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    with pytest.raises(ManifestError, match=re.escape(f"damaged manifest: manifest.variants[0]{field} is ")):
        loads(json.dumps(data), "m.json")


def with_condition(when: str, manifest: Manifest = WITH_VARIANTS) -> Any:
    """Return the module of `manifest` with another condition of the first candidate."""
    data = json.loads(dumps(manifest))
    data["variants"][0]["candidates"][0]["when"] = when
    return module_from(loads(json.dumps(data), "m.json"), FILES.__getitem__)


def report(when: str) -> str:
    """Return the whole message about a damaged condition."""
    return (
        f"sample.kernels: manifest.json: damaged manifest: condition 0 of fit is {when!r}; "
        "reinstall the package that holds it"
    )


@pytest.mark.parametrize("when", ["x > 3", "zzz > 3", "exit()", "", "(n) > 3"])
def test_a_damaged_condition_is_reported_on_first_use(when: str) -> None:
    kernels = with_condition(when)
    with pytest.raises(ManifestError) as raised:
        kernels.fit  # noqa: B018
    assert str(raised.value) == report(when)


@pytest.mark.parametrize("other", [0, 1])
def test_a_condition_compares_parameters_of_its_own_kernel_and_of_the_default(other: int) -> None:
    changed = list(WITH_VARIANTS.kernels)
    parameters = signature("integer 4 int m", "pointer 8 float* x")
    changed[other] = changed[other]._replace(parameters=parameters)
    for when in ("n > 3", "m > 3"):
        kernels = with_condition(when, WITH_VARIANTS._replace(kernels=tuple(changed)))
        with pytest.raises(ManifestError) as raised:
            kernels.fit  # noqa: B018
        assert str(raised.value) == report(when)


@pytest.mark.parametrize("name", ["in", "lambda", "\u00b5"])
def test_a_wheel_may_compare_any_name_of_a_parameter(name: str) -> None:
    kernel = KERNEL._replace(parameters=(KERNEL.parameters[0]._replace(name=name), KERNEL.parameters[1]))
    kernels = (kernel, kernel._replace(expression="simple"))
    module = with_condition(f"{name} > 3", WITH_VARIANTS._replace(kernels=kernels))
    assert module.fit.candidates[0].when == f"{name} > 3"


# ---------------------------------------------------------------------------------------------- names


@pytest.fixture
def kernels() -> Any:
    return module_from(WITH_VARIANTS, FILES.__getitem__)


def test_variants_are_found_as_kernels_are(kernels: Any) -> None:
    assert kernels.fit is kernels["fit"] is kernels["::fit"]
    assert kernels.ns.fit is kernels["ns::fit"]
    assert dir(kernels) == ["fit", "large", "ns", "simple", "weights"]
    assert dir(kernels.ns) == ["fit", "table"]
    with pytest.raises(KernelNotFoundError, match="'fti'; did you mean 'fit'"):
        kernels.fti  # noqa: B018


def test_naming_a_candidate_is_naming_a_kernel(kernels: Any) -> None:
    assert kernels.fit.candidates == ((kernels.large, "n >= 100 and sm_90"), (kernels.simple, None))


def test_representations_of_variants_are_readable(kernels: Any) -> None:
    shown = "large if n >= 100 and sm_90, else simple"
    assert repr(kernels.fit) == f"<variants fit(int n, float* x): {shown}>"
    assert f"\n  fit: {shown}\n" in str(cuda_ext.describe(kernels))
    assert type(kernels.fit).__doc__.startswith(f"fit is {shown}\n\nCUDA kernel fit(int n, float* x)\n")
    assert kernels.fit.signature == "fit(int n, float* x)"


def test_the_module_of_pickled_variants_must_be_importable(kernels: Any) -> None:
    with pytest.raises(TypeError, match="it is no importable module"):
        pickle.dumps(kernels.fit)


# ---------------------------------------------------------------------------------------------- stubs

USES = """
from typing import Any

from pkg import kernels


def use(x: Any) -> None:
    kernels.fit(10, x, x, grid=1, block=128)
    kernels.fit(n=10, x=x, y=x, grid=1, block=128, stream=7)
    kernels.ns.fit(10, x, x, grid=1, block=128)
    kernels.fit.bind(grid=1, block=128)(10, x, x)
    kernels.fit.explain(10, x, x)
    print([kernel.signature for kernel, _ in kernels.fit.candidates])
"""
MISUSES = """
from typing import Any

from pkg import kernels


def use(x: Any) -> None:
    kernels.fit(10, x, grid=1, block=128)
    kernels.fit("10", x, x, grid=1, block=128)
    kernels.fit(count=10, x=x, y=x, grid=1, block=128)
    kernels.fit.candidate
"""


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_type_checkers_know_the_common_signature(tool: str, tmp_path: Path) -> None:
    names = ("fit", "ns::fit", "Variants")
    variants = [named(name, "large<float>: n > 3", "simple") for name in names]
    own = made()
    manifest = with_variants(own.manifest, variants, WHERE)
    package = generate(own._replace(manifest=manifest))
    assert '"""fit(int n, const float* x, float* y)"""' in stub(package)
    assert check(tool, package, tmp_path, USES) == []
    wrong = [number for number, line in enumerate(MISUSES.splitlines(), 1) if line.startswith("    ")]
    assert sorted(set(check(tool, package, tmp_path, MISUSES))) == [("user.py", number) for number in wrong]
