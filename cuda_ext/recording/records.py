"""The format of records: a line of JSON for each different launch, in a file for each process.

A process appends a launch when it sees it for the first time, and at its end those that it saw more often,
with their numbers: of equal launches in a file, the last one counts. A killed process loses these numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from cuda_ext.compiler.front_ends.instantiation import parse_instantiation
from cuda_ext.errors import CudaExtError
from cuda_ext.facts.codec import parse_json, plain, reader
from cuda_ext.filesystem.regular_file import read_file

DIRECTORY = ".cuda_ext/record"  # within a project

LaunchKind: TypeAlias = Literal["module", "triton", "cutile", "cupy"]


class Argument(NamedTuple):
    """An argument of a launch: an array, or a number.

    An array has a ``shape``, ``strides`` in elements, and the ``dtype`` of its elements by PyTorch's name;
    ``divisible`` says that 16 divides its address. ``value`` is a number as Python spells it. Items of a
    tuple are arguments ``xs_0``, and members of a structure are arguments ``params.x``.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    divisible: bool = False
    value: str = ""


class Launch(NamedTuple):
    """A launch; ``times`` is how often it was seen.

    ``module`` is the module of kernels, or the one that defines the function of Triton or cuTile, by its
    import name. ``source`` is a path relative to the project; empty for kernels of CuPy, and absolute outside
    of the project. ``instantiation`` is what ``instantiate`` would list: a name expression of C++, or a
    function in Python with types, hints, constants and options. ``block`` is empty, and ``shared`` 0, where
    the front-end decides them.
    """

    kind: LaunchKind
    module: str
    source: str
    instantiation: str
    arguments: tuple[Argument, ...] = ()
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared: int = 0
    times: int = 1

    @property
    def is_python(self) -> bool:
        """True for a function in Python."""
        return self.source.endswith(".py")

    @property
    def kernel(self) -> str:
        """The name of the kernel without types and constants."""
        return self.instantiation.partition("(" if self.is_python else "<")[0]


class RecordError(CudaExtError):
    """Records are damaged, or there are none."""


def write_line(launch: Launch) -> bytes:
    """Write a launch as a line. Equal launches have equal lines."""
    return json.dumps(plain(launch, [])).encode() + b"\n"


def read_records(directory: Path) -> list[Launch]:
    """Read the launches of all processes, each once with its number, by source and kernel.

    The last line of a file is left out if it is not complete: its process was killed, or the disk was full.
    Raises :class:`RecordError` for any other damage, and if there are no records.
    """
    times: Counter[Launch] = Counter()
    files = sorted(directory.glob("*.jsonl"))
    if not files:
        remedy = "run a program that launches kernels: cuda-ext record -- python -m pytest"
        raise RecordError("there are no records", where=directory, remedy=remedy)
    for file in files:
        last: dict[Launch, int] = {}
        for number, line in enumerate(read_file(str(file)).split(b"\n")[:-1], 1):
            try:
                launch: Launch = reader(Launch)(parse_json(line.decode()), iter(()))
                if launch.is_python:
                    parse_instantiation(launch.instantiation)
            except (ValueError, RecursionError) as error:
                remedy = "remove this file, and record again"
                problem = f"is not the record of a launch: {error}"
                raise RecordError(problem, where=f"{file}:{number}", remedy=remedy) from None
            last[launch._replace(times=1)] = launch.times
        times.update(last)
    launches = [launch._replace(times=number) for launch, number in times.items()]
    return sorted(launches, key=lambda launch: (launch.source, launch.kernel))
