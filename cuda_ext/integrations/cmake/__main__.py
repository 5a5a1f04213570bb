"""``python -m cuda_ext.integrations.cmake``: one step of a build, run by CMake."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from cuda_ext.integrations.cmake.steps import main

        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # an interrupted step ends silently, as compilers do
        sys.exit(130)
