"""``python -m cuda_ext``: ``cmake-dir`` prints where CMake finds ``CudaExt``."""

from __future__ import annotations

import argparse
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m cuda_ext")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("cmake-dir", help="print the directory for CMAKE_PREFIX_PATH")
    parser.parse_args()
    print((Path(__file__).parent / "cmake").as_posix())
