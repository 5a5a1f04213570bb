"""Sources with host code in the manner of real ones: what NVRTC sees of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuda_ext.compiler.headers import Headers
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.sources import Options
from tests.fixtures.device_code import nvrtc, unit
from tests.fixtures.messages import Messages

SOURCES = Path(__file__).parent / "host_code"
NAMES = sorted(path.name for path in SOURCES.glob("*.cu"))
ARCHITECTURE = Architecture.parse("compute_90")


def mixed(name: str, **options: object) -> TranslationUnit:
    """Return the source of that name, whose first line may list instantiations: ``// f<float>, g<2>``."""
    text, headers = Headers(SOURCES, [SOURCES]).gather(name)
    first = re.match(rb"// instantiate: (.*)\n", text)
    wanted = tuple(first[1].decode().split("; ")) if first else ()
    return TranslationUnit(name, text, "cu", headers, Options(skip_host_code=True, **options), wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("refused")])
def test_a_source_with_host_code_is_compiled(name: str) -> None:
    source = mixed(name)
    (compiled,) = nvrtc().compile(source, [ARCHITECTURE])
    assert compiled.entries
    assert compiled.log.startswith("host code left out")


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("refused")])
def test_a_refusal_names_what_to_do(name: str, messages: Messages) -> None:
    with pytest.raises(CompilationError) as error:
        nvrtc().compile(mixed(name), [ARCHITECTURE])
    messages(error.value)


def test_a_source_without_host_code_stays_the_same() -> None:
    source = unit("#include <cstdint>\n__global__ void k(uint32_t* x) { *x = 1; }\n")
    skipping = unit(source.source, skip_host_code=True)
    assert nvrtc().compile(source, [ARCHITECTURE]) == nvrtc().compile(skipping, [ARCHITECTURE])
