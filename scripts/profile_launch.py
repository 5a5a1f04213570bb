"""Show where the instructions of a launch in C go, from Python's call to the driver's function.

Counts instructions with callgrind, a tool of valgrind, in launches of a driver that does nothing: by the
part of ``cuda_ext/runtime/launch/native`` that they belong to, inlined code included, and by the library
outside of it. All arguments are numbers and addresses. Needs valgrind and a C compiler, and no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import timeit
from collections import Counter
from pathlib import Path
from typing import Any

from _environment import ROOT
from bench.tables import format_table

_SOURCE = ROOT / "cuda_ext" / "runtime" / "launch" / "native" / "module.c"
_CASES = {
    "four arguments": "axpy(8, 2.0, 4096, 8192, grid=1, block=32, stream=0)",
    "four arguments, threads=": "axpy(8, 2.0, 4096, 8192, threads=8, stream=0)",
    "sixteen arguments": f"many({'8, 2.0, 4096, 8192, ' * 4} grid=1, block=32, stream=0)",
}
_TIMES = 20_000
_DRIVER = "".join(f"int {name}(void) {{ return 0; }}\n" for name in ("launch", "other"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--launches", nargs=2, metavar=("CASE", "DIRECTORY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.launches:
        case, directory = arguments.launches
        _launch_often(case, Path(directory))
        return 0
    if missing := [tool for tool in ("valgrind", "cc") if not shutil.which(tool)]:
        sys.exit(f"{Path(__file__).name}: {missing[0]} is not installed")
    with tempfile.TemporaryDirectory(prefix="profile_launch-") as name:
        directory = Path(name)
        _compile(_SOURCE, directory / f"_launch{sysconfig.get_config_var('EXT_SUFFIX')}")
        (directory / "driver.c").write_text(_DRIVER)
        _compile(directory / "driver.c", directory / "driver.so")
        for case in _CASES:
            counts = _count(case, directory)
            rows = [(part, f"{count / _TIMES:.0f}") for part, count in counts.most_common() if count > _TIMES]
            rows.append(("total", f"{counts.total() / _TIMES:.0f}"))
            print(f"\n{case}: instructions in a launch")
            print(format_table(("", "instructions"), rows))
    return 0


def _compile(source: Path, library: Path) -> None:
    include = f"-I{sysconfig.get_path('include')}"
    flags = ("-std=c11", "-O2", "-g", "-shared", "-fPIC")
    subprocess.run(["cc", *flags, include, str(source), "-o", str(library)], check=True)


def _count(case: str, directory: Path) -> Counter[str]:
    """Count the instructions that `call_launch` takes by the file, or outside of ours by the library."""
    profile = directory / "callgrind.out"
    collect = ["--collect-atstart=no", "--toggle-collect=call_launch"]
    tool = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={profile}", *collect]
    command = [*tool, sys.executable, __file__, "--launches", case, str(directory)]
    subprocess.run(command, check=True)
    return _read(profile)


def _read(profile: Path) -> Counter[str]:
    """Add up a profile in callgrind's format: positions, and lines with a position and a cost.

    https://valgrind.org/docs/manual/cl-format.html
    """
    names: dict[str, dict[str, str]] = {"ob": {}, "fl": {}}
    current = {"ob": "", "fl": ""}
    counts: Counter[str] = Counter()
    is_call = False
    for line in profile.read_text().splitlines():
        key, equals, value = line.partition("=")
        kind = {"ob": "ob", "fl": "fl", "fi": "fl", "fe": "fl"}.get(key)
        if equals and kind:
            number, _, name = value.partition(" ")
            current[kind] = names[kind].setdefault(number, name)
        elif key == "calls":
            is_call = True  # the next line has the cost of the callee, which its own lines have, too
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if not is_call:
                file = Path(current["fl"])
                part = file.name if file.parent == _SOURCE.parent else Path(current["ob"]).name
                counts[part] += int(line.split()[1])
            is_call = False
        elif key in ("cob", "cfl", "cfi"):
            number, _, name = value.partition(" ")
            names["ob" if key == "cob" else "fl"].setdefault(number, name)
    return counts


def _launch_often(case: str, directory: Path) -> None:
    import ctypes

    path = next(directory.glob("_launch*"))
    spec = importlib.util.spec_from_file_location("cuda_ext.runtime.launch._launch", path)
    assert spec is not None
    assert spec.loader is not None
    compiled: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiled)
    driver = ctypes.CDLL(str(directory / "driver.so"))
    launch, other = (ctypes.cast(driver[name], ctypes.c_void_p).value for name in ("launch", "other"))
    compiled.connect(1, launch, launch, *[other] * 7)
    four = (("n", "i", 4, ()), ("a", "f", 4, ()), ("x", "p", 8, ("float32",)), ("y", "p", 8, ("float32",)))
    axpy, many = compiled.Launch(four), compiled.Launch(4 * four)
    for kernel in (axpy, many):
        kernel._set_loaded(0, 1, 1, (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 48 << 10, 256, 0)
    timeit.timeit(_CASES[case], globals={"axpy": axpy, "many": many}, number=_TIMES)


if __name__ == "__main__":
    raise SystemExit(main())
