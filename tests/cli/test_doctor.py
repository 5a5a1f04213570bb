"""``cuda-ext doctor``: its findings and remedies; a check that fails hides no other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cuda_ext.cli.doctor import examine, machine
from cuda_ext.cli.doctor.findings import LEVELS
from cuda_ext.cli.doctor.this_project import check_backend
from cuda_ext.cli.environment import VARIABLES
from cuda_ext.cli.installed import installed_modules
from cuda_ext.errors import NoDriverError
from cuda_ext.facts.manifest import Manifest, Unit
from cuda_ext.facts.sources import Source
from cuda_ext.toolchain.identity import installed_nvrtc
from tests.fixtures.command_line import MODULE, ROOT, run
from tests.fixtures.loader import FILES, SAMPLE, unit, write_package
from tests.fixtures.projects import build, write_project
from tests.runtime.driver.test_driver import without_driver

host_compiler = pytest.mark.host_compiler
with_cuda_13 = pytest.mark.skipif(
    installed_nvrtc().major != 13, reason="what is asked is what CUDA 13 makes and does not make"
)
unix = pytest.mark.skipif(sys.platform == "win32", reason="rights are those of Unix")
not_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)

SOURCE = {"device/k.cu": "__global__ void k() {}"}
Found = dict[str, Any]
Doctor = Callable[..., list[Found]]


def findings(*arguments: object, status: int | None = None, **environ: object) -> list[Found]:
    """Return the findings of ``cuda-ext doctor --json``; each that is not ok must have a remedy."""
    code, output, errors = run("doctor", "--json", *arguments, **environ)
    assert errors == ""
    shown = json.loads(output)
    found = [finding for section in shown["sections"] for finding in section["findings"]]
    levels = [finding["level"] for finding in found]
    assert shown["counts"] == {level: levels.count(level) for level in LEVELS}
    assert code == (1 if "problem" in levels else 0)
    assert status in (None, code), found
    for finding in found:
        assert finding["level"] == "ok" or says_what_to_do(finding), finding
    return found


def says_what_to_do(finding: Found) -> bool:
    """A message of the package does so itself."""
    return bool(finding["remedy"] or finding["command"] or "; " in finding["text"])


def message(finding: Found) -> str:
    """Return the problem and the remedy, which may be one text in a message of the package."""
    return f"{finding['text']}; {finding['remedy']}" if finding["remedy"] else str(finding["text"])


def of(found: Sequence[Found], subject: str) -> list[Found]:
    return [finding for finding in found if finding["subject"] == subject]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for packages, which is on the import path."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(directory))
    return directory


@pytest.fixture
def on(fake_driver: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Examines modules under the fake driver; its settings are named without the prefix FAKE_CUDA_."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def examined(*modules: str, **settings: object) -> list[Found]:
        variables = {f"FAKE_CUDA_{name.upper()}": value for name, value in settings.items()}
        return findings(*modules, LD_LIBRARY_PATH=fake_driver, **variables)

    return examined


def module(name: str, *architectures: str, **changed: Any) -> Manifest:
    """A module whose units are all built for `architectures`."""
    units = tuple(unit(each.sources[0].name, *architectures) for each in SAMPLE.units)
    return SAMPLE._replace(module=name, **{"units": units, **changed})


def with_sources(manifest: Manifest) -> tuple[Manifest, dict[str, bytes]]:
    """Return `module` with embedded sources, and its files."""
    units = tuple(Unit((Source(u.sources[0].name, "0" * 64),), u.images) for u in manifest.units)
    names = [u.sources[0].name for u in units]
    return manifest._replace(units=units, embedded=dict.fromkeys(names, "0" * 64)), FILES


def write(site: Path, manifest: Manifest, files: dict[str, bytes] = FILES) -> Path:
    """Write the package of `manifest`, with empty files for embedded sources."""
    package = write_package(site, manifest, files)
    for name in manifest.embedded or ():
        path = package / "sources" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return package


# All of it.


def test_this_machine_on_a_terminal_and_as_json(
    site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write(site, SAMPLE)
    found = findings(CUDA_EXT_CHACHE="a password")
    status, output, errors = run("doctor", CUDA_EXT_CHACHE="a password")
    assert errors == ""
    assert status == (1 if "problem" in [finding["level"] for finding in found] else 0)
    lines = output.splitlines()
    assert all(len(line) <= 80 or "$" in line or "/" in line for line in lines)
    assert not any(line.endswith(" ") for line in lines)
    assert "\x1b" not in output
    for finding in found:
        beginning = f" {finding['level']:<8}{finding['subject']}"
        assert any(line.startswith(beginning) for line in lines), beginning
    assert "password" not in output
    assert {"cuda-ext", "Python", "_launch", "NVRTC", "driver", "cache", "sample.kernels"} <= {
        finding["subject"] for finding in found
    }
    (variable,) = of(found, "CUDA_EXT_CHACHE")
    assert (variable["level"], variable["text"]) == ("warning", "is set, but not used")
    assert variable["remedy"] == "did you mean 'CUDA_EXT_CACHE'?"


def test_a_failed_check_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RecursionError("a path that is none")

    monkeypatch.setattr(sys, "path", [*sys.path, "/nowhere", "x" * 5000])
    monkeypatch.setitem(sys.modules, "__editable___broken_finder", type("m", (), {"MAPPING": {1: Broken()}}))
    last = examine([])[-1]
    assert last.title == "Modules"
    assert last.findings[-1].text.startswith("the check failed")


def test_every_variable_in_the_sources_is_listed() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "cuda_ext").rglob("*.py"))
    read = set(re.findall(r'"(CUDA_EXT_[A-Z_]+)"', text))
    assert read == {name for name in VARIABLES if name.startswith("CUDA_EXT_")}


# The driver and GPUs.


@host_compiler
@pytest.mark.parametrize(
    ("settings", "level", "text", "remedy"),
    [
        ({"version": 11080}, "problem", "supports CUDA up to 11.8", "upgrade the driver"),
        ({"fail": "cuInit=999"}, "problem", "cuInit failed: FAKE_ERROR_999 (999)", "nvidia-smi works"),
        ({"fail": "cuInit=34"}, "problem", "is a stub for linking", "LD_LIBRARY_PATH"),
        ({"fail": "cuInit=100"}, "note", "finds no GPU", "nvidia-smi"),
        ({"devices": 0}, "note", "finds no GPU", "nvidia-smi"),
        ({"fail": "cuDeviceGetAttribute=999"}, "problem", "cuDeviceGetAttribute failed", "nvidia-smi"),
    ],
    ids=str,
)
def test_an_unusable_driver_is_a_finding(
    on: Doctor, site: Path, settings: Found, level: str, text: str, remedy: str
) -> None:
    write(site, SAMPLE)
    found = on("sample.kernels", **settings)
    (driver,) = of(found, "driver")
    assert driver["level"] == level
    assert text in driver["text"]
    assert remedy in f"{driver['text']}; {driver['remedy']}"
    # What can be said of the module without a GPU is said.
    assert [finding["level"] for finding in of(found, "sample.kernels")] == ["ok"]


@without_driver
def test_a_missing_driver_is_no_problem(site: Path) -> None:
    write(site, SAMPLE)
    (driver,) = of(findings("sample"), "driver")
    assert driver["level"] in ("note", "warning")  # it may have a GPU all the same


def test_a_gpu_without_a_driver_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_DRIVER_GPUS", tmp_path)
    monkeypatch.setattr(machine, "_is_installed", lambda: False)
    (driver,) = machine.check_gpus(machine.Gpus(error=NoDriverError("there is none")))
    assert (driver.level, driver.remedy.rpartition(", ")[2]) == ("warning", "start it with --gpus all")


@host_compiler
def test_each_kind_of_gpu_is_compared_with_the_images(on: Doctor, site: Path) -> None:
    write(site, module("m", "sm_80", "sm_90", "compute_80", compress="none", version="12.4"))
    found = on("m", devices=3, capability="90,80,90", names="Fake GPU,Small")
    shown = [finding["text"] for finding in found if finding["subject"].startswith("GPU ")]
    assert shown[:2] == ["Fake GPU, compute capability 9.0", "Small, compute capability 8.0"]
    described, hopper, ampere = (finding["text"] for finding in of(found, "m"))
    assert described.startswith("10 kernels, for sm_80, compute_80, sm_90; ")
    assert hopper.endswith(" and 7 more on sm_90 (GPU 0, GPU 2): built ahead")
    assert ampere.endswith(" on sm_80 (GPU 1): built ahead")
    # Kernels run without a name.
    assert of(on("m", fail="cuDeviceGetName=999"), "GPU 0")[0]["text"] == "compute capability 9.0"


@host_compiler
@with_cuda_13
def test_the_compiler_is_compared_with_the_driver(on: Doctor) -> None:
    _, shown = of(on(version=12090), "NVRTC")
    assert (shown["level"], shown["command"]) == ("warning", 'pip install "cuda-ext[cu12]"')


# Modules.


@host_compiler
def test_a_module_without_an_image_is_a_problem_unless_it_is_compiled_on_demand(
    on: Doctor, site: Path
) -> None:
    write(site, module("plain", "sm_80", version="12.4", compress="none"))
    manifest, files = with_sources(module("jit.kernels", "sm_80", version="12.4", compress="none"))
    write(site, manifest, files)
    _, plain = of(on("plain", capability=90), "plain")
    assert plain["level"] == "problem"
    assert "device is sm_90; built for sm_80; PTX: none" in plain["text"]
    assert plain["remedy"] == 'jit: off; add "sm_90" to architectures and build again'
    # Sources differ from the manifest, but files of modules that are not named are not read.
    found = of(on(capability=90, version=13050), "jit.kernels")
    assert [finding["level"] for finding in found] == ["ok", "note"]
    assert found[1]["command"] == "cuda-ext prepare jit.kernels"


@host_compiler
def test_compilation_on_demand_needs_a_compiler(on: Doctor, site: Path, fake_driver: Path) -> None:
    manifest, files = with_sources(module("jit", "sm_80", version="12.4", compress="none"))
    write(site, manifest, files)
    environ = {"LD_LIBRARY_PATH": fake_driver, "FAKE_CUDA_CAPABILITY": 90}
    turned_off = of(findings(**environ, CUDA_EXT_JIT=0, CUDA_EXT_CACHE_SIZE=0), "jit")[1]
    assert turned_off["level"] == "problem"
    assert turned_off["remedy"].startswith("jit: turned off by CUDA_EXT_JIT=0; add ")
    without = of(no_compiler(site, **environ), "jit")[1]
    assert without["level"] == "problem"
    assert 'install it with "cuda-ext[cu13]"' in without["remedy"]


@host_compiler
def test_each_reason_why_kernels_cannot_run_is_a_finding(on: Doctor, site: Path) -> None:
    units = (
        unit("device/axpy.cu", "sm_80"),
        unit("device/gemm.cu", "sm_80", "sm_100"),
        unit("device/later.cu", "compute_80"),
    )
    write(site, module("m", units=units, version="13.1", compress="none"))
    found = on("m", capability=90, version=13000)
    _, *lacking = of(found, "m")
    assert [finding["level"] for finding in lacking] == ["problem"] * 3
    one, two, too_new = (finding["text"] for finding in lacking)
    assert " and 5 more on sm_90 (GPU 0): " in one
    assert "built for sm_80;" in one
    assert two.startswith("gemm on sm_90 (GPU 0): device/gemm.cu has no image for this GPU")
    assert "built for sm_80, sm_100;" in two
    assert "only PTX (compute_80) fits this GPU" in too_new
    assert "upgrade the driver, or add this GPU to architectures" in message(lacking[2])


@host_compiler
def test_kernels_for_other_gpus_are_no_problem(on: Doctor, site: Path) -> None:
    units = (
        unit("device/axpy.cu", "sm_80"),
        unit("device/gemm.cu", "sm_90a"),
        unit("device/later.cu", "compute_75"),
    )
    write(site, module("m", units=units, version="12.4", compress="none"))
    assert [
        (each["level"], each["text"].partition("on sm_80 ")[2]) for each in of(on("m", capability=80), "m")
    ] == [
        ("ok", ""),
        ("ok", "(GPU 0): built ahead"),
        ("note", "(GPU 0): written for other GPUs"),
    ]
    # Elsewhere, those that lack an image are only some of the kernels.
    levels = [each["level"] for each in of(on("m", capability=75), "m")]
    assert levels == ["ok", "warning", "note", "ok"]


@host_compiler
@with_cuda_13
def test_cached_results_of_compilation_on_demand_are_found(
    on: Doctor, site: Path, tmp_path: Path, empty_cache: Path
) -> None:
    table = '[tool.cuda_ext]\narchitectures = ["sm_80"]\n[tool.cuda_ext.modules."p.kernels"]\n'
    source = 'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1; }\n'
    for package in build(write_project(tmp_path / "p", table, {"device/fill.cu": source})).values():
        package.write(site / "p" / "kernels")
    settings = {"capability": "75,80,61", "devices": 3, "version": 13050}
    _, lacking, ahead, too_old = of(on("p", **settings), "p.kernels")
    assert (lacking["level"], lacking["command"]) == ("note", "cuda-ext prepare p.kernels")
    assert ahead["text"] == "fill on sm_80 (GPU 1): built ahead"
    assert too_old["level"] == "problem"
    assert "cannot compile for sm_61" in too_old["remedy"]
    assert run("prepare", "p.kernels", "--arch", "sm_75")[0] == 0
    _, kept, *_ = of(on("p", **settings), "p.kernels")
    assert (kept["level"], kept["text"]) == ("ok", "fill on sm_75 (GPU 0): compiled on demand, and kept")


def test_modules_are_found_on_all_import_paths(site: Path, tmp_path: Path) -> None:
    # In a distribution, beside a package that cannot be imported.
    write(site, SAMPLE)
    (site / "sample" / "__init__.py").write_text("1 / 0\n")
    listed(site, "sample_package-1.2", "sample/kernels/manifest.json", "other/manifest.json")
    # In a project in development, whose build directory has a copy.
    editable = tmp_path / "editable"
    write(editable, module("developed.inner.kernels", "sm_90"))
    shutil.copytree(editable / "developed", editable / "build" / "lib" / "developed")
    # In an archive.
    write(tmp_path / "zipped", module("zipped.kernels", "sm_90"))
    archive = tmp_path / "zipped.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for path in (tmp_path / "zipped").rglob("*.*"):
            opened.write(path, path.relative_to(tmp_path / "zipped"))
    (site / "other").mkdir()
    (site / "other" / "manifest.json").write_text('{"name": "of an application"}')
    path = os.pathsep.join(map(str, (site, editable, archive, "/nowhere")))
    found = findings("sample", "developed", "zipped", PYTHONPATH=os.pathsep.join((path, str(ROOT))))
    names = ["sample.kernels", "developed.inner.kernels", "zipped.kernels"]
    assert [finding["subject"] for finding in found if finding["subject"].endswith(".kernels")] == names
    assert of(found, "sample.kernels")[0]["text"].endswith("; sample_package 1.2")


def test_mapped_editable_installs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, module("flat.inner.kernels", "sm_90"))
    finder = ModuleType("__editable___flat_0_1_finder")
    finder.MAPPING = {"flat.inner": str(tmp_path / "flat" / "inner")}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    (found,) = [m for m in installed_modules() if m.name.startswith("flat.")]
    assert (found.name, Path(found.place)) == (
        "flat.inner.kernels",
        Path(os.path.realpath(tmp_path), "flat", "inner", "kernels"),
    )


def listed(site: Path, distribution: str, *files: str) -> None:
    """Metadata of an installed distribution that has `files`."""
    metadata = site / f"{distribution}.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))


def test_a_damaged_installation_is_found(site: Path) -> None:
    for name, file, content in (
        ("cut", "manifest.json", b'{"schema": 3'),
        ("newer", "manifest.json", b'{"schema": 9, "module": "newer", "units": []}'),
        ("changed", "gemm.fatbin", b"another"),
    ):
        (write(site, module(name, "sm_90")) / file).write_bytes(content)
    (write(site, module("incomplete", "sm_90")) / "axpy.fatbin").unlink()
    (write(site, module("gone", "sm_90")) / "manifest.json").unlink()
    names = ("cut", "newer", "changed", "incomplete", "gone")
    listed(site, "damaged-1.0", *(f"{name}/manifest.json" for name in names))
    found = {f["subject"]: f for f in findings(*names, status=1) if f["level"] == "problem"}
    assert {name: found[name]["text"].partition(": Expecting")[0] for name in names} == {
        "cut": "manifest.json: not a manifest",
        "newer": found["newer"]["text"],
        "changed": "gemm.fatbin is damaged: it is not what the manifest describes",
        "incomplete": "axpy.fatbin is missing",
        "gone": "manifest.json is missing",
    }
    assert found["newer"]["text"].startswith("manifest.json: written in manifest schema 9, and this")
    assert message(found["newer"]).endswith("; upgrade cuda-ext")
    assert found["cut"]["command"] == "pip install --force-reinstall --no-deps damaged==1.0"


@unix
@not_root
def test_unreadable_files_are_found(site: Path) -> None:
    package = write(site, module("closed", "sm_90"))
    package.joinpath("manifest.json").chmod(0)
    (finding,) = of(findings("closed", status=1), "closed")
    assert finding["text"] == "manifest.json cannot be read: Permission denied"


@unix
def test_only_an_absent_file_is_missing(site: Path) -> None:
    image = write(site, module("looping", "sm_90")) / "axpy.fatbin"
    image.unlink()
    image.symlink_to(image.name)
    (finding,) = of(findings("looping", status=1), "looping")
    assert finding["text"] == "axpy.fatbin cannot be read: Too many levels of symbolic links"
    assert finding["remedy"] == f"check the permissions of {os.path.realpath(site / 'looping')}"


def test_a_file_missing_in_an_archive_is_found(site: Path) -> None:
    (write(site / "inner", module("zipped", "sm_90")) / "axpy.fatbin").unlink()
    archive = site / "site.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for path in (site / "inner").rglob("*.*"):
            opened.write(path, path.relative_to(site))
    # Only the import system reads a directory in an archive.
    path = os.pathsep.join((str(archive / "inner"), str(ROOT)))
    (finding,) = of(findings("zipped", PYTHONPATH=path, status=1), "zipped")
    assert finding["text"] == "axpy.fatbin is missing"


def test_an_unknown_name_gets_a_suggestion(site: Path) -> None:
    write(site, SAMPLE)
    (finding,) = of(findings("sample.kernel", status=1), "sample.kernel")
    assert finding["remedy"] == "did you mean 'sample.kernels'?"
    assert findings("json", status=1)[-1]["text"] == "there is no such module of kernels"


# Compilers.


def no_compiler(directory: Path, **environ: object) -> list[Found]:
    """The findings without the compiler's packages and without a toolkit."""
    (directory / "nvidia").mkdir(exist_ok=True)
    (directory / "nvidia" / "__init__.py").touch()
    script = directory / "doctor.py"
    script.write_text(
        "import sys\nsys.modules['cuda.pathfinder'] = None\nfrom cuda_ext.cli import main\nmain()\n"
    )
    status, output, errors = run(
        "doctor", "--json", door=(sys.executable, str(script)), PATH="/nowhere", **environ
    )
    assert errors == ""
    assert status in (0, 1)
    return [finding for section in json.loads(output)["sections"] for finding in section["findings"]]


def test_a_missing_compiler_has_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    found = no_compiler(tmp_path)
    nvrtc = of(found, "NVRTC")[0]
    assert (nvrtc["level"], nvrtc["command"]) == ("note", 'pip install "cuda-ext[cu13]"')
    # Where a project is to be built, it is a problem.
    write_project(tmp_path, '[tool.cuda_ext.modules."p.kernels"]\n', SOURCE)
    problems = [finding for finding in no_compiler(tmp_path) if finding["level"] == "problem"]
    assert [problem["subject"] for problem in problems] == ["nvFatbin", "this project"]
    assert "NVRTC cannot be loaded" in problems[-1]["text"]


@unix
def test_a_broken_nvcc_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\nexit 3\n")
    nvcc.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    table = (
        '[tool.cuda_ext]\ncompiler = "nvcc"\nnvcc = "toolkit/bin/nvcc"\n[tool.cuda_ext.modules."p.kernels"]\n'
    )
    write_project(tmp_path, table, SOURCE)
    found = findings(CUDA_PATH=tmp_path / "toolkit", CUDA_HOME=tmp_path / "none", status=1)
    broken = of(found, "nvcc")[0]
    assert broken["level"] == "warning"
    assert broken["text"].startswith(f"CUDA_PATH: {nvcc} does not print nvcc's version")
    # A build of the project takes no other.
    (project,) = (finding for finding in found if finding["level"] == "problem")
    assert project["text"].startswith("no nvcc can be used:\n")
    assert "correct the key nvcc" in message(project)


@pytest.mark.parametrize(
    ("table", "level", "subject", "text", "environ"),
    [
        ("", "ok", "p.kernels", "a build can begin, and compiles 1 unit", {}),
        ("[tool.cuda_ext]\ncompilr = 1\n", "problem", "tool.cuda_ext.compilr", "unknown key", {}),
        ("[tool\n", "problem", "pyproject.toml:1", "Expected ']'", {}),
        ("", "problem", "CUDAARCHS", "unknown architecture 'sm-80'", {"CUDAARCHS": "90;sm-80"}),
    ],
    ids=["right", "wrong", "broken", "architecture"],
)
def test_the_project_in_the_current_directory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    level: str,
    subject: str,
    text: str,
    environ: dict[str, str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert "This project" not in [section.title for section in examine([])]
    write_project(tmp_path, f'{table}[tool.cuda_ext.modules."p.kernels"]\n', SOURCE)
    (section,) = [section for section in examine([]) if section.title == "This project"]
    finding = section.findings[-1]
    assert (finding.level, finding.subject) == (level, subject)
    assert finding.text.startswith(text)
    assert level == "ok" or finding.remedy
    assert not (tmp_path / "cache").exists()


HOOK = "[tool.hatch.build.hooks.cuda-ext]\n"
NOT_BUILT = "does not build the kernels: wheels lack them"


@pytest.mark.parametrize(
    ("backend", "requires", "more", "files", "expected"),
    [
        ("setuptools.build_meta", '"setuptools>=77", "Cuda_Ext[cu13]"', "", {}, []),
        (
            "setuptools.build_meta",
            '"setuptools", "cuda-ext-more"',
            "",
            {},
            ["problem: lacks cuda-ext, so that"],
        ),
        ("hatchling.build", '"hatchling", "cuda-ext"', HOOK, {}, []),
        ("hatchling.build", '"cuda-ext"', "", {"hatch.toml": "[build.hooks]\ncuda-ext = {}\n"}, []),
        ("hatchling.build", '"cuda-ext"', "", {}, [f"problem: hatchling {NOT_BUILT}"]),
        ("flit_core.buildapi", '"flit_core", "cuda-ext"', "", {}, ["warning: flit_core builds no kernels"]),
        ("poetry.core.masonry.api", '"cuda-ext"', "", {}, ["warning: poetry builds no kernels"]),
        ("mesonpy", '"cuda-ext"', "", {}, [f"problem: mesonpy {NOT_BUILT}"]),
        ("mesonpy", '"cuda-ext"', "", {"meson.build": "command: [python, '-m', 'cuda_ext', 'build']"}, []),
        (
            "scikit_build_core.build",
            '"cuda-ext"',
            "",
            {"CMakeLists.txt": ""},
            [f"problem: scikit_build_core {NOT_BUILT}"],
        ),
        ("scikit_build_core.build", '"cuda-ext"', "", {"src/CMakeLists.txt": "cuda_ext_add_module(k)"}, []),
    ],
)
def test_the_build_backend_is_examined(
    tmp_path: Path, backend: str, requires: str, more: str, files: dict[str, str], expected: list[str]
) -> None:
    head = f'[build-system]\nbuild-backend = "{backend}"\nrequires = [{requires}]\n'
    if not backend.startswith("poetry"):
        head += '[project]\nname = "p"\n'
    flaws = list(check_backend(write_project(tmp_path, f"{head}{more}[tool.cuda_ext]\n", files)))
    shown = [f"{flaw.level}: {flaw.text}" for flaw in flaws]
    assert len(shown) == len(expected)
    assert all(text.startswith(beginning) for text, beginning in zip(shown, expected, strict=True))
    assert all(flaw.remedy for flaw in flaws)


# The cache and the environment.


def test_the_cache_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))
    (found,) = machine.check_cache()
    assert (found.level, found.text) == ("ok", f"can be used, in {tmp_path / 'cache'}")
    assert not (tmp_path / "cache").exists()
    if sys.platform != "win32":
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache").chmod(0o777)
        (found,) = machine.check_cache()
        assert found.level == "warning"
        assert "other users may write there (mode 777)" in found.text
    monkeypatch.setenv("CUDA_EXT_CACHE_SIZE", "0")
    (found,) = machine.check_cache()
    assert found.level == "note"
    assert found.text.endswith("; unset it to have one")
    monkeypatch.setenv("CUDA_EXT_CACHE_SIZE", "much")
    (cache,) = (section for section in examine([]) if section.title == "Cache")
    (found,) = cache.findings
    assert (found.level, found.subject) == ("problem", "CUDA_EXT_CACHE_SIZE")


def test_variables_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, level in (
        ("CUDA_EXT_CACHE", "s3://user:secret@bucket", "ok"),
        ("MAX_JOBS", "0", "problem"),
        ("CUDA_EXT_TIMEOUT", "soon", "problem"),
        ("CUDA_EXT_DEBUGGING", "1", "warning"),
        ("CUDA_EXT_XYZ", "a secret", "warning"),
    ):
        monkeypatch.setenv(name, value)
        (found,) = [finding for finding in machine.check_environment() if finding.subject == name]
        assert found.level == level, found
        assert level == "ok" or found.remedy
        assert "secret" not in found.text


def test_ascii_output() -> None:
    command = [*MODULE, "doctor", "nobody.has.this"]
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr == ""
    assert " problem nobody.has.this: there is no such module of kernels\n         > " in done.stdout
