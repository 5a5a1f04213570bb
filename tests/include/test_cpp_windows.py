"""Programs for Windows under Wine: the loader with the fake driver as a DLL, and NVRTC for Windows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.builder.cpp.test_header import WHOLE
from tests.fixtures.cpp_modules import INCLUDE, LOADER, MINGW, ON_DEMAND, write_cpp
from tests.fixtures.loader import CHECKOUT

WINE = shutil.which("wine64") or shutil.which("wine") or shutil.which("wine64", path="/usr/lib/wine")
ELF = Path("/usr/include/elf.h")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MINGW is None, reason="takes MinGW's compiler"),
    pytest.mark.skipif(WINE is None, reason="takes Wine"),
    pytest.mark.skipif(not ELF.exists(), reason="takes <elf.h>, which the fake driver reads images with"),
]


def compile_for_windows(*arguments: str | Path, language: str = "c++") -> None:
    assert MINGW is not None
    subprocess.run([MINGW, "-O1", "-static", "-x", language, *arguments], check=True, timeout=300)


def run_in_wine(program: Path, **variables: str) -> list[str]:
    environment = {**os.environ, "WINEDEBUG": "-all", "WINEPREFIX": str(program.parent / "wine"), **variables}
    done = subprocess.run(
        [str(WINE), program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


COMPILING = """
#include <cuda_ext/compile.hpp>
#include <cstdio>
int main() try {
  cuda_ext::CompileOptions options;
  options.architecture = "sm_90";
  const char* source = "#include <type_traits>\\n"
      "template <class T> __global__ void k(T* x) { *x = std::is_same_v<T, float>; }";
  const cuda_ext::Image image = cuda_ext::compile_image(source, {"k<float>"}, options);
  const char* lowered = image.lowered_name("k<float>");
  std::printf("%s %s %s\\n", image.architecture.c_str(), image.data.substr(1, 3).c_str(), lowered);
} catch (const cuda_ext::Error& error) {
  std::puts(error.what());
}
"""


@pytest.mark.network
def test_the_nvrtc_of_windows_compiles(tmp_path: Path) -> None:
    """It contains the headers of CUDA and CCCL, and unpacks them."""
    platform = "--only-binary", ":all:", "--platform", "win_amd64"
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *platform, "-d", tmp_path]
    subprocess.run([*download, "nvidia-cuda-nvrtc==13.*"], check=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "wheel")
    (tmp_path / "main.cpp").write_text(COMPILING)
    sources = tmp_path / "main.cpp", LOADER, ON_DEMAND
    compile_for_windows("-std=c++17", f"-I{INCLUDE}", *sources, "-o", tmp_path / "program.exe")

    def in_wine(path: Path) -> str:
        return f"Z:{path}".replace("/", "\\")

    toolkit, cache = in_wine(tmp_path / "wheel/nvidia/cu13"), in_wine(tmp_path / "cache")
    done = run_in_wine(tmp_path / "program.exe", CUDA_PATH=toolkit, CUDA_EXT_CACHE=cache)
    assert done == ["sm_90 ELF _Z1kIfEvPT_"]
    again = run_in_wine(tmp_path / "program.exe", CUDA_PATH=toolkit, CUDA_EXT_CACHE=cache)
    assert again == done


def test_a_program_for_windows_launches(tmp_path: Path) -> None:
    made = write_cpp(WHOLE, tmp_path, "literal", with_c=True)
    include = f"-I{tmp_path / 'include'}"
    compile_for_windows(
        "-c", include, CHECKOUT / "tests/cpp/c_interface.c", "-o", tmp_path / "c.o", language="c"
    )
    for source, output in (
        (tmp_path / made.source, "module.o"),
        (LOADER, "loader.o"),
        (ON_DEMAND, "on_demand.o"),
    ):
        compile_for_windows("-std=c++17", "-c", source, "-o", tmp_path / output)
    objects = [tmp_path / name for name in ("c.o", "module.o", "loader.o", "on_demand.o")]
    compile_for_windows(*objects, "-o", tmp_path / "program.exe", language="none")

    without = run_in_wine(tmp_path / "program.exe")
    assert without[0].startswith("3 0 there is no CUDA driver on this machine (nvcuda.dll: error 126)")

    # What <elf.h> of Linux includes.
    (tmp_path / "elf" / "bits").mkdir(parents=True)
    (tmp_path / "elf" / "bits" / "auxv.h").touch()
    (tmp_path / "elf" / "features.h").write_text("#define __BEGIN_DECLS\n#define __END_DECLS\n")
    shutil.copy(ELF, tmp_path / "elf")
    of_linux = (
        "-DO_CLOEXEC=_O_BINARY",
        "-DPTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP=PTHREAD_RECURSIVE_MUTEX_INITIALIZER",
    )
    driver = tmp_path / "wine" / "drive_c" / "windows" / "system32" / "nvcuda.dll"
    fake = CHECKOUT / "tests" / "fake_driver" / "libcuda.c"
    compile_for_windows("-shared", *of_linux, f"-I{tmp_path / 'elf'}", fake, "-o", driver, language="c")
    grid, _, size, *_ = run_in_wine(tmp_path / "program.exe", FAKE_CUDA_LOG=r"C:\calls")
    assert grid.startswith("0 0 block: expected at least 1 and at most (1024, 1024, 64), found (0, 1, 1)|")
    assert size == "36 bytes"
    calls = (tmp_path / "wine" / "drive_c" / "calls").read_text().splitlines()
    assert [call.partition(" device=0 ")[2] for call in calls if call.startswith("cuLaunch")] == [
        "05000000 00000040 0000000000000000 2000000000000000",
        "0000803f 4000000000000000",
        "dependent=1 cluster=2,1,1",
    ]
