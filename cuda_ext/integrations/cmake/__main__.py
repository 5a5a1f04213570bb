"""``python -m cuda_ext.integrations.cmake``: one step of a build, run by CMake."""

from __future__ import annotations

import signal
import sys

# An interrupted step ends silently, as compilers do; its child processes receive the signal, too.
signal.signal(signal.SIGINT, signal.SIG_DFL)

if __name__ == "__main__":
    from cuda_ext.integrations.cmake.steps import main

    sys.exit(main(sys.argv[1:]))
