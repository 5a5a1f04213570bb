"""``python -m cuda_ext.integrations.cmake``: one step of a build."""

from __future__ import annotations

import signal
import sys

# Interrupted, a step ends without a word, as a compiler does. What it started ends with it.
signal.signal(signal.SIGINT, signal.SIG_DFL)


def _main() -> int:
    from cuda_ext.integrations.cmake.steps import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
