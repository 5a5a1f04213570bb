"""Compare ways to embed bytes in a C++ program: those of cuda_ext, a hex array and one literal.

The bytes are random, as those of compressed images nearly are. All contenders take turns in each round.
Memory is the peak of the largest process of compiler and assembler. The hex array is written by bin2c where
that is installed, and otherwise in its form. Needs ``cuda-ext[cu13]`` and a C++ compiler.
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
from bench.machine import read_load, read_processor, read_version
from bench.processes import CORES
from bench.tables import format_pairs, format_table

from cuda_ext.builder.cpp.generate_cpp import Embed, render
from cuda_ext.builder.package.generate import Package
from cuda_ext.facts import manifest
from cuda_ext.facts.manifest import Image, Manifest, Unit
from cuda_ext.facts.sources import Source

INCLUDE = ROOT / "cuda_ext" / "include"
REFERENCE = "cuda_ext: .incbin"
SMALL, LARGE = 8, 100  # MB
BOUNDS = {"seconds": 1.0, "MB": 100.0}

# Starts the compiler from a small process, because memory of the parent at fork counts to the child.
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
    """A form of the bytes. ``writing`` is the time to write it; ``samples`` are seconds and memory."""

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
    machine = _describe_machine(arguments.compiler)
    print(format_pairs(machine), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench_embed-") as name:
        contenders = list(_write_contenders(Path(name)))
        for _ in range(arguments.rounds):
            for contender in contenders:
                contender.samples.append(_compile(arguments.compiler, contender.source))
    print(_format_results(contenders, arguments.rounds))
    print(_format_bounds(contenders))
    if arguments.json:
        results = {
            "machine": machine,
            "samples": {f"{c.name}, {c.megabytes} MB": c.samples for c in contenders},
        }
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _write_contenders(directory: Path) -> Iterator[Contender]:
    forms: Mapping[str, Callable[[bytes, Path], Path]] = {
        REFERENCE: lambda data, here: _write_module(data, here, "incbin"),
        "cuda_ext: literals": lambda data, here: _write_module(data, here, "literal"),
        "one literal": _write_literal,
        "hex array": _write_hex_array,
    }
    for megabytes, names in ((SMALL, list(forms)), (LARGE, [REFERENCE, "cuda_ext: literals"])):
        data = random.Random(megabytes).randbytes(megabytes * 10**6)
        for index, name in enumerate(names):
            here = directory / f"{megabytes}-{index}"
            here.mkdir()
            began = time.perf_counter()
            source = forms[name](data, here)
            yield Contender(name, megabytes, source, time.perf_counter() - began)


def _write_module(data: bytes, here: Path, embed: Embed) -> Path:
    image = Image("sm_90", "image.cubin", len(data), hashlib.sha256(data).hexdigest())
    contents = Manifest(
        schema=manifest.SCHEMA,
        module="bench.kernels",
        compiler="nvrtc",
        version="13.5",
        compress="none",
        units=(Unit((Source("device/image.cu"),), (image,)),),
        kernels=(),
        symbols=(),
    )
    files = {manifest.FILE_NAME: manifest.dumps(contents).encode(), image.file: data}
    (here / image.file).write_bytes(data)
    module = render(Package(contents.module, files), (), here, embed)
    for name, content in module.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    return here / module.source


def _write_literal(data: bytes, here: Path) -> Path:
    with (here / "data.cpp").open("w", encoding="ascii") as file:
        file.write(f"extern const char data[{len(data) + 1}];\nconst char data[{len(data) + 1}] =\n")
        for start in range(0, len(data), 1000):
            text = "".join(f"\\{byte:03o}" for byte in data[start : start + 1000])
            file.write(f'"{text}"\n')
        file.write(";\n")
    return here / "data.cpp"


def _write_hex_array(data: bytes, here: Path) -> Path:
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


def _format_results(contenders: list[Contender], rounds: int) -> str:
    reference = {c.megabytes: c.seconds for c in contenders if c.name == REFERENCE}
    rows = []
    for each in contenders:
        least, most = (limit(seconds for seconds, _ in each.samples) for limit in (min, max))
        rows.append(
            (
                f"{each.megabytes} MB, {each.name}",
                f"{each.seconds:.2f} s",
                f"{least:.2f} .. {most:.2f} s",
                f"{each.seconds / reference[each.megabytes]:.1f} x",
                f"{each.memory:.0f} MB",
                f"{each.writing:.2f} s",
            )
        )
    head = ("", "time", "least .. most", "/ .incbin", "memory", "written in")
    return f"\nCompiling random bytes: medians of {rounds} rounds\n{format_table(head, rows)}"


def _format_bounds(contenders: list[Contender]) -> str:
    (large,) = (c for c in contenders if c.name == REFERENCE and c.megabytes == LARGE)
    lines = ["\nBounds"]
    for unit, value in (("seconds", large.seconds), ("MB", large.memory)):
        verdict = "holds" if value <= BOUNDS[unit] else "misses"
        lines.append(f"  {LARGE} MB, {REFERENCE}: {value:.2f} {unit}, at most {BOUNDS[unit]:g}: {verdict}")
    return "\n".join(lines)


def _describe_machine(compiler: str) -> dict[str, str]:
    return {
        "CPU": f"{read_processor()}, {CORES} cores",
        "load before": read_load(),
        "system": platform.platform(),
        "compiler": read_version(compiler),
        "assembler": read_version(shutil.which("as")),
        "hex array": shutil.which("bin2c") or "in the form of bin2c",
        "Python": platform.python_version(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
