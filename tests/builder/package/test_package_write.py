"""Writing a generated package: completely or not at all, and never over files of others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ext.builder.package.generate import Package
from cuda_ext.errors import BuildError
from cuda_ext.filesystem.atomic_directory import replace_file
from tests.fixtures.disks import mounted, needs_mount

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals, links and mounts are those of Unix")

MANIFEST = {"schema": 1, "module": "p.kernels"}


def package(letter: str = "a", size: int = 100) -> Package:
    """Return a package with that letter in the content or the name of every file."""
    return Package(
        "p.kernels",
        {
            "__init__.py": letter.encode(),
            f"{letter}.fatbin": letter.encode() * size,
            "manifest.json": json.dumps(
                {
                    **MANIFEST,
                    "units": [{"images": [{"file": f"{letter}.fatbin"}]}],
                    "embedded": {f"device/{letter}.cu": ""},
                }
            ).encode(),
            f"sources/device/{letter}.cu": letter.encode(),
        },
    )


def content(directory: Path) -> dict[str, bytes]:
    files = (p for p in directory.rglob("*") if not p.is_dir())
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in files}


def names(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir())


def refused(directory: Path) -> str:
    with pytest.raises(BuildError) as caught:
        package("b").write(directory)
    return str(caught.value)


# What is there afterwards.


def test_a_package_is_written_with_its_directories(tmp_path: Path) -> None:
    directory = tmp_path / "build" / "lib" / "p" / "kernels"
    assert package().write(directory) == [directory / name for name in package().files]
    assert content(directory) == package().files


def test_all_users_may_read_the_package(tmp_path: Path) -> None:
    package().write(tmp_path / "kernels")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "kernels").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_to_a_generated_package_is_replaced(tmp_path: Path) -> None:
    package("a").write(tmp_path / "elsewhere")
    (tmp_path / "kernels").symlink_to("elsewhere")
    package("b").write(tmp_path / "kernels")
    assert not (tmp_path / "kernels").is_symlink()
    assert content(tmp_path / "kernels") == package("b").files
    assert content(tmp_path / "elsewhere") == package("a").files


@pytest.mark.parametrize("name", ["", ".gitignore", ".DS_Store", "__pycache__/__init__.cpython-311.pyc"])
def test_files_of_the_last_package_and_of_tools_vanish(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "mein [Projekt] ü" / "größe"
    directory.mkdir(parents=True)  # an empty directory is filled
    package("a").write(directory)
    if name:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text("")
    package("b").write(directory)
    assert content(directory) == package("b").files
    assert names(directory.parent) == ["größe"]


# What is not ours stays.


def in_the_way(path: Path) -> str:
    return (
        f"{path}: is where the generated package p.kernels goes, and was not generated; "
        "move it, or rename the module"
    )


@pytest.mark.parametrize(
    "files",
    [
        ["helpers.py"],
        ["__init__.py"],
        ["__init__.py", "__pycache__/__init__.pyc"],
        ["data.fatbin"],
        ["sources/a.cu"],
    ],
)
def test_a_directory_that_is_not_ours_is_refused(tmp_path: Path, files: list[str]) -> None:
    directory = tmp_path / "kernels"
    for name in files:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("mine")
    assert refused(directory) == in_the_way(directory / Path(files[0]).parts[0])
    assert content(directory) == dict.fromkeys(files, b"mine")


@pytest.mark.parametrize("manifest", ["{}", '{"name": "web app"}', "[]", "not JSON"])
def test_a_manifest_of_something_else_makes_no_directory_ours(tmp_path: Path, manifest: str) -> None:
    directory = tmp_path / "kernels"
    directory.mkdir()
    (directory / "manifest.json").write_text(manifest)
    (directory / ".gitignore").write_text("*")
    file = directory / "manifest.json"
    assert refused(directory) == (
        f"{file}: is where the generated package p.kernels goes, and was not generated; "
        f"it does not list generated files; if a build made {directory}, remove that"
    )
    assert file.read_text() == manifest


def test_a_users_file_in_a_generated_package_is_not_lost(tmp_path: Path) -> None:
    directory = tmp_path / "kernels"
    package("a").write(directory)
    (directory / "helpers.py").write_text("mine")
    assert refused(directory) == in_the_way(directory / "helpers.py")
    assert content(directory) == {**package("a").files, "helpers.py": b"mine"}


@pytest.mark.parametrize(
    "name", ["helpers.py", "__pycache__/notes.txt", "__pycache__.txt", ".nfs-notes", "sources/.DS_Store/a"]
)
def test_what_no_tool_leaves_in_a_package_stays(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "__pycache__" / "kernels"  # the names of parents do not matter
    package("a").write(directory)
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_text("mine")
    assert "was not generated" in refused(directory)
    assert (directory / name).read_text() == "mine"


def test_a_link_in_a_package_to_a_directory_of_others_stays(tmp_path: Path) -> None:
    package("a").write(tmp_path / "kernels")
    (tmp_path / "kernels/sources").rename(tmp_path / "elsewhere")
    (tmp_path / "kernels/sources").symlink_to(tmp_path / "elsewhere")
    assert refused(tmp_path / "kernels") == in_the_way(tmp_path / "kernels/sources")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "a//x", "./x", "C:/x", "..\\x", ""])
def test_a_file_name_does_not_leave_the_package(tmp_path: Path, name: str) -> None:
    with pytest.raises(BuildError, match="is not a path within it"):
        Package("p.kernels", {"__init__.py": b"", name: b"mine"}).write(tmp_path / "p" / "kernels")
    assert list(tmp_path.rglob("*")) == []


def test_what_only_looks_like_the_remains_of_a_writer_stays(tmp_path: Path) -> None:
    mine = [tmp_path / ".kernels.backup.cuda_ext/note", tmp_path / ".kernels.b.cuda_ext"]
    mine[0].parent.mkdir()
    for path in mine:
        path.write_text("mine")
    (tmp_path / "elsewhere/new").mkdir(parents=True)
    (tmp_path / ".kernels.link.cuda_ext").symlink_to("elsewhere")
    package("a").write(tmp_path / "kernels")
    assert [path.read_text() for path in mine] == ["mine", "mine"]
    assert (tmp_path / ".kernels.link.cuda_ext/new").is_dir()


@pytest.mark.parametrize("name", ["kernels", "kernels.py"])
def test_a_file_in_the_packages_place_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    assert refused(tmp_path / "kernels") == in_the_way(tmp_path / name)
    assert content(tmp_path) == {name: b"mine"}


def test_a_link_to_nowhere_in_the_packages_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernels").symlink_to("gone")
    assert refused(tmp_path / "kernels") == in_the_way(tmp_path / "kernels")
    assert (tmp_path / "kernels").readlink() == Path("gone")


def test_a_file_in_the_place_of_a_parent_is_reported(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("mine")
    message = refused(tmp_path / "p" / "kernels")
    assert message.startswith(f"{tmp_path / 'p' / 'kernels'}: cannot write the generated package p.kernels: ")
    assert message.endswith("; a file is where a directory must be: move it")


# Disks that are full, read-only, or layered.


@needs_mount
def test_a_full_disk_leaves_the_old_package(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=64k", "none") as disk:
        directory = disk / "kernels"
        package("a", 20_000).write(directory)
        with pytest.raises(BuildError) as caught:
            package("b", 40_000).write(directory)
        assert str(caught.value) == (
            f"{directory}: cannot write the generated package p.kernels: No space left on device; "
            "free some space and build again"
        )
        assert content(disk) == {f"kernels/{n}": c for n, c in package("a", 20_000).files.items()}


@needs_mount
def test_a_full_disk_leaves_no_new_package(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=64k", "none") as disk:
        with pytest.raises(BuildError, match="No space left on device"):
            package("b", 100_000).write(disk / "kernels")
        assert names(disk) == []


@needs_mount
def test_a_read_only_disk_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        package("a").write(disk / "kernels")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert refused(disk / "kernels") == (
            f"{disk / 'kernels'}: cannot write the generated package p.kernels: Read-only file system; "
            "make it writable"
        )
        assert content(disk / "kernels") == package("a").files


@needs_mount
def test_a_package_from_the_layer_of_a_container_image_is_replaced(tmp_path: Path) -> None:
    # Such a directory can be neither renamed nor exchanged.
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        for name in ("upper", "work"):
            (disk / name).mkdir()
        package("a").write(disk / "lower" / "kernels")
        options = f"lowerdir={disk}/lower,upperdir={disk}/upper,workdir={disk}/work"
        with mounted(disk / "container", "-t", "overlay", "-o", options, "overlay") as container:
            package("b").write(container / "kernels")
            assert content(container) == {f"kernels/{n}": c for n, c in package("b").files.items()}


# Writers that are killed, and writers at once.

WRITE_FOREVER = """
import itertools, sys
from pathlib import Path
from tests.builder.package.test_package_write import package
for letter in itertools.cycle(sys.argv[2:]):
    package(letter, 100_000).write(Path(sys.argv[1]))
"""
KILL_WRITERS = """
import os, random, signal, sys, time
from pathlib import Path
from tests.builder.package.test_package_write import content, names, package

directory = Path(sys.argv[1])
whole = [package(letter, 100_000).files for letter in "ab"]
package("a", 100_000).write(directory)
for _ in range(200):
    if (child := os.fork()) == 0:
        while True:
            package("b", 100_000).write(directory)
            package("a", 100_000).write(directory)
    time.sleep(random.uniform(0, 0.004))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert content(directory) in whole, sorted(content(directory))
package("b", 100_000).write(directory)
assert names(directory.parent) == ["kernels"], names(directory.parent)
"""


def python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform == "darwin", reason="forks of Python are not safe on macOS")
def test_a_killed_writer_leaves_the_old_package_or_the_new(tmp_path: Path) -> None:
    _, errors = python(KILL_WRITERS, tmp_path / "kernels").communicate(timeout=300)
    assert errors == ""


def test_the_remains_of_a_killed_writer_are_removed_by_the_next(tmp_path: Path) -> None:
    package("a").write(tmp_path / ".kernels.k1ll3d.cuda_ext" / "new")
    package("b").write(tmp_path / "kernels")
    assert names(tmp_path) == ["kernels"]


def test_two_writers_at_once_leave_one_of_their_packages(tmp_path: Path) -> None:
    directory = tmp_path / "kernels"
    rounds = WRITE_FOREVER.replace("cycle(sys.argv[2:])", "chain.from_iterable([sys.argv[2:]] * 25)")
    writers = [python(rounds, directory, one, other) for one, other in ("ab", "cd")]
    assert [writer.communicate(timeout=300)[1] for writer in writers] == ["", ""]
    assert content(directory) in [package("b", 100_000).files, package("d", 100_000).files]
    assert names(tmp_path) == ["kernels"]


def test_the_package_exists_at_any_time_while_it_is_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "kernels"
    package("a").write(directory)
    writer = python(WRITE_FOREVER, directory, "a", "b")
    try:
        while not (directory / "b.fatbin").exists() and writer.poll() is None:
            pass
        assert all((directory / "manifest.json").exists() for _ in range(5_000))
    finally:
        writer.kill()
        writer.communicate()


def test_a_file_that_cannot_be_written_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        replace_file(tmp_path / "taken", b"content")
    assert (raised.value.filename, raised.value.filename2) == (str(tmp_path / "taken"), None)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
