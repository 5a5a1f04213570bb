"""``cuda-ext inspect`` shows what a build wrote, and what changed between two builds."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cuda_ext
from cuda_ext.cli.commands import commands
from cuda_ext.cli.inspect.display import NOTHING
from cuda_ext.compiler.jobs import LinkInput
from cuda_ext.compiler.products import CompiledImage
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import plain
from cuda_ext.facts.manifest import loads
from cuda_ext.facts.sources import Options
from cuda_ext.formats.cubin import Resources, read_cubin, read_sizes
from cuda_ext.formats.elf import read_elf
from cuda_ext.toolchain.nvfatbin import write_fatbin
from cuda_ext.toolchain.nvjitlink import link
from cuda_ext.toolchain.nvrtc import Nvrtc
from tests.fixtures.command_line import run
from tests.fixtures.projects import KERNELS, SCALE, build, write_project

SM_90 = Architecture.parse("sm_90")
LINES = ((), ("-lineinfo",))
AXPY = """
#include "factor.cuh"
__constant__ float weights[9];
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  if (threadIdx.x < n) y[threadIdx.x] += T(FACTOR) * a * x[threadIdx.x] + T(weights[0]);
}
"""
# Each thread holds more values than there are registers.
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* x, float* y, int n) {
  float a[COUNT];
  #pragma unroll
  for (int i = 0; i < COUNT; i++) a[i] = x[i * n + threadIdx.x];
  for (int j = 0; j < n; j++) {
    #pragma unroll
    for (int i = 0; i < COUNT; i++) a[i] = a[i] * a[(i + 7) % COUNT] + a[(i + 13) % COUNT];
  }
  #pragma unroll
  for (int i = 0; i < COUNT; i++) y[i * n + threadIdx.x] = a[i];
}
"""
SHARED = """
extern "C" __global__ void shared(float* x) {
  __shared__ float s[128];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[127 - threadIdx.x];
}
"""
OTHERS = """
__device__ __noinline__ float sum(const float* x, int n) {
  float a[48], all = 0;
  #pragma unroll
  for (int i = 0; i < 48; i++) a[i] = x[i * n];
  for (int j = 0; j < n; j++)
    #pragma unroll
    for (int i = 0; i < 48; i++) a[i] = a[i] * a[(i + 7) % 48];
  #pragma unroll
  for (int i = 0; i < 48; i++) all += a[i];
  return all;
}
extern "C" __global__ void __launch_bounds__(1024, 2) calls(int n, float* x) { *x += sum(x, n); }
__device__ __noinline__ int deeper(int n) { return n <= 1 ? n : n * deeper(n - 1) + deeper(n - 2); }
extern "C" __global__ void recursive(int n, int* x) { *x = deeper(n); }
extern "C" __global__ void stack(int n, int* x) {
  int a[100];
  for (int i = 0; i < 100; i++) a[i] = x[i];
  x[0] = a[n] + a[x[3]];
}
#if __CUDA_ARCH__ < 900
#define BLOCK __launch_bounds__(128)
#else
#define BLOCK __block_size__((64, 2, 1))
#endif
extern "C" __global__ void BLOCK block(float* x) { x[threadIdx.x] = threadIdx.y; }
"""
EMPTY = 'extern "C" __global__ void f() {}'
TABLE = """
[tool.cuda_ext]
architectures = [{architectures}]
[tool.cuda_ext.modules."p.kernels"]
instantiate = [{instantiate}]
define = {{ COUNT = "{count}" }}
"""


@dataclass(frozen=True)
class Built:
    """A wheel, and the directory with its files. Importing ``p`` would fail."""

    wheel: Path
    site: Path

    @property
    def kernels(self) -> Path:
        return self.site / "p" / "kernels"


def built(root: Path, version: str, factor: str, spills: str, **table: str) -> Built:
    files = {"device/axpy.cu": AXPY, "device/factor.cuh": factor, "device/spills.cu": spills}
    site, wheel = root / "site", root / f"p-{version}-py3-none-any.whl"
    (site / "p").mkdir(parents=True)
    (site / "p" / "__init__.py").write_text("1 / 0\n")
    for package in build(write_project(root / "project", TABLE.format(**table), files)).values():
        package.write(site / "p" / "kernels")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(site.rglob("*.*")):
            archive.write(file, file.relative_to(site).as_posix())
        archive.writestr(f"p-{version}.dist-info/METADATA", f"Version: {version}\n")
        archive.writestr("web/manifest.json", '{"name": "somebody else\'s"}')
    return Built(wheel, site)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built(
        *(tmp_path_factory.mktemp("old"), "1.0", "#define FACTOR 1\n", SPILLS),
        architectures='"sm_80", "compute_80"',
        instantiate='"axpy<float>"',
        count="40",
    )


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The same module with another header, instantiation, architecture and definition."""
    return built(
        *(tmp_path_factory.mktemp("new"), "1.1", "#define FACTOR 2\n__device__ int more;\n", SPILLS),
        architectures='"sm_80", "sm_90", "compute_80"',
        instantiate='"axpy<double>", "axpy<float>"',
        count="44",
    )


def shown(*arguments: object, width: int = 80) -> str:
    """Return the output of the command, run in this process."""
    done = CliRunner(env={"COLUMNS": str(width)}).invoke(commands, ["inspect", *map(str, arguments)])
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def inspected(*arguments: object) -> Any:
    """Return its JSON."""
    return json.loads(shown(*arguments, "--json"))


def refused(*arguments: object) -> str:
    """Return the single error message."""
    done = CliRunner().invoke(commands, ["inspect", *map(str, arguments)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


@cache
def compiled(source: str, architecture: str) -> CompiledImage:
    options = Options(raw=("-Xptxas", "-v"), define={"COUNT": "40"})
    unit = TranslationUnit("k.cu", source.encode(), options=options)
    (image,) = Nvrtc().compile(unit, [Architecture.parse(architecture)])
    return image


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100f"])
def test_resources_of_a_cubin_match_ptxas(architecture: str) -> None:
    image = compiled(SPILLS + SHARED + OTHERS, architecture)
    found = image.usage
    assert found.keys() == {"block", "calls", "recursive", "shared", "spills", "stack"}
    _, *reports = re.split(r"ptxas info\s*: Compiling entry function '([^']+)' for ", image.log)
    for name, report in zip(reports[::2], reports[1::2], strict=True):
        for field, pattern in {
            "registers": r"Used (\d+) registers",
            "stack": r"(\d+) bytes stack frame",
            "spill_stores": r"(\d+) bytes spill stores",
            "spill_loads": r"(\d+) bytes spill loads",
            "shared": r"(\d+) bytes smem",
        }.items():
            match = re.search(pattern, report)
            assert getattr(found[name], field) == (int(match[1]) if match else 0), (name, field)
    spilled, bounds = found["spills"].spilled, {name: each.max_threads for name, each in found.items()}
    assert spilled is not None
    assert spilled > 0
    assert bounds == {**dict.fromkeys(found), "spills": 1024, "calls": 1024, "block": 128}
    assert found["shared"].shared == 512
    assert found["recursive"].deepest_stack is None
    assert found["stack"].stack == found["stack"].deepest_stack


def test_resources_of_a_linked_cubin_are_the_same() -> None:
    alone = compiled(SHARED, "sm_90").data
    unit = TranslationUnit("k.cu", SHARED.encode(), options=Options(relocatable=True))
    (image,) = Nvrtc().compile(unit, [Architecture.parse("sm_90")])
    linked = link([LinkInput("k", "cubin", image.data)], Architecture.parse("sm_90"))
    assert read_cubin(linked).usage["shared"] == read_cubin(alone).usage["shared"]


def test_unknown_spills_are_not_zero() -> None:
    assert Resources(1).spilled is None
    assert Resources(1, spill_stores=0, spill_loads=0).spilled == 0


def test_json_of_a_wheel(old: Built) -> None:
    found = inspected(old.wheel)
    (module,) = found.pop("modules")
    assert {"p/__init__.py", "p/kernels/manifest.json"} < found.pop("files").keys()
    assert found == {
        "schema": 1,
        "path": str(old.wheel),
        "kind": "wheel",
        "size": old.wheel.stat().st_size,
    }
    assert list(module) == ["place", "size", "manifest", "titles", "images"]
    written = loads((old.kernels / "manifest.json").read_bytes(), "")
    manifest = module["manifest"]
    assert (module["place"], manifest["module"], manifest["compress"]) == ("p/kernels", "p.kernels", "size")
    assert manifest["units"] == plain(tuple(written.units), [])
    assert manifest["kernels"] == plain(tuple(written.kernels), [])
    assert list(manifest["embedded"]) == ["device/axpy.cu", "device/factor.cuh", "device/spills.cu"]
    assert 0 < module["size"] < found["size"]
    images = [image for image in module["images"] if image["unit"] == "device/spills.cu"]
    assert [image["architecture"] for image in images] == ["sm_80", "compute_80"]
    for image in images:
        assert image["codec"] == "zstd"
        assert "missing" not in image
        assert 0 < image["stored"] < written.units[1].images[0].size


@pytest.mark.parametrize("width", [80, 120])
def test_terminal_output_of_a_directory(old: Built, width: int) -> None:
    head, *lines = shown(old.site, width=width).splitlines()
    assert head.startswith(f"{old.site}: directory, ")
    assert head.endswith(", 1 module, 2 kernels")
    assert max(map(len, lines)) <= width
    table = [line.split() for line in lines]
    assert ["jit", "yes,", "3", "embedded", "files"] in table
    assert ["__constant__", "float[9]", "weights", "36", "B"] in table
    assert "axpy<float>(int n, float a, const float* x, float* y)" in lines
    expected = compiled(SPILLS, "sm_80").usage["spills"]
    spilled = f"{expected.spill_stores:,}+{expected.spill_loads:,}"
    numbers = [
        "32",
        f"{expected.stack:,}",
        spilled,
        "0",
        f"{expected.constant}",
        f"{expected.code:,}",
        "1,024",
    ]
    assert ["sm_80", *numbers] in table
    assert "  compute_80    PTX, which the driver compiles" in lines


def test_directories_and_import_names_are_accepted(
    old: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(old.kernels, tmp_path / "one" / "two" / "kernels")
    cuda_ext.save(cuda_ext.load(old.kernels), tmp_path / "saved")
    (module,) = inspected(old.wheel)["modules"]
    for kind, name, place in (
        ("directory", old.kernels, None),
        ("directory", old.site.parent, None),
        ("directory", tmp_path / "saved", None),
        ("module", "p.kernels", old.site),
        ("module", "p", old.site),
        ("module", "p.kernels", old.wheel),  # zip archives can be imported from
        ("module", "one.two.kernels", tmp_path),
    ):
        with monkeypatch.context() as patch:
            if place is not None:
                patch.syspath_prepend(place)
            found = inspected(name)
        assert found["kind"] == kind
        assert not {"p", "one"} & {*sys.modules}
        assert found["modules"][0]["manifest"] == module["manifest"]


def test_the_command_line(old: Built) -> None:
    status, output, errors = run("inspect", "p.kernels", "--kernel", "axpy", PYTHONPATH=old.site)
    assert (status, errors) == (0, "")
    assert "axpy<float>(int n, float a, const float* x, float* y)\n" in output
    assert run("inspect", "p.nothing", PYTHONPATH=old.site)[0] == 1


def test_fatbins_cubins_and_ptx_are_accepted(old: Built, tmp_path: Path) -> None:
    expected = [image["kernels"] for image in inspected(old.wheel)["modules"][0]["images"]]
    image = compiled(SPILLS, "sm_80")
    (tmp_path / "k.cubin").write_bytes(image.data)
    (tmp_path / "k.ptx").write_bytes(compiled(SPILLS, "compute_80").data)
    for kind, path, count in (
        ("fatbin", old.kernels / "spills.fatbin", 2),
        ("cubin", tmp_path / "k.cubin", 1),
        ("ptx", tmp_path / "k.ptx", 1),
    ):
        found = inspected(path)
        (module,) = found["modules"]
        manifest = module["manifest"]
        assert (found["kind"], found["size"]) == (kind, path.stat().st_size)
        assert (manifest["module"], manifest["compiler"]) == (path.name, "")
        assert [kernel["expression"] for kernel in manifest["kernels"]] == ["spills"]
        assert len(module["images"]) == count
        assert all(image["kernels"] in expected for image in module["images"])


def test_missing_decompressors_are_reported(old: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (module,) = inspected(old.wheel)["modules"]
    assert [image["missing"] for image in module["images"]] == ["zstandard"] * 4
    assert {resources for image in module["images"] for resources in image["kernels"].values()} == {None}
    output = shown(old.wheel)
    assert "spills(const float* x, float* y, int n)\n  sm_80         compressed\n" in output
    assert output.endswith('images are compressed; "pip install zstandard" to see what is in them\n')


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("axpy", ["axpy<double>", "axpy<float>"]),
        ("axpy< double >", ["axpy<double>"]),
        ("*<f*", ["axpy<float>"]),
        ("_Z4*", ["axpy<double>", "axpy<float>"]),
    ],
)
def test_kernels_are_selected_by_pattern(new: Built, pattern: str, names: list[str]) -> None:
    (module,) = inspected(new.wheel, "--kernel", pattern)["modules"]
    manifest = module["manifest"]
    assert [kernel["expression"] for kernel in manifest["kernels"]] == names
    assert [source["name"] for unit in manifest["units"] for source in unit["sources"]] == ["device/axpy.cu"]
    assert manifest["symbols"] == []


def test_json_of_a_difference(old: Built, new: Built) -> None:
    found = inspected(old.wheel, new.wheel)
    assert [found[side]["path"] for side in ("before", "after")] == [str(old.wheel), str(new.wheel)]
    assert not found["same"]
    changes = found["changes"]
    assert changes["modules"] == changes["units"] == changes["gone"] == []
    assert changes["settings"] == [
        {
            "place": ["p.kernels", f"device/{name}.cu", "options"],
            "before": "--std=c++17 -DCOUNT=40",
            "after": "--std=c++17 -DCOUNT=44",
        }
        for name in ("axpy", "spills")
    ]
    (source,) = changes["sources"]
    assert source["place"] == ["p.kernels", "device/factor.cuh"]
    (symbol,) = changes["symbols"]
    assert (symbol["place"], symbol["before"]) == (["p.kernels", "more"], None)
    (new_kernel,) = changes["new"]
    assert new_kernel["place"] == ["p.kernels", "axpy<double>"]
    assert new_kernel["after"] == ["sm_80", "compute_80", "sm_90"]
    sizes = {each["place"][0]: (each["before"], each["after"]) for each in changes["architectures"]}
    assert next(iter(sizes)) == "sm_90"
    assert sizes["sm_90"][0] is None
    growths = [abs((each["after"] or 0) - (each["before"] or 0)) for each in changes["files"]]
    assert growths == sorted(growths, reverse=True)
    assert not any("dist-info" in each["place"][0] for each in changes["files"])
    worst = changes["kernels"][0]
    assert worst["place"] == ["p.kernels", "spills", "sm_80"]
    assert worst["before"]["spill_loads"] < worst["after"]["spill_loads"]


def test_terminal_output_of_a_difference(old: Built, new: Built) -> None:
    before, after, *lines = shown(old.wheel, new.wheel).splitlines()
    assert before.startswith(f"before  {old.wheel}: wheel, ")
    assert after.startswith(f"after   {new.wheel}: wheel, ")
    assert after.endswith("%)")
    assert max(map(len, lines)) <= 80
    table = [" ".join(line.split()) for line in lines]
    assert "options device/spills.cu -DCOUNT=40 -DCOUNT=44" in table
    assert "axpy<double> sm_80 compute_80 sm_90" in table
    assert "more added" in table
    assert any(line.startswith(f"sm_90 {NOTHING} ") and " +" in line for line in table)
    assert "spills" in table
    assert shown(old.wheel, old.wheel).endswith("\nnothing has changed\n")


def test_builds_of_different_kinds_are_compared(old: Built, new: Built) -> None:
    assert inspected(old.wheel, old.site)["same"]
    found = inspected(old.wheel, new.kernels / "spills.fatbin")
    changes = found["changes"]
    assert [each["place"] for each in changes["kernels"]] == [["", "spills", "sm_80"]]
    assert changes["architectures"][0]["place"] == ["sm_90"]
    assert changes["files"] == changes["new"] == changes["gone"] == []
    fatbins = [old.kernels / name for name in ("axpy.fatbin", "spills.fatbin")]
    assert "have no kernels in common; name two builds" in refused(*fatbins)


def test_kernels_of_two_builds_are_selected_by_pattern(old: Built, new: Built) -> None:
    found = inspected(old.wheel, new.wheel, "--kernel", "axpy<double>")
    changes = found["changes"]
    assert changes["kernels"] == changes["modules"] == changes["gone"] == []
    assert [each["place"][1] for each in changes["new"]] == ["axpy<double>"]
    # All else that differs is left out: files, variables, and units that hold other kernels.
    assert changes["files"] == changes["symbols"] == []
    assert {each["place"][1] for each in changes["images"]} == {"device/axpy.cu"}
    assert {each["place"][1] for each in changes["sources"]} <= {"device/axpy.cu"}


def test_units_of_one_source_have_distinct_titles(tmp_path: Path) -> None:
    table = KERNELS + 'split-instantiations = true\ninstantiate = ["scale<float>", "scale<int>"]\n'
    (package,) = build(write_project(tmp_path, table, {"device/scale.cu": SCALE})).values()
    package.write(tmp_path / "kernels")
    (module,) = inspected(tmp_path)["modules"]
    assert [(image["unit"], list(image["kernels"])) for image in module["images"]] == [
        (f"device/scale.cu scale<{type_}>", [f"scale<{type_}>"]) for type_ in ("float", "int")
    ]


def test_modules_of_one_name_are_not_compared(old: Built, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(old.kernels, tmp_path / name)
    assert "has several modules of one name, in one, two; name one of them" in refused(tmp_path, old.wheel)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.whl", "nothing.whl: there is no such file or directory"),
        ("no/such", "no/such: there is no such file or directory"),
        ("nobody.has_this", "nobody.has_this: there is no such file, and no such module; name a wheel"),
        ("json", "json: contains no module of kernels; name the output of a build"),
        ("sys.path", "sys.path: there is no such file, and no such module"),
        (__file__, f"{__file__}: is not compiled code; name a wheel"),
    ],
)
def test_wrong_names_are_rejected(name: str, message: str) -> None:
    assert refused(name).startswith(message)


@pytest.mark.skipif(sys.platform == "win32", reason="it takes files of other kinds")
def test_devices_pipes_and_huge_files_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.whl")
    for path in (Path("/dev/zero"), tmp_path / "fifo.whl"):
        assert refused(path) == f"{path}: is neither a regular file nor a directory; name one of them\n"
    (tmp_path / "huge.fatbin").touch()
    os.truncate(tmp_path / "huge.fatbin", 20 << 30)
    assert "has 20 GiB, and at most 1 GiB are read" in refused(tmp_path / "huge.fatbin")


def test_many_empty_lines_take_no_time(tmp_path: Path) -> None:
    (tmp_path / "empty.ptx").write_text("\n" * 200_000)
    assert "is not compiled code" in refused(tmp_path / "empty.ptx")


def test_sizes_show_what_the_bytes_of_each_cubin_are_for(tmp_path: Path) -> None:
    source = "__device__ int table[64] = {1};\n__global__ void k(int* x) { *x = table[*x]; }"
    unit = TranslationUnit("k.cu", source.encode())
    images = {raw: Nvrtc().compile(unit.replace(options=Options(raw=raw)), [SM_90])[0] for raw in LINES}
    for raw, image in images.items():
        (tmp_path / f"{len(raw)}.cubin").write_bytes(image.data)
        parts = read_sizes(image.data)
        assert sum(parts.values()) == len(image.data)
        assert parts["code"] == image.usage["_Z1kPi"].code
        assert parts["variables"] == 256
        assert (parts["debug"] > 300) == bool(raw)
        code, shown, _ = run("inspect", "--sizes", str(tmp_path / f"{len(raw)}.cubin"))
        assert code == 0
        assert [f"{size:,}" for size in parts.values()] == shown.splitlines()[-2].split()[1:-2]


def test_a_pattern_without_matches_is_rejected(old: Built) -> None:
    assert refused(old.wheel, "--kernel", "axpi").endswith("no kernel matches 'axpi'; did you mean 'axpy'?\n")
    assert refused(old.wheel, "--kernel", "?").endswith(
        "no kernel matches '?'; leave out --kernel to show all\n"
    )


def test_damaged_files_are_rejected(old: Built, tmp_path: Path) -> None:
    wheel, fatbin = old.wheel.read_bytes(), (old.kernels / "spills.fatbin").read_bytes()
    image = bytearray(compiled(EMPTY, "sm_80").data)
    info = read_elf(bytes(image)).section(".nv.info")
    assert info is not None
    place = image.index(bytes(info.data))
    bad = bytes(image[: place + 4] + b"\xff" * 4 + image[place + 8 :])  # the index of a missing symbol
    unreadable = write_fatbin([(Architecture.parse("sm_80"), bad)], "none")
    for name, content, message in (
        ("cut.whl", wheel[:3000], "is not a wheel, or is damaged: "),
        ("cut.fatbin", fatbin[:3000], "bytes early; build, install or download it again"),
        ("cut.cubin", bytes(image[:1000]), "is not a cubin, or is damaged: "),
        ("bad.fatbin", unreadable, "sm_80: is not a cubin, or is damaged: "),
    ):
        (tmp_path / name).write_bytes(content)
        found = refused(tmp_path / name)
        assert found.startswith(f"{tmp_path / name}: ")
        assert message in found
        assert name != "cut.whl" or found.endswith("; build or download it again\n")


def test_incomplete_packages_are_rejected(old: Built, tmp_path: Path) -> None:
    package = tmp_path / "kernels"
    shutil.copytree(old.kernels, package)
    remedy = "; build or install it again\n"
    (package / "axpy.fatbin").write_bytes((package / "spills.fatbin").read_bytes())
    assert refused(package) == (
        f"{package}: axpy.fatbin is not the file that manifest.json describes{remedy}"
    )
    (package / "axpy.fatbin").unlink()
    assert refused(package).endswith(remedy)
    manifest = json.loads((package / "manifest.json").read_text())
    assert loads(json.dumps(manifest), "").module == "p.kernels"
    (package / "manifest.json").write_text(json.dumps({**manifest, "schema": 99}))
    assert "upgrade cuda-ext" in refused(package)
    (package / "manifest.json").write_text(json.dumps({**manifest, "kernels": 1}))
    assert "damaged manifest" in refused(package)
    (package / "manifest.json").write_text("{")
    assert refused(package).startswith(f"{package}: manifest.json: not a manifest: ")


def test_a_damaged_module_does_not_hide_others(old: Built, tmp_path: Path) -> None:
    for name in ("broken", "whole"):
        shutil.copytree(old.kernels, tmp_path / name)
    (tmp_path / "broken/manifest.json").write_text("{")
    wheel = tmp_path / "both.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in tmp_path.glob("*/*"):
            if path.is_file():
                archive.write(path, path.relative_to(tmp_path).as_posix())
        for path in (tmp_path / "whole/sources").rglob("*.*"):
            archive.write(path, path.relative_to(tmp_path).as_posix())
    cut = tmp_path.parent / "cut.whl"  # the same with a wrong checksum
    content = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        start = archive.getinfo("broken/manifest.json").header_offset + 30 + len("broken/manifest.json")
    content[start] ^= 1
    cut.write_bytes(content)
    damage = "manifest.json: cannot be read: Bad CRC-32"
    for named, message in (
        (tmp_path, ": broken: "),
        (wheel, ": broken: "),
        (cut, f": broken/{damage}"),
    ):
        done = CliRunner().invoke(commands, ["inspect", str(named), "--json"])
        assert done.exit_code == 1
        assert [module["place"] for module in json.loads(done.stdout)["modules"]] == ["whole"]
        assert done.stderr.startswith(f"{named}{message}")


def test_a_damaged_module_is_rejected_by_its_import_name(
    old: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(old.kernels, tmp_path / "damaged_kernels")
    (tmp_path / "damaged_kernels/manifest.json").write_text("{")
    monkeypatch.syspath_prepend(tmp_path)
    assert refused("damaged_kernels").startswith("damaged_kernels: manifest.json: not a manifest: ")
