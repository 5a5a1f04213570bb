"""The command ``cuda-ext``, with a module for each of its commands.

An error is one message. The exit code is 0 for success, 1 for an error or a problem, 2 for wrong usage.
"""

from __future__ import annotations

import io
import os
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command that the arguments of this process name, and exit."""
    try:
        _run()
    except KeyboardInterrupt:  # before click handles it, or after
        sys.exit("\nAborted!")


def _open_closed_streams() -> None:
    """Discard what is written to a closed stream (``>&-``); its number would be that of the next file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            file = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which a closed stream had
            setattr(sys, name, os.fdopen(file, "w" if number else "r", encoding="utf-8"))


def _run() -> None:
    if sys.argv[1:] == ["cmake-dir"]:
        from cuda_ext.cli.cmake_dir import cmake_dir

        # CMake waits for it while it configures, possibly where no other package is installed.
        cmake_dir()
        return
    if find_spec("click") is None:
        sys.exit("cuda-ext needs click; install it with: pip install click")
    _open_closed_streams()
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not loaded
    except FileNotFoundError:
        sys.exit("the working directory was removed; change to one that exists")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack characters of a name
    from cuda_ext.cli.commands import commands

    commands()
