"""Nothing that observes a build changes what it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.command_line import run
from tests.fixtures.projects import write_project

ROOT = Path(__file__).parents[3]
# nvcc makes other code of this with its time trace.
SOURCE = """\
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
template <class T> __global__ void sum(const T* in, T* out, unsigned n) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  T all = 0;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) all += in[i];
  for (int offset = tile.size() / 2; offset > 0; offset /= 2) all += tile.shfl_down(all, offset);
  if (tile.thread_rank() == 0) out[blockIdx.x] = all;
}
"""
TABLE = """\
[tool.cuda_ext.modules."p.kernels"]
compiler = "{0}"
architectures = ["sm_90"]
instantiate = ["sum<float>"]
"""


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "compiler", ["nvrtc", pytest.param("nvcc", marks=[pytest.mark.host_compiler, pytest.mark.slow])]
)
def test_no_option_that_observes_changes_what_is_built(compiler: str, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", TABLE.format(compiler), {"device/sum.cu": SOURCE})
    files = ("--depfile", tmp_path / "depfile", "--trace", tmp_path / "trace.json")
    all_at_once = ("-v", "--json", *files, "--report", tmp_path / "report.html")
    for name, options in {"plain": (), "observed": all_at_once}.items():
        # Without a cache each build compiles.
        code, _, shown = run("build", root, "-o", tmp_path / name, *options, CUDA_EXT_CACHE_SIZE=0)
        assert code == 0, shown
        assert contents(tmp_path / name) == contents(tmp_path / "plain")
    assert any(name.endswith(".fatbin") for name in contents(tmp_path / "plain"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    if compiler == "nvcc":
        assert "cicc" in page
        assert "Those that nvcc read are left out" in page  # NVRTC tries the source, too
    else:
        assert "CUDA C++ Front-End" in page
        assert "cooperative_groups.h" in page


def test_a_report_changes_no_source_without_headers(tmp_path: Path) -> None:
    """NVRTC makes other code of it with a time trace."""
    stencil = ROOT / "example_project/device/stencil.cu"
    table = '[tool.cuda_ext.modules."p.kernels"]\narchitectures = ["sm_120", "compute_120"]\n'
    root = write_project(tmp_path / "p", table, {"device/stencil.cu": stencil.read_text(encoding="utf-8")})
    for name, options in {"plain": (), "reported": ("--report", tmp_path / "report.html")}.items():
        code, _, shown = run("build", root, "-o", tmp_path / name, *options, CUDA_EXT_CACHE_SIZE=0)
        assert code == 0, shown
    assert contents(tmp_path / "reported") == contents(tmp_path / "plain")
    assert "NVVM Optimizer" in (tmp_path / "report.html").read_text(encoding="utf-8")
