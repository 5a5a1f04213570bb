"""Sources with host code in the manner of real ones: what NVRTC sees of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cuda_ext.compiler.compile_options import nvrtc_options
from cuda_ext.compiler.signatures.attempt import Attempt
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.spelling import plain_name
from cuda_ext.toolchain.programs.nvrtc_program import NvrtcProgram
from cuda_ext.toolchain.programs.without_host_code import HostCode
from tests.fixtures.device_code import nvrtc, unit
from tests.fixtures.messages import Messages

ARCHITECTURE = Architecture.parse("compute_90")


class Mixed(NamedTuple):
    """A source with its headers, and the kernels to instantiate or to find."""

    name: str
    text: str
    headers: dict[str, str]
    kernels: list[str]

    def unit(self, **options: Any) -> TranslationUnit:
        """The source as the builder reads it."""
        templates = [kernel for kernel in self.kernels if "<" in kernel]
        return unit(self.text, *templates, name="a.cu", headers=self.headers, skip_host_code=True, **options)


def read_sources() -> Iterator[Mixed]:
    """Read the sources of the file: below each are its headers and its kernels."""
    text = Path(__file__).with_name("host_code.txt").read_text(encoding="utf-8")
    for block in re.split(r"(?m)^== ", text)[1:]:
        title, _, rest = block.strip().partition("\n")
        text, _, kernels = rest.partition("\n-> ")
        source, *headers = re.split(r"(?m)^-- ", f"{text}\n")
        named = {name: content for name, _, content in (header.partition("\n") for header in headers)}
        yield Mixed(title, source, named, kernels.split("; "))


SOURCES = list(read_sources())
BUILT = [source for source in SOURCES if not source.name.startswith("refused")]
REFUSED = [source for source in SOURCES if source not in BUILT]


@pytest.mark.parametrize(
    "source",
    [pytest.param(s, marks=[pytest.mark.slow] * ("all of CUB" in s.name), id=s.name) for s in BUILT],
)
def test_a_source_with_host_code_is_compiled(source: Mixed) -> None:
    """By the front end, which is quick and shows all errors."""
    logs: list[str] = []

    def log_of(part: TranslationUnit) -> str:
        program = NvrtcProgram(part, Attempt(part.instantiate))
        directories = (f"-I{directory}" for directory in nvrtc().search_path(part))
        program.compile(
            ["-arch=compute_90", "-fdevice-syntax-only", *nvrtc_options("a.cu", part.options), *directories]
        )
        logs.append(program.log)
        return program.log

    whole = source.unit()
    settled = HostCode.find(whole, nvrtc().search_path(whole)).settled(log_of)
    assert " error: " not in logs[-1]
    left = b"\n".join([settled.device_unit.source, *settled.device_unit.headers.values()]).decode()
    for kernel in source.kernels:
        assert re.search(rf"\b{plain_name(kernel).rpartition('::')[2]}\s*\(", left)


def test_images_list_what_was_left_out() -> None:
    (compiled,) = nvrtc().compile(BUILT[0].unit(), [ARCHITECTURE])
    assert compiled.entries == ("_Z5scalePffi",)
    assert compiled.log == "host code left out, with its lines:\na.cu: launch_scale (7)"


def test_macros_of_macros_with_specifiers_make_device_code() -> None:
    text = "#define D __device__\n#define ID inline D\nID float half(float x) { return x / 2; }\nint f() {}\n"
    assert str(HostCode.find(unit(text, name="a.cu", skip_host_code=True), ())).endswith("\na.cu: f (4)")


def test_a_name_is_listed_once() -> None:
    whole = unit("struct P {\nint f() { return 1; }\n};", name="a.cu", skip_host_code=True)
    found = HostCode.find(whole, ())
    everything = replace(found, left_out=frozenset(("a.cu", item) for item in found.items["a.cu"]))
    assert str(everything).endswith("\na.cu: P (1), f (2)")


@pytest.mark.parametrize("source", REFUSED, ids=lambda source: source.name.partition(": ")[2])
def test_a_refusal_names_what_to_do(source: Mixed, messages: Messages) -> None:
    with pytest.raises(CompilationError) as error:
        nvrtc().compile(source.unit(), [ARCHITECTURE])
    messages(error.value)


def test_a_source_without_host_code_stays_the_same() -> None:
    source = unit("#include <cstdint>\n__global__ void k(uint32_t* x) { *x = 1; }\n")
    skipping = unit(source.source, skip_host_code=True)
    assert nvrtc().compile(source, [ARCHITECTURE]) == nvrtc().compile(skipping, [ARCHITECTURE])
