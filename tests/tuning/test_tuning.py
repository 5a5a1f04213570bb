"""Candidates from the table to the launch: built, measured under the fake driver, chosen, and checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.builder.session import build_project
from cuda_ext.builder.sources.tuning_table import TuningTable
from cuda_ext.errors import CudaExtError
from cuda_ext.facts.manifest import loads
from cuda_ext.tuning.campaign import Campaign, parse_cases
from cuda_ext.tuning.measure import ROUNDS, Bench
from cuda_ext.tuning.results import Results, make_config
from tests.fixtures.loader import run_script
from tests.fixtures.projects import load, refusal, write_importable, write_project

pytestmark = pytest.mark.host_compiler

TABLE = """
[tool.cuda_ext.modules."p.kernels"]
architectures = ["sm_90"]
emit = "cubin"
jit = false

[[tool.cuda_ext.modules."p.kernels".tune]]
kernel = "scale<{T}, {TILE}, {MORE}>"
T = ["float"]
TILE = [64, 128]
MORE = [1, 2]
when = "TILE * MORE <= 256"
default = { TILE = 128, MORE = 1 }
key = ["n"]
block = "TILE"
shared = "TILE * 4"
grid = "cdiv(n, TILE * MORE)"
arrays = { x = "n", y = "n" }
"""
SOURCE = """
template <class T, int TILE, int MORE> __global__ void scale(const T* x, T* y, int n) {
  for (int i = (blockIdx.x * TILE + threadIdx.x) * MORE, k = 0; k < MORE; k++)
    if (i + k < n) y[i + k] = x[i + k];
}
extern "C" __global__ void plain(int* x) { *x = 1; }
"""
# The microseconds of each candidate: the first is the fastest for few blocks, the second for many. Shorter
# launches would be measured in graphs of a thousand.
TIMES = "Li64ELi1E=100+10,Li64ELi2E=300+1,Li128ELi1E=400+10,Li128ELi2E=600+50"

Tune = Callable[..., list[str]]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package of all candidates."""
    root, site = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("site")
    (package,) = build_with(write_project(root, TABLE, {"device/scale.cu": SOURCE}), CUDA_EXT_CANDIDATES="1")
    write_importable(package, site)
    return site


def build_with(root: Path, log: list[str] | None = None, **variables: str) -> list[Any]:
    return build_project(
        load(root), log.append if log is not None else lambda _: None, {**os.environ, **variables}
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project", TABLE, {"device/scale.cu": SOURCE})


@pytest.fixture
def tune(everything: Path, project: Path, fake_driver: Path) -> Tune:
    """Runs ``cuda-ext tune`` with arguments, and settings of the fake driver; returns the lines it prints."""

    def run(*arguments: str, site: Path = everything, status: int = 0, **settings: str) -> list[str]:
        environment = {f"FAKE_CUDA_{name.upper()}": value for name, value in settings.items()}
        environment |= {
            "PYTHONPATH": str(site),
            "LD_LIBRARY_PATH": str(fake_driver),
            "FAKE_CUDA_LOG": os.devnull,
        }
        command = [
            sys.executable,
            "-m",
            "cuda_ext",
            "tune",
            "p.kernels",
            "--project",
            str(project),
            *arguments,
        ]
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return (done.stdout + done.stderr).splitlines()

    return run


def entries(project: Path) -> list[dict[str, Any]]:
    table = json.loads((project / "tuning/scale.json").read_text())
    assert table["key"] == ["n"]
    found: list[dict[str, Any]] = table["tuned"]
    return found


def named(entry: dict[str, Any]) -> tuple[int, ...]:
    return tuple(entry["config"]["kwargs"].values())


def test_measurements_choose_the_kernel_of_a_launch(
    tune: Tune, project: Path, tmp_path: Path, fake_driver: Path
) -> None:
    lines = tune("--case", "n=[100, 100000]", kernels=TIMES, names="NVIDIA H200")
    assert lines == [
        "NVIDIA H200, sm_90, CUDA 13.0",
        "scale<float> n=100: 120 us with TILE=64, MORE=1, 3.42 times as fast as the default; "
        "the results of 4 agree",
        "scale<float> n=100000: 1082 us with TILE=64, MORE=2, 7.60 times as fast as the default; "
        "the results of 4 agree",
    ]
    found = entries(project)
    assert [(each["key"], named(each)) for each in found] == [
        ([n], each) for n in (100, 100000) for each in ((128, 1), (128, 2), (64, 1), (64, 2))
    ]
    assert {(each["device"], each["sm"], each["driver"]) for each in found} == {("NVIDIA H200", 90, "13.0")}
    log: list[str] = []
    page = tmp_path / "page.html"
    (package,) = build_with(project, log, CUDA_EXT_REPORT=str(page))
    assert page.read_text().count("number chosen") == 2
    assert any("tuning/scale.json: 8 of 8 entries used" in line for line in log)
    # The two that were chosen, and the default.
    assert package.kernels == (
        "plain",
        "scale<float>",
        "scale<float> if sm == 90 and n <= 3162",
        "scale<float> if sm == 90 and n >= 3163",
    )
    assert sum(name.endswith(".cubin") for name in package.files) == 3
    assert Path("tuning/scale.json") in load(project).source_files()
    write_importable(package, tmp_path)
    script = """
    from p import kernels
    grid = lambda given: -(-given["n"] // (given["TILE"] * given["MORE"]))
    for n in (100, 3000, 4000, 200, 100000):  # the bound is the middle in log2
        kernels.scale(4096, 8192, n, grid=grid)
    kernels.scale["float"][1](4096, 8192, 1)
    kernels.scale["float"].explain(4096, 8192, 90, grid=1)
    """
    run = {"LD_LIBRARY_PATH": str(fake_driver), "FAKE_CUDA_NAMES": "NVIDIA H200"}
    done = run_script(script, tmp_path, **run)
    launched = [launch.partition("scaleIf")[2].partition(" stream")[0] for launch in done.launches]
    small, large = "Li64ELi1EEvPKT_PS0_i", "Li64ELi2EEvPKT_PS0_i"
    assert launched == [
        f"{small} grid=2,1,1 block=64,1,1 shared=256",
        f"{small} grid=47,1,1 block=64,1,1 shared=256",
        f"{large} grid=32,1,1 block=64,1,1 shared=256",
        f"{small} grid=4,1,1 block=64,1,1 shared=256",
        f"{large} grid=782,1,1 block=64,1,1 shared=256",
        f"{small} grid=1,1,1 block=64,1,1 shared=256",
    ]
    assert "measured on NVIDIA H200 for n = 100" in done.output[1]
    checked = tune("--check", site=tmp_path, kernels=TIMES, names="NVIDIA H200")
    assert checked[1:] == [
        "scale<float> n=100: 120 us with TILE=64, MORE=1, what launches take; the results of 3 agree",
        "scale<float> n=100000: 1082 us with TILE=64, MORE=2, what launches take; the results of 3 agree",
    ]
    times = "Li64ELi1E=900,Li128ELi1E=300,Li64ELi2E=100:wrong"
    slower = tune("--check", site=tmp_path, kernels=times, status=1)
    assert slower[1] == (
        "scale<float> n=100: 300 us with TILE=128, MORE=1, 3.00 times as fast as what launches take; "
        "1 of 3 candidates fail: TILE=64, MORE=2 computes other results than the default"
    )


def test_gpus_of_one_capability_are_told_apart_by_their_names(
    tmp_path: Path, fake_driver: Path, project: Path
) -> None:
    def entry(gpu: str, more: int) -> dict[str, Any]:
        config = {"kwargs": {"TILE": 64, "MORE": more}}
        return {"device": gpu, "sm": 90, "key": [100], "config": config, "time": 1.5}

    script = "from p import kernels\nkernels.scale(4096, 8192, 9, grid=1)"
    for one, other in ((1, 2), (2, 1)):
        tuned = [entry("NVIDIA H100 PCIe", one), entry("NVIDIA H200", other)]
        table = TABLE.replace("jit = false", "jit = true")
        write_project(project, table, {"tuning/scale.json": json.dumps({"key": ["n"], "tuned": tuned})})
        (package,) = build_with(project)
        (tmp_path / str(one)).mkdir()
        write_importable(package, tmp_path / str(one))
        for gpu, more in (("NVIDIA H100 PCIe", one), ("NVIDIA H200", other), ("NVIDIA GH200 480GB", other)):
            settings = {"LD_LIBRARY_PATH": str(fake_driver), "FAKE_CUDA_NAMES": gpu}
            done = run_script(script, tmp_path / str(one), **settings)
            assert f"Li64ELi{more}E" in done.launches[0], gpu
    # Another GPU takes the default, compiled on demand.
    settings = {"LD_LIBRARY_PATH": str(fake_driver), "FAKE_CUDA_CAPABILITY": "80"}
    done = run_script(script, tmp_path / "1", **settings, CUDA_EXT_CACHE_DIR=str(tmp_path / "cache"))
    assert "Li128ELi1EEvPKT_PS0_i grid=1,1,1 block=128,1,1 shared=512" in done.launches[0]


def test_caches_of_kernel_tuner_are_read(project: Path) -> None:
    records = {"64,1": {"TILE": 64, "MORE": 1, "time": 0.5}, "64,2": {"TILE": 64, "MORE": 2, "time": 0.25}}
    records["128,2"] = {"TILE": 128, "MORE": 2, "time": "RuntimeFailedConfig"}
    cache = {"device_name": "NVIDIA H200", "kernel_name": "scale", "problem_size": 100, "cache": records}
    tuned = [{"key": [100], "sm": 90, **cache}]
    write_project(project, TABLE, {"tuning/scale.json": json.dumps({"key": ["n"], "tuned": tuned})})
    (package,) = build_with(project)
    (variants,) = loads(package.files["manifest.json"], "p").variants
    chosen = {
        kernel.expression: kernel.configuration
        for kernel in loads(package.files["manifest.json"], "p").kernels
    }
    assert chosen[variants.candidates[0].kernel] == {"TILE": "64", "MORE": "2"}
    tuned[0]["cache"] = {"64,1": {"TILE": 64, "MORE": 1, "time": "InvalidConfig"}}
    write_project(project, TABLE, {"tuning/scale.json": json.dumps({"key": ["n"], "tuned": tuned})})
    assert "tuned[0]: is no measurement: there is no configuration with a time" in refusal(project)


DECORATED = """
import triton
import triton.language as tl

def prune(configs, named_args, **_):
    return configs[:1]

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128) for w in (1, 4)]

@triton.autotune(configs=CONFIGS, key=["M", "n"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def double(out, x, n, M: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""
OF_FUNCTION = """
[tool.cuda_ext.modules."p.kernels"]
sources = ["device/*.py"]
emit = "cubin"
architectures = ["sm_90"]

[[tool.cuda_ext.modules."p.kernels".tune]]
kernel = "double"
when = "num_warps == 1 or BLOCK == 64"
grid = "cdiv(n, BLOCK)"
arrays = { out = "n", x = "n" }

[[tool.cuda_ext.modules."p.kernels".overrides]]
sources = ["device/double.py"]
instantiate = ["double(out: *fp32, x: *fp32, n: i32, M=4)"]
"""


def test_candidates_of_a_function_are_those_of_its_decorator(
    tune: Tune, project: Path, tmp_path: Path, fake_driver: Path
) -> None:
    pytest.importorskip("triton", reason="Triton runs under Linux only")
    config = {"kwargs": {"BLOCK": 64}, "num_warps": 1, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
    slower = {**config, "kwargs": {"BLOCK": 128}}
    timings = [[slower, [0.3, 0.2, 0.4]], [config, [0.1, 0.1, 0.1]], [config, [float("inf")] * 3]]
    dtypes = ["torch.float32", "torch.float32"]
    entry = {"kernel": "double", "device": "sm_90", "key": [4, 6400, *dtypes], "config": slower, "time": 1.5}
    tuned = [{"device": "sm_90", "key": [4, 100, *dtypes], "configs_timings": timings}, entry]
    files = {"device/double.py": DECORATED, "tuning/double.json": json.dumps({"tuned": tuned})}
    root, log = write_project(tmp_path / "q", OF_FUNCTION, files), list[str]()
    (package,) = build_with(root, log)
    said = "\n".join(log)
    assert "tuning/double.json: 3 of 3 entries used" in said
    assert "prune_configs_by of double is not run: 3 configurations are candidates" in said
    assert len(package.kernels) == 3
    write_importable(package, tmp_path)
    script = """
    from p import kernels
    for n in (50, 799, 801):
        kernels.double(4096, 8192, n, M=4, grid=lambda given: -(-given["n"] // given["BLOCK"]))
    kernels.double["fp32, M=4"].explain(4096, 8192, 50, grid=1)
    """
    done = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    grids = [launch.partition("grid=")[2].partition(" shared")[0] for launch in done.launches]
    assert grids == ["1,1,1 block=32,1,1", "13,1,1 block=32,1,1", "7,1,1 block=32,1,1"]
    assert "measured on sm_90 for n = 100" in done.output[1]
    assert [line.partition(":")[0] for line in tune("--check", site=tmp_path)[1:]] == [
        "double<fp32, M=4> n=100",
        "double<fp32, M=4> n=6400",
    ]
    tune("--case", "n=64", site=tmp_path)
    (found, _) = json.loads((project / "tuning/double.json").read_text())["tuned"]
    assert (found["kernel"], found["key"]) == ("double", [4, 64, *dtypes])
    assert found["compiler"].startswith("Triton ")


FAULTS = {
    "hangs": "hangs: it takes more than 3 seconds",
    "crashes": "ends the process, with 139",
    "700": "cuLaunchKernel failed: FAKE_ERROR_700 (700)",
    "wrong": "computes other results than the default",
    "2": "cuLaunchKernel failed: FAKE_ERROR_2 (2)",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_candidate_that_fails_is_left_out_with_the_reason(tune: Tune, project: Path, fault: str) -> None:
    lines = tune(
        "--case",
        "n=100",
        *(("--patience", "3") if fault == "hangs" else ()),
        kernels=TIMES.replace("Li64ELi1E=100", f"Li64ELi1E=100+0:{fault},Li0E=1"),
    )
    assert "us with TILE=64, MORE=2" in lines[-1]
    assert "; 1 of 4 candidates fail: TILE=64, MORE=1 " in lines[-1]
    (failed,) = (each for each in entries(project) if "failed" in each)
    assert named(failed) == (64, 1)
    assert FAULTS[fault] in failed["failed"]
    assert "time" not in failed


def test_a_default_that_fails_ends_the_case_in_words(tune: Tune, project: Path) -> None:
    lines = tune("--case", "n=100", kernels="Li128ELi1E=1+0:700")
    assert lines[1].startswith("scale<float> n=100: cannot be measured: ")
    assert not (project / "tuning").exists()


def test_a_case_that_takes_too_much_memory_is_said(tune: Tune) -> None:
    lines = tune("--case", "n=[100, 200]", kernels=TIMES, fail="cuMemAlloc=2@2")
    assert lines[1].startswith("scale<float> n=100: cannot be measured: cuMemAlloc failed")
    assert "scale<float> n=200: cannot be measured: cuMemAlloc failed" in lines[2]


INPUTS = """
import numpy as np

def scale(n):
    x = np.full(n, 2.0, "float32")
    return {"n": np.int64(n), "x": x, "y": (n,), "grid": lambda given: 1000 // given["TILE"]}
"""


def test_a_function_of_the_author_makes_the_arguments(tune: Tune, project: Path, tmp_path: Path) -> None:
    lines = TABLE.splitlines()
    table = "\n".join(line for line in lines if not line.startswith(("grid", "arrays")))
    write_project(project, f'{table}\ninputs = "p_inputs:scale"\n')
    (package,) = build_with(project, CUDA_EXT_CANDIDATES="1")
    write_importable(package, tmp_path)
    (tmp_path / "p_inputs.py").write_text(INPUTS)
    blocks = tune("--case", "n=100", site=tmp_path, kernels="Li64E=0+1,Li128E=0+2")
    assert blocks[1].startswith("scale<float> n=100: 14 us with TILE=128, MORE=1, the default")
    assert {each["key"][0] for each in entries(project)} == {100}
    (tmp_path / "p_inputs.py").write_text("def scale(n):\n    raise LookupError('no such n')")
    assert tune("--case", "n=100", site=tmp_path)[1].endswith("cannot be measured: LookupError: no such n")


def test_a_run_goes_on_where_it_was(tune: Tune, project: Path) -> None:
    tune("--case", "n=[100, 200]", kernels=TIMES)
    found = entries(project)
    kept = [each for each in found if each["key"] == [100]]
    table = {"key": ["n"], "tuned": [*kept, {"device": "sm_80", "key": [7], "config": {}, "time": 1}]}
    (project / "tuning/scale.json").write_text(json.dumps(table))
    lines = tune("--case", "n=[100, 200]", kernels="=5")
    assert "(measured before)" in lines[1]
    assert "(measured before)" not in lines[2]
    after = entries(project)
    assert [each for each in after if each["key"] == [100]] == kept
    assert [each["time"] for each in after if each["key"] == [200]] == [5.0] * 4
    # Entries of others stay.
    assert any(each["device"] == "sm_80" for each in after)


class _Interrupted(Bench):
    """A bench that the user interrupts in the last round, behind its first measurement: the default's."""

    def ask(self, name: str, case: Any, configuration: Any = None, stage: int = 0) -> dict[str, Any]:
        if stage == 2 and configuration["TILE"] == "64":
            raise KeyboardInterrupt
        return {"time": float(configuration["TILE"]), "runs": ROUNDS[stage]}


def test_a_run_that_is_interrupted_in_the_last_round_chooses_by_the_one_before(tmp_path: Path) -> None:
    candidates = [{"TILE": "64"}, {"TILE": "66"}, {"TILE": "128"}]
    own = [{"device": "sm_90", "key": [100], "config": make_config(each)} for each in candidates]
    results = Results(tmp_path / "scale.json", ["n"])
    campaign = Campaign(sys, _Interrupted("p.kernels", 1), print, print)
    with pytest.raises(KeyboardInterrupt):
        campaign._measure("scale", {"n": 100}, candidates, own, results)
    runs = [each["runs"] for each in results.find(own).values()]
    assert runs == [ROUNDS[1]] * 3
    content = (tmp_path / "scale.json").read_bytes()
    choices = TuningTable.parse("scale.json", content, "").choose("scale", ["n"], candidates[::-1])
    assert choices[0].configuration == {"TILE": "64"}


def test_lines_of_others_may_lack_what_a_run_continues_from(tmp_path: Path) -> None:
    lines = [{"config": n, "time": 1.0, "runs": 11} for n in range(5)]
    damaged = [lines[0], {"config": 1}, {"config": 2, "time": 1.0}, {**lines[3], "time": "x"}]
    damaged.append({**lines[4], "failed": "hangs"})
    (tmp_path / "scale.json").write_text(json.dumps({"tuned": damaged}))
    assert [*Results(tmp_path / "scale.json", ["n"]).find(lines)] == [0, 4]


def test_two_runs_at_once_keep_the_entries_of_both(tune: Tune, project: Path) -> None:
    threads = [
        threading.Thread(target=tune, args=("--case", f"n={n}"), kwargs={"kernels": TIMES})
        for n in (100, 300)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted({each["key"][0] for each in entries(project)}) == [100, 300]
    assert len(entries(project)) == 8


def test_a_gpu_that_throttles_is_noticed(tune: Tune) -> None:
    assert "throttles" in tune("--case", "n=100", kernels=TIMES, slower="0.2")[1]
    assert "throttles" not in tune("--case", "n=200", kernels=TIMES)[1]


def test_wrong_calls_are_answered(tune: Tune) -> None:
    assert tune("--case", "n=", status=1)[-1].startswith("'n=' is not a case: ")
    assert (
        "has no candidates of a kernel 'scal'; did you mean 'scale'?"
        in tune("--kernel", "scal", "--case", "n=1", status=1)[-1]
    )
    assert "cannot be measured: ValueError: n is not known" in tune("--case", "m=3")[-1]
    assert ".cuda_ext/record: there are no records" in tune(status=1)[-1]


@pytest.mark.parametrize("text", ["n=[]", "n=1) and (2", "n=10**3", "*[1]"])
def test_what_is_no_case_is_answered(text: str) -> None:
    with pytest.raises(CudaExtError, match="is not a case"):
        parse_cases(text)


def test_a_table_for_another_key_is_refused(project: Path) -> None:
    write_project(project, TABLE, {"tuning/scale.json": '{"key": ["m", "n"]}'})
    answer = "tune[0].key: is n, and tuning/scale.json has the key m, n; remove this file"
    assert answer in refusal(project)


def test_recorded_launches_are_cases(tune: Tune, project: Path) -> None:
    array = {"dtype": "float32", "shape": [10, 20]}
    arguments = [{"name": "x", **array}, {"name": "y", **array}, {"name": "n", "value": "200"}]
    launch = {
        "kind": "module",
        "module": "p.kernels",
        "source": "device/scale.cu",
        "instantiation": "scale<float, 64, 1>",
    }
    line = json.dumps({**launch, "arguments": arguments})
    write_project(project, TABLE, {".cuda_ext/record/1.jsonl": f"{line}\n{line}\n"})
    assert tune(kernels=TIMES)[1:] == [
        "scale<float> x=(10, 20), y=(10, 20), n=200: 140 us with TILE=64, MORE=1, "
        "3.00 times as fast as the default; the results of 4 agree"
    ]
    assert {each["key"][0] for each in entries(project)} == {200}


def test_entries_that_fit_nothing_and_those_of_another_source_are_said(project: Path) -> None:
    config = {"kwargs": {"TILE": 64, "MORE": 1}}
    tuned = [
        {"device": "sm_90", "key": [100], "config": config, "time": 1, "source": "0123"},
        {"device": "sm_90", "key": [100], "config": {"kwargs": {"TILE": 65}}, "time": 1},
        {"kernel": "scale<double>", "device": "sm_90", "key": [100], "config": config, "time": 1},
    ]
    write_project(project, TABLE, {"tuning/scale.json": json.dumps({"key": ["n"], "tuned": tuned})})
    log: list[str] = []
    build_with(project, log)
    said = "\n".join(log)
    assert "tuning/scale.json: 1 of 3 entries used" in said
    assert "2 entries of no kernel, candidate or type in this build: tuned[1]" in said
    assert "1 entry measured before the source changed" in said


ONE = '{"tuned": [{"device": "sm_90", "key": [KEY], "config": {"kwargs": {"TILE": 64, "MORE": 1}}}]}'
HOSTILE = {
    "[" * 100_000: "is no measurement",
    '{"tuned": 3}': "is no measurement",
    ONE.replace("sm_90", "sm_90\\u001b").replace("KEY", "1"): "has a control character",
    ONE.replace("sm_90", "sm_9").replace("KEY", "1"): "'sm_9' is not a compute capability",
    ONE.replace("KEY]", '1], "time": 1e999'): "tuned[0]: is no measurement: expected a positive number",
    ONE.replace("KEY]", '1], "time": -1'): "tuned[0]: is no measurement: expected a positive number",
    ONE.replace('"sm_90"', '"NVIDIA H200", "sm": 9000').replace(
        "KEY", "1"
    ): "tuned[0]: is no measurement: expected a target such as sm_90a",
    ONE.replace("KEY", '"n"'): 'tuned[0].key: expected an integer for n, found "n"',
    ONE.replace("KEY", ""): "tuned[0].key: expected an integer for n, found nothing",
    ONE.replace("KEY", str(1 << 70)): "64 bits",
}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_damaged_table_is_an_error_with_its_place(project: Path, text: str) -> None:
    write_project(project, TABLE, {"tuning/scale.json": text})
    answer = refusal(project)
    assert answer.startswith(("tuning/scale.json", "p.kernels"))
    assert HOSTILE[text] in answer


def test_candidates_that_need_too_much_shared_memory_are_left_out(tmp_path: Path) -> None:
    table = TABLE.replace('shared = "TILE * 4"', 'shared = "TILE * TILE * MORE * 8"')
    log: list[str] = []
    root = write_project(
        tmp_path,
        table.replace("default = { TILE = 128", "default = { TILE = 64"),
        {"device/scale.cu": SOURCE},
    )
    build_with(root, log, CUDA_EXT_CANDIDATES="1")
    said = [line for line in log if "left out" in line]
    assert said == [
        "scale<float, 128, 2>: left out for sm_90: scale<float, 128, 2> takes 262,144 bytes of shared memory "
        "in a block, and sm_90 has at most 232,448"
    ]
    static = "__shared__ T s[TILE * MORE * 90]; s[threadIdx.x] = x[0]; __syncthreads(); y[0] = s[n];\n  for ("
    static = SOURCE.replace("for (", static)
    root = write_project(
        tmp_path / "static",
        TABLE.replace("TILE = 128, MORE = 1", "TILE = 64, MORE = 1"),
        {"device/scale.cu": static},
    )
    log.clear()
    build_with(root, log, CUDA_EXT_CANDIDATES="1")
    assert any("scale<float, 128, 2>: left out for sm_90: " in line for line in log)


def test_candidates_that_need_too_many_registers_are_left_out(tmp_path: Path) -> None:
    values = ", ".join(f"v{i} = x[i * TILE * {i + 1}]" for i in range(100))
    sums = " + ".join(f"v{i} * v{99 - i}" for i in range(100))
    source = f"""
    template <class T, int TILE> __global__ void scale(const T* x, T* y, int n) {{
      T {values.replace("x[i ", "x[threadIdx.x ")};
      __syncthreads();
      y[threadIdx.x] = {sums};
    }}
    """
    table = TABLE.replace(", {MORE}>", ">").replace(", MORE = 1", "").replace("TILE * MORE", "TILE")
    table = table.replace("MORE = [1, 2]\n", "").replace("64, 128", "128, 1024").replace("<= 256", "> 0")
    log: list[str] = []
    build_with(write_project(tmp_path, table, {"device/scale.cu": source}), log, CUDA_EXT_CANDIDATES="1")
    (said,) = (line for line in log if "left out" in line)
    assert said.startswith("scale<float, 1024>: left out for sm_90: scale<float, 1024> takes ")
    assert said.endswith(" registers in a block, and sm_90 has at most 65,536")
