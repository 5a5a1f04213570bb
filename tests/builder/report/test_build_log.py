"""The log of real builds: what the report and the trace of each contain."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ext.builder.report.build_record import BuildRecord
from cuda_ext.builder.report.html_page import read_record
from cuda_ext.facts.manifest import FILE_NAME, loads
from tests.fixtures.projects import KERNELS, SCALE, build, write_project

TABLE = KERNELS.replace('"sm_90"', '"sm_80", "sm_90", "compute_80"') + 'instantiate = ["scale<float>"]\n'


@pytest.fixture
def project(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_EXT_REPORT", "report.html")
    monkeypatch.setenv("CUDA_EXT_TRACE", "trace.json")
    return write_project(tmp_path, TABLE, {"device/scale.cu": SCALE})


def read_report(project: Path) -> BuildRecord:
    record = read_record((project / "report.html").read_text(encoding="utf-8"))
    assert record
    return record


def test_a_record_has_jobs_images_kernels_and_files(project):
    (package,) = build(project).values()
    record = read_report(project)
    assert {job.ending for job in record.jobs} == {"compiled"}
    assert {job.action for job in record.jobs} == {"compile"}
    assert {job.worker for job in record.jobs} <= {str(n + 1) for n in range(record.workers)}
    assert all(0 <= job.start <= job.start + job.duration <= record.duration for job in record.jobs)
    place = "p.kernels", "device/scale.cu"
    assert record.images.keys() == {(*place, a) for a in ("sm_80", "sm_90", "compute_80")}
    assert record.kernels.keys() == {(*place, "scale<float>", a) for a in ("sm_80", "sm_90")}
    assert all(usage.registers for usage in record.kernels.values())
    assert record.compilers == (package.compiler,)
    assert record.fatbins == {("p.kernels/scale.fatbin",): len(package.files["scale.fatbin"])}


def test_a_trace_has_the_phases_of_the_compiler(project):
    build(project)
    events = json.loads((project / "trace.json").read_bytes())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} >= {"compile", "compiler"}


def test_the_next_build_is_compared_with_the_last(project):
    build(project)
    first = read_report(project)
    write_project(project, TABLE.replace("scale<float>", "scale<double>"), {"device/scale.cu": SCALE})
    build(project)
    text = (project / "report.html").read_text(encoding="utf-8")
    assert "Against the build of " in text
    assert first.started in text
    assert "scale&lt;<wbr>double&gt;" in text


def test_images_of_a_source_with_split_instantiations_are_summed_up(project):
    table = TABLE.replace('["scale<float>"]', '["scale<float>", "scale<int>"]\nsplit-instantiations = true')
    (package,) = build(write_project(project, table, {"device/scale.cu": SCALE})).values()
    units = loads(package.files[FILE_NAME], "").units
    assert len(units) == 2
    sizes = [image.size for unit in units for image in unit.images if image.architecture == "sm_90"]
    assert read_report(project).sizes["p.kernels", "device/scale.cu", "sm_90"] == sum(sizes)


def test_a_build_without_changes_has_no_jobs_and_the_same_sizes(project):
    build(project)
    compiled = read_report(project)
    build(project)
    cached = read_report(project)
    assert cached.jobs == ()  # as the console counts
    for name in ("images", "kernels", "fatbins", "kernel_count", "image_count"):
        assert getattr(cached, name) == getattr(compiled, name) != 0
    assert sum(each.stored for each in compiled.images.values()) <= sum(compiled.fatbins.values())


def test_a_build_without_report_imports_nothing_of_it():
    script = (
        "import sys; import cuda_ext.builder.session\n"
        "print(*(name for name in sys.modules if name.startswith('cuda_ext.builder.report.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
