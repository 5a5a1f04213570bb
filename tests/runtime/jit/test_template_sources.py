"""A template in a header of several sources: one of them is compiled on demand, by a rule."""

from __future__ import annotations

import pytest

import cuda_ext
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import KernelNotFoundError
from cuda_ext.runtime.jit.on_demand import Owner
from cuda_ext.runtime.module import library_of, module_from
from tests.fixtures.device_code import module, unit

HEADERS = {"scale.cuh": "template <class T> __global__ void scale(T* x) { *x *= 2; }\n"}
INCLUDE = '#include "scale.cuh"\n'
TEXT = INCLUDE + "__global__ void {}(int* x) {{ *x = 1; }}\n"
CONSTANT = "__constant__ float weight;\n__global__ void weigh(float* x) { *x = weight; }\n"


def source(name: str, text: str, *instantiate: str, **options: object) -> TranslationUnit:
    text = text.replace("{}", name).replace("{{", "{").replace("}}", "}")
    return unit(text, *instantiate, name=f"device/{name}.cu", headers=HEADERS, **options)


def owner(*units: TranslationUnit, expression: str = "scale<double>") -> Owner | None:
    compiled = module(*units)
    return library_of(module_from(compiled.manifest, compiled.files.__getitem__)).on_demand.owner(expression)


def test_the_first_of_the_sources_with_its_header_serves():
    assert owner(source("a", TEXT), source("b", TEXT)) == Owner(0, "device/a.cu")


def test_a_source_with_instantiations_of_it_comes_first():
    one, other = source("a", TEXT), source("b", TEXT, "scale<float>", fast_math=True)
    assert owner(one, other) == Owner(1, "device/b.cu")


def test_of_two_with_instantiations_it_is_the_first():
    assert owner(source("a", TEXT, "scale<int>"), source("b", TEXT, "scale<float>")) == Owner(
        0, "device/a.cu"
    )


@pytest.mark.parametrize("instantiate", [(), ("scale<float>",)])
def test_a_source_that_cannot_be_compiled_on_demand_comes_last(instantiate):
    variable = source("a", INCLUDE + CONSTANT, *instantiate)
    elsewhere = source("b", TEXT, raw=("-I/nowhere",))
    assert owner(variable, elsewhere, source("c", TEXT)) == Owner(2, "device/c.cu")


def test_templates_of_their_own_are_ambiguous():
    own = HEADERS["scale.cuh"]
    one, other = source("a", own + TEXT.removeprefix(INCLUDE)), source("b", own + TEXT.removeprefix(INCLUDE))
    with pytest.raises(KernelNotFoundError, match=r"device/a\.cu and device/b\.cu each define scale"):
        owner(one, other)


def test_any_of_them_is_compiled_ahead_of_demand(empty_cache):
    compiled = module(source("a", TEXT, "scale<int>"), source("b", TEXT, "scale<float>"))
    loaded = module_from(compiled.manifest, compiled.files.__getitem__)
    prepared = cuda_ext.prepare(loaded, ["scale<double>"], architectures=["sm_90"])
    assert prepared.compiled == ("scale<double> for sm_90",)


def test_a_kernel_that_was_built_is_not_prepared_under_another_spelling(empty_cache):
    text = TEXT + "using real = float;\n"
    compiled = module(source("a", text, "scale<float>"))
    loaded = module_from(compiled.manifest, compiled.files.__getitem__)
    assert cuda_ext.prepare(loaded, ["scale<real>"], architectures=["sm_90"]).compiled == ()


@pytest.mark.parametrize(
    "bounds",
    [
        "__launch_bounds__(256, (sizeof(T) == 8 ? 2 : 4))",
        "__launch_bounds__(((256)), (((2))))",
        "__launch_bounds__(256 /* (( */)",
        "__maxnreg__((32 + (8)))",
    ],
)
def test_launch_bounds_hide_no_template(bounds):
    own = f"template <class T> __global__ void {bounds} own(T* x) {{ *x = 2; }}\n"
    other = source("b", TEXT)
    assert owner(other, source("a", own + TEXT), expression="own<double>") == Owner(1, "device/a.cu")
