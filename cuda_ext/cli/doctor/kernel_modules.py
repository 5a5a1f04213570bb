"""The modules of kernels, as doctor examines them: complete files, and an image for each GPU."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from cuda_ext.cli.doctor.findings import Finding, Level
from cuda_ext.cli.doctor.gpus import Gpus
from cuda_ext.cli.installed import InstalledModule, installed_modules, named_modules
from cuda_ext.cli.terminal import Failure
from cuda_ext.errors import BuildError, DriverError, ManifestError, NoImageError, ToolchainError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.quantities import format_count
from cuda_ext.formats.variant_conditions import parse_conditions
from cuda_ext.manifest import FILE_NAME, Kernel, Manifest, Unit, loads
from cuda_ext.runtime.driver.images import image_for
from cuda_ext.runtime.jit.on_demand import OnDemand
from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

__all__ = ["examine_modules"]

# Kernels that a line names.
_NAMED = 3


def examine_modules(names: Sequence[str], gpus: Gpus) -> Iterator[Finding]:
    """The modules in `names`, and those of packages in `names`, with all of their files.

    Without names, all installed modules, whose files are not read.
    """
    for name in names:
        modules, remedy = named_modules(name)
        for module in modules:
            yield from _examine_module(module, gpus, read_files=True)
        if not modules:
            yield Finding("problem", name, "there is no such module of kernels", remedy)
    if names:
        return
    installed = installed_modules()
    for module in installed:
        yield from _examine_module(module, gpus, read_files=False)
    if not installed:
        text = "no installed package has kernels"
        yield Finding("note", "none", text, "install one, or build one: cuda-ext init")


def _examine_module(module: InstalledModule, gpus: Gpus, *, read_files: bool) -> Iterator[Finding]:
    package, _, version = module.distribution.partition(" ")
    reinstall = f"pip install --force-reinstall --no-deps {package}=={version}" if version else ""
    place = {"place": module.place}
    try:
        manifest = _read_manifest(module)
        _check_files(module, manifest, read_files)
    except (Failure, ManifestError) as error:
        yield Finding("problem", module.name, error.statement, error.remedy, reinstall, facts=place)
        return
    images = {image.architecture for unit in manifest.units for image in unit.images}
    architectures = [str(architecture) for architecture in sorted(map(Architecture.parse, images))]
    count = len(manifest.kernels)
    yield Finding(
        "ok",
        module.name,
        f"{format_count(count, 'kernel')}, for {', '.join(architectures) or 'nothing'}",
        details=[f"{module.distribution or module.place}, built by {manifest.compiler} {manifest.version}"],
        facts=place
        | {"distribution": module.distribution or None, "architectures": architectures, "kernels": count},
    )
    if gpus.version is None:
        return
    for capability in dict.fromkeys(gpu.capability for gpu in gpus.devices):
        ordinals = [gpu.ordinal for gpu in gpus.devices if gpu.capability == capability]
        support = _Support(module, manifest, capability, gpus.version)
        yield from support.findings(ordinals)


def _read_manifest(module: InstalledModule) -> Manifest:
    """Read and check the manifest. Raises :class:`ManifestError`, or :class:`Failure` for a missing file."""
    manifest = loads(module.read(FILE_NAME), FILE_NAME)
    kernels = {kernel.expression: kernel for kernel in manifest.kernels}
    for variants in manifest.variants:
        parse_conditions(variants, kernels, FILE_NAME)
    return manifest


def _check_files(module: InstalledModule, manifest: Manifest, read_files: bool) -> None:
    """Raise :class:`Failure` if a file is missing or, with `read_files`, differs from the manifest."""
    digests = {image.file: image.sha256 for unit in manifest.units for image in unit.images}
    sources = {f"sources/{name}": digest for name, digest in (manifest.embedded or {}).items()}
    for file, digest in (digests | sources).items():
        module.check_exists(file)
        if read_files and hashlib.sha256(module.read(file)).hexdigest() != digest:
            remedy = "reinstall its package"
            raise Failure(f"{file} is damaged: it is not what the manifest describes", remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Gap:
    """Why kernels cannot run, and what to do. Texts, which name a unit, are not compared."""

    cause: str
    text: str = field(compare=False)
    remedy: str
    command: str = ""


# An image was built ahead; one was compiled on demand and is kept; one will be compiled on first use; the
# kernel was written for other GPUs.
_State = Literal["ahead", "kept", "on_demand", "special"]
_RUNNING: tuple[_State, ...] = ("ahead", "kept", "on_demand")
_STATES: tuple[_State, ...] = (*_RUNNING, "special")


class _Support:
    """How GPUs of one compute capability run the kernels of a module, or why they cannot."""

    def __init__(
        self, module: InstalledModule, manifest: Manifest, capability: int, driver: tuple[int, int]
    ) -> None:
        self._module = module
        self._manifest = manifest
        self._capability = capability
        self._driver = driver
        self._on_demand = OnDemand(manifest, module.package.read)
        self._kernels: dict[_State | _Gap, list[Kernel]] = defaultdict(list)
        for index, unit in enumerate(manifest.units):
            for kernel, state in self._examine_unit(unit, [k for k in manifest.kernels if k.unit == index]):
                self._kernels[state].append(kernel)

    def _examine_unit(self, unit: Unit, kernels: Sequence[Kernel]) -> Iterator[tuple[Kernel, _State | _Gap]]:
        try:
            image = image_for(self._manifest, unit, self._capability, self._driver)
        except DriverError as error:
            state = self._without_image(unit, error)
            yield from ((kernel, state) for kernel in kernels)
            return
        text = f"{image.architecture}, which this GPU runs, lacks them"
        remedy = f'define them in the source for "sm_{self._capability}" too, and build again'
        for kernel in kernels:
            is_missing = self._manifest.lowered_name(kernel, image) is None
            yield kernel, _Gap(text, text, remedy) if is_missing else "ahead"

    def _without_image(self, unit: Unit, error: DriverError) -> _State | _Gap:
        """The state of the kernels in a `unit` without an image, as `error` says."""
        is_special = all(Architecture.parse(image.architecture).suffix for image in unit.images)
        if is_special and isinstance(error, NoImageError):
            return "special"
        obstacle = self._on_demand.obstacle(unit, self._driver) or _compiler_limit(self._capability)
        if not obstacle:
            return "kept" if self._is_kept(unit) else "on_demand"
        if self._manifest.embedded is None:
            obstacle = "it was built with jit = false"
        remedy, command = self._advise(unit, error)
        if isinstance(error, NoImageError):
            architectures = ", ".join(image.architecture for image in unit.images) or "nothing"
            text = f"built for {architectures}, and not compiled on demand: {obstacle}"
            return _Gap(text, text, remedy, command)
        text = f"{error.problem}; not compiled on demand: {obstacle}"
        return _Gap(f"{type(error).__name__}: {obstacle}", text, remedy, command)

    def _advise(self, unit: Unit, error: DriverError) -> tuple[str, str]:
        """What to do, in words and as a command, about a `unit` that has no image and is not compiled."""
        if self._on_demand.obstacle(unit) in ("", _compiler_limit(self._capability)):
            extra = "cu12" if self._driver[0] == 12 or self._capability < 75 else "cu13"
            return "to have it compiled on first use", f'pip install "cuda-ext[{extra}]"'
        if self._manifest.embedded is not None and os.environ.get("CUDA_EXT_JIT") == "0":
            return "unset CUDA_EXT_JIT, to have it compiled", ""
        if not isinstance(error, NoImageError):
            return error.remedy, ""
        remedy = f'build it with "sm_{self._capability}" in architectures'
        if package := self._module.distribution.partition(" ")[0]:
            remedy = f"{remedy}; from the registry, set CUDAARCHS to sm_{self._capability}, and then"
            return remedy, f"pip install --force-reinstall --no-binary {package} {package}"
        return remedy, ""

    def _is_kept(self, unit: Unit) -> bool:
        try:
            return self._on_demand.find(self._on_demand.request_unit(unit, self._capability)) is not None
        except BuildError:
            return False

    def _replaced(self) -> set[str]:
        """The kernels that are candidates of variants with another candidate that runs."""
        usable = {kernel.expression for state in _RUNNING for kernel in self._kernels[state]}
        return {
            candidate.kernel
            for variants in self._manifest.variants
            if variants.candidates[-1].kernel in usable
            for candidate in variants.candidates[:-1]
        }

    def findings(self, ordinals: Sequence[int]) -> Iterator[Finding]:
        """The worst state: one finding, or one for each reason why kernels cannot run."""
        name = self._module.name
        where = f"sm_{self._capability} ({', '.join(f'GPU {ordinal}' for ordinal in ordinals)})"
        gaps = {gap: kernels for gap, kernels in self._kernels.items() if isinstance(gap, _Gap)}
        lacking = [kernel for kernels in gaps.values() for kernel in kernels]
        replaced = self._replaced()
        needed = {gap: [k for k in kernels if k.expression not in replaced] for gap, kernels in gaps.items()}
        reasons = {gap: kernels for gap, kernels in needed.items() if kernels}
        special = [kernel for kernel in self._kernels["special"] if kernel.expression not in replaced]
        facts: dict[str, object] = {
            "gpus": ordinals,
            "capability": self._capability,
            **{state: [kernel.expression for kernel in self._kernels[state]] for state in _STATES},
            "lacking": [kernel.expression for kernel in lacking],
        }
        if reasons:
            is_useless = not any(self._kernels[state] for state in _RUNNING)
            for gap, kernels in reasons.items():
                runs_none = is_useless and len(reasons) == 1
                subject = "no kernel runs" if runs_none else f"{_names(kernels)} cannot run"
                text = f"{subject} on {where}: {gap.text}"
                level: Level = "problem" if is_useless else "warning"
                own = facts | {"lacking": [kernel.expression for kernel in kernels]}
                yield Finding(level, name, text, gap.remedy, gap.command, facts=own)
        elif on_demand := self._kernels["on_demand"]:
            text = f"{_names(on_demand)}: compiled for {where} on first use"
            yield Finding("note", name, text, "to do so now", f"cuda-ext prepare {name}", facts=facts)
        elif special:
            built = (image for kernel in special for image in self._manifest.units[kernel.unit].images)
            architectures = ", ".join(dict.fromkeys(image.architecture for image in built)) or "none"
            text = f"{_names(special)}: written for another GPU than {where}: {architectures}"
            remedy = "nothing to do, unless it should run there; `variants` can name a substitute"
            yield Finding("note", name, text, remedy, facts=facts)
        elif substituted := [*lacking, *self._kernels["special"]]:
            text = f"runs on {where}; other candidates replace {_names(substituted)} there"
            yield Finding("ok", name, text, facts=facts)
        else:
            kept = len(self._kernels["kept"])
            suffix = f", {kept:,} of them compiled on demand and kept" if kept else ""
            total = format_count(len(self._manifest.kernels), "kernel")
            yield Finding("ok", name, f"runs on {where}: {total}{suffix}", facts=facts)


@cache
def _compiler_limit(capability: int) -> str:
    """Why the installed compiler cannot compile for GPUs of `capability`; empty if it can."""
    nvrtc = open_compiler(CompilerChoice(), os.environ)
    try:
        capabilities = nvrtc.capabilities()
    except ToolchainError as error:
        return str(error)
    return "" if capability in capabilities else f"NVRTC {nvrtc.version} cannot compile for sm_{capability}"


def _names(kernels: Sequence[Kernel]) -> str:
    """The first few kernels, and the number of others."""
    names = ", ".join(kernel.expression for kernel in kernels[:_NAMED])
    return f"{names} and {len(kernels) - _NAMED:,} more" if len(kernels) > _NAMED else names
