"""Checks of modules of kernels: all files are there, and each GPU has an image of each kernel."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from cuda_ext.builder.editable_package import describe_changes
from cuda_ext.builder.editable_record import is_editable
from cuda_ext.cli.doctor.findings import Finding, Level
from cuda_ext.cli.doctor.machine import Gpus
from cuda_ext.cli.installed import InstalledModule, installed_modules, named_modules
from cuda_ext.cli.terminal import Failure
from cuda_ext.errors import BuildError, DriverError, ManifestError, NoImageError, ToolchainError, join_names
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import sha256
from cuda_ext.facts.image_choice import image_for
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import FILE_NAME, Manifest, Unit, loads
from cuda_ext.formats.quantities import format_count
from cuda_ext.runtime.jit.on_demand import OnDemand
from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

# Kernels that a line names.
_NAMED = 3


def check_modules(names: Sequence[str], gpus: Gpus) -> Iterator[Finding]:
    """Check the modules in `names`, and those of packages in `names`, with all of their files.

    Without names, check all installed modules, whose files are not read.
    """
    for name in names:
        modules, remedy = named_modules(name)
        for module in modules:
            yield from _check_module(module, gpus, read_files=True)
        if not modules:
            yield Finding("problem", name, "there is no such module of kernels", remedy)
    for module in () if names else installed_modules():
        yield from _check_module(module, gpus, read_files=False)


def _check_module(module: InstalledModule, gpus: Gpus, *, read_files: bool) -> Iterator[Finding]:
    file = FILE_NAME
    try:
        manifest = loads(module.package.read(file), file)
        for file, digest in manifest.files.items():
            module.package.size(file)
            if read_files and sha256(module.package.read(file)).hex() != digest:
                raise Failure(f"{file} is damaged: it is not what the manifest describes")
    except (Failure, ManifestError) as error:
        text, remedy = error.statement, error.remedy or "reinstall its package"
    except FileNotFoundError:
        text, remedy = f"{file} is missing", "reinstall its package"
    except OSError as error:
        text = f"{file} cannot be read: {error.strerror or error}"
        remedy = f"check the permissions of {module.place}"
    else:
        yield from _check_manifest(module, manifest, gpus)
        return
    package, _, version = module.distribution.partition(" ")
    command = f"pip install --force-reinstall --no-deps {package}=={version}" if version else ""
    yield Finding("problem", module.name, text, remedy, command)


def _check_manifest(module: InstalledModule, manifest: Manifest, gpus: Gpus) -> Iterator[Finding]:
    """Describe the module, and check that each GPU runs its kernels."""
    images = {image.architecture for unit in manifest.units for image in unit.images}
    architectures = ", ".join(map(str, sorted(map(Architecture.parse, images)))) or "nothing"
    count = format_count(len(manifest.kernels), "kernel")
    place = module.distribution or module.place
    yield Finding("ok", module.name, f"{count}, for {architectures}; {place}")
    if is_editable(Path(module.place)):
        problem, remedy = describe_changes(module.name, module.place)
        if problem:
            yield Finding("warning", module.name, problem, remedy)
    capabilities = [capability for _, capability in gpus.devices]
    for capability in dict.fromkeys(capabilities):
        ordinals = [f"GPU {ordinal}" for ordinal, own in enumerate(capabilities) if own == capability]
        where = f"sm_{capability} ({', '.join(ordinals)})"
        yield from _check_gpu(module, manifest, capability, gpus.driver or (0, 0), where)


def _check_gpu(
    module: InstalledModule, manifest: Manifest, capability: int, driver: tuple[int, int], where: str
) -> Iterator[Finding]:
    """Check each unit on GPUs of `capability`; yield a finding for units with the same state."""
    on_demand = OnDemand(manifest, module.package.read)
    kernels: dict[object, list[Kernel]] = defaultdict(list)
    findings: dict[object, Finding] = {}
    for index, unit in enumerate(manifest.units):
        finding = _check_unit(module.name, manifest, unit, on_demand, capability, driver)
        # The text of a problem names the unit.
        built = tuple(image.architecture for image in unit.images)
        state: object = (finding.remedy, built if finding.level == "problem" else finding.text)
        findings.setdefault(state, finding)
        kernels[state] += [kernel for kernel in manifest.kernels if kernel.unit == index]
    is_useless = all(finding.level == "problem" for finding in findings.values())
    for state, finding in findings.items():
        level: Level = "warning" if finding.level == "problem" and not is_useless else finding.level
        names = join_names((kernel.expression for kernel in kernels[state]), _NAMED)
        text = f"{names} on {where}: {finding.text}"
        yield Finding(level, module.name, text, finding.remedy, finding.command)


def _check_unit(
    name: str,
    manifest: Manifest,
    unit: Unit,
    on_demand: OnDemand,
    capability: int,
    driver: tuple[int, int],
) -> Finding:
    """Return the state of `unit`, in the words of a launch if that would fail."""
    try:
        image_for(manifest, unit, capability, driver)
    except DriverError as error:
        if isinstance(error, NoImageError) and all(image.target.suffix for image in unit.images):
            remedy = "nothing to do, unless it should run there; `variants` can name a substitute"
            return Finding("note", name, "written for other GPUs", remedy)
        obstacle = on_demand.obstacle(unit, driver) or _compiler_limit(capability)
        if obstacle:
            return Finding("problem", name, error.problem, f"jit: {obstacle}; {error.remedy}")
        if _is_kept(on_demand, unit, capability):
            return Finding("ok", name, "compiled on demand, and kept")
        command = f"cuda-ext prepare {name}"
        return Finding("note", name, "compiled on first use", "to do so now", command)
    return Finding("ok", name, "built ahead")


def _is_kept(on_demand: OnDemand, unit: Unit, capability: int) -> bool:
    try:
        return on_demand.find(on_demand.request_unit(unit, capability)) is not None
    except BuildError:
        return False


@cache
def _compiler_limit(capability: int) -> str:
    """Why the installed compiler cannot compile for GPUs of `capability`; empty if it can."""
    nvrtc = open_compiler(CompilerChoice(), os.environ)
    try:
        capabilities = nvrtc.capabilities()
    except ToolchainError as error:
        return str(error)
    return "" if capability in capabilities else f"NVRTC {nvrtc.version} cannot compile for sm_{capability}"
