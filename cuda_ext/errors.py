"""Every exception that a user can meet.

Each exception has a problem, its place (a key path or ``file:line``), and a remedy. Only this module formats
its text. Driver errors say what was found, what was needed, and what to do. Any other exception that reaches
the end of a command is a defect of this package, and :func:`describe_error` reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import ParamSpec, TypeVar

    _P = ParamSpec("_P")
    _R = TypeVar("_R")

__all__ = [
    "ArgumentError",
    "BuildError",
    "CacheWarning",
    "CompilationError",
    "ConfigError",
    "CudaExtError",
    "DriverCallError",
    "DriverError",
    "DriverTooOldError",
    "FatbinError",
    "KernelNotFoundError",
    "LaunchError",
    "LoadError",
    "ManifestError",
    "NoDeviceError",
    "NoDriverError",
    "NoImageError",
    "PtxTooNewError",
    "StoreError",
    "TileIrError",
    "ToolchainError",
    "closest_name",
    "describe_error",
    "did_you_mean",
    "escape_controls",
    "join_errors",
    "join_names",
    "shorten",
]


class CudaExtError(Exception):
    """Base class of this package's exceptions.

    ``problem`` says what is wrong, ``where`` is a key path, a ``file:line`` or a name, and ``remedy`` says
    what to do; the latter two may be empty. The text is ``where: problem; remedy``. If the problem has
    indented lines, the remedy has a line of its own.
    """

    def __init__(self, problem: str, *, where: str | Path = "", remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = str(where)
        self.remedy = remedy

    @property
    def statement(self) -> str:
        """The text without the remedy."""
        return f"{self.where}: {self.problem}" if self.where else self.problem

    def __str__(self) -> str:
        separator = "\n" if "\n " in self.problem else "; "
        text = f"{self.statement}{separator}{self.remedy}" if self.remedy else self.statement
        return escape_controls(text)


class BuildError(CudaExtError):
    """The build failed."""


class ConfigError(BuildError):
    """A key of ``[tool.cuda_ext]`` is wrong; the message begins with its path."""


class ToolchainError(BuildError):
    """A compiler or a library of the tool chain is missing or unusable."""


class CompilationError(BuildError):
    """The compiler refused a translation unit; the message contains the compiler's own text.

    ``commands`` are the command lines of the compiler, if a build ran it. ``targets`` are the architectures
    for which it failed. ``reasons`` are the source and the
    compiler's texts, if the message also says for which architectures it was compiled; the message is about
    ``compilations`` then.
    """

    commands: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    compilations: int = 0


class CacheWarning(UserWarning):
    """The cache cannot keep kernels compiled on demand, so the next process compiles them again."""


class StoreError(BuildError):
    """There is no place for the cache."""


class FatbinError(CudaExtError):
    """Bytes that should be a fatbin are not one, or are damaged."""


class ManifestError(CudaExtError):
    """A module's manifest is missing, damaged, or from a newer version of this package."""


class DriverError(CudaExtError):
    """The CUDA driver is missing, unusable, or refused a request."""


class DriverCallError(DriverError):
    """A function of the driver failed; ``code`` is its ``CUresult``."""

    def __init__(self, problem: str, code: int = 0, *, where: str | Path = "", remedy: str = "") -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.code = code


class NoDriverError(DriverError):
    """There is no driver library on this machine."""


class DriverTooOldError(DriverError):
    """The driver is older than the images need."""


class NoDeviceError(DriverError):
    """There is a driver, but no GPU that it can use."""


class LoadError(DriverError):
    """The driver refused to load an image."""


class NoImageError(LoadError):
    """The module holds no image that the GPU can run."""


class PtxTooNewError(LoadError):
    """Only PTX fits the GPU, and this driver is older than the PTX."""


class TileIrError(LoadError):
    """Only Tile IR fits the GPU, and this driver does not compile it."""


class LaunchError(DriverError):
    """The driver refused or failed a launch."""


class KernelNotFoundError(CudaExtError, AttributeError, KeyError):
    """The module has no kernel, symbol or instantiation of that name.

    It is also an :class:`AttributeError` and a :class:`KeyError`, so that ``hasattr`` and mapping-style
    lookups behave as everywhere else.
    """


class ArgumentError(CudaExtError, TypeError, ValueError):
    """An argument of a launch does not fit the kernel's signature; nothing reached the GPU.

    ``signature`` is the kernel's signature, if it is known. ``is_missing`` is true if another kernel, which
    was not built, may take the argument; ``needed`` are constants that it would have.
    """

    is_missing = False
    needed: Mapping[str, int] = {}

    def __init__(self, problem: str, *, where: str = "", remedy: str = "", signature: str = "") -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.signature = signature

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n  in a launch of {self.signature}" if self.signature else text


def join_errors(errors: Iterable[BuildError]) -> str:
    """Join the texts of `errors`. Of several errors with the same reasons, show one and count the others."""
    groups: dict[object, list[BuildError]] = {}
    for error in errors:
        reasons = error.reasons if isinstance(error, CompilationError) else ()
        groups.setdefault(reasons or str(error), []).append(error)
    return "\n\n".join(map(_first_of, groups.values()))


def _first_of(errors: list[BuildError]) -> str:
    first, *others = errors
    count = sum(error.compilations for error in others if isinstance(error, CompilationError))
    return f"{first}\n(other compilations with this error: {count})" if count else str(first)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'axpy'?`` with the most similar known name, or an empty string."""
    close = closest_name(name, known)
    return f"did you mean {close!r}?" if close else ""


def closest_name(name: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """Return the most similar known name, or an empty string; `similarity` is from 0 to 1."""
    import difflib  # slow to import

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=similarity)
    return close[0] if close else ""


def join_names(names: Iterable[str], most: int = 20) -> str:
    """Join `names` for a message, but at most `most` of them."""
    first = list(names)
    more = f" and {len(first) - most:,} more" if len(first) > most else ""
    return ", ".join(first[:most]) + more


def escape_controls(text: str) -> str:
    """Spell the control characters of `text` as Python does, except tabs and ends of lines.

    Terminals obey control characters, and some of these reorder the text around them. A lone surrogate stands
    for a byte of a file name that is not UTF-8.

    >>> escape_controls("red\\x1b[31m, \\udcff\\n")
    'red\\\\x1b[31m, \\\\udcff\\n'
    """
    if text.isprintable():
        return text
    import re  # slow to import

    controls = r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
    return re.sub(controls, lambda match: repr(match[0])[1:-1], text)


def shorten(text: str, most: int = 200) -> str:
    """Cut a `text` to at most `most` characters, for a message."""
    return text if len(text) <= most else f"{text[:most]}…"


def starts_nothing(error: BaseException | None) -> bool:
    """Return True if `error` says that the system starts no more threads or processes for this user."""
    return isinstance(error, BlockingIOError) or str(error) == "can't start new thread"


def without_frames(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Raise the errors of `function` without its frames, which tell users nothing: their line called it."""
    from functools import wraps

    @wraps(function)
    def call(*arguments: _P.args, **keywords: _P.kwargs) -> _R:
        __tracebackhide__ = True  # pytest and IPython leave the frame out
        try:
            return function(*arguments, **keywords)
        except CudaExtError as error:
            raise error.with_traceback(None) from error.__cause__

    return call


# The packages that the extras for building install, by their import names.
_ONLY_TO_BUILD = ("cuda", "jinja2", "platformdirs", "zstandard")


def describe_error(error: BaseException) -> str:
    """Return the message for an `error` that ends a command.

    An error of this package or of the system is a message by itself, and so is a missing package that only
    building needs. All others are defects: the message is one line, and names a file with the traceback.
    """
    if isinstance(error, CudaExtError):
        return str(error)
    if isinstance(error, OSError) and error.strerror and not starts_nothing(error):
        return escape_controls(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in _ONLY_TO_BUILD:
        return f'{error.name} is not installed; install "cuda-ext[cu13]" (or "cuda-ext[cu12]")'
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if starts_nothing(error):
        return "the system starts no more threads or processes; raise the limit (ulimit -u), or use -j 1"
    import tempfile
    import traceback

    report = "".join(traceback.format_exception(error))
    lines = traceback.format_exception_only(error)[-1].splitlines()
    problem = f"a defect of cuda_ext: {escape_controls(lines[0] if lines else repr(error))}"
    try:
        with tempfile.NamedTemporaryFile(prefix="cuda_ext-", suffix=".txt", delete=False) as file:
            file.write(report.encode(errors="backslashreplace"))
    except OSError:
        return f"{problem}; please report it with all of this:\n{escape_controls(report)}"
    return f"{problem}; please report it with the file {file.name}"
