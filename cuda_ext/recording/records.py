"""The format of records: a line of JSON for each different launch, in a file for each process.

A process appends a launch when it sees it for the first time, and at its end those that it saw more often,
with their numbers: of equal launches in a file, the last one counts. A killed process loses these numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from cuda_ext.compiler.front_ends.instantiation import DIVISOR
from cuda_ext.errors import CudaExtError
from cuda_ext.facts.codec import parse_json, plain, reader
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.filesystem.regular_file import read_file

DIRECTORY = ".cuda_ext/record"  # within a project
# Of launches that differ only in shapes, strides, numbers and grids, a process keeps the first.
MOST_LAUNCHES = 200
# A constant with more values than these, and sizes, had better be a parameter or a range.
_MANY_VALUES = 8

LaunchKind: TypeAlias = Literal["cuda", "triton", "cutile", "cupy"]


class Argument(NamedTuple):
    """An argument of a launch.

    ``type`` is that of the parameter: in C++ (``const float*``), in Triton's spelling (``*fp16``, ``i32``,
    ``tensordesc<fp16[64, 32]>``), or in cuTile's, that of the elements (``f16``). CuPy does not know it.

    An array has a ``shape``, ``strides`` in elements, and the ``dtype`` of its elements by PyTorch's name
    (``float16``). ``value`` is a number as Python spells it. ``divisible`` says that 16 divides the number,
    the address, and for cuTile the strides in bytes. If the parameter is a tuple, which may contain others,
    ``path`` has the position in each. A member of a structure is an argument ``params.x``.
    """

    name: str
    type: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    value: str = ""
    divisible: bool = False
    path: tuple[int, ...] = ()

    @property
    def axes(self) -> tuple[tuple[bool, bool], ...]:
        """For each axis of an array, whether 16 divides its length, and whether its stride is 1."""
        axes = zip(self.shape or (), self.strides or (), strict=False)
        return tuple((length % DIVISOR == 0, stride == 1) for length, stride in axes)


class Launch(NamedTuple):
    """A launch; ``times`` is how often it was seen.

    ``module`` is the module of kernels, or the one that defines the function of Triton or cuTile, by its
    import name. ``source`` is a path relative to the project; empty for kernels of CuPy, and absolute outside
    of the project. ``kernel`` is a name expression of C++, or the name of a function in Python.

    ``constants`` are the values of a Python function's other parameters, in the spelling of ``instantiate``:
    ``{"BLOCK": "1024", "bias": "None"}``. ``options`` are those of the front-end that are not the default,
    such as ``num_warps``. ``block`` is empty, and ``shared`` 0, where the front-end decides them.
    """

    kind: LaunchKind
    module: str
    source: str
    kernel: str
    arguments: tuple[Argument, ...] = ()
    constants: Mapping[str, str] = {}
    options: Mapping[str, str] = {}
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared: int = 0
    times: int = 1

    @property
    def instantiation(self) -> object:
        """All but shapes, strides, numbers and grids: a value that is equal for launches alike."""
        types = tuple((a.name, a.path, a.type, a.dtype, a.divisible, a.value == "1") for a in self.arguments)
        layouts: tuple[object, ...] = ()
        if self.kind == "cutile":
            layouts = tuple(axis for argument in self.arguments for axis in argument.axes)
        values = *self.constants.items(), None, *self.options.items()
        return self.kind, self.module, self.source, self.kernel, types, layouts, values


def without_defaults(options: Mapping[str, str]) -> dict[str, str]:
    """Return the `options` of Triton that are not the default, for :attr:`Launch.options`."""
    return {name: text for name, text in options.items() if TRITON_OPTIONS.get(name) != text}


class RecordError(CudaExtError):
    """Records are damaged, or there are none."""


def write_line(launch: Launch) -> bytes:
    """Write a launch as a line. Equal launches have equal lines."""
    return json.dumps(plain(launch, [])).encode() + b"\n"


def read_records(directory: Path) -> list[Launch]:
    """Read the launches of all processes, each once with its number, by source and kernel.

    The last line of a file is left out if it is not complete: its process was killed. Raises
    :class:`RecordError` for any other damage, and if there are no records.
    """
    counts: Counter[bytes] = Counter()
    launches: dict[bytes, Launch] = {}
    files = sorted(directory.glob("*.jsonl"))
    if not files:
        remedy = "run a program that launches kernels: cuda-ext record -- python -m pytest"
        raise RecordError("there are no records", where=directory, remedy=remedy)
    for file in files:
        last: dict[bytes, int] = {}
        for number, line in enumerate(read_file(str(file)).split(b"\n")[:-1], 1):
            try:
                launch: Launch = reader(Launch)(parse_json(line.decode()), iter(()))
            except (ValueError, RecursionError) as error:
                remedy = "remove this file, and record again"
                problem = f"is not the record of a launch: {error}"
                raise RecordError(problem, where=f"{file}:{number}", remedy=remedy) from None
            once = launch._replace(times=1)
            key = write_line(once)
            launches[key] = once
            last[key] = launch.times
        counts.update(last)
    order = sorted(launches, key=lambda key: (launches[key].source, launches[key].kernel.partition("<")[0]))
    return [launches[key]._replace(times=counts[key]) for key in order]


def describe_variation(launches: Iterable[Launch]) -> Iterator[str]:
    """Yield a message for each constant with many values, and for kernels of which not all were recorded."""
    constants: dict[tuple[str, str, str], dict[int, list[Launch]]] = {}
    alike: Counter[object] = Counter()
    for launch in launches:
        alike[launch.instantiation] += 1
        if alike[launch.instantiation] == MOST_LAUNCHES:
            yield f"{launch.kernel}: the first {MOST_LAUNCHES} different launches of one kernel were recorded"
        for name, text in launch.constants.items():
            if text.isdecimal():
                values = constants.setdefault((launch.source, launch.kernel, name), {})
                values.setdefault(int(text), []).append(launch)
    for (source, kernel, name), values in constants.items():
        sizes = {
            argument.name
            for own in values.values()
            for argument in own[0].arguments
            if argument.value.isdecimal()
        }
        fitting = [
            size
            for size in sorted(sizes, key=lambda name: (len(name), name))
            if all(_rounds_up(launch, size) == value for value, own in values.items() for launch in own)
        ]
        if fitting and len(values) > 1:
            advice = f"{name}={{next_power_of_2({fitting[0]})}} fits all launches"
        elif len(values) > _MANY_VALUES:
            advice = "a parameter instead of a constant would need one kernel"
        else:
            continue
        yield f"{kernel} in {source}: {name} has {len(values)} values; {advice}"


def _rounds_up(launch: Launch, size: str) -> int | None:
    """Return the power of two to which the argument `size` of a launch is rounded up."""
    for argument in launch.arguments:
        if argument.name == size and argument.value.isdecimal():
            return 1 << (int(argument.value) - 1).bit_length()
    return None
