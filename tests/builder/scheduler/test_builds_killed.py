"""Interrupted and killed builds: no partial output, and no remaining files or processes."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from cuda_ext.facts.manifest import loads
from tests.fixtures.caches import create_empty_cache
from tests.fixtures.projects import build, write_project

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which processes there are")

# The build is right after each of so many kills; the release is tested with 50.
KILLS = int(os.environ.get("CUDA_EXT_TEST_KILLS", "8"))

DRIVER = """
import sys
from pathlib import Path
from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
print("started", flush=True)
for package in build_project(Project.load(Path(sys.argv[1])), lambda line: print(line, flush=True)):
    package.write(Path(sys.argv[2]).joinpath(*package.name.split(".")))
"""
TABLE = """
[tool.cuda_ext]
compiler = "{}"
architectures = ["sm_80", "sm_90"]
[tool.cuda_ext.modules."p.kernels"]
"""
QUICK = 'extern "C" __global__ void quick{0}(int* x) {{ *x = {0}; }}\n'
# Takes the compiler much longer than any test waits.
SLOW = """
template <int N> struct F {
  static __device__ int f(int x) { return F<N - 1>::f(x * N + 1) + F<N - 2>::f(x + N); }
};
template <> struct F<0> { static __device__ int f(int x) { return x; } };
template <> struct F<1> { static __device__ int f(int x) { return x; } };
extern "C" __global__ void slow(int* x) { *x = F<28>::f(*x); }
"""


class Place:
    """A project with its own cache and directories for temporary files and packages."""

    def __init__(self, directory: Path, compiler: str = "nvrtc", **sources: str) -> None:
        self.root = directory / "project"
        self.cache = directory / "cache"
        self.temporary = directory / "tmp"
        self.packages = directory / "lib"
        files = {f"device/{name}.cu": text for name, text in sources.items()}
        write_project(self.root, TABLE.format(compiler), files)
        self.temporary.mkdir()
        self.forget()

    def forget(self) -> None:
        """Remove all entries of the cache."""
        shutil.rmtree(self.cache / "objects", ignore_errors=True)
        create_empty_cache(self.cache)

    def start(self, packages: Path | None = None, **environ: str) -> subprocess.Popen[str]:
        """Start a build in its own process group, like a job of a terminal."""
        own = {"TMPDIR": str(self.temporary), "CUDA_EXT_CACHE": str(self.cache), "MAX_JOBS": "2"}
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(self.root), str(packages or self.packages)],
            cwd=Path(__file__).parents[3],
            env={**os.environ, **own, **environ},
            process_group=0,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, packages: Path | None = None, **environ: str) -> dict[str, bytes]:
        """The package of an uninterrupted build."""
        started = self.start(packages, **environ)
        _, errors = started.communicate(timeout=300)
        assert started.returncode == 0, errors
        self.check_nothing_is_left()
        return package_in(packages or self.packages)

    def check_nothing_is_left(self) -> None:
        """Check that no process of the build is running, and that it left no files."""
        end = time.monotonic() + 60
        while (left := processes(self.temporary)) and time.monotonic() < end:
            time.sleep(0.02)
        assert left == {}
        assert list(self.temporary.iterdir()) == []


def processes(temporary: Path) -> dict[int, str]:
    """Return the processes with temporary files below `temporary`."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TMPDIR={temporary}".encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")[:200]
    return found


def package_in(packages: Path) -> dict[str, bytes]:
    """Check that the package is complete and undamaged; return its files."""
    directory = packages / "p/kernels"
    files = {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}
    if files:
        for unit in loads(files["manifest.json"], "manifest").units:
            for image in unit.images:
                assert hashlib.sha256(files[image.file]).hexdigest() == image.sha256
    return files


def built_elsewhere(place: Place, directory: Path) -> Mapping[str, bytes]:
    """The package that a build without a cache writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_EXT_CACHE_SIZE", "0")
        shutil.copytree(place.root, directory)
        return build(directory)["p.kernels"].files


def first_compilation(started: subprocess.Popen[str]) -> None:
    """Wait until something was compiled, and something else is being compiled."""
    assert started.stdout
    for line in started.stdout:
        if line.startswith("["):
            time.sleep(0.3)
            return
    raise AssertionError(started.communicate()[1])


def running(temporary: Path, program: str) -> None:
    """Wait until `program`, which nvcc starts, has begun in earnest."""
    end = time.monotonic() + 60
    while not any(f"/{program} " in command for command in processes(temporary).values()):
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(1)


@pytest.fixture
def reaped() -> Iterator[list[subprocess.Popen[str]]]:
    """Builds that are ended even if the test fails."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


NVCC = pytest.mark.host_compiler


@pytest.mark.parametrize(
    ("compiler", "number", "group"),
    [
        pytest.param("nvrtc", signal.SIGINT, True, id="ctrl-c"),
        pytest.param("nvrtc", signal.SIGINT, False, id="interrupted"),
        pytest.param("nvrtc", signal.SIGTERM, False, id="terminated"),
        pytest.param("nvrtc", signal.SIGKILL, False, id="killed"),
        pytest.param("nvcc", signal.SIGINT, True, id="nvcc ctrl-c", marks=[NVCC, pytest.mark.slow]),
        pytest.param("nvcc", signal.SIGKILL, False, id="nvcc killed", marks=NVCC),
    ],
)
def test_a_signal_ends_all_of_a_build(
    tmp_path: Path, reaped: list[subprocess.Popen[str]], compiler: str, number: int, group: bool
) -> None:
    place = Place(
        tmp_path, compiler, slow=SLOW, **({"quick": QUICK.format(0)} if compiler == "nvrtc" else {})
    )
    # Two workers compile the slow source, for two architectures, and one the quick one.
    started = place.start(MAX_JOBS="3")
    reaped.append(started)
    if compiler == "nvrtc":
        first_compilation(started)
    else:
        running(place.temporary, "cicc")
    assert len(processes(place.temporary)) > 1
    os.killpg(started.pid, number) if group else started.send_signal(number)
    started.communicate(timeout=300)
    assert started.returncode in (-number, 128 + number, 1)
    place.check_nothing_is_left()
    assert not place.packages.exists()
    assert list(place.cache.glob("objects/tmp/*")) == []


@pytest.mark.slow
def test_an_interrupted_build_continues_where_it_stopped(
    tmp_path: Path, reaped: list[subprocess.Popen[str]]
) -> None:
    place = Place(tmp_path, **{f"quick{i}": QUICK.format(i) for i in range(6)})
    started = place.start()
    reaped.append(started)
    first_compilation(started)
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=300)
    again = place.start()
    output, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    # Six units, each for two architectures.
    compiled = re.search(r"(\d+) compiled", output)
    assert compiled is None or int(compiled[1]) < 12
    assert package_in(place.packages) == built_elsewhere(place, tmp_path / "elsewhere")


def test_builds_that_are_killed_at_any_moment(tmp_path: Path, reaped: list[subprocess.Popen[str]]) -> None:
    """The package is the old or the new one, and the cache is correct."""
    place = Place(tmp_path, **{f"quick{i}": QUICK.format(i) for i in range(3)})
    begin = time.monotonic()
    versions = [place.finish()]
    duration = time.monotonic() - begin
    text = QUICK.format(0).replace("*x =", "*x +=")
    versions.append(place_changed(place, text).finish())
    assert versions == [
        built_elsewhere(place_changed(place, QUICK.format(0)), tmp_path / "one"),
        built_elsewhere(place_changed(place, text), tmp_path / "other"),
    ]
    moments = random.Random(KILLS)
    for kill in range(KILLS):
        now = kill % 2
        place_changed(place, (QUICK.format(0), text)[now])
        place.forget()
        started = place.start()
        reaped.append(started)
        time.sleep(moments.uniform(0, duration))
        started.kill()
        started.communicate()
        place.check_nothing_is_left()
        assert package_in(place.packages) in versions
        if kill % 4 == 3:
            assert place.finish() == versions[now]
            assert sorted(p.name for p in (place.packages / "p").iterdir()) == ["kernels"]
    assert place.finish(tmp_path / "again") == versions[(KILLS - 1) % 2]


def place_changed(place: Place, text: str) -> Place:
    (place.root / "device/quick0.cu").write_text(text)
    return place


# Many at once.


@pytest.mark.parametrize("separate", [False, True], ids=["one place", "places of their own"])
@pytest.mark.slow
def test_eight_builds_of_one_tree(
    tmp_path: Path, reaped: list[subprocess.Popen[str]], separate: bool
) -> None:
    place = Place(tmp_path, **{f"quick{i}": QUICK.format(i) for i in range(3)})
    places = [tmp_path / f"lib{number}" if separate else place.packages for number in range(8)]
    started = [place.start(packages, MAX_JOBS="1") for packages in places]
    reaped += started
    for one in started:
        _, errors = one.communicate(timeout=300)
        assert (one.returncode, errors) == (0, "")
    place.check_nothing_is_left()
    expected = built_elsewhere(place, tmp_path / "elsewhere")
    for packages in places:
        assert package_in(packages) == expected
        assert [p.name for p in (packages / "p").iterdir()] == ["kernels"]
    assert list(place.cache.glob("objects/tmp/*")) == []
