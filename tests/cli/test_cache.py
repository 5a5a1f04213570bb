"""``cuda-ext cache`` shows the place and the size of the cache, and removes only its own files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.cache.local_store import LocalStore
from cuda_ext.cache.open_store import local_store
from tests.fixtures.command_line import run
from tests.fixtures.disks import mounted, needs_mount

unix = pytest.mark.skipif(sys.platform == "win32", reason="links, owners and pipes are those of Unix")
CONTENT = b"what was compiled" * 10
HEADERS = "nvrtc-headers-13.5"


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def store(directory: Path) -> LocalStore:
    return local_store({"CUDA_EXT_CACHE": str(directory)})


def kept(directory: Path, name: object, content: bytes = CONTENT) -> Path:
    """Store an entry and return its file."""
    store(directory).put(key(name), content)
    return directory / "objects" / key(name)[:2] / key(name)[2:]


def made(path: Path, content: bytes = b"mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def cache(directory: Path, *arguments: object, status: int = 0, **environ: object) -> str:
    """Run a command on the cache in `directory`; return its output and its errors."""
    found, output, errors = run("cache", *arguments, **{"CUDA_EXT_CACHE": directory, **environ})
    assert found == status, output + errors
    return output + errors


def cache_json(directory: Path) -> Any:
    return json.loads(cache(directory, "--json"))


def facts(directory: Path, **environ: object) -> dict[str, str]:
    lines = cache(directory, **environ).splitlines()
    return {line[:15].rstrip(): line[15:] for line in lines}


# Place and size.


@pytest.mark.parametrize("command", [(), ("clear",)])
def test_a_missing_cache_is_not_created(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert "0 B" in cache(tmp_path / "a" / "cache", *command)
    assert list(tmp_path.iterdir()) == []


def test_the_size_is_that_of_all_entries(tmp_path: Path) -> None:
    size = sum(kept(tmp_path, number, bytes(number)).stat().st_size for number in range(3))
    made(tmp_path / "objects" / "note")
    made(tmp_path / HEADERS / "cccl" / "cuda.h", bytes(2048))
    assert facts(tmp_path, CUDA_EXT_CACHE_SIZE="1K") == {
        "directory": str(tmp_path),
        "used": "yes",
        "size": f"{size} B of 1 KiB",
        "NVRTC headers": "2 KiB",
    }
    assert cache_json(tmp_path) == {
        "directory": str(tmp_path),
        "used": True,
        "reason": None,
        "shared": None,
        "size": size,
        "bound": 5 << 30,
        "nvrtc_headers": 2048,
    }


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


@unix
def test_a_cache_that_others_may_write_is_left_alone(tmp_path: Path) -> None:
    """The reason is shown, and nothing is removed."""
    kept(tmp_path, 1)
    made(tmp_path / HEADERS / "cuda.h")
    tmp_path.chmod(0o777)
    before = sorted(tmp_path.rglob("*"))
    reason = "other users may write there (mode 777)"
    assert reason in facts(tmp_path)["used"]
    assert cache_json(tmp_path)["used"] is False
    for command in (["clear"], ["clear", "--headers"]):
        output = cache(tmp_path, *command, status=1)
        assert output.startswith(f"{tmp_path}: the cache is left alone: {reason}; ")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("below", [".", "cache", "deep/cache"])
def test_a_file_in_place_of_the_cache_is_an_error(tmp_path: Path, below: str) -> None:
    file = made(tmp_path / "file")
    assert facts(file / below)["used"].endswith("a file is where a directory should be; move it")
    assert "the cache is left alone: " in cache(file / below, "clear", status=1)
    assert file.read_bytes() == b"mine"


@needs_mount
def test_a_read_only_disk_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        entry = kept(disk, 1)
        made(disk / HEADERS / "cuda.h")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert "it is read-only; set CUDA_EXT_CACHE to" in facts(disk)["used"]
        assert "it is read-only; set CUDA_EXT_CACHE to" in facts(disk / "cache")["used"]
        assert "2 files or directories could not be removed" in cache(disk, "clear", "--headers", status=1)
        assert entry.exists()


# What is removed, and what is not.


def files(directory: Path) -> set[str]:
    return {p.relative_to(directory).as_posix() for p in directory.rglob("*") if not p.is_dir()}


def test_clear_removes_entries(tmp_path: Path) -> None:
    for number in range(3):
        kept(tmp_path, number)
    with store(tmp_path).lock(key(1)):
        pass
    unfinished = tmp_path / "objects" / key(1)[:2] / f".{key(1)[2:]}.0a.cuda_ext"
    made(unfinished, bytes(10))
    store(tmp_path).prune()
    assert (tmp_path / "objects" / "total").exists()
    assert cache(tmp_path, "clear") == f"{tmp_path}: removed {3 * 242 + 10} B\n"
    assert files(tmp_path) <= {f"objects/locks/{key(1)[:2]}"}
    assert cache(tmp_path, "clear") == f"{tmp_path}: removed 0 B\n"
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
        made(directory / "objects" / "AB" / key(6)[2:]),
        made(directory / "nvrtc-headers" / "note"),
        made(directory / "my-nvrtc-headers-13.5" / "note"),
    ]
    (directory / "objects" / key(2)[:2]).symlink_to(elsewhere)
    (shard / key(7)[2:]).symlink_to(foreign[0])
    os.mkfifo(shard / key(8)[2:])
    cache(directory, "clear", "--headers")
    assert not entry.exists()
    assert all(file.read_bytes() == b"mine" for file in foreign)
    assert (directory / "objects" / key(2)[:2]).is_symlink()
    assert (shard / key(7)[2:]).is_symlink()
    assert stat.S_ISFIFO((shard / key(8)[2:]).stat().st_mode)


@unix
def test_clear_removes_headers_on_request(tmp_path: Path) -> None:
    kept(tmp_path / "cache", 1)
    elsewhere, link = made(tmp_path / "elsewhere" / "cuda.h"), tmp_path / "cache" / "nvrtc-headers-13.4"
    link.symlink_to(elsewhere.parent)
    for version in ("13.5", "14.0"):
        made(tmp_path / "cache" / f"nvrtc-headers-{version}" / "cccl" / "cuda.h")
    cache(tmp_path / "cache", "clear")
    assert (tmp_path / "cache" / HEADERS / "cccl" / "cuda.h").exists()
    assert cache(tmp_path / "cache", "clear", "--headers").endswith(": removed 8 B\n")
    assert {p.name for p in (tmp_path / "cache").iterdir()} == {"objects", link.name}
    assert elsewhere.exists()


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
    directory, stop = tmp_path / "cache", made(tmp_path / "stop", b"")
    work = [sys.executable, "-c", WORK, str(directory), str(stop)]
    environ = {**os.environ, "CUDA_EXT_CACHE": str(directory)}
    workers = [
        subprocess.Popen(work, cwd=Path(__file__).parents[2], env=environ, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for _ in range(2):
            while not list(directory.glob("objects/??/*")):
                assert all(worker.poll() is None for worker in workers)
            assert cache_json(directory)["size"] > 0
            assert not cache(directory, "clear").endswith("removed 0 B\n")
    finally:
        stop.write_text("now")
        errors = [worker.communicate(timeout=300)[1] for worker in workers]
    assert errors == ["", ""]


@pytest.mark.parametrize("command", [(), ("clear",), ("clear", "--headers")], ids=" ".join)
def test_a_cache_that_is_removed_meanwhile_is_no_failure(tmp_path: Path, command: tuple[str, ...]) -> None:
    directory, stop = tmp_path / "cache", threading.Event()
    for number in range(300):
        kept(directory, number)
        made(directory / HEADERS / str(number) / "header.h")

    def remove() -> None:
        while not stop.wait(0.01):
            shutil.rmtree(directory, ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        cache(directory, *command)
    finally:
        stop.set()
        remover.join()
