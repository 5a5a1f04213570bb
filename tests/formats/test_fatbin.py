"""Fatbins: packed images are read back, and damage is reported."""

from __future__ import annotations

import hashlib
import pickle
import random
import re
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

from cuda_ext.errors import BuildError, FatbinError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.manifest import Compression
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.toolchain import nvfatbin
from cuda_ext.toolchain.nvfatbin import write_fatbin

ROOT = Path(__file__).parents[2]
SOURCE = b"""
__constant__ int table[64] = {1, 2, 3};
template <class T> __device__ void axpy(int n, T a, const T* x, T* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  // Work for the compressors.
  #pragma unroll 8
  for (; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i] + table[i & 63];
}
extern "C" __global__ void f(int n, float a, const float* x, float* y) { axpy(n, a, x, y); }
extern "C" __global__ void d(int n, double a, const double* x, double* y) { axpy(n, a, x, y); }
"""
ARCHITECTURES = (
    *("sm_80", "sm_90", "sm_90a", "sm_100a", "sm_100f", "sm_120"),
    *("compute_90", "compute_90a", "compute_100f", "lto_90", "lto_90a", "lto_100f"),
)
COMPRESS = get_args(Compression)
COMPRESSED = tuple(mode for mode in COMPRESS if mode != "none")


class Image(NamedTuple):
    architecture: Architecture
    data: bytes


def compiled(architecture: str) -> Image:
    from cuda.bindings import nvrtc

    prefix, _, target = architecture.partition("_")
    options = [f"-arch={'sm' if prefix == 'sm' else 'compute'}_{target}".encode()]
    options += [b"-dlto"] * (prefix == "lto")
    _, program = nvrtc.nvrtcCreateProgram(SOURCE, b"unit.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    result = {"sm": "CUBIN", "compute": "PTX", "lto": "LTOIR"}[prefix]
    _, size = getattr(nvrtc, f"nvrtcGet{result}Size")(program)
    data = b" " * size
    getattr(nvrtc, f"nvrtcGet{result}")(program, data)
    nvrtc.nvrtcDestroyProgram(program)
    return Image(Architecture.parse(architecture), data)


@pytest.fixture(scope="module")
def images() -> list[Image]:
    return [compiled(architecture) for architecture in ARCHITECTURES]


def ptx_tokens(ptx: bytes) -> list[bytes]:
    return re.sub(rb"//.*", b"", ptx.rstrip(b"\0")).split()


def linked(kind: str, data: bytes, architecture: str) -> bytes:
    from cuda.bindings import nvjitlink

    options = [f"-arch=sm_{architecture.partition('_')[2]}", "-lto"]
    handle = nvjitlink.create(len(options), options)
    try:
        nvjitlink.add_data(handle, getattr(nvjitlink.InputType, kind), data, len(data), "unit")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin)
    finally:
        nvjitlink.destroy(handle)


@pytest.mark.parametrize("compress", COMPRESS)
def test_packed_images_are_read_back(images, compress):
    entries = read_fatbin(write_fatbin(images, compress))
    assert [(e.kind, e.architecture) for e in entries] == [
        (i.architecture.kind, str(i.architecture)) for i in images
    ]
    for image, entry in zip(images, entries, strict=True):
        if entry.scrambled:
            assert entry.kind == "ltoir"
            assert entry.size == len(image.data)
            with pytest.raises(FatbinError, match=f"{entry.architecture} is scrambled"):
                entry.payload()
        elif entry.kind == "ptx":
            assert ptx_tokens(entry.payload()) == ptx_tokens(image.data)
        elif entry.codec == "none":
            padding = -len(image.data) % 8
            assert entry.payload() == image.data + bytes(padding)
            assert entry.size == len(image.data) + padding
        else:
            assert entry.payload() == image.data
            assert entry.size == len(image.data) > len(entry.stored)


@pytest.mark.parametrize(
    ("compress", "codec"),
    [("none", "none"), ("speed", "lz4"), ("balance", "zstd"), ("size", "zstd")],
)
def test_every_image_is_compressed_as_requested(images, compress, codec):
    entries = read_fatbin(write_fatbin(images, compress))
    assert {e.codec for e in entries} == {codec}
    assert {e.architecture for e in entries if e.scrambled} == (
        set() if compress == "none" else {"lto_90", "lto_90a", "lto_100f"}
    )


@pytest.mark.parametrize("compress", COMPRESS)
def test_scrambled_lto_ir_links_to_the_same_cubin(images, compress):
    image = next(i for i in images if str(i.architecture) == "lto_90")
    fatbin = write_fatbin([image], compress)
    assert linked("FATBIN", fatbin, "sm_90") == linked("LTOIR", image.data, "sm_90")


def test_each_mode_is_smaller_than_the_one_before(images):
    sizes = [len(write_fatbin(images, compress)) for compress in COMPRESS]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("compress", COMPRESS)
@pytest.mark.parametrize("threads", [False, True])
def test_images_written_one_by_one_are_a_fatbin_of_nvfatbin(images, compress, threads, monkeypatch):
    from cuda.bindings import nvfatbin as library

    options = ["-host=linux", "-compress-all", f"-compress-mode={compress}"]
    handle = library.create(options, len(options))
    for architecture, data in images:
        texts = [""] if architecture.kind == "cubin" else ["", ""]
        getattr(library, f"add_{architecture.kind}")(handle, data, len(data), architecture.target, *texts)
    expected = bytearray(library.size(handle))
    library.get(handle, expected)
    library.destroy(handle)
    monkeypatch.setattr(nvfatbin, "_LARGE", 0 if threads else 1 << 30)
    assert write_fatbin(images, compress) == expected


def digests(images: list[Image]) -> list[str]:
    return [hashlib.sha256(write_fatbin(images, compress)).hexdigest() for compress in COMPRESS]


def test_the_same_images_give_the_same_bytes(images, tmp_path, monkeypatch):
    (tmp_path / "images").write_bytes(pickle.dumps(images))
    script = (
        "import pathlib, pickle, sys\n"
        "from tests.formats.test_fatbin import digests\n"
        "print(*digests(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())))\n"
    )
    # glibc fills memory with this byte, which would appear where nvFatbin writes nothing.
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
    command = [sys.executable, "-c", script, str(tmp_path / "images")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == digests(images) == digests(images)


def test_a_zero_byte_after_ptx_makes_no_difference(images):
    ptx = next(i for i in images if i.architecture.kind == "ptx")
    assert ptx.data.endswith(b"\0")
    without = Image(ptx.architecture, ptx.data.rstrip(b"\0"))
    assert digests([without]) == digests([ptx])


def test_importing_loads_no_library():
    script = (
        "import sys, cuda_ext.formats.fatbin\n"
        "assert not {'cuda.bindings', 'zstandard', 'lz4'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_a_refused_image_is_reported_with_the_message_of_nvfatbin(images):
    cubin = next(i for i in images if str(i.architecture) == "sm_80")
    wrong = Image(Architecture.parse("sm_90"), cubin.data)
    with pytest.raises(BuildError, match=r"refuses sm_90: .* elf arch does not match"):
        write_fatbin([wrong], "size")
    with pytest.raises(BuildError, match="compute_90: empty input"):
        write_fatbin([Image(Architecture.parse("compute_90"), b"")], "size")


def test_fatbins_in_a_row_are_read_as_one(images):
    first, second = write_fatbin(images[:2], "size"), write_fatbin(images[2:], "none")
    entries = read_fatbin(first + second)
    assert [e.architecture for e in entries] == list(ARCHITECTURES)
    assert entries[2].offset == len(first) + 16
    assert entries[1].payload() == images[1].data


def test_an_identifier_and_options_are_no_part_of_the_image(images):
    from cuda.bindings import nvfatbin

    ptx = next(i for i in images if str(i.architecture) == "compute_90")
    handle = nvfatbin.create([], 0)
    nvfatbin.add_ptx(handle, ptx.data, len(ptx.data), "90", "unit.cu", "-O3 --fmad=false")
    fatbin = bytearray(nvfatbin.size(handle))
    nvfatbin.get(handle, fatbin)
    nvfatbin.destroy(handle)
    (entry,) = read_fatbin(bytes(fatbin))
    assert entry.payload().lstrip().startswith(b".version")


def read_all(data: bytes) -> None:
    for entry in read_fatbin(data):
        if not entry.scrambled:
            entry.payload()


@pytest.mark.parametrize("compress", COMPRESS)
def test_every_truncation_is_noticed(images, compress):
    fatbin = write_fatbin(images[:1], compress)
    for size in range(len(fatbin)):
        with pytest.raises(FatbinError, match=r"^fatbin"):
            read_fatbin(fatbin[:size])


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 16, b"garbage" * 9, b"\x50\xed\x55\xba"])
def test_trailing_bytes_are_noticed(images, tail):
    fatbin = write_fatbin(images[:1], "size")
    with pytest.raises(FatbinError, match=f"offset {len(fatbin)}"):
        read_fatbin(fatbin + tail)


@pytest.mark.parametrize("compress", COMPRESS)
def test_random_damage_is_read_or_reported_as_one_error(images, compress):
    rng = random.Random(compress)
    some = [i for i in images if str(i.architecture) in {"sm_90", "sm_100f", "compute_90a", "lto_90"}]
    fatbin = write_fatbin(some, compress)
    headers = [o + i for o in (0, *(e.offset for e in read_fatbin(fatbin))) for i in range(64)]
    complaints = []
    tracemalloc.start()
    for _ in range(400):
        damaged = bytearray(fatbin)
        for _ in range(rng.choice((1, 1, 2, 8))):
            place = rng.choice(headers) if rng.random() < 0.7 else rng.randrange(len(fatbin))
            damaged[place] ^= 1 << rng.randrange(8)
        try:
            read_all(bytes(damaged))
        except FatbinError as error:
            complaints.append(str(error))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(complaints) > 150
    assert all(re.match(r"fatbin, offset \d+: ", complaint) for complaint in complaints)
    assert peak < 300 * len(fatbin)


@pytest.mark.parametrize("junk", [b"", b"\0", b"\x7fELF" * 40, bytes(99), b"\x50\xed\x55\xba" * 20])
def test_other_files_are_no_fatbins(junk):
    with pytest.raises(FatbinError, match=r"^fatbin"):
        read_fatbin(junk)


@pytest.mark.parametrize(
    ("place", "form", "value", "complaint"),
    [
        (16 + 0, "<H", 0x40, "offset 16: unknown sort of entry: kind 0x40"),
        (16 + 2, "<H", 0x202, "version 0x202"),
        (16 + 4, "<I", 0, "offset 16: header of 0 bytes"),
        (16 + 4, "<I", 0xFFFFFFFF, "offset 16: header of 4294967295 bytes"),
        (16 + 8, "<Q", 2**64 - 1, "payload of 18446744073709551615 bytes"),
        (16 + 16, "<I", 0xFFFFFFFF, "payload of 4294967295 bytes"),
        (16 + 40, "<Q", 0xA011, "flags 0xa011"),
        (16 + 40, "<Q", 0x308011, "flags 0x308011"),
        (16 + 56, "<Q", 2**63, "9223372036854775808 bytes out of"),
        (8, "<Q", 2**64 - 1, "cut off"),
    ],
)
def test_a_wrong_field_is_named_with_its_offset(images, place, form, value, complaint):
    fatbin = bytearray(write_fatbin(images[:1], "size"))
    struct.pack_into(form, fatbin, place, value)
    with pytest.raises(FatbinError, match=complaint):
        read_fatbin(bytes(fatbin))


@pytest.mark.parametrize("compress", COMPRESSED)
@pytest.mark.parametrize("change", [-1, 1, 10_000])
def test_a_wrong_size_is_noticed_before_it_is_allocated(images, compress, change):
    fatbin = bytearray(write_fatbin(images[:1], compress))
    (size,) = struct.unpack_from("<Q", fatbin, 16 + 56)
    struct.pack_into("<Q", fatbin, 16 + 56, size + change)
    with pytest.raises(FatbinError, match="offset 16: sm_80 is damaged"):
        read_all(bytes(fatbin))


@pytest.mark.parametrize(("compress", "package"), [("speed", "lz4"), ("size", "zstandard")])
def test_a_missing_package_is_named(images, monkeypatch, compress, package):
    (entry,) = read_fatbin(write_fatbin(images[:1], compress))
    monkeypatch.setitem(sys.modules, f"{package}.block" if package == "lz4" else package, None)
    with pytest.raises(FatbinError, match=f"package {package}"):
        entry.payload()
