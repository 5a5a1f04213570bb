"""Look-up by attributes and brackets, and the errors of unknown names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cuda_ext.errors import ArgumentError, KernelNotFoundError
from cuda_ext.runtime.module import KernelModule, module_from
from tests.fixtures.loader import (
    AXPY,
    FILES,
    SAMPLE,
)
from tests.fixtures.messages import Messages


@pytest.fixture
def kernels() -> Any:
    """The sample module, created in memory."""
    return module_from(SAMPLE, FILES.__getitem__)


def test_attributes_follow_namespaces_and_brackets_take_expressions(kernels: Any) -> None:
    assert kernels.plain.expression == "plain"
    assert kernels.ns.inner.scale.expression == "ns::inner::scale"
    assert kernels.axpy["float"] == kernels["axpy<float>"] == kernels["::axpy< float >"]
    assert kernels.axpy["float"] != kernels.axpy["double"]
    assert kernels.axpy["float"].signature == AXPY.signature
    assert [p.name for p in kernels.axpy["float"].parameters] == ["n", "a", "x", "y"]
    assert kernels.ns["fill<int,256>"] == kernels["ns::fill<int, 256>"]
    assert kernels["ns"].fill["int", 256] == kernels.ns.fill["int,256"] == kernels["ns::fill<int, 256>"]


def test_overloads_are_one_attribute(kernels: Any) -> None:
    assert kernels["ov(int)"].expression == kernels.ov["(int)"].expression == "ov(int)"
    assert kernels["ov( float,int * )"].expression == "ov(float, int*)"


def test_symbols_are_looked_up_like_kernels(kernels: Any) -> None:
    assert (kernels.weights.name, kernels.weights.type, kernels.weights.size) == ("weights", "float[9]", 36)
    assert kernels.ns.table == kernels["ns::table"]
    assert repr(kernels.ns.table) == "<device symbol unsigned char[4] ns::table, 4 bytes>"


def test_an_instantiated_variable_is_looked_up_with_its_template_arguments(messages: Messages) -> None:
    names = ("table<float>", "table<int>", "ns::row<3>")
    symbols = tuple(SAMPLE.symbols[0]._replace(name=name, lowered=name) for name in names)
    kernels = module_from(SAMPLE._replace(kernels=(), symbols=symbols), FILES.__getitem__)
    assert kernels["table< int >"].name == "table<int>"
    assert kernels.ns["row<3>"].name == "ns::row<3>"
    assert (dir(kernels), dir(kernels.ns)) == (["ns", "table"], ["row"])
    with pytest.raises(KernelNotFoundError) as raised:
        kernels.table  # noqa: B018
    messages(str(raised.value))


def test_variables_of_the_same_name_in_several_units_are_ambiguous(messages: Messages) -> None:
    symbols = tuple(SAMPLE.symbols[0]._replace(name="weights", unit=unit) for unit in (0, 1))
    kernels = module_from(SAMPLE._replace(symbols=symbols), FILES.__getitem__)
    with pytest.raises(KernelNotFoundError) as raised:
        kernels.weights  # noqa: B018
    messages(str(raised.value))


def test_a_kernel_and_a_namespace_may_share_a_name() -> None:
    blur, sobel = (AXPY._replace(expression=e, lowered=e) for e in ("blur", "blur::sobel"))
    kernels = module_from(SAMPLE._replace(kernels=(blur, sobel)), FILES.__getitem__)
    assert kernels["blur"].expression == "blur"
    assert kernels.blur.sobel.expression == "blur::sobel"
    assert kernels["blur::sobel"] == kernels.blur.sobel
    assert dir(kernels.blur) == ["sobel"]
    with pytest.raises(ArgumentError, match="expected 4 arguments"):
        kernels.blur(grid=1, block=1)


def test_overloaded_templates_narrow_step_by_step() -> None:
    overloads = [AXPY._replace(expression=e) for e in ("f<int>(int)", "f<int>(int*)", "f<char>")]
    kernels = module_from(SAMPLE._replace(kernels=tuple(overloads)), FILES.__getitem__)
    assert repr(kernels.f["int"]) == "<kernel template f<int>: f<int>(int), f<int>(int*)>"
    assert kernels.f["int"]["(int)"].expression == "f<int>(int)"
    assert kernels.f["char"].expression == "f<char>"
    assert kernels["f<int>(int *)"].expression == "f<int>(int*)"


def test_template_arguments_may_have_parentheses() -> None:
    expressions = ("g<(Mode)1>(int)", "g<(Mode)1>(int*)", "g<void(int)>")
    overloads = tuple(AXPY._replace(expression=expression) for expression in expressions)
    kernels = module_from(SAMPLE._replace(kernels=overloads), FILES.__getitem__)
    template = "<kernel template g<(Mode)1>: g<(Mode)1>(int), g<(Mode)1>(int*)>"
    assert repr(kernels["g<(Mode)1>"]) == template
    assert kernels["g<(Mode)1>"]["(int)"].expression == "g<(Mode)1>(int)"
    assert kernels["g<void(int)>"].expression == "g<void(int)>"
    assert dir(kernels) == ["g", "ns", "weights"]


def test_template_arguments_may_be_numbers() -> None:
    expressions = ("scan<128, true>", "scan<128, false>")
    instances = tuple(AXPY._replace(expression=expression) for expression in expressions)
    kernels = module_from(SAMPLE._replace(kernels=instances), FILES.__getitem__)
    assert kernels.scan[128, True].expression == "scan<128, true>"
    with pytest.raises(TypeError, match=r"as C\+\+ spells it, found 1\.5"):
        kernels.scan[1.5]


def test_python_names_do_not_hide_kernels() -> None:
    words = ("bind", "name", "library", "manifest", "read", "compile", "_path", "items", "_library", "__call")
    instances = tuple(AXPY._replace(expression=word) for word in words)
    nested = tuple(AXPY._replace(expression=f"ns::{word}") for word in words)
    kernels = module_from(SAMPLE._replace(kernels=instances + nested), FILES.__getitem__)
    for word in words:
        assert getattr(kernels, word).expression == word
        assert getattr(kernels.ns, word).expression == f"ns::{word}"
    own = vars(KernelModule).keys() - {"_ipython_key_completions_"}  # reserved, except in namespaces
    assert all(re.fullmatch("__.*__", name) for name in own)


UNKNOWN = (
    *("plane", "ms::fill<int, 256>", "ns::zzz", "axpy<__half>", "plain<float>", "ov(double)"),
    *("step<float>", "step<512>", "k20"),
)


def test_errors_of_unknown_names_say_what_there_is(messages: Messages) -> None:
    steps = ("step<double, 256>", "step<float, 256>", "step<float, 512>")
    added = [AXPY._replace(expression=each) for each in (*steps, *(f"k{i}" for i in range(20)))]
    kernels = module_from(SAMPLE._replace(kernels=(*SAMPLE.kernels, *added)), FILES.__getitem__)
    for name in UNKNOWN:
        with pytest.raises(KernelNotFoundError) as raised:
            kernels[name]
        messages(raised.value)
    for wrong in (lambda: kernels.axpy["__half"], lambda: kernels.ns.zzz):
        with pytest.raises(KernelNotFoundError) as raised:
            wrong()
        messages(raised.value)
    assert not hasattr(kernels, "zzz")
    assert issubclass(KernelNotFoundError, KeyError)


@pytest.mark.parametrize(
    ("launch", "keywords"),
    [
        ((1, 256), "grid=1, block=256"),
        (((2, 3), (16, 16)), "grid=(2, 3), block=(16, 16)"),
        (4, "grid=4, block=..."),
        (lambda _: (4,), "grid=lambda named: ..., block=..."),
    ],
)
def test_a_launch_in_brackets_is_answered_with_its_keywords(kernels: Any, launch: Any, keywords: str) -> None:
    for kernel, error in (
        (kernels.axpy, KernelNotFoundError),
        (kernels.ov, KernelNotFoundError),
        (kernels.plain, ArgumentError),
    ):
        with pytest.raises(error) as raised:
            kernel[launch]
        assert str(raised.value).endswith(f"; give the launch as keywords of the call, {keywords}")
    with pytest.raises(ArgumentError, match=r"^plain is not a template$"):
        kernels.plain["float"]
    with pytest.raises(TypeError, match="not iterable"):
        iter(kernels.plain)


def test_ambiguous_arguments_launch_nothing(kernels: Any, messages: Messages) -> None:
    with pytest.raises(ArgumentError) as raised:
        kernels.axpy(1, 2.0, 0, 0, grid=1, block=1)
    messages(str(raised.value))
    with pytest.raises(ArgumentError, match=r"in a launch of ns::fill<int, 256>\(int\* x, int value\)"):
        kernels.ns.fill(grid=1, block=1)


def test_representations_are_readable(kernels: Any) -> None:
    members = ["axpy", "gemm", "later", "ns", "ov", "plain", "tiled", "weights"]
    assert dir(kernels) == members
    assert repr(kernels) == f"<kernels of sample.kernels: {', '.join(members)}>"
    assert repr(kernels.ns) == "<namespace ns: fill, inner, table>"
    assert dir(kernels.ns.inner) == ["scale"]
    assert repr(kernels.axpy) == "<kernel template axpy: axpy<double>, axpy<float>>"
    assert repr(kernels.plain) == "<kernel plain()>"
    assert repr(kernels.weights) == "<constant symbol float[9] weights, 36 bytes>"
