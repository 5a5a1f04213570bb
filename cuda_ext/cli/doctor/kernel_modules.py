"""The modules of kernels, as doctor examines them: complete files, and an image for each GPU."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, get_args

from cuda_ext.cli.doctor.findings import Finding, Level
from cuda_ext.cli.doctor.gpus import Gpus
from cuda_ext.cli.installed import InstalledModule, installed_modules, named_modules
from cuda_ext.cli.terminal import Failure
from cuda_ext.errors import BuildError, DriverError, ManifestError, NoImageError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import FILE_NAME, Manifest, Unit, loads
from cuda_ext.facts.sha256 import sha256
from cuda_ext.formats.image_choice import image_for
from cuda_ext.formats.quantities import format_count
from cuda_ext.runtime.jit.on_demand import OnDemand
from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

# Kernels that a line names.
_NAMED = 3


def examine_modules(names: Sequence[str], gpus: Gpus) -> Iterator[Finding]:
    """Examine the modules in `names`, and those of packages in `names`, with all of their files.

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
    return loads(module.read(FILE_NAME), FILE_NAME)


def _check_files(module: InstalledModule, manifest: Manifest, read_files: bool) -> None:
    """Raise :class:`Failure` if a file is missing or, with `read_files`, differs from the manifest."""
    digests = {image.file: image.sha256 for unit in manifest.units for image in unit.images}
    sources = {f"sources/{name}": digest for name, digest in (manifest.embedded or {}).items()}
    for file, digest in (digests | sources).items():
        module.check_exists(file)
        if read_files and sha256(module.read(file)).hex() != digest:
            remedy = "reinstall its package"
            raise Failure(f"{file} is damaged: it is not what the manifest describes", remedy=remedy)


# An image was built ahead; one was compiled on demand and is kept; one will be compiled on first use; the
# kernel was written for other GPUs; nothing can be done but what the remedy says.
_Kind = Literal["ahead", "kept", "on_demand", "special", "lacking"]


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a kernel on GPUs: how they run it, or why they cannot. Its texts are not compared."""

    kind: _Kind
    cause: str = ""
    text: str = field(default="", compare=False)
    remedy: str = ""
    command: str = ""


class _Support:
    """The states of a module's kernels on GPUs of one compute capability."""

    def __init__(
        self, module: InstalledModule, manifest: Manifest, capability: int, driver: tuple[int, int]
    ) -> None:
        self._module = module
        self._manifest = manifest
        self._capability = capability
        self._driver = driver
        self._on_demand = OnDemand(manifest, module.package.read)
        self._states: dict[Kernel, _State] = {}
        for index, unit in enumerate(manifest.units):
            kernels = [kernel for kernel in manifest.kernels if kernel.unit == index]
            self._states |= self._examine_unit(unit, kernels)

    def _examine_unit(self, unit: Unit, kernels: Sequence[Kernel]) -> dict[Kernel, _State]:
        try:
            image = image_for(self._manifest, unit, self._capability, self._driver)
        except DriverError as error:
            return dict.fromkeys(kernels, self._without_image(unit, error))
        text = f"{image.architecture}, which this GPU runs, lacks them"
        remedy = f'define them in the source for "sm_{self._capability}" too, and build again'
        missing, ahead = _State("lacking", text, text, remedy), _State("ahead")
        is_missing = {kernel: self._manifest.lowered_name(kernel, image) is None for kernel in kernels}
        return {kernel: missing if is_missing[kernel] else ahead for kernel in kernels}

    def _without_image(self, unit: Unit, error: DriverError) -> _State:
        """Return the state of the kernels in a `unit` without an image, as `error` says."""
        is_special = all(Architecture.parse(image.architecture).suffix for image in unit.images)
        if is_special and isinstance(error, NoImageError):
            return _State("special")
        obstacle = self._on_demand.obstacle(unit, self._driver) or _compiler_limit(self._capability)
        if not obstacle:
            return _State("kept" if self._is_kept(unit) else "on_demand")
        if self._manifest.embedded is None:
            obstacle = "it was built with jit = false"
        if isinstance(error, NoImageError):
            architectures = ", ".join(image.architecture for image in unit.images) or "nothing"
            cause = text = f"built for {architectures}, and not compiled on demand: {obstacle}"
        else:
            cause = f"{type(error).__name__}: {obstacle}"
            text = f"{error.problem}; not compiled on demand: {obstacle}"
        return _State("lacking", cause, text, *self._advise(unit, error))

    def _advise(self, unit: Unit, error: DriverError) -> tuple[str, str]:
        """Return a remedy, in words and as a command, for a `unit` without an image that is not compiled."""
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

    def _with(self, *kinds: _Kind) -> list[Kernel]:
        return [kernel for kernel, state in self._states.items() if state.kind in kinds]

    def _needed(self) -> dict[_State, list[Kernel]]:
        """List the kernels that do not run, without candidates that another candidate replaces."""
        usable = {kernel.expression for kernel in self._with("ahead", "kept", "on_demand")}
        replaced = {
            candidate.kernel
            for variants in self._manifest.variants
            if variants.candidates[-1].kernel in usable
            for candidate in variants.candidates[:-1]
        }
        needed: dict[_State, list[Kernel]] = defaultdict(list)
        for kernel in self._with("lacking", "special"):
            if kernel.expression not in replaced:
                needed[self._states[kernel]].append(kernel)
        return needed

    def findings(self, ordinals: Sequence[int]) -> Iterator[Finding]:
        """Examine the worst state: one finding, or one for each reason why kernels cannot run."""
        name = self._module.name
        where = f"sm_{self._capability} ({', '.join(f'GPU {ordinal}' for ordinal in ordinals)})"
        expressions = {kind: [kernel.expression for kernel in self._with(kind)] for kind in get_args(_Kind)}
        facts = {"gpus": ordinals, "capability": self._capability, **expressions}
        gaps = self._needed()
        special = gaps.pop(_State("special"), [])
        if gaps:
            is_useless = not self._with("ahead", "kept", "on_demand")
            level: Level = "problem" if is_useless else "warning"
            for gap, kernels in gaps.items():
                runs_none = is_useless and len(gaps) == 1
                subject = "no kernel runs" if runs_none else f"{_names(kernels)} cannot run"
                own = facts | {"lacking": [kernel.expression for kernel in kernels]}
                text = f"{subject} on {where}: {gap.text}"
                yield Finding(level, name, text, gap.remedy, gap.command, facts=own)
        elif on_demand := self._with("on_demand"):
            text = f"{_names(on_demand)}: compiled for {where} on first use"
            yield Finding("note", name, text, "to do so now", f"cuda-ext prepare {name}", facts=facts)
        elif special:
            built = (image for kernel in special for image in self._manifest.units[kernel.unit].images)
            architectures = ", ".join(dict.fromkeys(image.architecture for image in built)) or "none"
            text = f"{_names(special)}: written for another GPU than {where}: {architectures}"
            remedy = "nothing to do, unless it should run there; `variants` can name a substitute"
            yield Finding("note", name, text, remedy, facts=facts)
        elif replaced := self._with("lacking", "special"):
            text = f"runs on {where}; other candidates replace {_names(replaced)} there"
            yield Finding("ok", name, text, facts=facts)
        else:
            kept = len(self._with("kept"))
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
    """Return the first few kernels, and the number of others."""
    names = ", ".join(kernel.expression for kernel in kernels[:_NAMED])
    return f"{names} and {len(kernels) - _NAMED:,} more" if len(kernels) > _NAMED else names
