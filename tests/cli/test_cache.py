"""``cuda-ext cache`` shows what is in the cache, and removes only its own files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.open_store import local_store
from cuda_ext.cache.store import pack
from cuda_ext.runtime.jit.entry import Entry, EntryKernel, Reference
from tests.fixtures.command_line import run
from tests.fixtures.disks import mounted, needs_mount

unix = pytest.mark.skipif(sys.platform == "win32", reason="links, owners and pipes are those of Unix")
CONTENT = b"what was compiled" * 10
HEADERS = "nvrtc-headers-13.5"


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def store(directory: Path) -> LocalStore:
    return local_store({"CUDA_EXT_CACHE": str(directory)})


def kept(directory: Path, name: object, content: bytes = CONTENT, hours: float = 0) -> Path:
    """The file of an entry that was last used `hours` ago."""
    store(directory).put(key(name), content)
    path = directory / "objects" / key(name)[:2] / key(name)[2:]
    os.utime(path, (time.time() - hours * 3600,) * 2)
    return path


def made(path: Path, content: bytes = b"mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# An ELF file with one section, that of the names.
HEADER = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64, 0, 64, 56, 0, 64, 1, 0)
SECTION = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 128, 1, 0, 0, 1, 0)
CUBIN = b"\x7fELF\x02\x01\x01" + bytes(9) + HEADER + SECTION + b"\0"


def on_demand(architecture: str, *kernels: str, size: int = 0) -> bytes:
    described = tuple(EntryKernel(name, "lowered", ()) for name in kernels)
    return Entry(architecture, CUBIN + bytes(size), described, ()).encode()


def cache(directory: Path, *arguments: object, status: int = 0, **environ: object) -> str:
    """Run a command on the cache in `directory`; return its output and its errors."""
    found, output, errors = run("cache", *arguments, **{"CUDA_EXT_CACHE": directory, **environ})
    assert found == status, output + errors
    return output + errors


def cache_json(directory: Path, *arguments: object, status: int = 0) -> Any:
    return json.loads(cache(directory, *arguments, "--json", status=status))


def facts(directory: Path, **environ: object) -> dict[str, str]:
    """The lines above the table of ``cache info``."""
    lines = cache(directory, "info", **environ).partition("\n\n")[0].splitlines()
    return {line[:15].rstrip(): line[15:] for line in lines}


# What is there.


@pytest.mark.parametrize("command", ["info", "verify", "clear"])
def test_a_missing_cache_is_not_created(tmp_path: Path, command: str) -> None:
    output = cache(tmp_path / "a" / "cache", command)
    assert ("is created on first use" if command == "info" else "there is no cache") in output
    assert list(tmp_path.iterdir()) == []


def test_files_are_counted(tmp_path: Path) -> None:
    size = sum(kept(tmp_path, number, bytes(number)).stat().st_size for number in range(3))
    made(tmp_path / "objects" / "tmp" / "0a.1.host")
    made(tmp_path / "objects" / "note")
    made(tmp_path / HEADERS / "cccl" / "cuda.h", bytes(2048))
    found = facts(tmp_path, CUDA_EXT_CACHE_SIZE="1K")
    assert found["directory"] == str(tmp_path)
    assert found["used"] == "yes"
    assert found["entries"] == f"3, {size} B of 1 KiB"
    assert found["unfinished"].startswith("1 file in tmp")
    assert found["strays"].startswith("1; ")
    assert found["NVRTC headers"] == f"{HEADERS}, 2 KiB"
    output = cache_json(tmp_path, "info")
    assert (output["entries"], output["size"], output["bound"]) == (3, size, 5 << 30)
    assert (output["used"], output["reason"], output["unfinished"], output["strays"]) == (True, None, 1, 1)
    assert output["nvrtc_headers"] == [{"path": str(tmp_path / HEADERS), "size": 2048}]


@unix
def test_rights_are_shown(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    assert facts(tmp_path)["rights"] == f"drwx------, owner {tmp_path.owner()}"
    assert cache_json(tmp_path, "info")["mode"] == "700"


def test_entries_are_listed_by_their_last_use(tmp_path: Path) -> None:
    kept(tmp_path, "a", on_demand("sm_90", "axpy<float>", "axpy<[red]>", size=4800), hours=50)
    kept(tmp_path, "b", on_demand("sm_100a", *(f"gemm<{n}, __half>" for n in range(50))), hours=1.5)
    kept(tmp_path, "c", on_demand("compute_120"))
    kept(tmp_path, "d", Reference(None, key("a")).encode())
    kept(tmp_path, "e", b"20:cuda-ext on demand 1 and something else")
    kept(tmp_path, "f")
    output = cache(tmp_path, "info")
    assert "on demand      3 entries, " in output
    assert ", and 1 reference to them\n" in output
    title, *rows = output.partition("\n\n")[2].splitlines()
    assert title.split() == ["kernels", "architecture", "size", "last", "used"]
    assert re.findall(r"\b(?:sm|compute)_\w+", output) == ["compute_120", "sm_100a", "sm_90"]
    assert all(len(row) <= 80 for row in rows)
    assert rows[1].rstrip().endswith("1 hour ago")
    assert "gemm<0, __half>, gemm<1," in rows[1]
    assert "…" in rows[1]
    assert "axpy<float>, axpy<[red]>" in rows[2]
    assert rows[2].split()[-5:] == ["5", "KiB", "2", "days", "ago"]
    entries = cache_json(tmp_path, "info")["on_demand"]["records"]
    assert [each["key"] for each in entries] == [key("c"), key("b"), key("a")]
    assert entries[2]["kernels"] == ["axpy<float>", "axpy<[red]>"]
    assert entries[2]["last_used"].endswith("+00:00")


def test_the_last_of_many_entries_are_shown(tmp_path: Path) -> None:
    for number in range(25):
        kept(tmp_path, number, on_demand("sm_90", f"k<{number}>"), hours=number)
    output = cache(tmp_path, "info")
    assert output.endswith("and 5 more, which --json lists\n")
    assert "k<19>" in output
    assert "k<20>" not in output
    assert len(cache_json(tmp_path, "info")["on_demand"]["records"]) == 25


def test_a_terminal_without_unicode_is_enough(tmp_path: Path) -> None:
    kept(tmp_path, 1, on_demand("sm_90", *(f"größe<{number}>" for number in range(20))))
    assert "gr??e<0>, gr??e<1>," in cache(tmp_path, "info", PYTHONIOENCODING="ascii")


@pytest.mark.parametrize("command", ["info", "verify"])
def test_reading_does_not_count_as_use(tmp_path: Path, command: str) -> None:
    entry = kept(tmp_path, 1, on_demand("sm_90", "k"), hours=30)
    before = entry.stat().st_mtime_ns
    cache(tmp_path, command)
    assert entry.stat().st_mtime_ns == before


def test_the_shared_cache_is_shown_without_a_password(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only on Linux does XDG_CACHE_HOME name the user's cache")
    found = facts(tmp_path, CUDA_EXT_CACHE="s3://me:secret@bucket/prefix", XDG_CACHE_HOME=tmp_path)
    assert found["directory"] == str(tmp_path / "cuda_ext")
    assert found["shared cache"].startswith("s3://bucket/prefix, ")


# Caches that are not used.


def test_a_disabled_cache_can_be_shown_and_cleared(tmp_path: Path) -> None:
    entry = kept(tmp_path, 1)
    assert facts(tmp_path, CUDA_EXT_CACHE_SIZE="0")["used"].startswith("no: the cache is turned off by ")
    cache(tmp_path, "clear", CUDA_EXT_CACHE_SIZE="0")
    assert not entry.exists()


def not_trusted(directory: Path, reason: str) -> None:
    """The reason is shown, and nothing is removed."""
    before = sorted(directory.rglob("*"))
    assert reason in facts(directory)["used"]
    assert cache_json(directory, "info")["used"] is False
    for command in (["verify"], ["verify", "--remove"], ["clear"], ["clear", "--headers"]):
        output = cache(directory, *command, status=1)
        assert output.startswith(f"{directory / 'objects'}: the cache is left alone: {reason}; ")
    assert sorted(directory.rglob("*")) == before


@unix
def test_a_cache_that_others_may_write_is_left_alone(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    made(tmp_path / HEADERS / "cuda.h")
    (tmp_path / "objects").chmod(0o777)
    not_trusted(tmp_path, "other users may write there (mode 777)")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files away")
def test_the_cache_of_another_user_is_left_alone(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    os.chown(tmp_path / "objects", 12345, -1)
    not_trusted(tmp_path, "it belongs to another user (uid 12345)")
    assert cache_json(tmp_path, "info")["owner"] == "12345"


@pytest.mark.parametrize("below", [".", "cache", "deep/cache"])
def test_a_file_in_place_of_the_cache_is_an_error(tmp_path: Path, below: str) -> None:
    file = made(tmp_path / "file")
    found = facts(file / below)
    assert found["used"].endswith("a file is where a directory should be; move it")
    assert "rights" not in found
    assert "the cache is left alone: " in cache(file / below, "clear", status=1)
    assert file.read_bytes() == b"mine"


def test_a_file_in_place_of_the_entries_is_an_error(tmp_path: Path) -> None:
    made(tmp_path / "objects")
    assert "a file is where a directory should be; move it" in cache(tmp_path, "verify", status=1)


@needs_mount
def test_a_read_only_disk_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        entry = kept(disk, 1)
        damaged = made(kept(disk, 2))
        made(disk / HEADERS / "cuda.h")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert "it is read-only; set CUDA_EXT_CACHE to" in facts(disk)["used"]
        assert "it is read-only; set CUDA_EXT_CACHE to" in facts(disk / "cache")["used"]
        assert "3 files or directories could not be removed" in cache(disk, "clear", "--headers", status=1)
        assert cache_json(disk, "verify", "--remove", status=1)["damaged"][0]["removed"] is False
        assert entry.exists()
        assert damaged.exists()


# What is damaged.


def flip(at: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        entry = bytearray(path.read_bytes())
        entry[at] ^= 1
        path.write_bytes(entry)

    return damage


def exchange(path: Path) -> None:
    path.write_bytes(pack(key("other"), CONTENT))


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "it does not begin as an entry does"),
    "only a head": (lambda path: path.write_bytes(path.read_bytes()[:71]), "it does not begin as an entry"),
    "format": (flip(3), "it does not begin as an entry does"),
    "version": (flip(7), "it does not begin as an entry does"),
    "digest": (flip(20), "its digest is that of another content"),
    "key": (flip(50), "its digest is that of another content"),
    "content": (flip(-1), "its digest is that of another content"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "its digest is that of another content"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "its digest is that of another"),
    "another's": (exchange, f"it is the entry of another key, {key('other')}"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_every_damage_is_listed(tmp_path: Path, damage: Callable[[Path], Any], reason: str) -> None:
    sound, damaged = kept(tmp_path, 1), kept(tmp_path, 2)
    assert "2 entries, 484 B, read in" in cache(tmp_path, "verify")
    damage(damaged)
    output = cache(tmp_path, "verify", status=1)
    assert output.startswith(f"{damaged}: damaged: {reason}")
    assert ": 1 damaged\n" in output
    assert output.endswith("cuda-ext cache verify --remove\n")
    (found,) = cache_json(tmp_path, "verify", status=1)["damaged"]
    assert (found["path"], found["key"], found["removed"]) == (str(damaged), key(2), False)
    assert store(tmp_path).get(key(2)) is None
    output = cache(tmp_path, "verify", "--remove", status=1)
    assert "; removed\n" in output
    assert "--remove" not in output
    assert not damaged.exists()
    assert sound.exists()
    assert ": 0 damaged\n" in cache(tmp_path, "verify")


def test_strays_and_unfinished_files_are_listed_but_not_damaged(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    strays = [
        made(tmp_path / "objects" / "ab" / "note"),
        made(tmp_path / "objects" / "abc" / "note").parent,
        made(tmp_path / "objects" / key(1)),
    ]
    half = made(tmp_path / "objects" / "tmp" / "0a.1.host")
    output = cache(tmp_path, "verify", "--remove")
    for stray in strays:
        assert f"{stray}: stray, " in output
    assert f"{half}: unfinished, " in output
    found = cache_json(tmp_path, "verify")
    assert sorted(found["strays"]) == sorted(map(str, strays))
    assert found["unfinished"] == [str(half)]
    assert all(path.exists() for path in (*strays, half))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, memory is not limited so")
def test_a_large_entry_needs_little_memory(tmp_path: Path) -> None:
    entry = kept(tmp_path, 1)
    os.truncate(entry, 600 << 20)
    limited = "import resource, runpy; resource.setrlimit(resource.RLIMIT_AS, (400 << 20,) * 2); "
    door = (sys.executable, "-c", limited + "runpy.run_module('cuda_ext', run_name='__main__')")
    status, output, _ = run("cache", "verify", "--json", door=door, CUDA_EXT_CACHE=tmp_path)
    assert status == 1
    assert json.loads(output)["damaged"][0]["reason"] == "its digest is that of another content"


# What is removed, and what is not.


def files(directory: Path) -> set[str]:
    return {p.relative_to(directory).as_posix() for p in directory.rglob("*") if not p.is_dir()}


def test_clear_removes_entries(tmp_path: Path) -> None:
    for number in range(3):
        kept(tmp_path, number)
    with store(tmp_path).lock(key(1)):
        pass
    made(tmp_path / "objects" / "tmp" / "0a.1.host", bytes(10))
    store(tmp_path).prune()
    assert (tmp_path / "objects" / "total").exists()
    assert cache(tmp_path, "clear") == (
        f"{tmp_path}: removed 3 entries, 1 unfinished file, {3 * 242 + 10} B in all\n"
    )
    assert files(tmp_path) <= {f"objects/locks/{key(1)[:2]}"}
    nothing = {"entries": 0, "unfinished": 0, "headers": 0, "size": 0, "failed": 0}
    assert cache_json(tmp_path, "clear") == nothing
    store(tmp_path).put(key(1), CONTENT)
    assert store(tmp_path).get(key(1)) == CONTENT


@unix
def test_foreign_files_survive(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    entry = kept(directory, 1)
    shard = entry.parent
    foreign = [
        made(elsewhere / key(2)[2:]),
        made(directory / "note"),
        made(directory / "objects" / "note"),
        made(directory / "objects" / key(3)),
        made(shard / "note"),
        made(shard / key(4)),
        made(shard / key(5)[2:] / "note"),
        made(directory / "objects" / "tmp" / "mine" / "note"),
        made(directory / "objects" / "AB" / key(6)[2:]),
        made(directory / "nvrtc-headers" / "note"),
        made(directory / "my-nvrtc-headers-13.5" / "note"),
    ]
    (directory / "objects" / key(2)[:2]).symlink_to(elsewhere)
    (shard / key(7)[2:]).symlink_to(foreign[0])
    os.mkfifo(shard / key(8)[2:])
    output = cache_json(directory, "clear", "--headers")
    assert (output["entries"], output["headers"], output["failed"]) == (1, 0, 0)
    assert not entry.exists()
    assert all(file.read_bytes() == b"mine" for file in foreign)
    assert (directory / "objects" / key(2)[:2]).is_symlink()
    assert (shard / key(7)[2:]).is_symlink()
    assert stat.S_ISFIFO((shard / key(8)[2:]).stat().st_mode)


def test_clear_may_spare_recently_used_entries(tmp_path: Path) -> None:
    young, old = kept(tmp_path, 1, hours=47), kept(tmp_path, 2, hours=49)
    for days in ("2.5", "inf"):
        assert "removed 0 entries" in cache(tmp_path, "clear", "--older-than", days)
    assert "nan is not a number of days" in cache(tmp_path, "clear", "--older-than", "nan", status=2)
    assert "removed 1 entry, 242 B" in cache(tmp_path, "clear", "--older-than", "2")
    assert young.exists()
    assert not old.exists()


@unix
def test_clear_removes_headers_on_request(tmp_path: Path) -> None:
    kept(tmp_path / "cache", 1)
    elsewhere = made(tmp_path / "elsewhere" / "cuda.h")
    (tmp_path / "cache" / "nvrtc-headers-13.4").symlink_to(elsewhere.parent)
    for name in (HEADERS, f"{HEADERS}.remains"):
        made(tmp_path / "cache" / name / "cccl" / "cuda.h")
    cache(tmp_path / "cache", "clear")
    assert (tmp_path / "cache" / HEADERS / "cccl" / "cuda.h").exists()
    assert ", 3 directories of NVRTC's headers, 12 B" in cache(tmp_path / "cache", "clear", "--headers")
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["objects"]
    assert elsewhere.exists()


@unix
def test_verify_reports_damaged_headers(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    made(tmp_path / HEADERS / "cuda.h")
    report = cache(tmp_path, "verify", "--remove", status=1)
    assert f"{tmp_path / HEADERS}: damaged: the list of its files cannot be read: No such file" in report
    assert [path.name for path in tmp_path.iterdir()] == ["objects"]
    assert "0 damaged" in cache(tmp_path, "verify")


@unix
def test_headers_without_entries_are_removed(tmp_path: Path) -> None:
    made(tmp_path / HEADERS / "cuda.h")
    assert "1 directory of NVRTC's headers" in cache(tmp_path, "clear", "--headers")
    assert list(tmp_path.iterdir()) == []


@unix
def test_headers_that_others_may_write_are_left_alone(tmp_path: Path) -> None:
    headers = made(tmp_path / HEADERS / "cuda.h")
    headers.parent.chmod(0o777)
    output = cache(tmp_path, "clear", "--headers", status=1)
    assert "1 file or directory could not be removed; check the owner" in output
    assert headers.exists()


# While others use it.

WORK = """
import hashlib, os, sys
from cuda_ext.cache.open_store import open_store
store = open_store({"CUDA_EXT_CACHE": sys.argv[1]}, sys.exit)
while os.path.getsize(sys.argv[2]) == 0:
    for number in range(40):
        key = hashlib.sha256(b"%d" % number).hexdigest()
        content = key.encode() * 300
        found = store.get(key)
        assert found in (None, content), found
        if found is None:
            with store.lock(key):
                store.put(key, content)
    store.prune()
"""


def test_other_processes_may_use_the_cache_meanwhile(tmp_path: Path) -> None:
    stop = made(tmp_path / "stop", b"")
    work = [sys.executable, "-c", WORK, str(tmp_path / "cache"), str(stop)]
    workers = [
        subprocess.Popen(work, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    removed = 0
    try:
        for _ in range(2):
            while not list((tmp_path / "cache").glob("objects/??/*")):
                assert all(worker.poll() is None for worker in workers)
            removed += cache_json(tmp_path / "cache", "clear")["entries"]
            assert cache_json(tmp_path / "cache", "verify")["damaged"] == []
            cache(tmp_path / "cache", "info")
    finally:
        stop.write_text("now")
        errors = [worker.communicate(timeout=300)[1] for worker in workers]
    assert errors == ["", ""]
    assert removed > 0


def test_a_cache_that_is_removed_meanwhile_is_no_failure(tmp_path: Path) -> None:
    for number in range(300):
        kept(tmp_path / "cache", number)
    arguments = [sys.executable, "-m", "cuda_ext", "cache", "verify"]
    environ = {**os.environ, "CUDA_EXT_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(
        arguments, env=environ, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while process.poll() is None:
            with contextlib.suppress(OSError):
                shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            time.sleep(0.01)
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
