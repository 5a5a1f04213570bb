"""The modules of kernels: whether each is whole, and has an image for each GPU here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from cuda_ext.cli.doctor.finding import Finding, note, ok, problem, warning
from cuda_ext.cli.doctor.gpus import Gpu, Gpus
from cuda_ext.cli.installed import InstalledModule
from cuda_ext.errors import BuildError, DriverError, ManifestError, NoImageError, ToolchainError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.quantities import format_count
from cuda_ext.manifest import FILE_NAME, Kernel, Manifest, Unit, loads
from cuda_ext.runtime.driver.images import image_for
from cuda_ext.runtime.jit.on_demand import OnDemand
from cuda_ext.toolchain.identity import installed_nvrtc

__all__ = ["findings"]

# Kernels that a line has room for.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why kernels have no image, and what to do about it.

    ``text`` tells it of one of them; those are alike of which all the rest is the same.
    """

    cause: str
    text: str = field(compare=False)
    remedy: str = ""
    command: str = ""


@dataclass(slots=True)
class _Served:
    """What a GPU gets of the kernels of a module.

    Those ``ahead`` have an image. Those ``kept`` were compiled on demand before, those ``on_demand`` will be
    when they are first used. Those that are ``special`` were written for another GPU. Of the others,
    ``lacking`` says why.
    """

    ahead: list[Kernel] = field(default_factory=list)
    kept: list[Kernel] = field(default_factory=list)
    on_demand: list[Kernel] = field(default_factory=list)
    special: list[Kernel] = field(default_factory=list)
    lacking: dict[Kernel, _Reason] = field(default_factory=dict)


def findings(modules: Sequence[InstalledModule], gpus: Gpus, *, is_thorough: bool) -> Iterator[Finding]:
    """One for each of `modules` and each kind of GPU. If `is_thorough`, all of their files are read."""
    for module in modules:
        place = {"place": module.place}
        try:
            manifest = loads(module.read(FILE_NAME), FILE_NAME)
        except ManifestError as error:
            yield problem(module.name, str(error), "", _reinstall(module), facts=place)
            continue
        except OSError as error:
            text = f"{FILE_NAME} cannot be read: {error.strerror or error}"
            remedy = f"look at the rights of {module.place}"
            yield problem(module.name, text, remedy, _reinstall(module), facts=place)
            continue
        if damaged := _damaged(module, manifest, is_thorough):
            yield problem(module.name, damaged, "reinstall its package", _reinstall(module), facts=place)
            continue
        yield _described(module, manifest)
        yield from _served(module, manifest, gpus)


def _reinstall(module: InstalledModule) -> str:
    package, _, version = module.distribution.partition(" ")
    return f"pip install --force-reinstall --no-deps {package}=={version}" if version else ""


def _damaged(module: InstalledModule, manifest: Manifest, is_thorough: bool) -> str:
    """Which file is missing or, if `is_thorough`, is not what the manifest describes."""
    digests = {image.file: image.sha256 for unit in manifest.units for image in unit.images}
    sources = {f"sources/{name}": digest for name, digest in (manifest.embedded or {}).items()}
    for file, digest in (digests | sources).items():
        if not module.has(file):
            return f"{file} is missing"
        if is_thorough:
            try:
                content = module.read(file)
            except OSError as error:
                return f"{file} cannot be read: {error.strerror or error}"
            if hashlib.sha256(content).hexdigest() != digest:
                return f"{file} is damaged: it is not what the manifest describes"
    return ""


def _described(module: InstalledModule, manifest: Manifest) -> Finding:
    found = {image.architecture for unit in manifest.units for image in unit.images}
    built = [str(architecture) for architecture in sorted(map(Architecture.parse, found))]
    text = f"{format_count(len(manifest.kernels), 'kernel')}, for {', '.join(built) or 'nothing'}"
    brought = module.distribution or module.place
    details = [f"{brought}, made by {manifest.compiler} {manifest.version}"]
    facts = {"place": module.place, "distribution": module.distribution or None, "architectures": built}
    return ok(module.name, text, details, facts=facts | {"kernels": len(manifest.kernels)})


def _served(module: InstalledModule, manifest: Manifest, gpus: Gpus) -> Iterator[Finding]:
    """A finding for each compute capability of this machine."""
    if gpus.version is None:
        return
    by_capability: dict[int, list[Gpu]] = {}
    for gpu in gpus.devices:
        by_capability.setdefault(gpu.capability, []).append(gpu)
    for capability, alike in by_capability.items():
        served = _serve(module, manifest, capability, gpus.version)
        yield from _told_of(module, manifest, served, capability, alike)


def _serve(module: InstalledModule, manifest: Manifest, capability: int, driver: tuple[int, int]) -> _Served:
    served = _Served()
    on_demand = OnDemand(manifest, module.read)
    kernels: dict[int, list[Kernel]] = {}
    for kernel in manifest.kernels:
        kernels.setdefault(kernel.unit, []).append(kernel)
    for index, unit in enumerate(manifest.units):
        own = kernels.get(index, [])
        try:
            image = image_for(manifest, unit, capability, driver)
        except DriverError as error:
            if _is_special(unit) and isinstance(error, NoImageError):
                served.special += own
            elif why := on_demand.why_not(unit, driver) or _why_not_for(capability):
                advice = _remedy(module, on_demand, unit, error, why, capability, driver)
                served.lacking |= dict.fromkeys(own, _reason(error, unit, why, advice))
            elif _is_kept(on_demand, unit, capability):
                served.kept += own
            else:
                served.on_demand += own
            continue
        for kernel in own:
            if manifest.lowered_name(kernel, image) is None:
                text = f"{image.architecture}, which is taken here, lacks them"
                remedy = f'have the source define them for "sm_{capability}" too, and build again'
                served.lacking[kernel] = _Reason(text, text, remedy)
            else:
                served.ahead.append(kernel)
    return served


def _is_special(unit: Unit) -> bool:
    """Whether it was built for what only some GPUs have, and for nothing else."""
    return all(Architecture.parse(image.architecture).suffix for image in unit.images)


@cache
def _why_not_for(capability: int) -> str:
    """Why the compiler here, which can be loaded, makes nothing for a GPU of `capability`."""
    from cuda_ext.toolchain.nvrtc import Nvrtc

    nvrtc = Nvrtc()
    try:
        known = nvrtc.capabilities()
    except ToolchainError as error:
        return str(error)
    return "" if capability in known else f"NVRTC {nvrtc.version} cannot compile for sm_{capability}"


def _reason(error: DriverError, unit: Unit, why: str, advice: tuple[str, str]) -> _Reason:
    """That of `unit`, where `error` tells of no image and `why` of no compiler."""
    not_compiled = f"not compiled on demand: {'it was built with jit = false' if why == 'off' else why}"
    if isinstance(error, NoImageError):
        built = ", ".join(image.architecture for image in unit.images) or "nothing"
        text = f"built for {built}, and {not_compiled}"
        return _Reason(text, text, *advice)
    return _Reason(f"{type(error).__name__}, {not_compiled}", f"{error}; {not_compiled}", *advice)


def _remedy(
    module: InstalledModule,
    on_demand: OnDemand,
    unit: Unit,
    error: DriverError,
    why: str,
    capability: int,
    driver: tuple[int, int],
) -> tuple[str, str]:
    """What to do, in words and as a command, where `error` tells of no image and `why` of no compiler."""
    if why.endswith("CUDA_EXT_JIT=0"):
        return "unset CUDA_EXT_JIT, to have it compiled", ""
    try:
        installed_nvrtc()
    except ToolchainError as missing:
        if why == str(missing):
            extra = "cu12" if driver[0] == 12 else "cu13"
            return "to have it compiled when it is first used", f'pip install "cuda-ext[{extra}]"'
    if why == _why_not_for(capability):
        return "to have it compiled", f'pip install "cuda-ext[{"cu12" if capability < 75 else "cu13"}]"'
    if not on_demand.why_not(unit):  # so it is for this driver only
        return "upgrade the driver, or have it compiled", f'pip install "cuda-ext[cu{driver[0]}]"'
    if not isinstance(error, NoImageError):
        return "upgrade the driver", ""
    remedy = f'build it with "sm_{capability}" in architectures'
    if package := module.distribution.partition(" ")[0]:
        command = f"pip install --force-reinstall --no-binary {package} {package}"
        return f"{remedy}; from the registry, set CUDAARCHS to sm_{capability}, and then", command
    return remedy, ""


def _is_kept(on_demand: OnDemand, unit: Unit, capability: int) -> bool:
    try:
        return on_demand.known(on_demand.whole(unit, capability)) is not None
    except BuildError:
        return False


def _told_of(
    module: InstalledModule, manifest: Manifest, served: _Served, capability: int, alike: Sequence[Gpu]
) -> Iterator[Finding]:
    """What a GPU gets of a module, worst first: one finding, or one for each reason that kernels lack."""
    where = f"sm_{capability} ({', '.join(f'GPU {gpu.ordinal}' for gpu in alike)})"
    facts = {
        "gpus": [gpu.ordinal for gpu in alike],
        "capability": capability,
        **{
            name: [kernel.expression for kernel in kernels]
            for name, kernels in (
                ("ahead", served.ahead),
                ("kept", served.kept),
                ("on_demand", served.on_demand),
                ("special", served.special),
                ("lacking", served.lacking),
            )
        },
    }
    replaced = _replaced(manifest, served)
    lacking = {kernel: why for kernel, why in served.lacking.items() if kernel.expression not in replaced}
    if lacking:
        by_reason: dict[_Reason, list[Kernel]] = {}
        for kernel, reason in lacking.items():
            by_reason.setdefault(reason, []).append(kernel)
        is_useless = not (served.ahead or served.kept or served.on_demand)
        found = problem if is_useless else warning
        for reason, kernels in by_reason.items():
            who = "no kernel runs" if is_useless and len(by_reason) == 1 else f"{_names(kernels)} cannot run"
            own = facts | {"lacking": [kernel.expression for kernel in kernels]}
            yield found(
                module.name, f"{who} on {where}: {reason.text}", reason.remedy, reason.command, facts=own
            )
    elif served.on_demand:
        text = f"{_names(served.on_demand)}: compiled for {where} when first used"
        command = f"cuda-ext prepare {module.name}"
        yield note(module.name, text, "to do so now", command, facts=facts)
    elif special := [kernel for kernel in served.special if kernel.expression not in replaced]:
        text = f"{_names(special)}: written for another GPU than {where}: {_built(manifest, special)}"
        remedy = "nothing to do, unless it should run there; `variants` can name what stands for it"
        yield note(module.name, text, remedy, facts=facts)
    elif missed := [*served.lacking, *served.special]:
        yield ok(module.name, f"runs on {where}; others stand for {_names(missed)} there", facts=facts)
    else:
        kept = f", {len(served.kept):,} of them compiled on demand and kept" if served.kept else ""
        total = format_count(len(manifest.kernels), "kernel")
        yield ok(module.name, f"runs on {where}: {total}{kept}", facts=facts)


def _built(manifest: Manifest, kernels: Sequence[Kernel]) -> str:
    """The architectures that `kernels` were built for."""
    images = (image for kernel in kernels for image in manifest.units[kernel.unit].images)
    return ", ".join(dict.fromkeys(image.architecture for image in images)) or "none"


def _replaced(manifest: Manifest, served: _Served) -> Mapping[str, str]:
    """Kernels that are missed by nobody: each is one of several for a name, of which others can be taken."""
    usable = {k.expression for kernels in (served.ahead, served.kept, served.on_demand) for k in kernels}
    return {
        candidate.kernel: variants.name
        for variants in manifest.variants
        if variants.candidates[-1].kernel in usable
        for candidate in variants.candidates[:-1]
    }


def _names(kernels: Sequence[Kernel]) -> str:
    """The kernels, as far as a line has room."""
    named = ", ".join(kernel.expression for kernel in kernels[:_NAMED])
    return f"{named} and {len(kernels) - _NAMED:,} more" if len(kernels) > _NAMED else named
