"""What bytes in a C++ program cost its compiler: ours beside a hex array and a plain literal, in one run.

Random bytes, which are as hard to write down as compressed images. All contenders take turns, round by round.
Memory is the peak of the largest process, of compiler and assembler. The hex array is bin2c's, where
that is installed, and otherwise written as it does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from _environment import ROOT

sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from cuda_ext.build import cpp  # noqa: E402
from launching.printing import pairs_text  # noqa: E402

from cuda_ext import manifest  # noqa: E402
from cuda_ext.builder.package.generate import Package  # noqa: E402
from cuda_ext.manifest import Image, Manifest, Unit  # noqa: E402

INCLUDE = ROOT / "cuda_ext" / "include"
REFERENCE = "ours: .incbin"
SMALL, LARGE = 8, 100  # MB
BOUNDS = {"seconds": 1.0, "MB": 100.0}

# Starts a compiler from a small process: what forks is counted to its children's memory.
_RUN = """
import json, os, sys, time
began = time.perf_counter()
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
seconds = time.perf_counter() - began
print(json.dumps([status, seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)]))
"""


@dataclass
class Contender:
    """How bytes are written down; ``writing`` is how long that took, ``samples`` are seconds and bytes."""

    name: str
    megabytes: int
    source: Path
    writing: float
    samples: list[tuple[float, int]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return median(seconds for seconds, _ in self.samples)

    @property
    def memory(self) -> float:
        return median(peak for _, peak in self.samples) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds; 5")
    parser.add_argument("--compiler", default=shutil.which("g++") or "clang++", help="g++")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    arguments = parser.parse_args()
    machine = _machine(arguments.compiler)
    print(pairs_text(machine), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench_embed-") as name:
        contenders = list(_contenders(Path(name)))
        for _ in range(arguments.rounds):
            for contender in contenders:
                contender.samples.append(_compile(arguments.compiler, contender.source))
    print(_table(contenders, arguments.rounds))
    print(_bounds(contenders))
    if arguments.json:
        found = {
            "machine": machine,
            "samples": {f"{c.name}, {c.megabytes} MB": c.samples for c in contenders},
        }
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def _contenders(place: Path) -> Iterator[Contender]:
    forms: Mapping[str, Callable[[bytes, Path], Path]] = {
        REFERENCE: lambda data, here: _ours(data, here, "incbin"),
        "ours: literals": lambda data, here: _ours(data, here, "literal"),
        "one literal": _one_literal,
        "hex array": _hex_array,
    }
    for megabytes, names in ((SMALL, list(forms)), (LARGE, [REFERENCE, "ours: literals"])):
        data = random.Random(megabytes).randbytes(megabytes * 10**6)
        for index, name in enumerate(names):
            here = place / f"{megabytes}-{index}"
            here.mkdir()
            began = time.perf_counter()
            source = forms[name](data, here)
            yield Contender(name, megabytes, source, time.perf_counter() - began)


def _ours(data: bytes, here: Path, embed: cpp.Embed) -> Path:
    image = Image("sm_90", "cubin", "image.cubin", len(data), hashlib.sha256(data).hexdigest())
    made = Manifest(
        schema=manifest.SCHEMA,
        module="bench.kernels",
        compiler="nvrtc",
        version="13.5",
        compress="none",
        units=(Unit(("device/image.cu",), "", (), (image,)),),
        kernels=(),
        symbols=(),
    )
    files = {manifest.FILE_NAME: manifest.dumps(made).encode(), image.file: data}
    (here / image.file).write_bytes(data)
    module = cpp.render(Package(made.module, files), (), here, embed)
    for name, content in module.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    return here / module.sources[0]


def _one_literal(data: bytes, here: Path) -> Path:
    with (here / "data.cpp").open("w", encoding="ascii") as file:
        file.write(f"extern const char data[{len(data) + 1}];\nconst char data[{len(data) + 1}] =\n")
        for start in range(0, len(data), 1000):
            text = "".join(f"\\{byte:03o}" for byte in data[start : start + 1000])
            file.write(f'"{text}"\n')
        file.write(";\n")
    return here / "data.cpp"


def _hex_array(data: bytes, here: Path) -> Path:
    source = here / "data.cpp"
    (here / "data.bin").write_bytes(data)
    with source.open("wb") as file:
        if program := shutil.which("bin2c"):
            subprocess.run([program, "--const", "--name", "data", here / "data.bin"], stdout=file, check=True)
        else:
            file.write(b"extern const unsigned char data[] = {\n")
            for start in range(0, len(data), 16):
                line = "".join(f"0x{byte:02x}," for byte in data[start : start + 16])
                file.write(f"{line}\n".encode())
            file.write(b"};\n")
    return source


def _compile(compiler: str, source: Path) -> tuple[float, int]:
    command = [compiler, "-std=c++17", "-O2", "-w", f"-I{INCLUDE}", "-c", str(source), "-o", os.devnull]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _RUN, *command], capture_output=True, text=True, check=True
    )
    status, seconds, peak = json.loads(done.stdout)
    if status:
        raise RuntimeError(f"{source}: {done.stderr}")
    return seconds, peak


def _table(contenders: list[Contender], rounds: int) -> str:
    reference = {c.megabytes: c.seconds for c in contenders if c.name == REFERENCE}
    lines = [
        f"\nCompiling random bytes: medians of {rounds} rounds",
        f"  {'':24}  {'time':>8}  {'least .. most':>18}  {'/ ours':>8}  {'memory':>8}  {'written in':>10}",
    ]
    for each in contenders:
        least, most = (limit(seconds for seconds, _ in each.samples) for limit in (min, max))
        lines.append(
            f"  {f'{each.megabytes} MB, {each.name}':24}  {each.seconds:6.2f} s"
            f"  {f'{least:.2f} .. {most:.2f} s':>18}  {each.seconds / reference[each.megabytes]:6.1f} x"
            f"  {each.memory:5.0f} MB  {each.writing:8.2f} s"
        )
    return "\n".join(lines)


def _bounds(contenders: list[Contender]) -> str:
    (ours,) = (c for c in contenders if c.name == REFERENCE and c.megabytes == LARGE)
    lines = ["\nBounds"]
    for unit, value in (("seconds", ours.seconds), ("MB", ours.memory)):
        verdict = "holds" if value <= BOUNDS[unit] else "misses"
        lines.append(f"  {LARGE} MB, {REFERENCE}: {value:.2f} {unit}, at most {BOUNDS[unit]:g}: {verdict}")
    return "\n".join(lines)


def _machine(compiler: str) -> dict[str, str]:
    def version(program: str) -> str:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        return done.stdout.partition("\n")[0]

    return {
        "CPU": f"{_processor()}, {os.cpu_count()} cores",
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "system": platform.platform(),
        "compiler": version(compiler),
        "assembler": version("as") if shutil.which("as") else "none",
        "hex array": shutil.which("bin2c") or "as bin2c writes it",
        "Python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


if __name__ == "__main__":
    raise SystemExit(main())
