"""Images whose kernels are described: typed, launched as the image requires, with hidden values."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.manifest import loads
from tests.fixtures.device_code import image
from tests.fixtures.loader import run_script
from tests.fixtures.messages import Messages
from tests.fixtures.projects import build, refusal, write_project

SOURCE = """
extern "C" __global__ void helper(int* x) { *x = 1; }
extern "C" __global__ void raw_scale(const float* x, int rows, int step, float* y, char factor,
                                     unsigned long long zero, void* memory) {
  if (factor) y[0] = x[rows * step] + *(float*)memory + zero;
}
__device__ int housekeeping;
"""
SIGNATURE = (
    "(const float* x, int rows = x.shape[0], int step = x.stride[0], float* y, signed char factor, "
    "uint64_t reserved = 0, void* memory = scratch)"
)
TABLE = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["images/*.cubin"]
emit = "cubin"
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["images/scale.cubin"]
kernels = [{{ name = "ns::scale<float>", symbol = "raw_scale", signature = "{signature}", {launch} }}]
"""
LAUNCH = "block = [64, 2], shared = 60000, cluster = 2, scratch = 256, dependent = true"


@pytest.fixture(scope="module")
def cubin() -> bytes:
    return image(SOURCE).data


def project(root: Path, cubin: bytes, signature: str = SIGNATURE, launch: str = LAUNCH) -> Path:
    table = TABLE.format(signature=signature, launch=launch)
    return write_project(root, table, {"images/scale.cubin": cubin, "p/__init__.py": ""})


@pytest.mark.host_compiler
def test_a_described_kernel_is_launched_as_its_image_requires(
    tmp_path: Path, cubin: bytes, fake_driver: Path, messages: Messages
) -> None:
    build(project(tmp_path, cubin))["p.kernels"].write(tmp_path / "p/kernels")
    script = """
    from p import kernels
    from tests.fixtures.device_arrays import ArrayAt

    print(dir(kernels), kernels.ns.scale["float"].signature)
    x, y = ArrayAt(4096, (7, 5), (80, 4)), ArrayAt(8192, (1,))
    kernels.ns.scale(x, y, -3, grid=(10, 3))
    caught(kernels.ns.scale, x, y, 1, grid=1, block=64)
    caught(kernels.ns.scale, x, y, 1)
    caught(kernels.ns.scale, 4096, y, 1, grid=1)
    caught(kernels.ns.scale, ArrayAt(4096, ()), y, 1, grid=1)
    caught(kernels.ns.scale, ArrayAt(4096, (1 << 31,)), y, 1, grid=1)
    caught(kernels.ns.scale, x, y, 1, grid=1 << 30)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    assert done.output[0] == "['ns'] ns::scale<float>(const float* x, float* y, signed char factor)"
    answers = [line.partition("   in a launch")[0].partition(": ")[2] for line in done.output[1:]]
    messages(*answers)
    assert "cuKernelSetAttribute raw_scale 8 60000 0" in done.calls
    (launch,) = done.launches
    *values, scratch = launch.split()[-7:]
    assert launch.split()[2:-7] == [
        *(
            "grid=20,3,1",
            "block=64,2,1",
            "shared=60000",
            "stream=0",
            "device=0",
            "dependent=1",
            "cluster=2,1,1",
        )
    ]
    assert values == ["0010000000000000", "07000000", "14000000", "0020000000000000", "fd", "0" * 16]
    assert int(scratch, 16)
    assert "cuMemAllocFromPoolAsync 15360 stream=0" in done.calls
    at = done.calls.index(launch)
    assert "cuMemFreeAsync stream=0" in done.calls[at:]


def test_a_report_has_the_resources_of_kernels_that_arrive_compiled(cubin: bytes) -> None:
    resources = read_image(Architecture.parse("sm_90"), cubin).usage["raw_scale"]
    assert resources.registers
    assert resources.spilled == 0


SIMPLE = """
extern "C" __global__ void {name}(float* x, int n, void* memory, unsigned long long zero) {{ x[n] = zero; }}
"""
PARAMETERS = "(float* x, int n, void* m = scratch, uint64_t z = 0)"
HINTED = f"""
[tool.cuda_ext.modules."p.kernels"]
sources = ["images/*.cubin"]
emit = "cubin"
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["images/hinted.*"]
[[tool.cuda_ext.modules."p.kernels".overrides.kernels]]
name = "k<1>"
symbol = "aligned"
when = "x % 16 == 0 and n % 4 == 0"
signature = "{PARAMETERS}"
block = 32
scratch = 16
[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["images/generic.*"]
kernels = [{{ name = "k<1>", symbol = "any", signature = "{PARAMETERS}", block = 64, scratch = 32 }}]
"""


@pytest.mark.host_compiler
def test_a_launch_takes_the_image_whose_condition_holds(tmp_path: Path, fake_driver: Path) -> None:
    files: dict[str, str | bytes] = {"p/__init__.py": ""}
    for stem, name in (("hinted", "aligned"), ("generic", "any")):
        for architecture in ("sm_80", "sm_90"):
            files[f"images/{stem}.{architecture}.cubin"] = image(SIMPLE.format(name=name), architecture).data
    package = build(write_project(tmp_path, HINTED, files))["p.kernels"]
    package.write(tmp_path / "p/kernels")
    script = """
    import cuda_ext
    from p import kernels

    print(dir(kernels), kernels["k<1>"].signature, kernels.k["1"] is kernels["k<1>"])
    for x, n in [(4096, 8), (4096, 8), (4100, 8), (4096, 3), (4096, 3), (4100, 3)]:
        kernels.k(x, n, grid=3)
    kernels.k["1"].bind(grid=5)(4096, 4)
    kernels.k["1"].explain(4100, 4)

    import numpy as np
    x = np.zeros(64, "f4")
    for array in (x, x[1:]):  # each has a copy of its own
        kernels.k(array, 8, grid=1)
    with cuda_ext.device_scope():
        for array in (x, x[4:], x[1:], x[:0]):
            kernels.k(array, 8, grid=1)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    taken = [(each.split()[1], each.split()[2], each.split()[3]) for each in done.launches]
    assert done.output[0] == "['k'] k<1>(float* x, int n) True"
    fast, slow = ("aligned", "grid=3,1,1", "block=32,1,1"), ("any", "grid=3,1,1", "block=64,1,1")
    assert taken[:7] == [fast, fast, slow, slow, slow, slow, ("aligned", "grid=5,1,1", "block=32,1,1")]
    assert len([each for each in done.launches[:7] if each.endswith(" " + "0" * 16)]) == 7
    # Copies of host arrays are aligned as their memory is.
    assert [name for name, *_ in taken[7:]] == ["aligned"] * 4 + ["any", "aligned"]


REFUSED = {
    # What is written instead of the signature or the launch configuration, and the answer.
    "x": "signature: expected parameters in parentheses, such as (const float* x, float* y, int n)",
    "(int)": "signature: expected a type and a name, found 'int'",
    "(float* x, float* x)": "signature: two parameters are named 'x'",
    "(int n = y.shape[0])": "signature: 'n' = y.shape[0]: no pointer 'y' stands before it",
    "(int n = 3)": "signature: 'n' = 3: expected 0, scratch, or the shape or stride of an argument",
    "(float* x, int n, void* m, uint64_t z)": "",
    "(float* x, int n, void* m)": "kernel 'any' has 4 parameters, and 'k' is described with 3; their sizes",
    "(float* x, long n, void* m, uint64_t z)": "the parameters of 'k' have 8, 8, 8, 8 bytes as described",
    "(float* x, int n, void* m = scratch, uint64_t z)": "scratch: is the size of the memory for each block",
    "(float* const x, std::int32_t n, void* m, std::size_t z)": "",
}


@pytest.mark.parametrize("signature", REFUSED)
def test_a_description_must_fit_its_image(tmp_path: Path, signature: str) -> None:
    files = {"images/a.cubin": image(SIMPLE.format(name="any")).data}
    table = (
        TABLE.replace("scale.cubin", "a.cubin").replace("ns::scale<float>", "k").replace("raw_scale", "any")
    )
    root = write_project(tmp_path, table.format(signature=signature, launch="block = 1"), files)
    if REFUSED[signature]:
        assert REFUSED[signature] in refusal(root)
    else:
        build(root)


def test_a_description_without_an_image_is_refused(tmp_path: Path) -> None:
    files = {"images/scale.cubin": image(SIMPLE.format(name="any")).data}
    table = TABLE.format(signature="(float* x)", launch="block = 1")
    assert refusal(write_project(tmp_path, table, files)).endswith(
        "images/scale.cubin: has no kernel 'raw_scale', which describes 'ns::scale<float>'; its kernels: any"
    )


TABLES = {
    # What is written instead of the description, and the answer.
    "kernels = { name = 'k' }": "kernels: expected an array of tables, each a table such as",
    "kernels = [{ name = 'k' }]": "kernels[0].signature: is missing; write its parameters as C++ does",
    "kernels = [{ name = 'k', signature = '(int n)', block = 0 }]": "block: expected an integer from 1 on",
    "kernels = [{ name = 'k', signature = '()', block = [32, 33] }]": "block: expected at most 1024 threads",
    "kernels = [{ name = 'k', signature = '()', block = 1, cluster = [4, 8] }]": "expected at most 16 blocks",
    "kernels = [{ name = 'k', signature = '(int n)', shared = 8 }]": "kernels[0].block: is missing; give the",
    "kernels = [{ name = 'k', signature = '(int n)', when = 'n == 2 and n > 4' }]": "never holds; correct it",
    "kernels = [{ name = 'k', signature = '(int n)', when = 'm > 2' }]": "k has no parameter 'm'",
    "kernels = [{ name = 'k', signature = '(int* n)', when = 'n > 2' }]": "or with null: n % 16 == 0",
}


@pytest.mark.parametrize("description", TABLES)
def test_a_wrong_description_is_answered_with_its_key(tmp_path: Path, description: str) -> None:
    table = TABLE.partition("kernels = ")[0] + description
    assert TABLES[description] in refusal(write_project(tmp_path, table, {"images/scale.cubin": b""}))


EMPTY = 'extern "C" __global__ void one() {} extern "C" __global__ void two(int n) {}'
CONTRADICTIONS = {
    # Descriptions that contradict each other or the kernel, and the answer.
    "{ name = 'k', symbol = 'one', signature = '(int n)' }": "has 0 parameters, and 'k' is described with 1",
    "{ name = 'j', symbol = 'two', signature = '(int n)' }, "
    "{ name = 'k', symbol = 'two', signature = '(int n)' }": "'k', or its kernel 'two', is described twice",
    "{ name = 'k', symbol = 'one', signature = '()' }, "
    "{ name = 'k', symbol = 'two', signature = '(int n)' }": "'k', or its kernel 'two', is described twice",
    "{ name = 'k', symbol = 'one', signature = '()', when = 'sm >= 80' }, "
    "{ name = 'k', symbol = 'two', signature = '(int n)' }": "have one name and other parameters",
}


@pytest.mark.parametrize("descriptions", CONTRADICTIONS)
def test_descriptions_do_not_contradict_each_other(tmp_path: Path, descriptions: str) -> None:
    table = f"{TABLE.partition('kernels = ')[0]}kernels = [{descriptions}]"
    files = {"images/scale.cubin": image(EMPTY).data}
    assert CONTRADICTIONS[descriptions] in refusal(write_project(tmp_path, table, files))


def test_lto_ir_is_described_by_what_the_build_makes_of_it(tmp_path: Path) -> None:
    files = {"images/scale.ltoir": image(SIMPLE.format(name="any"), "lto_80").data}
    description = f"{{ name = 'k', symbol = 'any', signature = '{PARAMETERS}', block = 32, scratch = 8 }}"
    table = TABLE.partition("kernels = ")[0].replace(".cubin", ".ltoir").replace('emit = "cubin"', "{keys}")
    table += f"kernels = [{description}]"
    root = write_project(tmp_path, table.replace("{keys}", 'architectures = ["sm_90", "lto_90"]'), files)
    manifest = loads(build(root)["p.kernels"].files["manifest.json"], "p.kernels")
    assert [kernel.signature for kernel in manifest.kernels] == ["k(float* x, int n)"]
    assert [[*i.launches] for i in manifest.units[0].images] == [["k"], []]
    write_project(tmp_path, table.replace("{keys}", 'architectures = ["lto_90"]'), files)
    assert "LTO-IR does not show the kernels that are described; add a cubin or PTX" in refusal(root)


def test_more_shared_memory_than_a_gpu_has_is_refused(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void raw_scale() { __shared__ volatile int x[256]; x[threadIdx.x] = 1; }'
    files = {"images/scale.cubin": image(source, "sm_86").data}
    for most, answer in ((99 << 10, "has at most 101,376; compile it for less"), (98 << 10, "")):
        table = TABLE.format(signature="()", launch=f"block = 32, shared = {most}")
        root = write_project(tmp_path, table, files)
        if answer:
            assert f"takes 102,400 bytes of shared memory in a block, and sm_86 {answer}" in refusal(root)
        else:
            assert build(root)


def test_kernels_that_are_compiled_are_not_described(tmp_path: Path) -> None:
    table = f"{TABLE.partition('kernels = ')[0]}kernels = [{{ name = 'one', signature = '()' }}]"
    root = write_project(tmp_path, table.replace(".cubin", ".cu"), {"images/scale.cu": EMPTY})
    assert "kernels: the build compiles images/scale.cu, and finds its kernels itself" in refusal(root)
