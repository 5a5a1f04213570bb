"""The command ``cuda-ext``, with a module for each of its commands.

An error is one message. The exit code is 0 for success, 1 for an error or a problem, 2 for wrong usage.
"""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command that the arguments of this process name, and exit."""
    try:
        _run()
    except KeyboardInterrupt:  # before click handles it, or after
        sys.exit("\nAborted!")


def _run() -> None:
    if sys.argv[1:] == ["cmake-dir"]:
        from cuda_ext.cli.cmake_dir import cmake_dir

        # CMake waits for it while it configures, possibly where no other package is installed.
        cmake_dir()
        return
    if find_spec("click") is None:
        sys.exit("cuda-ext needs click; install it with: pip install click")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack characters of a name
    from cuda_ext.cli.commands import commands

    commands()
