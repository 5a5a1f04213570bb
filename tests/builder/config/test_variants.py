"""Variants: the errors for invalid tables, and the packages of valid ones."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import cuda_ext
from cuda_ext.builder.config.resolve_variants import resolve_variants
from cuda_ext.builder.package.generate import generate
from cuda_ext.compiler.module_plan import CompiledModule
from cuda_ext.errors import ConfigError, KernelNotFoundError, ManifestError
from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.facts.manifest import Manifest, dumps, loads
from cuda_ext.formats.variant_conditions import parse
from cuda_ext.runtime.module import module_from
from tests.builder.package.test_generate import assert_misuses_are_reported, stub
from tests.fixtures.device_code import module, unit
from tests.fixtures.loader import AXPY, FILES, SAMPLE, signature
from tests.fixtures.messages import Messages
from tests.fixtures.projects import KERNELS, build, write_project

WHERE = 'tool.cuda_ext.modules."p.kernels".variants'

# --------------------------------------------------------------------------------------- configuration


SOURCE = """
template <class T> __global__ void large(int n, const T* x, T* y) {}
__global__ void simple(int n, const float* x, float* y) {}
__global__ void shorter(int n, const float* x) {}
__global__ void longer(long long n, const float* x, float* y) {}
__global__ void renamed(int count, const float* x, float* y) {}
__global__ void bool_(bool flag, float f) {}
__global__ void over(int* p) {}
__global__ void over(float* p) {}
struct Range { int first; const float* data; };
struct Params { Range range; float scale; unsigned char flags; };
__global__ void wide(Params p, float* out) {}
__global__ void narrow(Params p, float* out) {}
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
    return Variants(name, tuple(Candidate(kernel, parse(when) if when else ()) for kernel, _, when in pairs))


def test_kernels_are_recorded_as_the_compiler_spells_them(compiled: Manifest) -> None:
    found = resolve_variants(compiled, [named("fit", "::large< float >: n > 3", "ns ::inner")], WHERE)
    assert found.variants == (named("fit", "large<float>: n > 3", "ns::inner"),)
    assert found._replace(variants=()) == compiled
    condition = "p.range.first >= 4 and p.flags % 2 == 1 and p.range.data != null and out == null"
    members = [named("fit", f"wide: {condition}", "narrow")]
    assert resolve_variants(compiled, members, WHERE).variants == tuple(members)


@pytest.mark.parametrize(
    "variants",
    [
        named("fit", "large<flaot>: sm_90", "simple"),
        named("fit", "simple: sm_90", "simpel"),
        named("fit", "large"),
        named("fit", "over"),
        named("fit", "zzzzzz"),
        named("fit", "simple: sm_90", "shorter"),
        named("fit", "simple: sm_90", "large<float>: sm_80", "longer"),
        named("fit", "simple: sm_90", "renamed"),
        named("fit", "renamed: sm >= 80 and cont > 3", "renamed"),
        named("fit", "simple: zzz > 3", "simple"),
        named("fit", "simple: x > 3", "simple"),
        named("fit", "simple: x == 3", "simple"),
        *(
            named("fit", f"wide: {condition}", "narrow")
            for condition in ("p.range.frist > 3", "p.scale > 3", "p.range == 0", "p.range.data == 1")
        ),
        *(named("fit", f"bool_: {name} > 0", "bool_") for name, type_ in (("flag", "bool"), ("f", "float"))),
        named("simple", "simple"),
        named("large", "simple"),
        named("over", "simple"),
        named("weights", "simple"),
        named("ns", "simple"),
        named("ns::counter", "simple"),
        named("weights::fit", "simple"),
    ],
)
def test_variants_that_do_not_fit_the_kernels_are_reported_with_their_path(
    compiled: Manifest, variants: Variants, messages: Messages
) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve_variants(compiled, [variants], WHERE)
    messages(raised.value)


def test_members_that_lie_elsewhere_in_another_source_are_not_compared(compiled: Manifest) -> None:
    own = next(structure for structure in compiled.structures if structure.name == "Params")
    fields = tuple(each._replace(offset=each.offset + 1) for each in own.fields)
    kernels = [each._replace(unit=1) if each.expression == "narrow" else each for each in compiled.kernels]
    changed = compiled._replace(
        units=compiled.units * 2,
        kernels=tuple(kernels),
        structures=(*compiled.structures, own._replace(fields=fields, units=(1,))),
    )
    with pytest.raises(ConfigError, match=r"'p\.flags' lies elsewhere in the arguments of narrow"):
        resolve_variants(changed, [named("fit", "wide: p.flags == 1", "narrow")], WHERE)


def test_variants_are_not_called_like_others(compiled: Manifest) -> None:
    for one, other, taken in (("a", "a::b", "'a' is variants"), ("a::b", "a", "'a' is a namespace")):
        with pytest.raises(ConfigError, match=f"{taken} already"):
            resolve_variants(compiled, [named(one, "simple"), named(other, "simple")], WHERE)


# -------------------------------------------------------------------------------------------- building

FITTING = """
extern "C" __global__ void large(int n, float* x) { x[threadIdx.x] = n; }
extern "C" __global__ void simple(int n, float* x) { x[threadIdx.x] = n; }
"""
TABLE = KERNELS + 'variants = { fit = [{ kernel = "large", when = "n >= 100" }, { kernel = "simple" }] }\n'


def test_variants_have_no_kernels_that_are_several_already(compiled: Manifest) -> None:
    kernel = compiled.kernels[0].expression
    first = compiled.kernels[0]._replace(expression=f"{kernel} if sm_90")
    module = compiled._replace(
        kernels=(first, *compiled.kernels[1:]),
        variants=(Variants(kernel, (Candidate(first.expression, parse("sm_90")),), specialised=True),),
    )
    with pytest.raises(
        ConfigError, match=r"either\[0\]\.kernel: .* is compiled on conditions, which choose among"
    ):
        resolve_variants(module, [Variants("either", (Candidate(kernel),))], "variants")


def test_a_project_with_variants_is_built(tmp_path: Path) -> None:
    write_project(tmp_path, TABLE, {"device/fit.cu": FITTING})
    manifest = loads(build(tmp_path)["p.kernels"].files["manifest.json"], "manifest.json")
    assert manifest.variants == (named("fit", "large: n >= 100", "simple"),)


def test_another_condition_makes_another_package_and_compiles_nothing(tmp_path: Path) -> None:
    root = write_project(tmp_path, TABLE, {"device/fit.cu": FITTING})
    before = build(root)["p.kernels"]
    log: list[str] = []
    write_project(root, TABLE.replace("n >= 100", "n >= 200"), {"device/fit.cu": FITTING})
    after = build(root, log)["p.kernels"]
    assert log[-1] == "p.kernels: nothing to compile"
    changed = {name for name in before.files if before.files[name] != after.files[name]}
    assert changed == {"__init__.pyi", "manifest.json"}
    write_project(root, TABLE, {"device/fit.cu": FITTING})
    assert build(root, log)["p.kernels"] == before
    assert log[-1] == "p.kernels: nothing to compile"


# -------------------------------------------------------------------------------------------- manifest

KERNEL = AXPY._replace(expression="large", parameters=signature("integer 4 int n", "pointer 8 float* x"))
WITH_VARIANTS = SAMPLE._replace(
    kernels=(KERNEL, KERNEL._replace(expression="simple")),
    variants=(named("fit", "large: n >= 100 and sm == 90", "simple"), named("ns::fit", "simple")),
)


def test_variants_are_read_back() -> None:
    assert loads(dumps(WITH_VARIANTS), "m.json") == WITH_VARIANTS


def test_candidates_that_are_no_kernels_are_reported() -> None:
    damaged = WITH_VARIANTS._replace(variants=(named("fit", "large: n >= 100", "zzz"),))
    module = module_from(loads(dumps(damaged), "m.json"), FILES.__getitem__)
    with pytest.raises(ManifestError, match="damaged manifest: the candidates of 'fit' are not kernels"):
        module.fit  # noqa: B018


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
    assert kernels.fit.candidates == ((kernels.large, "n >= 100 and sm == 90"), (kernels.simple, None))


def test_representations_of_variants_are_readable(kernels: Any) -> None:
    shown = "large if n >= 100 and sm == 90, else simple"
    assert repr(kernels.fit) == f"<variants fit(int n, float* x): {shown}>"
    assert f"\n  fit: {shown}\n" in str(cuda_ext.describe(kernels))
    assert kernels.fit.__doc__.startswith(f"fit is {shown}\n\nCUDA kernel fit(int n, float* x)\n")
    assert kernels.fit.signature == "fit(int n, float* x)"


def test_the_module_of_pickled_variants_must_be_importable(kernels: Any) -> None:
    with pytest.raises(TypeError, match="it is not an importable module"):
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

def misuse(x: Any) -> None:
    kernels.fit(10, x, grid=1, block=128)
    kernels.fit("10", x, x, grid=1, block=128)
    kernels.fit(count=10, x=x, y=x, grid=1, block=128)
    kernels.fit.candidate
"""


@pytest.mark.parametrize("tool", ["mypy", pytest.param("pyright", marks=pytest.mark.slow)])
def test_type_checkers_know_the_common_signature(tool: str, tmp_path: Path) -> None:
    names = ("fit", "ns::fit", "Variants")
    variants = [named(name, "large<float>: n > 3", "simple") for name in names]
    own = made()
    manifest = resolve_variants(own.manifest, variants, WHERE)
    package = generate(own._replace(manifest=manifest))
    assert '"""fit(int n, const float* x, float* y)\n' in stub(package)
    assert_misuses_are_reported(tool, package, tmp_path, (USES, MISUSES))
