"""The cache never changes a build: damaged, full, bounded, read-only or removed, the packages are correct."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from cuda_ext.builder.session import build_project
from cuda_ext.cache.dependencies import DependencyCache, FileDigests
from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.store import pack
from cuda_ext.errors import BuildError
from cuda_ext.facts.codec import key_of
from tests.fixtures.caches import create_empty_cache
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.projects import build, load, write_project

pytestmark = pytest.mark.xdist_group("dependencies")

TABLE = """
[tool.cuda_ext]
architectures = ["sm_90", "compute_90"]
[tool.cuda_ext.modules."p.kernels"]
"""
FILES = {
    "device/common.cuh": "__device__ inline int one() { return 1; }\n",
    "device/a.cu": '#include "common.cuh"\nextern "C" __global__ void a(int* x) { *x = one(); }\n',
    "device/b.cu": 'extern "C" __global__ void b(int* x) { *x = 2; }\n',
}


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was built, with the cache of that build."""
    directory = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_EXT_CACHE", str(create_empty_cache(directory / "cache")))
        build(write_project(directory / "project", TABLE, FILES))
    return directory


@pytest.fixture
def cache(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with all entries of the project."""
    monkeypatch.setenv("CUDA_EXT_CACHE", str(tmp_path / "cache"))
    return shutil.copytree(built_once / "cache", tmp_path / "cache", symlinks=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project", TABLE, FILES)


def built(root: Path, lines: list[str] | None = None) -> Mapping[str, bytes]:
    return build(root, lines)["p.kernels"].files


def compilations(lines: list[str]) -> int:
    return sum(bool(re.match(r"\[ *\d+/", line)) for line in lines)


def entries(cache: Path) -> list[Path]:
    return sorted(path for path in (cache / "objects").glob("??/*") if path.is_file())


def header_changed(root: Path, number: int) -> None:
    (root / "device/common.cuh").write_text(f"__device__ inline int one() {{ return {number}; }}\n")


# Damage.


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "swapped"])
def test_a_completely_damaged_cache_does_not_change_the_package(
    project: Path, cache: Path, damage: str
) -> None:
    right = built(project)
    contents = [path.read_bytes() for path in entries(cache)]
    for number, path in enumerate(entries(cache)):
        content = contents[number]
        middle = len(content) // 2
        path.write_bytes(
            {
                "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
                "cut": content[:middle],
                "empty": b"",
                "swapped": contents[number - 1],
            }[damage]
        )
    lines: list[str] = []
    assert built(project, lines) == right
    assert compilations(lines) == 2
    assert built(project, lines := []) == right
    assert compilations(lines) == 0


def test_each_entry_may_be_missing(project: Path, cache: Path, tmp_path: Path) -> None:
    right = built(project)
    for path in entries(cache):
        content = path.read_bytes()
        path.unlink()
        assert built(project) == right, path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize("content", [b"", b"[[1]]", b"{}\n", b"\xff"])
def test_an_intact_entry_with_invalid_content_is_a_miss(project: Path, cache: Path, content: bytes) -> None:
    """Another version may have written the content."""
    right = built(project)
    for path in entries(cache):
        key = path.parent.name + path.name
        path.write_bytes(pack(key, content))
    assert built(project) == right


# Bounds and places.


@pytest.mark.parametrize("size", ["0", "1", "10K"])
def test_a_cache_may_be_as_small_as_one_likes(
    project: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    right = built(project)
    shutil.rmtree(cache / "objects")
    monkeypatch.setenv("CUDA_EXT_CACHE_SIZE", size)
    for _ in range(2):
        assert built(project) == right
    bound = {"0": 0, "1": 1, "10K": 10 << 10}[size]
    assert sum(path.stat().st_size for path in entries(cache)) <= bound


@needs_mount
def test_a_read_only_cache_is_used_no_more_and_costs_one_line(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        monkeypatch.setenv("CUDA_EXT_CACHE", str(create_empty_cache(disk / "cache")))
        right = built(project)
        header_changed(project, 2)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        lines: list[str] = []
        assert built(project, lines) != right
        assert sum("goes on without a cache" in line for line in lines) == 1


def test_a_cache_that_is_removed_during_a_build(project: Path, cache: Path) -> None:
    shutil.rmtree(cache / "objects")
    removed = []

    def remove(line: str) -> None:
        if line.startswith("["):
            shutil.rmtree(cache / "objects", ignore_errors=True)
            removed.append(line)

    [package] = build_project(load(project), remove)
    assert len(removed) == 2
    assert built(project) == package.files


# Full disks.

BUILD = """
import sys
import time
from pathlib import Path
from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
from cuda_ext.errors import BuildError, ManifestError
try:
    build_project(Project.load(Path(sys.argv[1])), print)
except BuildError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def user(root: Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(root)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_mount
def test_two_users_of_a_full_cache_get_one_warning_each_and_what_they_built(
    project: Path, tmp_path: Path
) -> None:
    other = write_project(tmp_path / "other", TABLE, {"device/c.cu": FILES["device/b.cu"].replace("2", "3")})
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=256k", "none") as disk:
        cache = create_empty_cache(disk / "cache")
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(1 << 20))
        os.truncate(filler, filler.stat().st_size - (16 << 10))
        users = [user(root, CUDA_EXT_CACHE=str(cache)) for root in (project, other)]
        for one in users:
            output, errors = one.communicate(timeout=300)
            assert (one.returncode, errors) == (0, "")
            assert output.count(f"{cache}: compiling goes on without a cache: No space left on device; ") == 1
        assert list(cache.glob("objects/??/.*")) == []
        filler.unlink()
        for root in (project, other):
            one = user(root, CUDA_EXT_CACHE=str(cache))
            _, errors = one.communicate(timeout=300)
            assert (one.returncode, errors) == (0, "")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUDA_EXT_CACHE", str(cache))
            from_cache = built(project)
            patch.setenv("CUDA_EXT_CACHE_SIZE", "0")
            assert built(project) == from_cache


@needs_mount
@pytest.mark.parametrize("room", [4, pytest.param(8, marks=pytest.mark.slow), 24])
def test_a_full_temporary_directory_is_one_error_without_damage(
    project: Path, cache: Path, tmp_path: Path, room: int
) -> None:
    shutil.rmtree(cache / "objects")
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=256k", "none") as disk:
        (disk / "filler").write_bytes(bytes((256 - room) << 10))
        one = user(project, TMPDIR=str(disk))
        _, errors = one.communicate(timeout=300)
        if one.returncode:
            last = errors.splitlines()[-1]
            assert str(disk) in last
            assert "free some space, or set TMPDIR to a directory with more" in last
        assert [path.name for path in disk.iterdir()] == ["filler"]
    # Nothing was kept as if it had read no header.
    header_changed(project, 2)
    after = built(project)
    shutil.rmtree(cache / "objects")
    assert built(project) == after


# Keys.


def test_fields_of_a_key_do_not_run_together() -> None:
    keys = [key_of("a", "b"), key_of("ab"), key_of("ab", ""), key_of("ab", None), key_of(), key_of("", "ab")]
    assert len(set(keys)) == len(keys)
    assert key_of("ä", b"x") == key_of("ä".encode(), "x")


@pytest.fixture
def contents(tmp_path: Path) -> DependencyCache:
    (tmp_path / "store").mkdir()
    return DependencyCache(LocalStore(tmp_path / "store", 1 << 30, pytest.fail))


KEY = key_of("key")


def test_content_is_found_by_the_files_that_its_names_resolve_to(contents: DependencyCache) -> None:
    contents.keep(KEY, ["a", "b"], {"a": "1", "b": None}.get, b"first")
    contents.keep(KEY, ["a", "b"], {"a": "2", "b": None}.get, b"second")
    contents.keep(KEY, ["a"], {"a": "3"}.get, b"third")
    for names, content in [({"a": "1"}, b"first"), ({"a": "2"}, b"second"), ({"a": "3", "b": "x"}, b"third")]:
        known = contents.find(KEY, names.get, bytes)
        assert known
        assert known.content == content
    assert contents.find(KEY, {"a": "1", "b": "appeared"}.get, bytes) is None
    assert contents.find(KEY, {}.get, bytes) is None
    assert contents.find(key_of("another"), {"a": "1"}.get, bytes) is None


def test_content_that_cannot_be_decoded_is_not_known(contents: DependencyCache) -> None:
    def refuse(content: bytes) -> bytes:
        raise BuildError("not a record")

    contents.keep(KEY, ["a"], {"a": "1"}.get, b"content")
    assert contents.find(KEY, {"a": "1"}.get, refuse) is None


def test_so_many_sets_of_names_are_kept(contents: DependencyCache) -> None:
    for number in range(20):
        contents.keep(KEY, [f"name{number}"], {f"name{number}": "1"}.get, b"%d" % number)
    found = [n for n in range(20) if contents.find(KEY, {f"name{n}": "1"}.get, bytes)]
    assert found == list(range(12, 20))
    assert len(contents._entry(KEY).names) == 8


def test_digests_are_those_of_the_contents(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store", 1 << 30, pytest.fail)
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_bytes(b"same")
        os.utime(path, (1, 1))

    def digest(path: Path) -> str | None:
        digests = FileDigests(store)
        found = digests(str(path))
        digests.save()
        return found

    assert digest(one) == digest(one) == digest(other)
    assert digest(tmp_path / "missing") is digest(tmp_path) is None
    same = digest(one)
    status = one.stat()
    one.write_bytes(b"emas")
    os.utime(one, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest(one) != same


def test_a_file_is_settled_until_it_changes_or_disappears(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    time.sleep(0.05)  # the clock of the file system may be this much behind
    digests = FileDigests(LocalStore(tmp_path / "store", 1 << 30, pytest.fail))
    assert digests.is_settled(str(file))
    time.sleep(0.05)
    file.write_bytes(b"content")
    assert not digests.is_settled(str(file))
    digests.begin()
    assert digests.is_settled(str(file))
    file.unlink()
    assert not digests.is_settled(str(file))
