"""``python -m cuda_ext.integrations.cmake``: one step of a build, run by CMake."""

from __future__ import annotations

import signal
import sys

# An interrupted step ends silently, as compilers do; its child processes receive the signal, too.
signal.signal(signal.SIGINT, signal.SIG_DFL)


def _main() -> int:
    from cuda_ext.integrations.cmake.steps import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
