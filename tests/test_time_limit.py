"""No compilation lasts longer than CUDA_EXT_TIMEOUT, wherever it runs, and the error names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ext.errors import BuildError, CompilationError, ConfigError
from cuda_ext.time_limit import call_within, time_limit
from cuda_ext.toolchain import process
from tests.fixtures.projects import SM_90, build, write_project

TABLE = f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n'
# The front end of a compiler needs 2^60 instantiations for it.
ENDLESS = """
template <int A, int B> struct Sum {
  static constexpr long value = Sum<A - 1, B>::value + Sum<A - 1, B + A>::value;
};
template <int B> struct Sum<0, B> { static constexpr long value = B; };
__global__ void endless(long* x) { *x = Sum<60, 0>::value; }
"""


def test_a_build_ends_the_compilation_and_names_it(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write_project(tmp_path, TABLE, {"device/short.cu": "__global__ void ok(int* x) { *x = 1; }\n"})
    build(project)  # however long it takes
    (project / "device/endless.cu").write_text(ENDLESS)
    monkeypatch.setenv("CUDA_EXT_TIMEOUT", "1")
    with pytest.raises(BuildError) as caught:
        build(project)
    assert "device/endless.cu" in str(caught.value)
    assert "did not end within 1 seconds" in str(caught.value)
    assert "set CUDA_EXT_TIMEOUT to more seconds" in str(caught.value)
    assert "short.cu" not in str(caught.value)


def test_a_program_is_ended_with_what_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    command = ["sh", "-c", "(echo started; sleep 60; echo alive) >pipe & wait"]
    environ = {**os.environ, "CUDA_EXT_TIMEOUT": "1"}
    with pytest.raises(CompilationError, match=r"a\.cu: the compilation did not end within 1 seconds"):
        process.run(command, environ=environ, directory=tmp_path, compiles="a.cu")
    os.set_blocking(pipe, True)
    with os.fdopen(pipe) as file:  # until all who have it open have ended
        assert file.read() in ("started\n", "")


def test_the_output_of_a_program_is_bounded() -> None:
    command = ["sh", "-c", "head -c 40000000 /dev/zero"]
    assert len(process.run(command, environ=os.environ).output) < 20_000_000


COMPILE = f"""
import os, sys, threading, time
import cuda_ext
from cuda_ext import errors, time_limit

os.environ |= {{"CUDA_EXT_CACHE_SIZE": "0"}}
def compile(source="__global__ void one(int* x) {{}}"):
    return cuda_ext.compile(source, architectures=["sm_90"], name="sample")
def attempt(*source):
    try:
        print(compile(*source))
    except errors.BuildError as error:
        print(type(error).__name__, error)
def in_fork(function):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        function()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
ENDLESS = {ENDLESS!r}
"""


def run(script: str, **environ: str) -> list[str]:
    command = [sys.executable, "-c", COMPILE + script]
    ended = subprocess.run(
        command, env=os.environ | environ, capture_output=True, text=True, check=True, timeout=300
    )
    return ended.stdout.splitlines()


def test_a_program_goes_on_without_an_endless_compilation() -> None:
    """The thread that compiles does not keep the process from its end."""
    (line,) = run("attempt(ENDLESS)", CUDA_EXT_TIMEOUT="1")
    assert line.startswith("CompilationError sample.cu: the compilation did not end within 1 seconds; ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_fork_after_a_compilation_compiles_and_one_during_it_says_why_it_cannot() -> None:
    script = """
attempt()
in_fork(attempt)
threading.Thread(target=attempt, args=[ENDLESS], daemon=True).start()
while not time_limit._compilations:
    time.sleep(0.01)
in_fork(attempt)
"""
    first, child, last = run(script)
    assert first == child == "<kernels of sample: one>"
    assert last.startswith(
        "ToolchainError sample.cu: nothing can be compiled in a process that was forked while another thread "
        "compiled; "
    )


def test_an_interrupt_ends_the_wait_for_a_compilation() -> None:
    script = """
import signal
def interrupt():
    while not time_limit._compilations:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=interrupt).start()
try:
    compile(ENDLESS)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(script) == ["interrupted"]


@pytest.mark.parametrize(("text", "seconds"), [("", 3600), (" 5 ", 5), ("007", 7), ("999999", 999999)])
def test_the_limit_is_a_number_of_seconds(text: str, seconds: int) -> None:
    assert time_limit({"CUDA_EXT_TIMEOUT": text}) == seconds


@pytest.mark.parametrize(
    "text", ["0", "-1", "1.5", "1000000", "9" * 5000, "1h", "inf", "nan", "²", "٣", "1_0"]
)
def test_any_other_limit_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"CUDA_EXT_TIMEOUT: '.*' is not a number of seconds; write"):
        time_limit({"CUDA_EXT_TIMEOUT": text})


def test_the_exception_of_a_call_in_a_thread_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        call_within(None, lambda: 1 // 0)
    with pytest.raises(SystemExit):
        call_within(5, sys.exit, 3)


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="its ctypes refuses isolated subinterpreters")
def test_an_isolated_subinterpreter_compiles() -> None:
    """It has no daemon threads, and no limit."""
    script = """
try:
    import _interpreters
    run = _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    run = _interpreters.run_string
run(_interpreters.create(), f'''
import os, sys
os.environ["CUDA_EXT_CACHE_SIZE"] = "0"
sys.path[:] = {sys.path!r}
import cuda_ext
print(cuda_ext.compile("__global__ void one(int* x) {{}}", architectures=["sm_90"], name="sample"))
''')
"""
    assert run(script) == ["<kernels of sample: one>"]
