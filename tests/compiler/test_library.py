"""What a library still needs is a function of its products, which are no results of jobs here."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from cuda_ext.compiler.jobs import CompileJob, Job, LinkJob, Outcome
from cuda_ext.compiler.library import library_images, missing_jobs
from cuda_ext.compiler.module_plan import LibraryPlan
from cuda_ext.compiler.products import CompiledImage, Signatures
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Kernel, Parameter
from tests.fixtures.device_code import nvrtc, unit

SM_80, SM_90 = Architecture.parse("sm_80"), Architecture.parse("sm_90")
A, B = unit("", name="device/a.cu"), unit("", name="device/b.cu")


@cache
def some_cubin() -> bytes:
    (compiled,) = nvrtc().compile(unit("__global__ void some() {}"), [SM_90])
    return compiled.data


def image(architecture: Architecture, kernel: str) -> CompiledImage:
    """An image that is said to have `kernel`; the name lies behind it."""
    signatures = Signatures({kernel: Kernel(kernel, kernel, 0, ())}, {})
    data = some_cubin() + kernel.encode()
    return CompiledImage(architecture, data, (kernel,), (), signatures=signatures)


def test_a_library_needs_a_pass_for_each_target():
    plan = LibraryPlan("p.kernels", (A,), (SM_80, SM_90))
    jobs: list[Job] = [CompileJob(A, (SM_80,)), CompileJob(A, (SM_90,))]
    assert missing_jobs(plan, {}) == jobs
    products: dict[Job, Outcome] = {jobs[0]: (image(SM_80, "old"),)}
    assert missing_jobs(plan, products) == jobs[1:]
    products[jobs[1]] = (image(SM_90, "new"),)
    assert missing_jobs(plan, products) == []
    images, found = library_images(plan, products)
    assert [image.architecture for image in images] == [SM_80, SM_90]
    assert found.kernels.keys() == {"old", "new"}


def test_a_kernel_with_other_types_for_another_architecture_is_refused():
    plan = LibraryPlan("p.kernels", (A,), (SM_80, SM_90))
    products: dict[Job, Outcome] = {}
    for each, type_ in ((SM_80, "int"), (SM_90, "float")):
        parameters = (Parameter("x", type_, "float", 4, 0),)
        own = Signatures({"k": Kernel("k", "k", 0, parameters)}, {})
        products[CompileJob(A, (each,))] = (replace(image(each, "k"), signatures=own),)
    with pytest.raises(CompilationError, match="'k' has other parameters for sm_80"):
        library_images(plan, products)


def test_the_cubin_and_the_ptx_of_a_target_are_one_job():
    compute = Architecture.parse("compute_90")
    plan = LibraryPlan("p.kernels", (A,), (SM_80, SM_90, compute))
    jobs = [str(job).removeprefix("device/a.cu ") for job in missing_jobs(plan, {})]
    assert jobs == ["sm_80", "sm_90, compute_90"]


def test_a_link_comes_when_all_objects_are_there():
    plan = LibraryPlan("p.kernels", (A, B), (SM_90,), link=True)
    products: dict[Job, Outcome] = {}
    for each in (A, B):
        products[CompileJob(each, (SM_90,))] = (image(SM_90, each.name),)
    (link,) = missing_jobs(plan, products)
    assert isinstance(link, LinkJob)
    assert [item.data.removeprefix(some_cubin()) for item in link.inputs] == [b"device/a.cu", b"device/b.cu"]
    products[link] = (image(SM_90, "device/a.cu"),)
    assert missing_jobs(plan, products) == []


def test_nothing_is_linked_after_a_failure_and_all_failures_are_one_error(messages):
    plan = LibraryPlan("p.kernels", (A, B), (SM_90,), link=True)
    products: dict[Job, Outcome] = {}
    for each in (A, B):
        products[CompileJob(each, (SM_90,))] = CompilationError(f"{each.name}(1): error")
    assert missing_jobs(plan, products) == []
    with pytest.raises(CompilationError) as caught:
        library_images(plan, products)
    messages(str(caught.value))
