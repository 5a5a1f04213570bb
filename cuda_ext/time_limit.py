"""``CUDA_EXT_TIMEOUT``, the time limit of compilations, and calls with a time limit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cuda_ext.errors import CompilationError, ConfigError, ToolchainError

if TYPE_CHECKING:
    _T = TypeVar("_T")

_DEFAULT = 3600
_DIGITS = 6
# Compilers recurse deeply, and threads have little stack where `ulimit -s` is unlimited.
_STACK = 64 << 20


def time_limit(environ: Mapping[str, str]) -> int:
    """Return the seconds that one compilation may take. Raises :class:`ConfigError`."""
    text = environ.get("CUDA_EXT_TIMEOUT", "").strip()
    if not text:
        return _DEFAULT
    digits = text.lstrip("0")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
        raise ConfigError(
            f"{text!r} is not a number of seconds",
            where="CUDA_EXT_TIMEOUT",
            remedy=f"write a whole one from 1 to {10**_DIGITS - 1}",
        )
    return int(digits)


def too_slow(what: str, seconds: float) -> CompilationError:
    """Return the error for the compilation of `what`, which exceeded its limit."""
    return CompilationError(
        f"the compilation did not end within {seconds:.0f} seconds",
        where=what,
        remedy="look for headers that include themselves, and for templates and loops without an end; if it "
        "needs more time, set CUDA_EXT_TIMEOUT to more seconds",
    )


def call_within(seconds: float | None, function: Callable[..., _T], *arguments: Any) -> _T:
    """Call `function` in its own thread, and wait for it; at most `seconds`, if that is given.

    Raises :class:`TimeoutError` after that. The thread then continues until the process ends. If no thread
    can be started, as in isolated subinterpreters, `function` is called without a limit.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function(*arguments))
        except BaseException as error:
            errors.append(error)

    thread = _start(run)
    if thread is None:
        return function(*arguments)
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:.0f} seconds")
    return results[0]


def _start(run: Callable[[], None]) -> threading.Thread | None:
    with _starting:
        usual = threading.stack_size(_STACK)
        try:
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
        except RuntimeError:
            return None
        finally:
            threading.stack_size(usual)
    return thread


def compile_within(what: str, function: Callable[[], _T]) -> _T:
    """Call `function`, which compiles `what` in this process, within the time limit.

    Raises :class:`CompilationError` if it takes longer. Compilers cannot be interrupted, so the thread goes
    on. Raises :class:`ToolchainError` in a process that was forked during a compilation, since compilers
    would wait forever for their own locks there.
    """
    if _was_forked_meanwhile:
        raise ToolchainError(
            "nothing can be compiled in a process that was forked while another thread compiled",
            where=what,
            remedy='compile before, or start processes with multiprocessing.get_context("spawn")',
        )
    seconds, compilation = time_limit(os.environ), object()

    def count() -> _T:
        _compilations.add(compilation)
        try:
            return function()
        finally:
            _compilations.discard(compilation)

    try:
        return call_within(seconds, count)
    except TimeoutError:
        raise too_slow(what, seconds) from None


_starting = threading.Lock()
# The compilations that run in threads of this process.
_compilations: set[object] = set()
_was_forked_meanwhile = False


def _after_fork() -> None:
    global _starting, _was_forked_meanwhile
    _starting = threading.Lock()
    _was_forked_meanwhile = bool(_compilations)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
