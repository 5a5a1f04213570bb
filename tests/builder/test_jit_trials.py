"""Which sources are embedded for compilation on demand: those that NVRTC compiles, whatever built them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

import cuda_ext
from cuda_ext.builder.package.generate import Package
from cuda_ext.cli.commands import commands
from cuda_ext.errors import CompilationError, KernelNotFoundError, ToolchainError
from cuda_ext.facts.manifest import FILE_NAME, Manifest, loads
from cuda_ext.runtime.jit.on_demand import OnDemand
from cuda_ext.toolchain import cuda_libraries
from tests.fixtures.messages import Messages
from tests.fixtures.projects import FILL, KERNELS, SCALE, build, write_project

pytestmark = pytest.mark.host_compiler

NVCC = f'{KERNELS}compiler = "nvcc"\n'
HOST = '#include <vector>\n#include "width.cuh"\n__global__ void host(float* x) { *x = WIDTH; }\n'
HEADER = "#pragma once\n#define WIDTH 4\n"
FILES = {
    "device/fill.cu": FILL,
    "device/host.cu": HOST,
    "device/scale.cu": f'#include "half.cuh"\n{SCALE}',
    "device/width.cuh": HEADER,
    "device/half.cuh": "#include <cuda_fp16.h>\n",
}
TABLE = f'{NVCC}instantiate = ["scale<float>"]\n'
REASON = 'NVRTC does not compile it: device/host.cu(1): catastrophic error: cannot open source file "vector"'
OBSTACLE = "device/host.cu is not embedded, since NVRTC does not compile it"


def embedded(package: Package) -> list[str]:
    """The sources that `package` contains; its manifest lists the same."""
    listed = sorted(manifest_of(package).embedded or ())
    shipped = sorted(n.removeprefix("sources/") for n in package.files if n.startswith("sources/"))
    assert shipped == listed
    return listed


def answer(line: str) -> str:
    remedy = "remove the cause, or set jit = false to embed no source"
    return f"p.kernels: not embedded, and not compiled on demand:\n  {line}\n  {remedy}"


def manifest_of(package: Package) -> Manifest:
    return loads(package.files[FILE_NAME], FILE_NAME)


def obstacles(package: Package) -> list[str]:
    """Why each unit cannot be compiled on demand."""
    manifest = manifest_of(package)
    return [OnDemand(manifest, package.files.__getitem__).obstacle(unit) for unit in manifest.units]


def test_of_nvccs_sources_those_are_embedded_that_nvrtc_compiles(tmp_path: Path, empty_cache: Path) -> None:
    write_project(tmp_path, TABLE, FILES)
    log: list[str] = []
    package = build(tmp_path, log)["p.kernels"]
    assert embedded(package) == ["device/fill.cu", "device/half.cuh", "device/scale.cu"]
    assert obstacles(package) == ["", OBSTACLE, ""]
    text = answer(f"device/host.cu: {REASON}")
    assert text in log
    assert " failed" not in log[-1]
    # What became of the trials is known, as the images are.
    log.clear()
    assert build(tmp_path, log)["p.kernels"].files == package.files
    assert "p.kernels: nothing to compile" in log
    assert text in log
    assert not any("compiled, in" in line for line in log)
    (tmp_path / "device/host.cu").write_text(HOST.replace("#include <vector>\n", ""))
    log.clear()
    assert "device/host.cu" in embedded(build(tmp_path, log)["p.kernels"])
    assert not any("not embedded" in line for line in log)


def test_a_header_that_appears_is_tried_again(tmp_path: Path, empty_cache: Path) -> None:
    toolkit = tmp_path / "toolkit"
    source = f"#ifdef __CUDACC_RTC__\n#include <late.h>\n#endif\n{FILL}"
    project = write_project(tmp_path / "project", NVCC, {"device/fill.cu": source})
    assert embedded(build(project)["p.kernels"]) == []
    (toolkit / "include").mkdir(parents=True)
    (toolkit / "include/late.h").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_HOME", str(toolkit))
        assert embedded(build(project)["p.kernels"]) == ["device/fill.cu"]


def test_options_decide_without_a_trial(tmp_path: Path) -> None:
    reasons = {
        "-Xcompiler=-O2": "was compiled with -Xcompiler=-O2, which NVRTC does not take",
        "-I/opt": "was compiled with -I/opt, and other machines may have other files there",
    }
    overrides = "".join(
        f'[[tool.cuda_ext.modules."p.kernels".overrides]]\n'
        f'sources = ["device/{name}.cu"]\noptions = ["{option}"]\n'
        for name, option in zip("ab", reasons, strict=True)
    )
    files = {f"device/{name}.cu": FILL.replace("fill", name) for name in ("a", "b", "fill")}
    write_project(tmp_path, NVCC + overrides, files)
    log: list[str] = []
    package = build(tmp_path, log)["p.kernels"]
    assert embedded(package) == ["device/fill.cu"]
    of_a, of_b = (f"device/{name}.cu {reason}" for name, reason in zip("ab", reasons.values(), strict=True))
    assert obstacles(package) == [of_a, of_b, ""]
    told = "\n  ".join(text.replace(".cu ", ".cu: it ") for text in (of_a, of_b))
    assert answer(told) in log


def test_linked_sources_are_embedded_together_or_not_at_all(tmp_path: Path) -> None:
    files = {name: text for name, text in FILES.items() if "scale" not in name}
    write_project(tmp_path, f"{NVCC}link = true", files)
    package = build(tmp_path)["p.kernels"]
    assert embedded(package) == []
    assert obstacles(package) == ["no source that can be compiled on demand is embedded"]
    write_project(tmp_path, f"{NVCC}link = true", {"device/host.cu": HOST.replace("#include <vector>\n", "")})
    package = build(tmp_path)["p.kernels"]
    assert embedded(package) == ["device/fill.cu", "device/host.cu", "device/width.cuh"]
    assert obstacles(package) == [""]


def test_without_jit_nothing_is_tried(tmp_path: Path) -> None:
    write_project(tmp_path, f"{TABLE}jit = false", FILES)
    log: list[str] = []
    assert manifest_of(build(tmp_path, log)["p.kernels"]).embedded is None
    assert not any("not embedded" in line for line in log)


def test_without_nvrtc_nothing_is_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Sequence[Path]:
        if name == "nvrtc":
            raise ToolchainError("NVRTC cannot be loaded (it is not there)")
        return found(name)

    found = cuda_libraries.library_files
    monkeypatch.setattr("cuda_ext.toolchain.nvrtc.library_files", missing)
    write_project(tmp_path, NVCC)
    log: list[str] = []
    assert embedded(build(tmp_path, log)["p.kernels"]) == []
    assert any("device/fill.cu: NVRTC cannot be loaded (it is not there)" in line for line in log)


def test_inspect_shows_what_is_not_embedded(tmp_path: Path) -> None:
    package = build(write_project(tmp_path, TABLE, FILES))["p.kernels"]
    package.write(tmp_path / "site/p/kernels")
    shown = CliRunner().invoke(commands, ["inspect", str(tmp_path / "site")]).stdout
    assert "yes, 3 embedded files, without device/host.cu" in " ".join(shown.split())
    (module,) = json.loads(
        CliRunner().invoke(commands, ["inspect", "--json", str(tmp_path / "site")]).stdout
    )["modules"]
    assert sorted(module["manifest"]["embedded"]) == ["device/fill.cu", "device/half.cuh", "device/scale.cu"]


def test_what_nvcc_alone_compiles_is_not_answered_with_nvcc(messages: Messages) -> None:
    source = f"#include <vector>\n{SCALE}"

    def preparing(options: Sequence[str]) -> str:
        module = cuda_ext.compile(
            source, instantiate=["scale<float>"], architectures=["sm_90"], compiler="nvcc", options=options
        )
        with pytest.raises((CompilationError, KernelNotFoundError)) as caught:
            cuda_ext.prepare(module, ["scale<double>"], architectures=["sm_90"])
        return str(caught.value)

    assert preparing([]).endswith(
        "\nnvcc built this module, and NVRTC compiles on demand; add what it lacks to `instantiate` or "
        "architectures, and build again"
    )
    messages(preparing(["-Xcompiler=-O2"]))
