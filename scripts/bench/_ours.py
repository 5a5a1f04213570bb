"""cuda_ext as a contender: fresh processes that do what ``pip install .`` has our code do."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench._checks import check_packages
from bench._measuring import Contender, Sample
from bench._processes import CORES, python, quiet_environment, run, scratch
from bench._workloads import Workload, copy_tree, tiny

__all__ = ["CLONE", "COLD", "NOTHING_CHANGED", "Bench", "child", "ours", "pip_wheel"]

COLD = "ours, cold"
NOTHING_CHANGED = "ours, nothing changed"
CLONE = "ours, warm cache, new clone"

_CHILD = Path(__file__).with_name("_child.py")


@dataclass(frozen=True, slots=True)
class Bench:
    """A directory to work in, and a cache that holds nothing but NVRTC's unpacked headers."""

    directory: Path
    headers: Path
    unpacking: float

    @classmethod
    def make(cls, directory: Path) -> Bench:
        """Build one tiny kernel twice: the first time unpacks the headers."""
        root = tiny(directory / "tiny", 1)
        headers = directory / "headers"
        first, second = (child(f"{i}", "build", root, directory / "lib", cache=headers) for i in range(2))
        return cls(directory, headers, first.seconds - second.seconds)

    def fresh_cache(self, directory: Path) -> Path:
        return Path(shutil.copytree(self.headers, directory))


def child(label: str, *arguments: object, cache: Path, **variables: object) -> Sample:
    """Run ``_child.py`` and take the sample that it tells."""
    environment = quiet_environment(CUDA_EXT_CACHE=cache, MAX_JOBS=CORES, **variables)
    ended = python(_CHILD, *arguments, environment=environment)
    told = json.loads(ended.output.splitlines()[-1])
    return Sample(label, ended.seconds, told["seconds"], told["imports"], told["peak_bytes"])


def ours(workload: Workload, bench: Bench) -> Contender:
    """Cold, then again, then in a clone at another place; in new directories every round."""

    def take_turn() -> Iterator[Sample]:
        with scratch(bench.directory) as directory:
            cache = bench.fresh_cache(directory / "cache")
            for label, place in ((COLD, "here"), (NOTHING_CHANGED, "here"), (CLONE, "there")):
                root = directory / place
                if not root.exists():
                    copy_tree(workload.root, root)
                sample = child(label, "build", root, root / "build" / "lib", cache=cache)
                check_packages(workload, root / "build" / "lib")
                yield sample

    return Contender("ours", take_turn)


def pip_wheel(workload: Workload, bench: Bench) -> Contender:
    """All of pip, setuptools and a cold build."""

    def take_turn() -> Iterator[Sample]:
        with scratch(bench.directory) as directory:
            cache = bench.fresh_cache(directory / "cache")
            root = copy_tree(workload.root, directory / "project")
            environment = quiet_environment(CUDA_EXT_CACHE=cache, MAX_JOBS=CORES)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
            options = ["--no-build-isolation", "--no-deps", "--wheel-dir", directory]
            ended = run([*pip, *options, root], environment=environment)
            (wheel,) = directory.glob("*.whl")
            shutil.unpack_archive(wheel, directory / "unpacked", "zip")
            check_packages(workload, directory / "unpacked")
            yield Sample("pip wheel, cold", ended.seconds)

    return Contender("pip wheel", take_turn)
