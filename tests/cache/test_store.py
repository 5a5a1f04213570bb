"""The store returns entries unchanged or not at all; only a full disk is an error."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import fsspec
import platformdirs
import pytest

from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.location import local_directory
from cuda_ext.cache.open_store import open_store
from cuda_ext.cache.remote_store import LayeredStore, RemoteStore
from cuda_ext.cache.store import NullStore, Store, pack
from cuda_ext.errors import ConfigError
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.forks import run_fork

unix = pytest.mark.skipif(sys.platform == "win32", reason="links, owners and signals are those of Unix")
CONTENT = b"what was compiled" * 10


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


KEY = key("one")


def opened(directory: Path, size: str = "") -> Store:
    """A store that can be used without a warning."""

    def refuse(message: str) -> None:
        raise AssertionError(message)

    return open_store({"CUDA_EXT_CACHE": str(directory), "CUDA_EXT_CACHE_SIZE": size}, refuse)


def path(directory: Path, of: str = KEY) -> Path:
    return directory / "objects" / of[:2] / of[2:]


def entries(directory: Path) -> list[Path]:
    return [p for p in (directory / "objects").glob("??/[!.]*") if p.is_file()]


def remains(directory: Path) -> list[Path]:
    return list((directory / "objects").glob("??/.*"))


def grown_old(file: Path, hours: float) -> None:
    os.utime(file, (time.time() - hours * 3600,) * 2)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(code: str, *arguments: object) -> tuple[str, str]:
    """Return what `code` prints as a program, to standard output and error."""
    imports = ("cuda_ext.cache.open_store", "cuda_ext.cache.remote_store", "hashlib", "platformdirs")
    _, output, errors = run_fork(imports, code, os.environ, *map(str, arguments))
    return output, errors


# What comes back.


@pytest.mark.parametrize("content", [b"", b"\0", CONTENT, bytes(3_000_000)], ids=len)
def test_put_data_is_read_back(tmp_path: Path, content: bytes) -> None:
    store = opened(tmp_path / "a" / "b")
    assert store.get(KEY) is None
    store.put(KEY, content)
    assert store.get(KEY) == content
    assert opened(tmp_path / "a" / "b").get(KEY) == content
    assert remains(tmp_path / "a" / "b") == []


@pytest.mark.parametrize("wrong", ["", "ab", "A" * 64, "g" * 64, "../" * 21 + "a", "a" * 64 + "\n"])
def test_only_a_digest_is_a_key(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        opened(tmp_path).get(wrong)


def test_a_damaged_entry_is_a_miss_until_it_is_put_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(KEY, CONTENT)
    entry = path(tmp_path).read_bytes()
    damaged = [entry[:length] for length in range(len(entry))]
    damaged += [entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :] for at in range(len(entry))]
    for content in (*damaged, entry + b"\0"):
        path(tmp_path).write_bytes(content)
        assert store.get(KEY) is None, content
    store.put(KEY, CONTENT)
    assert path(tmp_path).read_bytes() == entry


def test_a_renamed_entry_is_a_miss(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(KEY, CONTENT)
    path(tmp_path, key("two")).parent.mkdir(exist_ok=True)
    path(tmp_path).rename(path(tmp_path, key("two")))
    assert store.get(KEY) is None
    assert store.get(key("two")) is None


def test_an_entry_that_is_right_is_not_written_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(KEY, CONTENT)
    before = path(tmp_path).stat()
    store.put(KEY, CONTENT)
    after = path(tmp_path).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@unix
def test_a_pipe_in_an_entrys_place_is_a_miss(tmp_path: Path) -> None:
    store = opened(tmp_path)
    path(tmp_path).parent.mkdir(parents=True)
    os.mkfifo(path(tmp_path))
    assert store.get(KEY) is None
    store.put(KEY, CONTENT)
    assert store.get(KEY) == CONTENT


def test_a_directory_in_an_entrys_place_costs_one_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    store = open_store({"CUDA_EXT_CACHE": str(tmp_path)}, warnings.append)
    path(tmp_path).mkdir(parents=True)
    store.put(KEY, CONTENT)
    store.put(KEY, CONTENT)
    assert store.get(KEY) is None
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{tmp_path}: compiling goes on without a cache: ")
    assert remains(tmp_path) == []


@unix
def test_only_the_owner_has_access(tmp_path: Path) -> None:
    code = """
import os, sys
from cuda_ext.cache.open_store import open_store
os.umask(0)
open_store({"CUDA_EXT_CACHE": sys.argv[1]}, sys.exit).put("0" * 64, b"")
"""
    assert printed(code, tmp_path / "a" / "b" / "cache") == ("", "")
    (tmp_path / "given").mkdir(mode=0o755)
    assert printed(code, tmp_path / "given") == ("", "")
    for made in ("a", "a/b", "a/b/cache", "a/b/cache/objects", "given/objects"):
        assert oct((tmp_path / made).stat().st_mode & 0o777) == "0o700"


# Where it lies, and caches that cannot be used.


def test_the_directory_is_the_users_cache_unless_one_is_named(tmp_path: Path) -> None:
    default = platformdirs.user_cache_path("cuda_ext")
    assert local_directory({}) == local_directory({"CUDA_EXT_CACHE": ""}) == str(default)
    assert local_directory({"CUDA_EXT_CACHE": "s3://bucket/prefix"}) == str(default)
    assert local_directory({"CUDA_EXT_CACHE": str(tmp_path / "a" / ".." / "b")}) == str(tmp_path / "b")
    assert local_directory({"CUDA_EXT_CACHE": "here"}) == str(Path.cwd() / "here")
    assert local_directory({"CUDA_EXT_CACHE": "~/x"}) == str(Path.home() / "x")


def goes_on_without(directory: Path) -> str:
    """Check that the store accepts everything and keeps nothing; return its only warning."""
    warnings: list[str] = []
    store = open_store({"CUDA_EXT_CACHE": str(directory)}, warnings.append)
    store.put(KEY, CONTENT)
    assert store.get(KEY) is None
    store.prune()
    store.close()
    assert len(warnings) == 1
    return warnings[0]


@unix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_cache_that_others_may_write_is_not_trusted(tmp_path: Path, mode: int) -> None:
    opened(tmp_path).put(KEY, CONTENT)
    tmp_path.chmod(mode)
    assert goes_on_without(tmp_path) == (
        f"{tmp_path}: compiling goes on without a cache: other users may write there (mode {mode:o}); "
        "correct that, or set CUDA_EXT_CACHE to a directory that only you can write"
    )
    if os.geteuid() == 0:  # only root can give files away
        os.chown(tmp_path, 12345, -1)
        assert "it belongs to another user (uid 12345); correct that, or set" in goes_on_without(tmp_path)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become nobody")
def test_a_user_without_a_home_is_reported(tmp_path: Path) -> None:
    code = """
import os, sys
from cuda_ext.cache.open_store import open_store
for name in ("HOME", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
os.chdir(sys.argv[1])
os.setuid(54321)
store = open_store({}, print)
store.put("0" * 64, b"")
assert store.get("0" * 64) is None
"""
    tmp_path.chmod(0o777)
    assert printed(code, tmp_path) == (
        "compiling goes on without a cache: there is no home directory; "
        "set CUDA_EXT_CACHE to a directory that can be written\n",
        "",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file", "a file is where a directory should be; move it"),
        ("file/deep/cache", "a file is where a directory should be; move it"),
        ("y/" * 3000, "File name too long; set CUDA_EXT_CACHE to a directory that can be written"),
        ("y" * 300, "File name too long; set CUDA_EXT_CACHE to a directory that can be written"),
    ],
    ids=["file", "below a file", "long path", "long name"],
)
def test_a_place_that_cannot_be_a_directory_is_reported(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_text("mine")
    assert reason in goes_on_without(tmp_path / name)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


@needs_mount
def test_a_read_only_disk_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "ro", "none") as disk:
        warning = goes_on_without(disk / "cache")
        assert "Read-only file system; set CUDA_EXT_CACHE to a directory that can be written" in warning


@needs_mount
def test_a_read_only_cache_can_be_read(tmp_path: Path) -> None:
    warnings: list[str] = []
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        opened(disk).put(KEY, CONTENT)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        store = open_store({"CUDA_EXT_CACHE": str(disk)}, warnings.append)
        assert store.get(KEY) == CONTENT
        store.put(KEY, CONTENT)
        store.prune()
        assert warnings == []
        for key in ("00" * 32, "11" * 32):
            store.put(key, CONTENT)
            assert store.get(key) is None
        assert len(warnings) == 1
        assert "Read-only file system" in warnings[0]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can become nobody")
def test_a_cache_of_root_can_be_read_by_other_users() -> None:
    code = """
import os, sys
from cuda_ext.cache.open_store import open_store
os.setuid(54321)
print(len(open_store({"CUDA_EXT_CACHE": sys.argv[1]}, print).get(sys.argv[2]) or b""))
"""
    with tempfile.TemporaryDirectory() as directory:  # that of pytest is for its user alone
        opened(Path(directory)).put(KEY, CONTENT)
        for path in [Path(directory), *Path(directory).rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        assert printed(code, directory, KEY) == (f"{len(CONTENT)}\n", "")


# Full disks.

FILL = """
import hashlib, sys
from cuda_ext.cache.open_store import open_store
store = open_store({"CUDA_EXT_CACHE": sys.argv[1]}, lambda text: print(text, file=sys.stderr))
for number in range(1000):
    name = f"{sys.argv[2]} {number}"
    store.put(hashlib.sha256(name.encode()).hexdigest(), name.encode() * 500)
"""


def full(directory: Path, reason: str) -> str:
    return (
        f"{directory}: compiling goes on without a cache: {reason}; free some space, lower "
        "CUDA_EXT_CACHE_SIZE, or set CUDA_EXT_CACHE to another directory"
    )


@needs_mount
def test_a_full_disk_costs_one_warning_and_no_damage(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2m", "none") as disk:
        for writer in [python(FILL, disk, letter) for letter in "ab"]:
            assert writer.communicate(timeout=300)[1] == f"{full(disk, 'No space left on device')}\n"
            assert writer.returncode == 0
        store = opened(disk)
        written = {key(f"{x} {n}"): f"{x} {n}".encode() * 500 for x in "ab" for n in range(1000)}
        found = {k: c for k in written if (c := store.get(k)) is not None}
        assert len(found) == len(entries(disk)) > 100
        assert found.items() <= written.items()
        assert remains(disk) == []


@unix
def test_a_file_that_is_too_large_is_reported(tmp_path: Path) -> None:
    code = """
import resource, sys
from cuda_ext.cache.open_store import open_store
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
open_store({"CUDA_EXT_CACHE": sys.argv[1]}, sys.exit).put("0" * 64, bytes(2000))
"""
    assert full(tmp_path, "File too large") in printed(code, tmp_path)[1]
    assert entries(tmp_path) == remains(tmp_path) == []


# Many at once, and some of them killed.

WORK = """
import hashlib, sys
from cuda_ext.cache.open_store import open_store
store = open_store({"CUDA_EXT_CACHE": sys.argv[1], "CUDA_EXT_CACHE_SIZE": sys.argv[2]}, sys.exit)
for _ in range(int(sys.argv[3])):
    for number in range(40):
        key = hashlib.sha256(b"%d" % number).hexdigest()
        content = key.encode() * 300
        found = store.get(key)
        assert found in (None, content), found
        if not found:
            store.put(key, content)
    store.prune()
"""


@pytest.mark.parametrize("size", ["5G", "200K"], ids=["roomy", "pruned all the time"])
def test_many_processes_at_once(tmp_path: Path, size: str) -> None:
    workers = [python(WORK, tmp_path, size, 20) for _ in range(8)]
    assert [worker.communicate(timeout=300)[1] for worker in workers] == [""] * 8
    assert remains(tmp_path) == []
    if size == "5G":
        assert len(entries(tmp_path)) == 40


def test_many_threads_at_once(tmp_path: Path) -> None:
    store = opened(tmp_path, "100K")

    def work(number: int) -> None:
        name = key(number % 30)
        assert store.get(name) in (None, name.encode() * 100)
        store.put(name, name.encode() * 100)
        store.prune()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(400))) == [None] * 400
    assert remains(tmp_path) == []


def test_a_cache_that_is_removed_meanwhile_is_created_again(tmp_path: Path) -> None:
    worker = python(WORK, tmp_path / "cache", "5G", 30)
    while worker.poll() is None:
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        time.sleep(0.02)
    errors = worker.communicate()[1]
    # What was removed under its hands three times in a row is a warning, through sys.exit here.
    assert not errors or "compiling goes on without a cache" in errors
    opened(tmp_path / "cache").put(KEY, CONTENT)
    assert opened(tmp_path / "cache").get(KEY) == CONTENT


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="needs forks of Python")
def test_a_killed_writer_causes_no_damage(tmp_path: Path) -> None:
    code = """
import hashlib, itertools, os, random, signal, sys, time
from pathlib import Path
from cuda_ext.cache.open_store import open_store

store = open_store({"CUDA_EXT_CACHE": sys.argv[1]}, sys.exit)
names = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(1000)]
for attempt in itertools.count():
    if attempt >= 30 and any(Path(sys.argv[1], "objects").glob("??/*")):
        break
    if (child := os.fork()) == 0:
        random.shuffle(names)
        for name in names:
            store.put(name, name.encode() * 5000)
        os._exit(0)
    time.sleep(random.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
written = [p for p in Path(sys.argv[1], "objects").glob("??/[!.]*") if p.is_file()]
found = [name for name in names if store.get(name) is not None]
assert len(found) == len(written) > 0, (len(found), len(written))
assert all(store.get(name) == name.encode() * 5000 for name in found)
"""
    assert printed(code, tmp_path) == ("", "")


# The bound.


def test_the_least_recently_used_entries_are_removed_first(tmp_path: Path) -> None:
    store = opened(tmp_path, "10K")
    for number in range(12):
        store.put(key(number), bytes(1024 - 72))
        grown_old(path(tmp_path, key(number)), 20 - number)
    assert store.get(key(0)) is not None
    store.prune()
    assert [n for n in range(12) if store.get(key(n)) is None] == [1, 2, 3, 4]
    assert sum(p.stat().st_size for p in entries(tmp_path)) == 8 * 1024


def test_a_hit_is_remembered_to_the_hour(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(KEY, CONTENT)
    grown_old(path(tmp_path), 0.9)
    before = path(tmp_path).stat().st_mtime
    store.get(KEY)
    assert path(tmp_path).stat().st_mtime == before
    grown_old(path(tmp_path), 1.1)
    store.get(KEY)
    assert path(tmp_path).stat().st_mtime > time.time() - 60


def test_nothing_is_pruned_within_the_bound(tmp_path: Path) -> None:
    store = opened(tmp_path, "10K")
    for number in range(10):
        store.put(key(number), bytes(1024 - 72))
    store.prune()
    assert len(entries(tmp_path)) == 10


def test_entries_of_other_processes_count(tmp_path: Path) -> None:
    stores = [opened(tmp_path, "10K") for _ in range(3)]
    stores[0].prune()
    for number in range(11):
        stores[number % 3].put(key(number), bytes(1024 - 72))
    opened(tmp_path, "10K").prune()
    assert len(entries(tmp_path)) == 8


@pytest.mark.parametrize("total", ["", "\0", "no number", "1 0", "99999999999 0"])
def test_a_damaged_or_old_total_is_computed_again(tmp_path: Path, total: str) -> None:
    store = opened(tmp_path, "1K")
    store.put(KEY, bytes(2000))
    (tmp_path / "objects" / "total").write_text(total)
    store.prune()
    assert entries(tmp_path) == []


def test_remains_of_killed_writers_are_removed_after_an_hour(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(KEY, CONTENT)
    entry = path(tmp_path)
    for ending, hours in [("0a", 1.1), ("0b", 0.9)]:
        file = entry.with_name(f".{entry.name}.{ending}.cuda_ext")
        file.write_bytes(b"half")
        grown_old(file, hours)
    (tmp_path / "objects" / "total").unlink()
    store.prune()
    assert [p.name for p in remains(tmp_path)] == [f".{entry.name}.0b.cuda_ext"]
    assert store.get(KEY) == CONTENT


@unix
def test_a_prune_removes_entries_alone(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache", "1")
    store.put(KEY, CONTENT)
    objects = tmp_path / "cache" / "objects"
    mine = [tmp_path / "mine" / ("a" * 62), objects / "note", objects / "00" / "note"]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
        grown_old(file, 2)
    (objects / "11").symlink_to(tmp_path / "mine")
    (objects / "00" / ("b" * 62)).symlink_to(mine[0])
    (objects / "total").unlink(missing_ok=True)
    store.prune()
    assert store.get(KEY) is None
    assert [file.read_text() for file in mine] == ["mine"] * 3
    assert (objects / "00" / ("b" * 62)).is_symlink()


def test_pruning_an_empty_or_missing_cache_is_no_error(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache")
    store.prune()
    shutil.rmtree(tmp_path / "cache")
    store.prune()
    assert store.get(KEY) is None


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 5 << 30),
        ("1", 1),
        ("100B", 100),
        ("3k", 3 << 10),
        ("20 MB", 20 << 20),
        ("5G", 5 << 30),
        ("7GiB", 7 << 30),
        (" 2t ", 2 << 40),
    ],
)
def test_the_bound_is_written_as_people_write_sizes(tmp_path: Path, value: str, size: int) -> None:
    store = opened(tmp_path, value)
    assert isinstance(store, LocalStore)
    assert store.bound == size


@pytest.mark.parametrize("value", ["0", "0G", "0B"])
def test_disabling_the_cache(tmp_path: Path, value: str) -> None:
    store = opened(tmp_path / "cache", value)
    assert isinstance(store, NullStore)
    store.put(KEY, CONTENT)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("value", ["much", "-1", "1.5G", "5X", "5iB", "G", "1e9", "٣", "9" * 19])
def test_an_invalid_size_is_reported(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, value)
    assert str(caught.value) == (
        f"CUDA_EXT_CACHE_SIZE: {value!r} is not a size; write bytes, or a number with K, M, G or T, "
        "as in 5G; 0 means no cache"
    )


# A cache that machines share. Each has a local one too, which is the user's own.


class Machine:
    """Return a machine with the remote cache at `url`, and the warnings that its user sees."""

    def __init__(self, url: str, home: Path) -> None:
        self.directory = home / "cuda_ext"
        self.warnings: list[str] = []
        self.store = open_store({"CUDA_EXT_CACHE": url}, self.warnings.append)

    def builds(self, name: str, content: bytes) -> None:
        """Look entries up, and put the missing ones, as a build does."""
        if self.store.get(name) is None:
            self.store.put(name, content)
        assert self.store.get(name) == content


Machines = Callable[[str], Machine]


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Creates machines, each with its own home directory."""
    if sys.platform != "linux":
        pytest.skip("only on Linux does XDG_CACHE_HOME name the user's cache")
    made: list[Machine] = []

    def make(url: str) -> Machine:
        home = tmp_path / f"home{len(made)}"
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        made.append(Machine(url, home))
        return made[-1]

    yield make
    for machine in made:
        machine.store.close()


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return (tmp_path / "shared" / "cache").as_uri()
    return f"memory://{tmp_path.name}"


def shared(url: str, of: str = KEY) -> str:
    return f"{url}/{of[:2]}/{of[2:]}"


def test_machines_share_compiled_images(machines: Machines, url: str) -> None:
    one, other = machines(url), machines(url)
    one.builds(KEY, CONTENT)
    one.store.close()
    assert other.store.get(KEY) == CONTENT
    assert path(other.directory).read_bytes() == pack(KEY, CONTENT)
    assert one.warnings == other.warnings == []


def test_a_store_works_after_close(machines: Machines, url: str) -> None:
    one = machines(url)
    for number in range(3):
        one.builds(key(number), CONTENT)
        one.store.close()
        one.store.close()
        assert machines(url).store.get(key(number)) == CONTENT


def test_many_uploads_arrive_before_close_returns(machines: Machines, url: str) -> None:
    one, other = machines(url), machines(url)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: one.builds(key(number), CONTENT), range(200)))
    one.store.close()
    assert [other.store.get(key(number)) for number in range(200)] == [CONTENT] * 200


@pytest.mark.parametrize("at", [0, 8, 40, 72, None])
def test_a_poisoned_entry_is_a_miss_and_is_mended(machines: Machines, url: str, at: int | None) -> None:
    poisoned = bytearray(pack(KEY, b"poison"))
    if at is None:
        poisoned = bytearray(pack(key("two"), b"poison"))
    else:
        poisoned[at] ^= 1
    with fsspec.open(shared(url), "wb", **({"auto_mkdir": True} if url.startswith("file") else {})) as file:
        file.write(poisoned)
    one = machines(url)
    assert one.store.get(KEY) is None
    assert entries(one.directory) == []
    one.builds(KEY, CONTENT)
    one.store.close()
    assert machines(url).store.get(KEY) == CONTENT
    assert one.warnings == []


def test_a_local_cache_that_cannot_be_used_does_not_keep_from_the_shared_one(
    machines: Machines, url: str, tmp_path: Path
) -> None:
    (tmp_path / "home0").write_text("a file")
    one = machines(url)
    one.store.put(KEY, CONTENT)
    one.store.close()
    assert one.store.get(KEY) == CONTENT
    assert len(one.warnings) == 1


def goes_on_alone(machine: Machine) -> str:
    """Check that the store works otherwise, and waits no hundred times; return its only warning."""
    started = time.monotonic()
    for number in range(100):
        machine.builds(key(number), CONTENT)
    machine.store.close()
    assert time.monotonic() - started < 60
    assert len(machine.warnings) == 1
    return machine.warnings[0]


def test_a_refused_connection_costs_one_warning(machines: Machines) -> None:
    warning = goes_on_alone(machines("http://me:secret@127.0.0.1:1/cache"))
    assert warning.startswith("http://127.0.0.1:1/cache: compiling goes on without the shared cache: ")
    assert "secret" not in warning


def test_a_remote_that_never_answers_costs_its_time_once(machines: Machines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        machine = machines("")
        remote = RemoteStore(
            f"http://127.0.0.1:{server.getsockname()[1]}", machine.warnings.append, timeout=2
        )
        machine.store = LayeredStore(machine.store, remote)
        assert goes_on_alone(machine).endswith("without the shared cache: no answer within 2 seconds")


@pytest.fixture
def slow() -> list[str]:
    """The requests to the file system ``slow``, each of which takes a second."""
    requests: list[str] = []

    class SlowFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]
        def cat_file(self, path: str, **_: object) -> bytes:
            requests.append(path)
            time.sleep(1)
            raise FileNotFoundError(path)

        def pipe_file(self, path: str, *_: object, **__: object) -> None:
            requests.append(path)
            time.sleep(1)

    fsspec.register_implementation("slow", SlowFiles, clobber=True)
    return requests


def test_a_slow_remote_has_a_budget_in_all(slow: list[str]) -> None:
    """Half of each second is free."""
    warnings: list[str] = []
    remote = RemoteStore("slow://cache", warnings.append, budget=1)
    for number in range(100):
        assert remote.get(key(number)) is None
    remote.close()
    assert len(slow) <= 3
    text = "compiling goes on without the shared cache: this build has waited 1 seconds for it"
    assert warnings == [f"slow://cache: {text}"]


@pytest.mark.parametrize("now", [True, False])
def test_uploads_have_a_budget_in_all_and_none_after_an_interrupt(slow: list[str], now: bool) -> None:
    warnings: list[str] = []
    remote = RemoteStore("slow://cache", warnings.append, budget=0.1)
    for number in range(50):
        remote.put(key(number), CONTENT)
    remote.close(now=now)
    remote.put(KEY, CONTENT)
    assert len(slow) <= 2
    assert len(warnings) == (0 if now else 1)


def test_a_remote_that_hangs_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    code = """
import sys
from cuda_ext.cache.remote_store import RemoteStore
store = RemoteStore(sys.argv[1], print, timeout=1)
store.put("0" * 64, b"")
store.close()
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        output, _ = printed(code, f"http://127.0.0.1:{server.getsockname()[1]}/")
    assert output.endswith("no answer within 1 seconds\n")


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="needs forks of Python")
def test_a_forked_child_uploads_too(tmp_path: Path) -> None:
    code = """
import hashlib, os, sys
from cuda_ext.cache.remote_store import RemoteStore
store = RemoteStore(sys.argv[1], sys.exit)
store.put("0" * 64, b"")
child = os.fork()
for number in range(200):
    store.put(hashlib.sha256(b"%d %d" % (child, number)).hexdigest(), b"")
store.close()
if child:
    os.waitpid(child, 0)
else:
    os._exit(0)
"""
    url = (tmp_path / "shared").as_uri()
    assert printed(code, url) == ("", "")
    assert len(list((tmp_path / "shared").glob("??/*"))) == 401


def test_an_unknown_protocol_costs_one_warning(machines: Machines) -> None:
    assert goes_on_alone(machines("teleport://bucket/prefix")) == (
        "teleport://bucket/prefix: compiling goes on without the shared cache: Protocol not known: teleport"
    )


def test_a_shared_directory_that_cannot_be_written_costs_one_warning(
    machines: Machines, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    goes_on_alone(machines((tmp_path / "file" / "cache").as_uri()))


def test_without_fsspec_one_warning_names_the_package_to_install(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["fsspec"] = None
from cuda_ext.cache.remote_store import RemoteStore
store = RemoteStore("s3://bucket", print)
print(store.get("0" * 64), store.get("1" * 64))
"""
    output, errors = printed(code)
    assert errors == ""
    warning, result = output.splitlines()
    assert warning.startswith("s3://bucket: compiling goes on without the shared cache: ")
    assert warning.endswith("; install fsspec and its package for this protocol, such as s3fs")
    assert result == "None None"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket of an S3 server on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("bucket")
    try:
        yield "s3://bucket"
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        # The servers of one process share their buckets.
        urlopen(Request(f"{endpoint}/moto-api/reset", method="POST")).close()
        server.stop()


def test_machines_share_a_bucket(s3: str, machines: Machines) -> None:
    import s3fs

    one, other = machines(f"{s3}/prefix"), machines(f"{s3}/prefix")
    one.builds(KEY, CONTENT)
    one.store.close()
    assert other.store.get(KEY) == CONTENT
    bucket = s3fs.S3FileSystem()
    assert bucket.find("bucket") == [f"bucket/prefix/{KEY[:2]}/{KEY[2:]}"]
    bucket.pipe_file(f"bucket/prefix/{KEY[:2]}/{KEY[2:]}", b"poison")
    third = machines(f"{s3}/prefix")
    third.builds(KEY, CONTENT)
    assert one.warnings == other.warnings == third.warnings == []


def test_a_misspelt_bucket_is_reported_and_not_created(s3: str, machines: Machines) -> None:
    import s3fs

    goes_on_alone(machines("s3://buckte/prefix"))
    assert s3fs.S3FileSystem().ls("") == ["bucket"]


def test_a_server_that_stops_costs_one_warning(
    s3: str, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    assert "Could not connect" in goes_on_alone(machines(s3))
