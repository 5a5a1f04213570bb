"""Build, install and run ``example_project`` as a user would: ``python scripts/demo.py``.

Needs Python 3.11 and pip, but no CUDA toolkit, host compiler or GPU. All files are in ``.demo``.
"""

from __future__ import annotations

import shutil
import sys

from _environment import ROOT, Environment, step

WORK = ROOT / ".demo"


def main() -> int:
    step("creating a virtual environment")
    shutil.rmtree(WORK, ignore_errors=True)
    environment = Environment(WORK / "venv")
    wheels = WORK / "wheels"

    step("building the wheel of cuda-ext")
    environment.pip("wheel", "--no-deps", "--wheel-dir", wheels, ROOT)
    (cuda_ext,) = wheels.glob("cuda_ext-*.whl")
    # The isolated build must install this cuda-ext and no version from the registry.
    constraint = WORK / "constraint.txt"
    constraint.write_text(f"cuda-ext=={cuda_ext.name.split('-')[1]}\n", encoding="utf-8")
    this_version = {
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONSTRAINT": str(constraint),
        "PIP_BUILD_CONSTRAINT": str(constraint),
    }

    step("building the wheel of example_project in isolation")
    environment.pip("wheel", "--no-deps", "--wheel-dir", wheels, ROOT / "example_project", **this_version)
    (example,) = wheels.glob("example_project-*.whl")
    print(f"{example.name}: {example.stat().st_size / 1024:.0f} KiB")

    step("installing it")
    environment.pip("install", cuda_ext, f"{example}[demo]")

    step("python -m example_project")
    return environment.run("-m", "example_project", cwd=WORK)


if __name__ == "__main__":
    sys.exit(main())
