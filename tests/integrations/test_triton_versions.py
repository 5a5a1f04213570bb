"""Builds with other versions of Triton than that of all other tests, without NVRTC."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.facts.manifest import loads
from cuda_ext.toolchain.front_ends.triton_versions import VERSIONS
from tests.builder.test_triton import COMBINE, COMBINED, DESCRIBED, DESCRIPTORS, FILES, TABLE, TEXT
from tests.fixtures.environments import NO_CACHE, Environment
from tests.fixtures.loader import run_script
from tests.fixtures.projects import write_project

pytestmark = [
    pytest.mark.network,
    pytest.mark.host_compiler,
    pytest.mark.xdist_group("triton_versions"),
]

OWN = '"device/scale.py", "device/combine.py", "device/descriptors.py"'
READABLE = 'compress = "none"'  # by the fake driver
SCALE = TABLE.format(text=TEXT).replace('"device/scale.py"', OWN, 1).replace('emit = "cubin"', READABLE)
PROJECT = SCALE + COMBINED + DESCRIBED
SOURCES = {**FILES, "device/combine.py": COMBINE, "device/descriptors.py": DESCRIPTORS}
LAUNCHES = """
import cuda_ext
from p import kernels
from tests.fixtures.device_arrays import ArrayAt

print(cuda_ext.describe(kernels))
x, half, shape = ArrayAt(4096), "<f2", (128, 72)
kernels.scale(ArrayAt(8192), x, 60, 2.0, BLOCK=128, grid=3)
kernels.combine(ArrayAt(256), (x, (ArrayAt(768, dtype=half), 3)), 64, None, grid=1)
kernels.on_host(ArrayAt(4096, shape, dtype=half), ArrayAt(8192, shape, dtype=half), 72, grid=(2, 3))
kernels.on_device(ArrayAt(4096, dtype=half), ArrayAt(8192, dtype=half), 128, 80, grid=(2, 3))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "version",
    # The newest is in all other tests, too.
    VERSIONS,
)
def test_each_version_builds_the_same_kernels(
    version: str, environment_with: Callable[..., Environment], tmp_path: Path, fake_driver: Path
) -> None:
    environment = environment_with(f"triton=={version}.*", "triton")
    shown = environment.run("-m", "pip", "list")
    assert "triton" in shown
    assert "nvrtc" not in shown
    images = []
    for name in ("one", "two"):
        project = write_project(tmp_path / name, PROJECT, SOURCES)
        build = ("-m", "cuda_ext", "build", "--output", project / "out", project)
        assert f"p.kernels: with triton {version}." in environment.run(*build, **NO_CACHE)
        files = sorted((project / "out/p/kernels").rglob("*"))
        images.append({file.name: file.read_bytes() for file in files if file.is_file()})
    assert images[0] == images[1]
    manifest = loads(images[0]["manifest.json"], "manifest.json")
    assert (manifest.compiler, manifest.version[:4]) == ("triton", f"{version}.")
    done = run_script(LAUNCHES, tmp_path / "one/out", LD_LIBRARY_PATH=str(fake_driver))
    assert done.output[0].startswith(f"p.kernels, compiled by Triton {version}.")
    assert f"compiler     Triton {version}." in environment.run(
        "-m", "cuda_ext", "inspect", tmp_path / "one/out"
    )
    found = json.loads(environment.run("-m", "cuda_ext", "doctor", "--json", cwd=tmp_path / "one"))
    findings = [finding for section in found["sections"] for finding in section["findings"]]
    assert not [finding for finding in findings if finding["level"] == "problem"]
    added = len(VERSIONS[version].added)
    scale, combine, on_host, on_device = done.launches
    assert scale.endswith(" ".join([" 3c000000 00000040", *["0" * 16] * added]))
    assert combine.endswith(" ".join([" 03000000 40000000", *["0" * 16] * added]))
    assert on_host.endswith(" ".join([" 48000000", *["0" * 16] * added]))
    # Descriptors on the device lie in scratch memory, whose address comes first.
    scratch = on_device.split(" ")[-added]
    assert scratch != "0" * 16
    assert done.calls.count("cuMemFreeAsync stream=0") == 1
