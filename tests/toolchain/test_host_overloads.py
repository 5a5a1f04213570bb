"""Expressions that are not evaluated mean the same functions without host code as nvcc's, or are an error."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from tests.fixtures.device_code import nvcc, nvrtc, unit

ARCHITECTURE = Architecture.parse("compute_90")
HEAD = """template <int N> struct Of { char size[N + 1]; };
template <class T> T&& made();
struct A { int x; }; struct B { int x; }; struct FromInt { __host__ __device__ constexpr FromInt(int) {} };
template <class T, class U> struct As { using type = U; };
"""
# Declarations for the host and the device, and an expression.
CASES = {
    title: (declarations, expression)
    for title, declarations, expression in re.findall(
        r"(?ms)^== (.*?)\n(.*?)\n-> (.*?)$",
        Path(__file__).with_name("host_overloads.txt").read_text(encoding="utf-8"),
    )
}
REFUSED = [title for title in CASES if title.startswith("refused")]
SAME = [title for title in CASES if title not in REFUSED]


def source_of(declarations: str, *expressions: str) -> str:
    """A kernel whose parameters have the types of the `expressions`, or ``Of<99>`` for none."""
    return HEAD + below_head(declarations, *expressions)


def below_head(declarations: str, *expressions: str) -> str:
    text, parameters = declarations, []
    for number, expression in enumerate(expressions):
        dependent = re.sub(r"\b1\b", "T(1)", expression)
        text += f"\ntemplate <class T> auto pick{number}(int) -> decltype({dependent});"
        text += f"\ntemplate <class T> Of<99> pick{number}(...);"
        parameters.append(f"decltype(pick{number}<int>(0))*")
    return f"{text}\n__global__ void k({', '.join(parameters)}) {{}}\n"


def entries(source: str, compiler: str) -> tuple[str, ...]:
    """The kernel's lowered name, which has the types."""
    by_nvrtc = compiler == "nvrtc"
    made = unit(source, name="a.cu", skip_host_code=by_nvrtc, std="c++20")
    (image,) = (nvrtc() if by_nvrtc else nvcc()).compile(made, [ARCHITECTURE])
    return image.entries


@functools.cache
def types_of_nvcc() -> Mapping[str, str]:
    """The types that nvcc finds, as they are mangled. It takes seconds, so it compiles all cases at once."""
    text = "".join(
        f"\nnamespace c{number} {{\n{below_head(*CASES[title])}}}\n" for number, title in enumerate(SAME)
    )
    include = re.compile(r"(?m)^#include .*\n")
    source = "".join(sorted({*include.findall(text)})) + HEAD + include.sub("", text)
    found = (re.fullmatch(r"_ZN\d+c(\d+)1kE(.*)", name) for name in entries(source, "nvcc"))
    return {SAME[int(match[1])]: match[2] for match in found if match}


@pytest.mark.parametrize("title", SAME)
def test_the_same_function_is_meant(title: str) -> None:
    assert entries(source_of(*CASES[title]), "nvrtc") == (f"_Z1k{types_of_nvcc()[title]}",)


@pytest.mark.parametrize("title", REFUSED)
def test_what_cannot_be_known_is_refused(title: str) -> None:
    with pytest.raises(CompilationError, match="an unevaluated expression"):
        entries(source_of(*CASES[title]), "nvrtc")


TYPES = ["int", "float", "char", "A", "const B&", "FromInt", "A*", "T", "const T&", "T*"]
SPACES = ["", "__host__ ", "static ", "inline ", "__device__ ", "__host__ __device__ ", "constexpr "]
VALUES = ["int", "float", "char", "A", "B&", "A*", "double"]


def overloads(choose: random.Random, scope: str) -> tuple[str, list[str]]:
    """Random functions, members, friends and operators of one namespace, and calls of them."""
    texts: list[str] = []
    inside: list[str] = []
    for number, type_ in enumerate(choose.sample(TYPES, choose.randint(1, 6))):
        space, result = choose.choice(SPACES), f"Of<{number + 1}>"
        template = "template <class T> " if "T" in type_ else ""
        body = choose.choice(["{ return {}; }", ";"] if space != "constexpr " else ["{ return {}; }"])
        name = choose.choice(["f", "f", "operator+"])
        if name == "f":
            texts.append(f"{template}{space}{result} f({type_}) {body}")
            inside.append(f"{template}{space}{result} m({type_}) {body}")
        else:
            texts.append(f"{template}{space}{result} operator+(const S&, {type_}) {body}")
            friend = space.replace("static ", "")
            inside.append(f"{template}friend {friend}{result} operator-(S, {type_}) {body}")
        texts.append(f"{space}auto a{number}(int) {{ return {result}(); }}")
    texts.append("__device__ Of<50> f(...);" if choose.random() < 0.5 else "struct N; void f(N);")
    declared = f"struct S {{ {' '.join(inside)} int x; }};\n" + "\n".join(texts)
    values = [f"made<typename As<T, {value}>::type>()" for value in VALUES]
    self = f"made<typename As<T, {scope}::S>::type>()"
    calls = [f"{scope}::f({value})" for value in values]
    calls += [f"{self} {sign} {value}" for sign in "+-" for value in values]
    calls += [f"{self}.m({value})" for value in values]
    calls.append(f"{scope}::a0({values[0]})")
    return f"namespace {scope} {{\n{declared}\n}}\n", calls


@pytest.mark.parametrize("seed", range(2))
def test_random_overloads_are_the_same(seed: int) -> None:
    choose = random.Random(seed)
    scopes = [overloads(choose, f"n{number}") for number in range(8)]
    declarations = "".join(text for text, _ in scopes)
    source = source_of(declarations, *(call for _, calls in scopes for call in calls))
    meant = entries(source, "nvcc")
    assert entries(source, "nvrtc") == meant
    assert len(set(re.findall(r"ILi(\d+)", meant[0]))) > 5
