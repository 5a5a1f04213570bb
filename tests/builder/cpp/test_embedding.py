"""Files embedded in C++: a compiled program has their exact bytes, for any content and path."""

from __future__ import annotations

import ctypes
import hashlib
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cuda_ext.builder.cpp.embedding import Embedded, assembled, literal, quoted
from cuda_ext.builder.cpp.object_file import object_file
from cuda_ext.builder.package.generate import Package
from cuda_ext.facts import manifest
from cuda_ext.facts.manifest import Image, Manifest, Unit
from cuda_ext.facts.sources import Source
from tests.fixtures import cpp_modules
from tests.fixtures.cpp_modules import LOADER, compile_cpp, write_cpp

CASES = {
    "empty": b"",
    "one": b"a",
    "zero": b"\0",
    "every": bytes(range(256)) * 3,
    "zeros": bytes(200_000),
    "no_zeros": bytes(range(1, 256)) * 500,
    "just_short_enough": b"x" * 59_999,
    "just_too_long": b"x" * 60_000,
    "too_long_in_the_middle": b"x" * 60_001 + b"\0" + b"y" * 60_000,
    "zero_at_the_end": b"y" * 60_001 + b"\0",
    "escapes": b"\0007\18\0019 \\1 \" ' ?? ??= ???/ ????' \\ \x7f7 \xff8 \x1f0 \x0a\x0d%s {1}",
    "random": random.Random(1).randbytes(300_000),
}
TEXTS = {name: content for name, content in CASES.items() if b"\0" not in content}


# -------------------------------------------------------------------------------------- the literal form

_ARRAY = re.compile(r'(?P<literals>(?:"(?:\\.|[^"\\])*"\n?)+),\n|\{(?P<listed>[^}]*)\},\n')
_CHARACTER = re.compile(r"\\([0-7]{1,3})|\\(.)|(.)", re.DOTALL)


def read_arrays(text: str) -> Iterator[tuple[list[bytes], bool]]:
    """Yield the bytes of each array in a file of :func:`literal`, and whether they are listed as numbers."""
    body = text[text.index("_storage = {\n") + len("_storage = {\n") : text.rindex("};\n")]
    assert _ARRAY.sub("", body) == ""
    for array in _ARRAY.finditer(body):
        if array["listed"] is not None:
            numbers = array["listed"].replace("'\\", "0o").replace("'", "").split(",")
            yield [bytes(int(number, 0) for number in numbers)], True
        else:
            yield [unescaped(line[1:-1]) for line in array["literals"].split("\n")], False


def unescaped(text: str) -> bytes:
    found = _CHARACTER.findall(text)
    return bytes(int(octal, 8) if octal else ord(named or plain) for octal, named, plain in found)


@pytest.mark.parametrize("element", ["char", "unsigned char"])
@pytest.mark.parametrize("name", CASES)
def test_literals_hold_the_bytes_within_the_limits_of_compilers(name, element):
    text = literal(Embedded("data", Path("file"), CASES[name], element)).decode("ascii")
    sizes = [int(size) for size in re.findall(rf"^  {element} part_\d+\[(\d+)\];$", text, re.MULTILINE)]
    found = b""
    for size, (literals, is_listed) in zip(sizes, read_arrays(text), strict=True):
        content = b"".join(literals)
        if is_listed:
            assert size == len(content)
        else:
            assert size == len(content) + 1 <= 65_535  # with the zero byte that a literal brings
            assert max(map(len, literals)) <= 16_380
        found += content.ljust(size, b"\0")
    assert found == CASES[name] + b"\0"
    assert f"sizeof(data_storage) == {len(found)}," in text
    assert "??" not in text


def test_only_bytes_without_a_zero_nearby_are_listed():
    text = literal(Embedded("data", Path("file"), b"x" * 60_000 + b"\0" + b"y" * 1000)).decode()
    assert text.count("{") == 3  # the struct, its initialiser, and one list
    assert re.search(r"^\{120\},$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'a"\\\0\x01\x1f\x7f\xff ?', r"a\"\\\0\1\37\177\377 ?"),
        (b"\x011\x018\x01a\x7f1", r"\0011\0018\1a\1771"),
        (b"?? ??? ??1", r"?\077 ?\077? ?\0771"),
    ],
)
def test_a_literal_is_the_shortest_that_is_safe(content, expected):
    assert f'\n"{expected}",\n' in literal(Embedded("data", Path("file"), content)).decode()


def test_text_for_tables_is_plain():
    assert quoted('größer?? "1"\\\n') == r'"gr\303\266\303\237er?\077 \"1\"\\\12"'


def test_a_path_is_plain_to_the_compiler():
    embedded = Embedded("data", Path('/a b/"ö"\\\n'), b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    assert assembled(embedded) == rf'data, "{digest}", "/a b/\\042\\303\\266\\042\\134\\012"'


# ------------------------------------------------------------------------------------------ in programs

READ_BACK = r"""
#include <awkward/kernels.h>
#include <cstdio>
#include <string>

// Writes what follows each of the pointers that the module has, a zero byte included.
int main(int, char** arguments) {
  const cuda_ext::ModuleData& module = awkward::kernels::cuda_ext_library().data();
  const auto write = [&](std::string name, const void* data, std::size_t size) {
    for (char& letter : name) letter = letter == '/' ? '.' : letter;
    std::FILE* file = std::fopen((arguments[1] + ("/" + name)).c_str(), "wb");
    std::fwrite(data, 1, size + 1, file);
    std::fclose(file);
    return reinterpret_cast<std::size_t>(data) % 64 == 0;
  };
  bool aligned = true;
  for (const auto& unit : module.units) {
    for (const auto& image : unit.images) aligned &= write(unit.sources, image.data, image.size);
  }
  for (int i = 0; i < module.headers.count; i++) {
    const std::string text = module.headers.texts[i];
    aligned &= write(module.headers.names[i], module.headers.texts[i], text.size());
  }
  return aligned ? 0 : 1;
}
"""


def package_of(files: Mapping[str, bytes], texts: Mapping[str, bytes]) -> Package:
    """Return a module with `files` as images and `texts` as headers."""
    images = {
        name: Image("sm_90", f"{name}.cubin", 1, hashlib.sha256(content).hexdigest())
        for name, content in files.items()
    }
    made = Manifest(
        schema=manifest.SCHEMA,
        module="awkward.kernels",
        compiler="nvrtc",
        version="13.5",
        compress="none",
        units=tuple(Unit((Source(name),), (image,)) for name, image in images.items()),
        kernels=(),
        symbols=(),
        embedded={name: hashlib.sha256(content).hexdigest() for name, content in texts.items()},
    )
    return Package(
        made.module,
        {
            manifest.FILE_NAME: manifest.dumps(made).encode(),
            **{f"{name}.cubin": content for name, content in files.items()},
            **{f"sources/{name}": content for name, content in texts.items()},
        },
    )


@pytest.mark.host_compiler
@pytest.mark.parametrize("embed", ["incbin", "literal", "object"])
def test_a_program_holds_every_byte_aligned_and_terminated(embed, tmp_path):
    files = dict(CASES)
    if embed != "literal":
        files["large"] = random.Random(2).randbytes(20_000_000)
    texts = {f"include/{name}.cuh": content for name, content in TEXTS.items()}
    directory = tmp_path / "späße \"und\" 'mehr' $x %d \\n {1|2} ; #"
    module = write_cpp(package_of(files, texts), directory, embed)
    (directory / "main.cpp").write_text(READ_BACK)
    sources = directory / "main.cpp", directory / module.source, LOADER, *directory.glob("*.o")
    compile_cpp(f"-I{directory / 'include'}", *sources, "-o", tmp_path / "program", "-ldl")
    found = tmp_path / "found"
    found.mkdir()
    subprocess.run([tmp_path / "program", found], check=True, timeout=300)
    for name, content in files.items():
        assert (found / name).read_bytes() == content + b"\0", name
    for name, content in texts.items():
        assert (found / name.replace("/", ".")).read_bytes() == content + b"\0", name
    assert len(list(found.iterdir())) == len(files) + len(texts)


@pytest.mark.host_compiler
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_an_object_is_whole_and_hides_its_symbols(machine: str, tmp_path: Path) -> None:
    files = [Embedded("first", Path(), b"12"), Embedded("second", Path(), b"345", "char")]
    (tmp_path / "images.o").write_bytes(object_file(files, machine))
    command = ["readelf", "--wide", "--file-header", "--sections", "--symbols", "images.o"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"LC_ALL": "C"}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert {"x86_64": "X86-64", "aarch64": "AArch64"}[machine] in done.stdout
    symbols = [line.split()[1:] for line in done.stdout.splitlines() if " OBJECT " in line]
    assert symbols == [
        ["0000000000000000", "3", "OBJECT", "GLOBAL", "HIDDEN", "1", "first"],
        ["0000000000000040", "4", "OBJECT", "GLOBAL", "HIDDEN", "1", "second"],
    ]


@pytest.mark.host_compiler
@pytest.mark.parametrize("embed", ["incbin", "literal"])
def test_a_module_has_a_name_beyond_ascii(embed, tmp_path):
    module = write_cpp(cpp_modules.package_of(name="größe.é"), tmp_path, embed)
    compile_cpp("-fsyntax-only", f"-I{tmp_path / 'include'}", tmp_path / module.source)


USER = """
#include <awkward/kernels.h>
extern "C" const void* data() { return awkward::kernels::cuda_ext_module.units[0].images[0].data; }
"""


@pytest.mark.host_compiler
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into ELF")
def test_one_static_library_in_two_shared_ones_with_link_time_optimisation(tmp_path):
    package = package_of({"image": b"image of mine"}, {})
    module = write_cpp(package, tmp_path, "incbin")
    flags = ("-O0", "-fPIC", "-flto", f"-I{tmp_path / 'include'}")
    objects = []
    for source in (tmp_path / module.source, LOADER):
        objects.append(tmp_path / f"{source.stem}.o")
        compile_cpp(*flags, "-c", source, "-o", objects[-1])
    subprocess.run(["gcc-ar", "rcs", tmp_path / "libkernels.a", *objects], check=True)
    (tmp_path / "user.cpp").write_text(USER)
    addresses = set()
    for name in ("one.so", "two.so"):
        sources = (tmp_path / "user.cpp", tmp_path / "libkernels.a")
        compile_cpp(*flags, "-shared", *sources, "-o", tmp_path / name, "-ldl")
        library = ctypes.CDLL(str(tmp_path / name))
        library.data.restype = ctypes.c_void_p
        addresses.add(library.data())
        assert ctypes.string_at(library.data(), 14) == b"image of mine\0"
        exported = subprocess.run(
            ["nm", "-D", "--defined-only", tmp_path / name], capture_output=True, text=True, check=True
        ).stdout
        assert re.search(r"\bdata$", exported, re.MULTILINE)
        assert "awkward" not in exported
    assert len(addresses) == 2
