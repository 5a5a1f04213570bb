"""Device code in a line or two: translation units, and the modules that NVRTC makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.module import CompiledModule, ModulePlan, UnitPlan, compile_module
from cuda_ext.compiler.nvrtc import Nvrtc
from cuda_ext.compiler.translation_unit import CompiledImage, SourceKind, Survey, TranslationUnit
from cuda_ext.manifest import Kernel, Options

KERNEL = "__global__ void kernel(int* p) { *p = 1; }"


@cache
def nvrtc() -> Nvrtc:
    return Nvrtc()


def unit(
    source: str | bytes,
    *instantiate: str,
    name: str = "device/unit.cu",
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> TranslationUnit:
    kind: SourceKind = name.rpartition(".")[2]  # type: ignore[assignment]
    content = source if isinstance(source, bytes) else source.encode()
    contents = {header: text.encode() for header, text in (headers or {}).items()}
    return TranslationUnit(name, content, kind, contents, Options(**options), instantiate)


def image(source: TranslationUnit | str, architecture: str = "sm_90") -> CompiledImage:
    source = unit(source) if isinstance(source, str) else source
    (compiled,) = nvrtc().compile(source, [Architecture.parse(architecture)])
    return compiled


def ptx(source: TranslationUnit | str, architecture: str = "compute_90") -> str:
    return image(source, architecture).data.decode()


def survey(source: TranslationUnit | str, architecture: str = "sm_90") -> Survey:
    source = unit(source) if isinstance(source, str) else source
    return nvrtc().survey(source, Architecture.parse(architecture))


def module(
    *units: TranslationUnit | str,
    architectures: Sequence[str] = ("sm_90",),
    reports: list[str] | None = None,
    **plan: Any,
) -> CompiledModule:
    """A module ``pkg.kernels``; `reports` receives what is reported."""
    targets = tuple(map(Architecture.parse, architectures))
    plans = tuple(UnitPlan(unit(u) if isinstance(u, str) else u, targets) for u in units)
    report = reports.append if reports is not None else lambda _: None
    return compile_module(ModulePlan("pkg.kernels", plans, **plan), nvrtc(), report)


def kernels(compiled: CompiledModule) -> dict[str, Kernel]:
    return {kernel.expression: kernel for kernel in compiled.manifest.kernels}
