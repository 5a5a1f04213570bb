"""A module for the loader's tests, and a CUDA driver without a GPU that takes its images.

``tests/fake_driver/libcuda.c`` is compiled once, and found by subprocesses through LD_LIBRARY_PATH.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cuda_ext import manifest
from cuda_ext.manifest import Image, Kernel, Manifest, Parameter, Source, Symbol, Unit
from cuda_ext.runtime.driver import Device, open_driver

CHECKOUT = Path(__file__).resolve().parents[1]
GENERATED = '__import__("cuda_ext.runtime.module", fromlist=["bind"]).bind(__name__)\n'


def signature(*parameters: str) -> tuple[Parameter, ...]:
    """Parameters from lines such as ``pointer 8 const float* x``, laid out as C++ does."""
    laid_out = []
    offset = 0
    for line in parameters:
        kind, size, declaration = line.split(" ", 2)
        type_, _, name = declaration.rpartition(" ")
        bytes_ = int(size)
        alignment = bytes_ if bytes_ in (1, 2, 4, 8) else 4
        offset = -(-offset // alignment) * alignment
        element = type_.removeprefix("const ").removesuffix("*") if kind == "pointer" else None
        const = type_.startswith("const ")
        laid_out.append(Parameter(name, type_, kind, bytes_, offset, element, const))  # type: ignore[arg-type]
        offset += bytes_
    return tuple(laid_out)


def fatbin(text: str) -> bytes:
    """A fatbin of one image, which is `text` for the fake driver."""
    payload = text.encode() + b"\0"
    payload += bytes(-len(payload) % 8)
    entry = struct.pack(
        "<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(payload), 0, 0, 0, 0, 90, 0, 0, 0x10, 0, len(payload)
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(payload)) + entry + payload


def described(kernel: Kernel, lowered: str | None = None, static_shared: int = 0) -> str:
    """`kernel` as an image for the fake driver describes it."""
    sizes = "".join(f" {parameter.size}" for parameter in kernel.parameters)
    return f"kernel {lowered or kernel.lowered} {static_shared}{sizes}\n"


def unit(source: str, *architectures: str, names: Mapping[str, dict[str, str | None]] | None = None) -> Unit:
    """A unit whose images for `architectures` lie in one fatbin; `names` are those of single images."""
    stem = Path(source).stem
    kinds = {"sm": "cubin", "compute": "ptx", "lto": "ltoir"}
    images = tuple(
        Image(
            architecture,
            kinds[architecture.partition("_")[0]],  # type: ignore[arg-type]
            f"{stem}.fatbin",
            1000,
            hashlib.sha256(FILES.get(f"{stem}.fatbin", b"")).hexdigest(),
            (names or {}).get(architecture, {}),
        )
        for architecture in architectures
    )
    return Unit((Source(source),), images)


def _axpy(type_: str, letter: str, size: int) -> Kernel:
    parameters = ("integer 4 int n", f"float {size} {type_} a", f"pointer 8 const {type_}* x")
    return Kernel(f"axpy<{type_}>", f"_Z4axpyI{letter}Ev", 0, signature(*parameters, f"pointer 8 {type_}* y"))


AXPY, AXPY_DOUBLE = _axpy("float", "f", 4), _axpy("double", "d", 8)
FILL = Kernel("ns::fill<int, 256>", "_ZN2ns4fill", 0, signature("pointer 8 int* x", "integer 4 int value"))
SCALE = Kernel("ns::inner::scale", "_ZN2ns5inner5scale", 0, signature("float 4 float factor"))
OVERLOADS = (
    Kernel("ov(int)", "_Z2ovi", 0, signature("integer 4 int n")),
    Kernel("ov(float, int*)", "_Z2ovfPi", 0, signature("float 4 float a", "pointer 8 int* x")),
)
PLAIN = Kernel("plain", "plain", 0, ())
TILED = Kernel("tiled", "tiled", 0, ())
GEMM = Kernel("gemm", "gemm", 1, ())
LATER = Kernel("later", "later", 2, ())
WEIGHTS = Symbol("weights", "weights", 0, "constant", "float[9]", 36)
TABLE = Symbol("ns::table", "_ZN2ns5tableE", 0, "device", "unsigned char[4]", 4)

FILES = {
    "axpy.fatbin": fatbin(
        "".join(described(k) for k in (AXPY, AXPY_DOUBLE, FILL, SCALE, *OVERLOADS, PLAIN))
        + described(PLAIN, "plain_of_sm_80")
        + described(TILED, static_shared=40 << 10)
        + "symbol weights 36\nsymbol _ZN2ns5tableE 4\n"
    ),
    "gemm.fatbin": fatbin(described(GEMM)),
    "later.fatbin": fatbin(described(LATER)),
}

SAMPLE = Manifest(
    schema=manifest.SCHEMA,
    module="sample.kernels",
    compiler="nvrtc",
    version="13.5",
    compress="size",
    units=(
        unit(
            "device/axpy.cu",
            "sm_80",
            "sm_90",
            "compute_90",
            names={"sm_80": {"plain": "plain_of_sm_80", "tiled": None}},
        ),
        unit("device/gemm.cu", "sm_90a"),
        unit("device/later.cu", "compute_80"),
    ),
    kernels=(AXPY_DOUBLE, AXPY, GEMM, LATER, FILL, SCALE, *OVERLOADS[::-1], PLAIN, TILED),
    symbols=(TABLE, WEIGHTS),
)


def single_image(text: str, architecture: str, file: str) -> Image:
    """An image with a file of its own, as ``emit = "cubin"`` makes it."""
    kind = "ptx" if architecture.startswith("compute") else "cubin"
    content = text.encode()
    return Image(architecture, kind, file, len(content), hashlib.sha256(content).hexdigest())  # type: ignore[arg-type]


def write_module(
    directory: Path, name: str, kernels: Sequence[Kernel] = (), symbols: Sequence[Symbol] = ()
) -> None:
    """Write the package `name`, whose `kernels` and `symbols` are all in one image."""
    text = "".join(described(kernel) for kernel in kernels)
    text += "".join(f"symbol {symbol.lowered} {symbol.size}\n" for symbol in symbols)
    image = single_image(text, "sm_90", "all.sm_90.cubin")
    module = dataclasses.replace(
        SAMPLE,
        module=name,
        units=(Unit((Source("device/all.cu"),), (image,)),),
        kernels=tuple(kernels),
        symbols=tuple(symbols),
    )
    write_package(directory, module, {image.file: text.encode()})


def write_package(directory: Path, module: Manifest = SAMPLE, files: Mapping[str, bytes] = FILES) -> Path:
    """Write the package of `module`, as a build would, into `directory`; return its own directory."""
    package = directory.joinpath(*module.module.split("."))
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text(GENERATED)
    (package / manifest.FILE_NAME).write_text(manifest.dumps(module))
    for name, content in files.items():
        (package / name).write_bytes(content)
    return package


@dataclass(frozen=True)
class Run:
    """What a script printed, and which calls reached the driver, a line each."""

    output: list[str]
    calls: list[str]

    @property
    def launches(self) -> list[str]:
        return [call for call in self.calls if call.startswith("cuLaunch")]


PRELUDE = """
import sys
from cuda_ext import errors

def caught(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except errors.CudaExtError as error:
        print(f"{type(error).__name__}: {error}".replace("\\n", " "))
    else:
        print("nothing raised")

"""


def run_script(script: str, directory: Path, *options: str, **variables: str) -> Run:
    """Run Python code that finds the packages in `directory`, in a process of its own."""
    log = directory / "calls"
    log.write_text("")
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (directory, CHECKOUT))), "FAKE_CUDA_LOG": str(log)}
    done = subprocess.run(
        [sys.executable, *options, "-W", "error", "-c", PRELUDE + textwrap.dedent(script)],
        env={**os.environ, **environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Run(done.stdout.splitlines(), log.read_text().splitlines())


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the fake driver. Tests that take it carry the marker ``host_compiler``."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("the fake driver takes Linux and a C compiler")
    directory = tmp_path_factory.mktemp("fake_driver")
    source = CHECKOUT / "tests" / "fake_driver" / "libcuda.c"
    library = directory / "libcuda.so.1"
    subprocess.run(
        [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source],
        check=True,
    )
    return directory


@pytest.fixture
def with_driver(fake_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Runs a script under the fake driver, whose settings are given without their FAKE_CUDA_.

    The sample module can be imported, and lies in ``tmp_path``.
    """
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    write_package(tmp_path)

    def run(script: str, *options: str, **settings: str | int) -> Run:
        variables = {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}
        return run_script(script, tmp_path, *options, LD_LIBRARY_PATH=str(fake_driver), **variables)

    return run


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """The first GPU, its primary context made current while the tests of a file run."""
    first = open_driver().device(0)
    with first.current():
        yield first
