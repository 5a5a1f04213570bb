"""The report of a build: what it shows, the record that it carries, and how it works in a browser."""

from __future__ import annotations

import dataclasses
import html
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.builder.report import html_page as pages
from cuda_ext.builder.report.build_record import (
    BuildRecord,
    JobRecord,
    decode_record,
    encode_record,
)
from cuda_ext.builder.report.difference import Change, Place, compare
from cuda_ext.builder.report.html_page import html_page, is_report, read_record
from cuda_ext.compiler.products import HEADER, Span
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.image_content import ImageContent

ROOT = Path(__file__).parents[3]
MODULE = "example_project.kernels"
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_120", "compute_120")

SPANS = (
    Span("CUDA C++ Front-End", "device/axpy.cu", 0.0, 0.7),
    Span(HEADER, "outer.h", 0.1, 0.5),
    Span(HEADER, "inner.h", 0.2, 0.3),
    Span("Total PTXAS Time", "", 0.75, 0.125),
)


RESOURCES = Resources(1024, registers=32, spill_stores=0, spill_loads=0, stack=0, shared=4096)


def kernel(
    name: str = "axpy<float>", architecture: str = "sm_90", unit: str = "device/axpy.cu", **changes: Any
) -> tuple[Place, Resources]:
    return (MODULE, unit, name, architecture), dataclasses.replace(RESOURCES, **changes)


JOB = JobRecord(MODULE, "", "", "compile", "compiled", worker="1", start=0.25, duration=1.0, spans=SPANS)


def job(unit: str = "device/axpy.cu", architecture: str = "sm_90", **changes: Any) -> JobRecord:
    return dataclasses.replace(JOB, unit=unit, architecture=architecture, **changes)


def build(**changes: Any) -> BuildRecord:
    values: dict[str, Any] = {
        "project": "example-project",
        "started": "2026-11-21T10:00:00+01:00",
        "duration": 2.5,
        "workers": 2,
        "compilers": ("nvrtc 13.5",),
        "jobs": (
            job(),
            job(architecture="compute_120", worker="2"),
            job("device/old.cu", ending="cached", worker="", duration=0.0, spans=()),
        ),
        "images": {
            (MODULE, "device/axpy.cu", "sm_90"): 12_000,
            (MODULE, "device/axpy.cu", "compute_120"): 34_500,
        },
        "kernels": dict([kernel(), kernel("reduce<double>", spill_stores=16, spill_loads=24, stack=64)]),
        "fatbins": {("example_project/kernels/axpy.fatbin",): 9_876},
        **changes,
    }
    derived = {
        "images": {place: image_of(place[-1], size) for place, size in values["images"].items()},
        "kernel_count": len({place[:-1] for place in values["kernels"]}),
        "image_count": len(values["images"]),
    }
    return BuildRecord(**{**values, **derived})


def image_of(architecture: str, size: int) -> ImageContent:
    is_cubin = architecture.startswith("sm_")
    parts = {"code": size // 2, "symbols": size - size // 2} if is_cubin else {"PTX": size}
    kind = Architecture.parse(architecture).kind if architecture.startswith(("sm_", "compute_")) else "cubin"
    return ImageContent(architecture, kind, "zstd", size // 4, size, parts)


def without_spans(record: BuildRecord) -> BuildRecord:
    jobs = tuple(dataclasses.replace(job, spans=()) for job in record.jobs)
    return dataclasses.replace(record, jobs=jobs)


def large(units: int, headers: int, kernels: int = 3) -> BuildRecord:
    """A build of `units` for seven architectures, each with `headers` that include the next."""
    spans = tuple(
        Span(HEADER, f"library/detail/some_header_{n}.cuh", n * 1e-4, 0.1 - n * 1e-4) for n in range(headers)
    )
    places = [(f"generated/op_{n:03}.cu", a) for n in range(units) for a in ARCHITECTURES]
    return build(
        jobs=tuple(
            job(unit, a, worker=str(1 + n % 2), start=n // 2 * 1.0, spans=spans)
            for n, (unit, a) in enumerate(places)
        ),
        images={(MODULE, unit, a): 9000 + n for n, (unit, a) in enumerate(places)},
        kernels=dict(
            kernel(f"ops::elementwise<ops::functor_{i}<float>, {i}>", a, unit=unit)
            for unit, a in places
            if a.startswith("sm_")
            for i in range(kernels)
        ),
    )


# Typographic signs and their equivalents in ASCII.
PLAIN = {ord("\N{MINUS SIGN}"): "-", ord("\N{EN DASH}"): "-", ord("\N{MULTIPLICATION SIGN}"): "x"}


class Page(HTMLParser):
    """The text of a page by section, the rows of its tables, and the references of its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.rows: list[list[str]] = []
        self.section_of_row: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._section = ""
        self._cell = False
        self._skip = False
        self._glue = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self._glue = tag == "wbr"
        self._skip = tag in ("script", "style")
        if tag == "section":
            self._section = dict(attributes).get("id") or ""
        if tag == "tr":
            self.rows.append([])
            self.section_of_row.append(self._section)
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        self._skip = False
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self._skip:
            return
        text = " ".join(data.translate(PLAIN).split())
        between = "" if self._glue else " "
        self._glue = False
        self.sections[self._section] = f"{self.sections.get(self._section, '')}{between}{text}".strip()
        if self._cell and text:
            self.rows[-1][-1] = f"{self.rows[-1][-1]}{between}{text}".strip()

    def row(self, section: str, name: str) -> list[str]:
        """The first row in `section` that begins with `name`."""
        rows = zip(self.section_of_row, self.rows, strict=True)
        return next(row[1:] for where, row in rows if where == section and row and row[0] == name)


def page(record: BuildRecord, previous: BuildRecord | None = None) -> Page:
    return Page(html_page(record, previous))


def test_the_headers_of_nvcc_are_left_out() -> None:
    page = html_page(build(compilers=("nvrtc 13.5", "nvcc 13.5")), None)
    assert "Those that nvcc read are left out" in page
    assert "Those that nvcc read are left out" not in html_page(build(), None)
    page = html_page(without_spans(build(compilers=("nvcc 13.5",))), None)
    assert "nvcc does not measure headers" in page


def test_a_record_is_read_back_without_its_spans():
    record = build()
    assert decode_record(encode_record(record)) == without_spans(record)
    assert read_record(html_page(record, None)) == without_spans(record)
    assert read_record(html_page(build(), record)) == without_spans(build())


@pytest.mark.parametrize(
    "text", ["", "<html></html>", "not html", '<script type="application/json">{}</script>']
)
def test_other_pages_have_no_record(text):
    assert read_record(text) is None


def carried(text: str) -> str:
    """Return the encoded record of a page."""
    found = re.search(r'id="cuda-ext-record-\d+">([^<]*)<', text)
    assert found
    return found[1]


def test_a_record_with_a_changed_character_is_ignored():
    text = html_page(build(), None)
    record = carried(text)
    for n in range(0, len(record), 7):
        other = "A" if record[n] != "A" else "B"
        assert read_record(text.replace(record, f"{record[:n]}{other}{record[n + 1 :]}")) is None
        assert read_record(text.replace(record, f"{record[:n]}\N{EN DASH}{record[n + 1 :]}")) is None


def test_the_record_of_another_version_is_ignored_and_its_page_overwritten():
    text = re.sub(r"cuda-ext-record-\d+", "cuda-ext-record-1", html_page(build(), None))
    assert read_record(text) is None
    assert is_report(text.encode())
    assert not is_report(b"<!doctype html><title>example-project: build report</title>")


def test_the_record_of_a_truncated_page_is_ignored_or_complete():
    text = html_page(build(), None)
    begin = text.index('id="cuda-ext-record-')
    end = text.index("</script>", begin)
    assert {read_record(text[:n]) for n in range(begin, end, 7)} == {None}


def test_the_same_build_gives_the_same_bytes():
    script = (
        "import sys; from tests.builder.report.test_report import build, html_page\n"
        "sys.stdout.buffer.write(html_page(build(), build(duration=1.0)).encode())"
    )
    pages = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert pages == {html_page(build(), build(duration=1.0)).encode()}


def test_the_page_needs_no_other_file():
    found = page(build(), build())
    for tag, attributes in found.elements:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            value = attributes.get(name) or ""
            assert value.startswith("#") or value in ("", "data:,"), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes)
    text = html_page(build(), None)
    text = text.replace(carried(text), "")  # in Base64, which may contain anything
    assert not re.search(r"@import|url\(|https?://|//[a-z]", text)
    (policy,) = (a["content"] or "" for t, a in found.elements if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy


ATTACKS = (
    "</script><script>console.error('attack')</script>",
    "<!--<script>",
    "<img src=x onerror=\"console.error('attack')\">",
    "\"'><svg onload=console.error('attack')>",
    "späße \u2028 \u2029 ]]> & &lt; {{ 7 * 7 }} {% raw %}",
)


def attacked() -> tuple[BuildRecord, BuildRecord]:
    """Two builds that differ, with markup and scripts in every text."""

    def made(size: int) -> BuildRecord:
        return build(
            project=ATTACKS[0],
            started=ATTACKS[3],
            compilers=ATTACKS,
            jobs=tuple(
                job(text, text, ending=ending, worker=text, spans=(Span(HEADER, text, 0, 1 / size),))
                for text in ATTACKS
                for ending in ("compiled", "failed")
            ),
            images={(text, text, text): size for text in ATTACKS},
            kernels=dict(
                kernel(text + extra, text, unit=text, code=size, spill_loads=size)
                for text in ATTACKS
                for extra in ("", str(size), *"abcdef")
            ),
            fatbins={(text,): size for text in ATTACKS},
        )

    return made(100), made(200)


def test_records_contain_no_markup():
    previous, record = attacked()
    text = html_page(record, previous)
    ours = Page(html_page(build(), build())).elements
    found = Page(text).elements
    assert [tag for tag, _ in found].count("script") == [tag for tag, _ in ours].count("script") == 5
    assert not {"img", "svg"} & {tag for tag, _ in found}
    assert not any(name.startswith("on") for _, attributes in found for name in attributes)
    assert "49" not in Page(text).sections["changes"]
    assert read_record(text) == without_spans(record)


def test_headline_figures():
    text = page(build()).sections[""]
    for words in (
        "Wall time 2.5 s 3 compilations",
        "Compiler time 2.0 s over all compilations",
        "Parallelism 0.80 x on 2 workers",
        "Images 45.4 KiB 2 images, raw",
        "Shipped 9.6 KiB 1 fatbin, 21 %",
        "Spilling kernels 1 of 2 kernels",
        "2 compiled 1 from the cache 0 failed",
    ):
        assert words in text


def test_phases_and_headers_are_summed_over_compilations():
    found = page(build())
    assert found.row("phases", "CUDA C++ Front-End")[1:] == ["0.40 s", "20 %", "2"]
    assert found.row("phases", HEADER)[1:] == ["1.00 s", "50 %", "2"]
    assert found.row("phases", "Not in the traces")[1:] == ["0.35 s", "18 %", ""]
    assert found.row("headers", "outer.h")[1:] == ["0.40 s", "1.00 s", "2"]
    assert found.row("headers", "inner.h")[1:] == ["0.60 s", "0.60 s", "2"]
    assert "2 headers took 1.0 s, 50 % of the traced time" in found.sections["headers"]


def test_failures_come_first():
    failed = tuple(job("device/bad.cu", a, ending="failed") for a in ("sm_100", "sm_90"))
    text = page(build(jobs=failed)).sections[""]
    assert "2 compilations failed device/bad.cu sm_90 sm_100" in text
    assert "failed device" not in page(build()).sections[""]


def test_empty_sections_say_so():
    cached = (job(ending="cached", worker="", spans=()),)
    found = page(build(jobs=cached, images={}, kernels={}, fatbins={})).sections
    assert "Everything came from the cache" in found["timeline"]
    assert "Nothing was compiled" in found["phases"]
    assert "no header was read" in found["headers"]
    assert "produced no images" in found["images"]
    assert "produced no cubins" in found["kernels"]
    assert "no earlier report" in found["changes"]
    untraced = page(build(jobs=(job(spans=()),))).sections
    assert "wrote no time trace" in untraced["phases"]
    assert "Nothing had to be compiled" in page(build(jobs=())).sections["timeline"]


BEFORE = build(
    kernels=dict(
        [
            kernel("grew", code=1000, registers=32),
            kernel("shrank", code=1000, registers=64),
            kernel("spills", spill_stores=0, spill_loads=0),
            kernel("same"),
            kernel("unknown", registers=None),
            kernel("gone"),
            kernel("gone", "sm_80"),
            kernel("left", "sm_80"),
            kernel("left"),
        ]
    ),
    fatbins={("a.fatbin",): 100, ("old.fatbin",): 7},
)
AFTER = build(
    jobs=(job(duration=1.5), job(architecture="compute_120", worker="2", duration=1.01)),
    images={
        (MODULE, "device/axpy.cu", "sm_90"): 11_000,
        (MODULE, "device/axpy.cu", "sm_120"): 34_500,
    },
    kernels=dict(
        [
            kernel("grew", code=1500, registers=40),
            kernel("shrank", code=900, registers=48),
            kernel("spills", spill_stores=8, spill_loads=16),
            kernel("same"),
            kernel("unknown", registers=20),
            kernel("new", "sm_120"),
            kernel("new", "sm_90"),
            kernel("left"),
        ]
    ),
    fatbins={("a.fatbin",): 80, ("new.fatbin",): 9},
)


def test_the_worst_changes_come_first():
    changes = compare(BEFORE.build, AFTER.build)
    assert [change.place[2] for change in changes["kernels"]] == ["spills", "grew", "unknown", "shrank"]
    unit = (MODULE, "device/axpy.cu")
    assert set(changes["images"]) == {
        Change((*unit, "sm_90"), 12_000, 11_000),
        Change((*unit, "sm_120"), None, 34_500),
        Change((*unit, "compute_120"), 34_500, None),
    }
    assert [abs((c.after or 0) - (c.before or 0)) for c in changes["images"]] == [34_500, 34_500, 1_000]
    assert {change.place[0]: (change.before, change.after) for change in changes["files"]} == {
        "a.fatbin": (100, 80),
        "new.fatbin": (None, 9),
        "old.fatbin": (7, None),
    }
    assert {change.place[0]: (change.before, change.after) for change in changes["architectures"]} == {
        "sm_90": (12_000, 11_000),
        "sm_120": (None, 34_500),
        "compute_120": (34_500, None),
    }
    assert changes["new"] == (Change((*unit, "new"), None, ("sm_90", "sm_120")),)
    assert changes["gone"] == (Change((*unit, "gone"), ("sm_80", "sm_90"), None),)
    assert not any(compare(BEFORE.build, BEFORE.build).values())


def test_the_page_shows_the_changes():
    found = page(AFTER, BEFORE)
    text = found.sections["changes"]
    assert "+ new new device/axpy.cu · sm_90, sm_120" in text
    assert "- gone gone device/axpy.cu · sm_80, sm_90" in text
    assert "+ new architecture sm_120" in text
    assert "- gone architecture compute_120" in text
    assert found.row("changes", "spills")[4] == "0 → 24 ▲ +24"
    assert found.row("changes", "grew")[2:4] == ["1,000 → 1,500 ▲ +500", "32 → 40 ▲ +8"]
    assert found.row("changes", "shrank")[2:4] == ["1,000 → 900 ▼ -100", "64 → 48 ▼ -16"]
    # What was not known before has not changed as far as one sees.
    assert not any(row[0] == "unknown" for row in found.rows if row)
    assert found.row("changes", "new.fatbin") == ["+ new 9"]
    assert found.row("changes", "old.fatbin") == ["- gone 7"]
    assert found.row("changes", "Images") == ["45.4 KiB", "44.4 KiB", "▼ -2.2 %"]
    assert "Spilling kernels 1 ▲ +1 of" in found.sections[""]
    assert found.row("changes", "device/axpy.cu")[:2] == ["compute_120", "- gone 34,500"]
    assert "All kernels and images are unchanged" in page(BEFORE, BEFORE).sections["changes"]


def test_times_are_compared_if_both_builds_compiled_the_same():
    cached = build(jobs=tuple(dataclasses.replace(job(), ending="cached", spans=()) for _ in range(3)))
    others = build(jobs=(job("device/other.cu"), job(architecture="compute_120")), duration=25.0)
    for before in (cached, others):
        found = page(build(), before)
        assert "Times are not compared" in found.sections["changes"]
        assert found.row("changes", "Wall time")[2] == ""
        assert "%" not in found.sections[""].partition("compilations")[0]
    slower = page(build(duration=5.0), build())
    assert slower.row("changes", "Wall time") == ["2.5 s", "5.0 s", "▲ +100 %"]
    assert "Wall time 5.0 s ▲ +100 % 3 compilations" in slower.sections[""]


def test_no_change_is_shown_that_rounds_to_none():
    grown = build(fatbins={("example_project/kernels/axpy.fatbin",): 9_877})
    found = page(grown, build())
    assert found.row("changes", "Shipped")[2] == "same"
    assert "Shipped 9.6 KiB 1 fatbin" in found.sections[""]


def test_headers_are_named_without_the_directories_of_an_environment():
    environment = "/tmp/pip-build-env-x1/overlay/lib/python3.13/site-packages"
    details = (
        f"{environment}/nvidia/cu13/include/cuda_fp16.h",
        "/root/.cache/cuda_ext/nvrtc-headers-13.5/cccl/cub/cub.cuh",
        "device/own.cuh",
    )
    spans = tuple(Span(HEADER, detail, 0.1 * n, 0.05) for n, detail in enumerate(details))
    text = html_page(build(jobs=(job(spans=spans),)), None)
    assert "pip-build-env" not in text
    assert "/root/" not in text
    for name in ("nvidia/cu13/include/cuda_fp16.h", "nvrtc-headers-13.5/cccl/cub/cub.cuh", "device/own.cuh"):
        assert Page(text).row("headers", name)


def test_sizes_are_shown_by_what_they_are_for():
    found = page(build())
    assert found.row("sizes", "device/axpy.cu") == ["compute_120", "", "33.7", "8.4", "-", "-", "33.7"]
    assert found.row("sizes", "All 2")[-5:] == ["45.4", "11.4", "5.9", "5.9", "33.7"]


@pytest.mark.slow
def test_large_builds_make_small_pages():
    record = large(units=200, headers=700)
    assert len(record.jobs) == 1400
    assert len(html_page(record, record).encode()) < 3_000_000
    record = large(units=200, headers=100, kernels=20)
    assert len(record.kernels) == 4000 * 6
    text = html_page(record, record)
    assert len(text.encode()) < 2_500_000
    assert len(Page(text).elements) < 10_000


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: chromium)")


def rendered(text: str, directory: Path, after: str = "", scheme: int = 1) -> str:
    """Return the document after its scripts and `after` ran in a browser without errors."""
    file = directory / "report.html"
    if after:
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        text = text.replace("</body>", f"<script>{after}</script></body>")
    file.write_text(text, encoding="utf-8")
    command = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
        *(f"--user-data-dir={directory / 'profile'}", f"--blink-settings=preferredColorScheme={scheme}"),
        *("--window-size=1280,900", "--dump-dom", file.as_uri()),
    ]
    run = subprocess.run(command, capture_output=True, timeout=300, check=True)
    assert [line for line in run.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line] == []
    return run.stdout.decode()


def test_images_and_kernels_are_shown_by_architecture():
    found = page(AFTER, BEFORE)
    assert found.row("images", "device/axpy.cu") == ["10.7", "33.7", "44.4"]
    # Code size, registers, spills, stack, shared and constant memory.
    numbers = ["1,500 40 0 0 4,096 -", "-", "1,500 40 0 0 4,096 -"]
    assert found.row("kernels", "grew device/axpy.cu") == numbers
    numbers = ["1,024 ▲ 32 ▲ 8 + 16 0 4,096 -", "-", "1,024 32 24 0 4,096 -"]
    assert found.row("kernels", "spills ▲ device/axpy.cu") == numbers


def test_bars_of_the_timeline_have_their_share_of_the_time():
    found = page(AFTER)
    bars = [a for t, a in found.elements if t == "div" and (a.get("class") or "").startswith("job ")]
    assert [(a["style"] or "").split(";") for a in bars] == [
        ["left:10.0000%", "width:60.0000%"],
        ["left:10.0000%", "width:40.4000%"],
    ]
    assert (bars[0]["title"] or "").splitlines()[:4] == [
        "device/axpy.cu",
        f"{MODULE} · sm_90",
        "compiled in 1.5 s, started at 0.25 s",
        f"{HEADER}: 500 ms",
    ]
    assert "worker 1 worker 2" in found.sections["timeline"]


@needs_browser
def test_a_browser_runs_no_text_of_a_record(tmp_path):
    previous, record = attacked()
    show_all = "for (const button of document.querySelectorAll('.more')) button.click();"
    found = Page(rendered(html_page(record, previous), tmp_path, show_all))
    assert not {"img", "svg"} & {tag for tag, _ in found.elements}
    assert found.section_of_row.count("kernels") == 1 + 40
    assert "<img src=x" in found.sections["kernels"]


@needs_browser
def test_tables_are_sorted_and_filtered(tmp_path):
    after = """
    const click = (selector) => document.querySelector(selector).click();
    click("#kernels .tabs label:nth-child(3)");
    click("#kernels [data-spilling]");
    click("#kernels summary");
    click("#images th:nth-child(2) button");
    const numbers = [...document.querySelectorAll("#kernels tbody b")];
    document.title = numbers.filter((number) => number.checkVisibility()).length;
    click("#header-table th:nth-child(4) button");
    const field = document.querySelector("[data-filter=changed-kernels]");
    field.value = "SHRANK";
    field.dispatchEvent(new Event("input"));
    click("[name=colour][value='2']");
    click("[data-zoom=in]");
    click("#timeline summary");
    """
    text = rendered(html_page(AFTER, BEFORE), tmp_path, after)
    # Of the only kernel that is left, all numbers in the only image, and of their totals.
    assert "<title>12</title>" in text
    found = Page(text)
    assert "grew" not in found.sections["kernels"]
    assert "Show all" not in found.sections["images"]
    # The axis.
    assert len([a for t, a in found.elements if t == "span" and "left:" in (a.get("style") or "")]) > 3
    names = [row[0] for row in found.rows if row and row[0].endswith(".h")]
    assert names == ["outer.h", "inner.h"]
    changed = [
        row[0] for where, row in zip(found.section_of_row, found.rows, strict=True) if where == "changes"
    ]
    assert {"spills", "grew", "unknown", "shrank"} & {*changed} == {"shrank"}


@needs_browser
def test_the_timeline_is_zoomed_by_buttons_keys_and_dragging(tmp_path):
    after = """
    const scroller = document.querySelector(".scroller"), track = document.querySelector(".track");
    const widths = [], note = () => widths.push(track.style.width);
    scroller.setPointerCapture = () => {};
    const point = (type, share) => {
      const box = track.getBoundingClientRect();
      const at = { clientX: box.left + share * box.width, clientY: box.top + 30 };
      track.dispatchEvent(new PointerEvent(type, { ...at, pointerType: "mouse", bubbles: true }));
    };
    document.querySelector("[data-zoom=in]").click(); note();
    scroller.dispatchEvent(new KeyboardEvent("keydown", { key: "0" })); note();
    point("pointerdown", 0.25); point("pointermove", 0.375); point("pointerup", 0.375); note();
    scroller.dispatchEvent(new MouseEvent("dblclick")); note();
    document.title = widths.join(" ");
    """
    found = rendered(html_page(build(), None), tmp_path, after)
    title = re.search("<title>(.*)</title>", found)
    assert title
    assert [round(float(width.rstrip("%"))) for width in title[1].split()] == [200, 100, 800, 100]


def with_forty_rows() -> BuildRecord:
    """A build with more of everything than the page holds elements of, and with numbers of every kind."""
    rows = range(40)
    return build(
        jobs=tuple(
            job(f"device/op_{n}.cu", start=n / 500, duration=1 / (n + 1), worker="12"[n % 2])
            if n % 3
            else job(f"device/op_{n}.cu", start=n * 100.0, ending=("failed", "cached")[n % 2], worker="")
            for n in rows
        ),
        images={
            (MODULE, f"device/op_{n}.cu", architecture): 20_000 - 128 * n
            for n in rows
            for architecture in ("sm_90", "compute_120")[: 1 + n % 4]
        },
        kernels=dict(
            kernel(
                f"ns::op<float, {n}>",
                architecture,
                code=20_000 - 128 * n,
                registers=n or None,
                spill_stores=n % 3 if architecture == "sm_80" else 0,
                constant=n * 100,
            )
            for n in rows
            for architecture in ("sm_80", "sm_90", "sm_120")[: 1 + n % 4]
        ),
    )


@needs_browser
def test_the_script_draws_the_rows_that_the_page_would_write(tmp_path, monkeypatch):
    script = """
    for (const button of document.querySelectorAll(".more")) button.click();
    for (const cell of document.querySelectorAll("[style]")) cell.setAttribute("style", cell.style.cssText);
    """

    def drawn() -> tuple[list[list[str]], list[tuple[str, dict[str, str | None]]]]:
        found = Page(rendered(html_page(with_forty_rows(), None), tmp_path, script))
        elements = [(tag, {key: value for key, value in a.items() if value}) for tag, a in found.elements]
        rows = {"tr", "th", "td", "b", "i", "code", "wbr", "small", "details", "summary", "span"}
        return found.rows, [(tag, attributes) for tag, attributes in elements if tag in rows]

    few = drawn()
    assert len(few[0]) > 120
    monkeypatch.setattr(pages, "_FIRST_ROWS", {"matrix": 1000, "jobs": 1000})
    assert few == drawn()


@needs_browser
def test_rows_that_are_not_yet_shown_are_sorted_and_filtered(tmp_path):
    script = """
    const click = (selector) => document.querySelector(selector).click();
    const shown = (table) => document.querySelectorAll(`#${table} tbody tr`);
    const name = (row) => row.querySelector("code").textContent;
    const names = (table) => [...shown(table)].slice(0, 3).map(name);
    const found = [];
    click("#kernels .tabs label:nth-child(2)");
    found.push(...names("kernel-table"));
    click("#kernel-table th:last-child button");
    found.push(...names("kernel-table"));
    const field = document.querySelector("[data-filter=kernel-table]");
    field.value = "device/axpy.cu";
    click("#kernels [data-spilling]");
    found.push(document.querySelector("#kernels .more").textContent);
    field.value = "FLOAT, 38";
    field.dispatchEvent(new Event("input"));
    found.push(shown("kernel-table").length, ...names("kernel-table"));
    click("#image-table th:last-child button");
    found.push(...names("image-table"));
    click("#job-table th:nth-child(6) button");
    found.push(...names("job-table"));
    document.title = found.join(" | ");
    """
    text = rendered(html_page(with_forty_rows(), None), tmp_path, script)
    title = re.search("<title>(.*)</title>", text)
    assert title
    ops = [f"ns::op&lt;float, {n}&gt;" for n in (39, 38, 37, 1, 2, 3)]
    units = [f"device/op_{n}.cu" for n in (36, 32, 28, 39, 36, 33)]
    assert title[1].split(" | ") == [*ops, "Show all 26 kernels", "1", ops[1], *units]


@needs_browser
def test_a_large_build_opens_in_dark_colours(tmp_path):
    # To show all is quick: what one does not see yet is added when it comes near.
    script = """
    document.querySelector("#kernels .more").click();
    document.title = document.querySelectorAll("#kernel-table tbody tr").length;
    """
    text = rendered(html_page(large(units=200, headers=20), None), tmp_path, script, scheme=0)
    assert "Show all 200 units" in Page(text).sections["images"]
    assert "<title>125</title>" in text


@needs_browser
def test_pages_of_almost_empty_builds_open(tmp_path):
    for number, record in enumerate(
        (
            build(jobs=(), images={}, kernels={}, fatbins={}, duration=0.0),
            build(jobs=(job(ending="cached", worker="", duration=0.0, spans=()),), kernels={}),
            build(
                kernels=dict(
                    [kernel(registers=None, spill_loads=None, spill_stores=None, stack=None, shared=None)]
                )
            ),
        )
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        assert html.escape("example-project") in rendered(html_page(record, None), directory)
