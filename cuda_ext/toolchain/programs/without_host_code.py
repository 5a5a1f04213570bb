"""Leave the host code out of a translation unit: what the text shows, and what NVRTC rejects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from cuda_ext.compiler.products import CompiledImage
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError, join_names
from cuda_ext.text.directives import definitions_of
from cuda_ext.text.host_code import find_host_code
from cuda_ext.text.host_items import HostItem, leave_out, unevaluated_text
from cuda_ext.text.includes import find_includes
from cuda_ext.text.macros import SPECIFIERS, WORD, declaring_macros, find_macros
from cuda_ext.toolchain.programs.header_dependencies import reachable_headers

# Headers that only host code uses, unless the search path has them.
_HOST_HEADERS = re.compile(
    r"[a-z_]+|sys/.+|(?:ctype|dirent|direct|dlfcn|errno|fcntl|getopt|inttypes|io|locale|malloc|memory|process|pthread|"
    r"sched|setjmp|signal|stdarg|strings|unistd|wchar|windows|Windows)\.h"
    r"|(?:ATen|c10|torch|THC|pybind11|nanobind|GL|EGL|GLES\d?|opencv2|boost|Eigen|fmt|glog|vulkan)/.+"
    r"|(?:cublas|cuda|cufft|cusolver|cusparse|curand(?!_)|cudnn|nccl|npp|nvjpeg|nvml|nvrtc|nvtx3|nvToolsExt|mpi|omp)"
    r"\w*(?:/.+|\.h\w*)"
)
_ERROR = re.compile(r"(?m)^(\S[^\n]*?)\((\d+)\): (?:catastrophic )?error: (.*)$")
_NOT_DEFINED = re.compile(r'function "(.*)" was referenced but not defined')
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined|has no member "(\w+)"')
# Names in errors, and the header of ours that declares them: what nvcc declares in every source, and what
# device code takes from PyTorch's headers and from the one of all of CUB, which NVRTC refuses.
_IMPLIED = {
    "implied_by_cub.hpp": re.compile(r"(?s)error: name followed by .{1,300}\bcub::"),
    "implied_by_torch.hpp": re.compile(
        r"\b(?:at|c10|torch)::(?:Half|BFloat16|opmath_type|OpMathType|acc_type)\b|\bgpuAtomicAdd"
        r'|identifier "(?:WARP_(?:SHFL\w*|BALLOT)|C10_WARP_SIZE)" is undefined'
        r"|\b(?:Default|Restrict)PtrTraits|\bTensorAccessor|\bPackedTensorAccessor"
        r'|identifier "(?:__half2?|half2?|__nv_bfloat162?|nv_bfloat162?)" is undefined'
    ),
    "implied_by_nvcc.hpp": re.compile(
        r'identifier "(?:u?int(?:8|16|32|64|ptr)_t|uchar|ushort|uint|ulong|M_\w+|INFINITY|NAN|HUGE_VALF?|'
        r"CLOCKS_PER_SEC|"
        r'(?:FLT|DBL|U?INT|U?CHAR|U?SHRT|U?L?LONG)\w*_(?:MAX|MIN|EPSILON)|mem\w+|offsetof)" is undefined'
        r'|namespace "std" has no member|name must be a namespace name.*\n.*\busing namespace std\b'
    ),
}
# What <cuda.h> defines, which PyTorch's headers include.
_VERSION = {"CUDA_VERSION": "(1000 * __CUDACC_VER_MAJOR__ + 10 * __CUDACC_VER_MINOR__)"}
_INCLUDES_CUDA = re.compile(rb"#\s*include\s*[<\"]cuda\.h")
_MOST_ROUNDS = 30
_NAMES_SHOWN = 12
_Place = tuple[str, HostItem]


@dataclass(frozen=True)
class HostCode:
    """A `unit` and the items of its texts that are ``left_out``; ``needed`` are some that stay.

    ``implied`` are headers of ours that are included before the first line. ``called`` are functions that
    are deleted, so that the compiler shows the lines that call them.
    """

    unit: TranslationUnit
    search_path: Sequence[Path]
    left_out: frozenset[_Place] = frozenset()
    needed: frozenset[_Place] = frozenset()
    implied: tuple[str, ...] = ()
    called: frozenset[_Place] = frozenset()
    rounds: int = 0

    @classmethod
    def find(cls, unit: TranslationUnit, search_path: Sequence[Path]) -> HostCode:
        """Find the host code of `unit` that its text shows."""
        found = cls(unit, search_path)
        certain = frozenset(
            (name, item) for name, items in found.items.items() for item in items if found.is_host(name, item)
        )
        found = replace(found, left_out=certain)
        undecided = frozenset(filter(found.is_undecided, certain))
        return replace(found, left_out=certain - undecided, needed=undecided)

    @cached_property
    def texts(self) -> dict[str, bytes]:
        return {**self.unit.headers, self.unit.name: self.unit.source}

    @cached_property
    def items(self) -> dict[str, tuple[HostItem, ...]]:
        """The items of each text."""
        options = self.unit.options
        given = definitions_of(options.define, options.raw)
        macros = tuple(macro for text in (given, *self.texts.values()) for macro in find_macros(text))
        known = frozenset(macro.name for macro in macros)
        device = {macro.name for macro in macros if re.search(SPECIFIERS, macro.body)}
        if device:  # or else no argument of a macro declares anything for the device
            device |= {macro.name for macro in declaring_macros(macros)}
        words = [(macro.name, {*WORD.findall(macro.body)}) for macro in macros]
        while more := {name for name, used in words if used & device} - device:
            device |= more
        return {name: find_host_code(text, frozenset(device), known) for name, text in self.texts.items()}

    def is_host(self, name: str, item: HostItem) -> bool:
        """Return True if `item` surely is the host's; an include, if its header is and is not there."""
        if not item.name.startswith("#"):
            return item.certain
        header = self._header_of(name, item)
        if not _HOST_HEADERS.fullmatch(header) or header in self.unit.headers:
            return False
        return not any(os.path.isfile(directory / header) for directory in self.search_path)  # noqa: PTH113

    @cached_property
    def device_unit(self) -> TranslationUnit:
        """The unit without what is left out."""
        by_name: dict[str, list[HostItem]] = {}
        for place in self.left_out:
            name, item = place
            by_name.setdefault(name, []).append(item.deleted if place in self.called else item)
        texts = {
            name: leave_out(text, by_name[name]) if name in by_name else text
            for name, text in self.texts.items()
        }
        source = texts.pop(self.unit.name)
        options = self.unit.options
        define, left = options.define, (source, *texts.values())
        is_used = any(b"CUDA_VERSION" in text for text in left)
        if is_used and self.headers_left_out and not any(map(_INCLUDES_CUDA.search, left)):
            define = {**_VERSION, **define}
        implied = options._replace(pre_include=(*self.implied, *options.pre_include), define=define)
        return self.unit.replace(source=source, headers=texts, options=implied)

    def settled(self, log_of: Callable[[TranslationUnit], str]) -> HostCode:
        """Return this unit without what a compiler rejects, whose text about a unit `log_of` returns."""
        settled = self
        while following := settled.without_rejected(log_of(settled.device_unit)):
            settled = following
        return settled

    def __str__(self) -> str:
        """List what is left out."""
        names: dict[str, list[str]] = {}
        for name, item in sorted(self.left_out, key=lambda place: (place[0], place[1])):
            if item.name and item.edits[0].start < item.edits[-1].end:
                names.setdefault(name, []).append(f"{item.name} ({item.line})")
        shown = {name: [*dict.fromkeys(found)] for name, found in names.items()}
        lines = [f"{name}: {join_names(found, _NAMES_SHOWN)}" for name, found in shown.items()]
        return "\n".join(["host code left out, with its lines:", *lines]) if lines else ""

    def reasons(self) -> Iterator[str]:
        """Yield the reasons why functions of the host are in errors of the compiler."""
        for name, item in sorted(self.called):
            yield f"{name}({item.line}): {item.name} is host code; kernels need __device__ before it"
        for name, item in sorted(self.needed):
            if self.is_undecided((name, item)):
                yield (
                    f"{name}({item.line}): an unevaluated expression, such as decltype, may name "
                    f"{item.name}, and without it might mean another function; write __device__ before it, "
                    f"or set {spell_setting('compiler', 'nvcc')}"
                )

    @property
    def headers_left_out(self) -> set[str]:
        """The names of headers that are not read; the result may be another one once they exist."""
        return {self._header_of(*place) for place in self.left_out if place[1].name.startswith("#")}

    def without_rejected(self, log: str) -> HostCode | None:
        """Return this unit without the items that the errors in `log` are in; ``None`` if there are none.

        What device code turned out to need returns.
        """
        if self.rounds >= _MOST_ROUNDS and not self.called:
            return None
        following = replace(self, rounds=self.rounds + 1, called=frozenset())
        if self.called:
            return following._without_callers(self.called, log)
        if implied := self._implied_by(log):
            return replace(following, implied=(*self.implied, implied))
        rejected: set[_Place] = set()
        called: set[_Place] = set()
        missing: set[str] = set()
        for file, number, message in dict.fromkeys(match.groups() for match in _ERROR.finditer(log)):
            if "more than one instance of overloaded function" in message and "cuda::std::" in log:
                rejected.update(self._uses_of_std())
            elif places := self._declared_at(file, int(number), message):
                called |= places
            elif places := self._items_at(file, int(number), message):
                rejected |= places
            elif undefined := _UNDEFINED.search(message):
                missing.add(undefined[1] or undefined[2])
        undecided = {place for place in rejected if self.is_undecided(place)}
        needed = {place for place in self.left_out if place[1].name in missing} - self.needed
        if rejected - undecided:
            return replace(following, left_out=self.left_out | (rejected - undecided))
        if undecided:
            return replace(following, needed=self.needed | undecided)
        if needed:
            return replace(following, left_out=self.left_out - needed, needed=self.needed | needed)
        return replace(following, called=frozenset(called)) if called else None

    def _without_callers(self, called: frozenset[_Place], log: str) -> HostCode | None:
        """Return this unit without the items that call functions, by the errors in `log`.

        If only the device's code does, its errors are the last ones, or those of the functions themselves.
        """
        errors = [match for match in _ERROR.finditer(log) if "deleted function" in match[3]]
        callers = {place for error in errors for place in self._items_at(error[1], int(error[2]), error[3])}
        if callers and not any(self.is_undecided(place) for place in callers):
            return replace(self, left_out=self.left_out | callers)
        if errors and all(item.certain for _, item in called):
            return None
        return replace(self, left_out=self.left_out - called, needed=self.needed | called)

    def is_undecided(self, place: _Place) -> bool:
        """Return True if without `place`, an expression that is not evaluated might mean another function."""
        item = place[1]
        if not item.is_whole or not (self._is_function(place) or "::" in item.name):
            return False
        spelled = item.name.rpartition("::")[2]
        if sign := re.fullmatch(r"operator\s*(\W+)", spelled):
            return sign[1].strip() in self._unevaluated
        word = re.escape(spelled)
        used = rf"\b{word}\s*[({{<]|[&:]\s*{word}\b|[\w>]\s*\(\s*{word}\s*[,)]|,\s*{word}\s*[,)]"
        return re.search(used, self._unevaluated) is not None

    def _is_function(self, place: _Place) -> bool:
        """Return True if another item leaves the declaration of the one at `place`."""
        name, item = place
        return any(each.is_function and each.start == item.start for each in self.items[name])

    @cached_property
    def _unevaluated(self) -> str:
        """The text that is left in expressions that are not evaluated."""
        unit = self.device_unit
        given = definitions_of(unit.options.define, unit.options.raw)
        return " ".join(map(unevaluated_text, (given, unit.source, *unit.headers.values())))

    def _declared_at(self, file: str, line: int, message: str) -> set[_Place]:
        """Return the functions without a body whose declarations at `line` are those of an error."""
        if not (called := _NOT_DEFINED.search(message)):
            return set()
        spelled = "".join(called[1].split())
        return {
            (file, item)
            for item in self.items.get(file, ())
            if item.is_declared
            and item.line <= line <= item.last
            and (file, item) in self.left_out
            and "".join(item.name.split()) in spelled
        }

    def _implied_by(self, log: str) -> str:
        """Return the header of ours that declares what `log` misses; or nothing."""
        if not self.unit.options.std_headers or "error: " not in log:
            return ""
        missing = (
            name for name, pattern in _IMPLIED.items() if name not in self.implied and pattern.search(log)
        )
        return next(missing, "")

    def _uses_of_std(self) -> Iterator[_Place]:
        """Yield directives that make NVRTC's own functions ambiguous, as cuda::std has them, too."""
        for name, items in self.items.items():
            for item in items:
                if item.name == "using namespace std" and (name, item) not in self.left_out:
                    yield name, item

    def _items_at(self, file: str, line: int, message: str) -> set[_Place]:
        """Return the smallest item at `line` of `file` that may be left out because of `message`.

        For a file that is not the project's, these are the includes that lead to it.
        """
        if file not in self.texts:
            return self._includes_of(file) - self.needed
        inner = [
            (file, item)
            for item in self.items[file]
            if item.line <= line <= item.last and item.start < item.end
        ]
        if "cannot open source file" in message:  # an unknown header may be one that device code needs
            inner = [place for place in inner if _HOST_HEADERS.fullmatch(self._header_of(*place))]
        free = [place for place in inner if place not in self.left_out | self.needed]
        if not free or any(place in self.needed for place in inner):
            return set()
        return {min(free, key=lambda place: (place[1].end - place[1].start, not place[1].is_declared))}

    def _includes_of(self, file: str) -> set[_Place]:
        """Return the includes of the project that lead to `file`."""
        path = os.path.normpath(file)
        return {
            (name, item)
            for name, items in self.items.items()
            for item in items
            if item.name.startswith("#")
            and (name, item) not in self.left_out
            and path in _reachable(self._line_of(name, item), tuple(self.search_path))
        }

    def _header_of(self, name: str, item: HostItem) -> str:
        """Return the header that `item` includes."""
        named = find_includes(self._line_of(name, item)).named
        return named[0].name.removeprefix("./") if named else ""

    def _line_of(self, name: str, item: HostItem) -> bytes:
        lines = self.texts[name].split(b"\n")
        return b"\n".join(lines[item.line - 1 : item.last])


def compile_device_code(
    unit: TranslationUnit,
    search_path: Sequence[Path],
    log_of: Callable[[TranslationUnit], str],
    compile_unit: Callable[[TranslationUnit], tuple[CompiledImage, ...]],
) -> tuple[CompiledImage, ...]:
    """Compile `unit` without its host code, which the images and errors list.

    `log_of` returns the compiler's text about a unit.
    """
    settled = HostCode.find(unit, search_path).settled(log_of)
    try:
        images = compile_unit(settled.device_unit)
    except CompilationError as error:
        error.problem = _joined(error.problem, *settled.reasons(), str(settled))
        raise
    tested = frozenset(f"?{header}" for header in settled.headers_left_out)
    return tuple(
        replace(
            image,
            log=_joined(str(settled), image.log),
            trace=image.trace._replace(reads=image.trace.reads | tested),
        )
        for image in images
    )


def _joined(*texts: str) -> str:
    return "\n".join(filter(None, texts))


@lru_cache(maxsize=1000)
def _reachable(include: bytes, search_path: tuple[Path, ...]) -> frozenset[str]:
    """Return the headers to which a line leads that includes one."""
    return frozenset(reachable_headers(TranslationUnit("include.cu", include), search_path))
