"""A library, which the driver loads as one, made of the products of jobs.

It is a translation unit compiled for its architectures, or several units that are linked together.
:func:`missing_jobs` lists the jobs that remain, given the products so far: first compilations, then
links. :func:`library_images` checks the products and puts them together;
:mod:`~cuda_ext.compiler.fatbin_packing` describes them for shipping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cuda_ext.compiler import ready_made
from cuda_ext.compiler.front_ends.described_images import check_resources, describe_images
from cuda_ext.compiler.jobs import CompileJob, Job, LinkInput, LinkJob, Outcome
from cuda_ext.compiler.module_plan import LibraryPlan, defines_no_kernel
from cuda_ext.compiler.products import CompiledImage, Signatures, differs, merge_signatures
from cuda_ext.compiler.signatures.constant_values import unite_constants
from cuda_ext.compiler.signatures.probes import without_unused_variables
from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import FRONT_ENDS, PYTHON, TranslationUnit
from cuda_ext.errors import BuildError, CompilationError, join_errors
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.formats import ptx

Products = Mapping[Job, Outcome]
# Images with their name maps, and the signatures of everything in them.
_Contents = tuple[list[CompiledImage], Signatures]

# A part of the names that the device runtime library contributes.
_OF_DEVICE_RUNTIME = "_cuda_device_runtime_cu_"


def missing_jobs(plan: LibraryPlan, products: Products) -> list[Job]:
    """List the jobs that `plan` needs next, besides those in `products`.

    The list is empty when all products are there, or when a job failed and no other one is of use. In that
    case, :func:`library_images` raises the error.
    """
    try:
        missing = [job for job in _compilations(plan) if job not in products]
        return missing or [job for job in _links(plan, products) if job not in products]
    except BuildError:
        return []


def library_images(plan: LibraryPlan, products: Products) -> tuple[Sequence[CompiledImage], Signatures]:
    """Put `products` together: the images of the library with their name maps, and all signatures.

    Raises :class:`BuildError` for all failed jobs, and for products that do not fit together.
    """
    _check_linkable(plan)
    if plan.link:
        return _linked(plan, products)
    unit = plan.units[0]
    contents = [_unlinked(plan, each, products) for each in plan.units]
    images, signatures = contents[0] if len(contents) == 1 else _united(plan, contents)
    has_kernels = any(i.entries or i.architecture.kind == "ltoir" for i in images)
    if not (has_kernels or plan.may_be_empty):
        raise defines_no_kernel(unit)
    if plan.part is None or unit.kind in PYTHON:
        return images, signatures
    return _part(plan.part, unit, images, signatures)


def compile_log(plan: LibraryPlan, products: Products) -> tuple[str, ...]:
    """List the compiler's warnings about the units of `plan`, without repetitions."""
    compiled = (products[job] for job in _compilations(plan))
    images = [image for outcome in compiled if isinstance(outcome, tuple) for image in outcome]
    logs = [*(image.log for image in images), *(image.signatures.log for image in images)]
    return tuple(dict.fromkeys(log for log in logs if log))


def _check_linkable(plan: LibraryPlan) -> None:
    if plan.link and (unlinkable := [str(a) for a in plan.architectures if a.kind == "ltoir"]):
        raise BuildError(
            f"{spell_setting('link', True)} makes cubins and PTX",
            where=plan.module,
            remedy=f"leave out {', '.join(unlinkable)}",
        )


def _compilations(plan: LibraryPlan) -> list[Job]:
    _check_linkable(plan)
    jobs: list[Job] = []
    for unit in plan.units:
        if unit.kind in ("cu", *FRONT_ENDS):
            jobs += (CompileJob(unit, targets) for targets in plan.passes)
        elif unit.kind in ("ptx", "ltoir") and not plan.link:
            jobs += ready_made.assembly_jobs(unit, plan.architectures)
    return jobs


def _links(plan: LibraryPlan, products: Products) -> list[Job]:
    """List the jobs that link all units of `plan`. Raises :class:`BuildError` if an object is missing."""
    if not plan.link:
        return []
    objects = [images for images, _ in _all_objects(plan, products)]
    return [
        LinkJob(
            plan.module,
            tuple(
                LinkInput(unit.name, images[index].architecture.kind, images[index].data, images[index].text)
                for unit, images in zip(plan.units, objects, strict=True)
            ),
            (architecture,),
        )
        for index, architecture in enumerate(plan.architectures)
    ]


def _unlinked(plan: LibraryPlan, unit: TranslationUnit, products: Products) -> _Contents:
    if unit.kind in ("cu", *FRONT_ENDS):
        return _compiled(plan, unit, products)
    return _ready_made(plan, unit, products)


def _united(plan: LibraryPlan, contents: Sequence[_Contents]) -> _Contents:
    """Unite images that describe the same kernels. Raises :class:`CompilationError`."""
    owners: dict[Architecture, str] = {}
    for unit, (images, _) in zip(plan.units, contents, strict=True):
        for image in images:
            owner = owners.setdefault(image.architecture, unit.name)
            if owner != unit.name:
                raise CompilationError(
                    f"describes kernels of {owner} for {image.architecture} too",
                    where=unit.name,
                    remedy="take one of them out, or give its kernels another name",
                )
    united = sorted((i for images, _ in contents for i in images), key=lambda image: image.architecture)
    return united, merge_signatures(signatures for _, signatures in contents)


def _ready_made(plan: LibraryPlan, unit: TranslationUnit, products: Products) -> _Contents:
    images = ready_made.images_of(unit, plan.architectures)
    if unit.kind in ("ptx", "ltoir"):
        jobs = ready_made.assembly_jobs(unit, plan.architectures)
        images = sorted([*_images(jobs, products), *images], key=lambda image: image.architecture)
    signatures = ready_made.signatures_of(images)
    if unit.kind == "ptx":
        signatures = read_image(plan.newest.as_kind("ptx"), unit.source).signatures
    if unit.kernels:
        return describe_images(images, signatures, unit.kernels, unit.name)
    return images, signatures


def _compiled(plan: LibraryPlan, unit: TranslationUnit, products: Products) -> _Contents:
    """Return the image of a source for each target."""
    jobs = [CompileJob(unit, targets) for targets in plan.passes]
    compiled = {image.architecture: image for image in _images(jobs, products)}
    # The newest image counts, and its cubin rather than its PTX.
    in_order = sorted(compiled, key=lambda a: (a.number, a.suffix, a == plan.newest, a.kind == "cubin"))
    signatures = merge_signatures(compiled[a].signatures for a in in_order)
    constants = unite_constants((str(a), compiled[a].signatures.constants) for a in reversed(in_order))
    signatures = replace(signatures, constants=constants)
    for image in compiled.values():
        _check_sizes(unit, image, signatures)
    images = [compiled[a] for a in plan.targets]
    if plan.launch:
        images = [_with_launch(unit, image, plan.launch) for image in images]
    return images, signatures


def _with_launch(unit: TranslationUnit, image: CompiledImage, launch: FixedLaunch) -> CompiledImage:
    """Fix the launch of the only instantiation of `unit`. Raises :class:`CompilationError`."""
    (text,) = unit.instantiate
    try:
        check_resources(text, image.names[text], launch, image, unit.name)
    except BuildError as error:
        failure = CompilationError(error.problem, where=error.where, remedy=error.remedy)
        failure.targets = (str(image.architecture),)
        raise failure from None
    return replace(image, launches={image.names[text]: launch})


def _linked(plan: LibraryPlan, products: Products) -> _Contents:
    objects = _all_objects(plan, products)
    names = {e: lowered for images, _ in objects for i in images for e, lowered in i.names.items()}
    images = []
    for linked in _images(_links(plan, products), products):
        _check_linked(plan.module, linked)
        if linked.architecture.kind == "ptx" and all(unit.kind == "cu" for unit in plan.units):
            text = without_unused_variables(linked.data, plan.units)
            linked = read_image(linked.architecture, text)
        entries = tuple(e for e in linked.entries if _OF_DEVICE_RUNTIME not in e)
        images.append(replace(linked, entries=entries, names=names))
    if not any(i.entries for i in images):
        raise CompilationError(
            "none of its sources defines a kernel",
            where=plan.module,
            remedy=f"templates only count when instantiated: list them under {spell_setting('instantiate')}",
        )
    signatures = merge_signatures(each for _, each in objects)
    # If several units have a static variable of one name, the linker numbers the copies.
    copies = {
        name: symbol._replace(lowered=name)
        for image in images
        for name in image.variables
        if (symbol := signatures.symbols.get(re.sub(r"\$\d+$", "", name)))
    }
    signatures = replace(signatures, symbols={**signatures.symbols, **copies})
    if new := [image for image in images if not signatures.kernels.keys() >= set(image.entries)]:
        # Kernels out of LTO-IR show only after the link. The variables may be the tool chain's, so leave
        # them out.
        signatures = merge_signatures([Signatures(ready_made.signatures_of(new).kernels, {}), signatures])
    return images, signatures


def _all_objects(plan: LibraryPlan, products: Products) -> list[_Contents]:
    """Return the objects of each unit. Raises :class:`CompilationError` with the failures of all units."""
    objects = []
    failures: list[BuildError] = []
    for unit in plan.units:
        try:
            objects.append(_objects(plan, unit, products))
        except BuildError as error:
            failures.append(error)
    if failures:
        raise CompilationError(join_errors(failures))
    return objects


def _objects(plan: LibraryPlan, unit: TranslationUnit, products: Products) -> _Contents:
    """Return `unit` as objects to link, one for each architecture."""
    if unit.kind == "cu":
        return _compiled(plan, unit, products)
    images = [ready_made.object_of(unit, a) for a in plan.architectures]
    return images, ready_made.signatures_of(images[:1])


def _part(
    number: int, unit: TranslationUnit, images: Sequence[CompiledImage], signatures: Signatures
) -> tuple[Sequence[CompiledImage], Signatures]:
    """Reduce `images` to the instantiations of a part. Kernels that need none stay in the first part only.

    Raises :class:`CompilationError` for variables, since each part would have its own copy.
    """
    if signatures.symbols:
        name = min(symbol.name for symbol in signatures.symbols.values())
        raise CompilationError(
            f"its kernels share the variable {name!r}, and split-instantiations would copy it into each part",
            where=unit.name,
            remedy="remove split-instantiations or the variable",
        )
    if not number:
        return images, signatures
    reduced = [
        replace(image, entries=tuple(e for e in image.entries if e in image.names.values()))
        for image in images
    ]
    lowered = {name for image in images for name in image.names.values()}
    kernels = {name: kernel for name, kernel in signatures.kernels.items() if name in lowered}
    return reduced, replace(signatures, kernels=kernels)


def _images(jobs: Sequence[Job], products: Products) -> list[CompiledImage]:
    """Return the images of `jobs`. Raises one error that names the architectures of each failure."""
    images: list[CompiledImage] = []
    failed: dict[str, list[Job]] = {}
    for job in jobs:
        outcome = products[job]
        if isinstance(outcome, CompilationError):
            if outcome.where == "options":  # the option is wrong for all targets
                text = "; ".join(filter(None, [outcome.problem, outcome.remedy]))
                raise CompilationError(_failure(text, [job]), where=outcome.where)
            failed.setdefault(str(outcome), []).append(job)
        else:
            images += outcome
    if failed:
        error = CompilationError("\n\n".join(_failure(text, jobs) for text, jobs in failed.items()))
        # Kernels of a function in Python are units of their own, with their instantiations in the texts.
        own = [text for unit in jobs[0].units if unit.kind in PYTHON for text in unit.instantiate]
        error.reasons = (jobs[0].name, *(_without(text, own) for text in failed))
        error.compilations = sum(map(len, failed.values()))
        error.targets = tuple(str(a) for jobs in failed.values() for job in jobs for a in job.architectures)
        raise error
    return images


def _without(text: str, parts: Iterable[str]) -> str:
    for part in parts:
        text = text.replace(part, "")
    return text


def _failure(text: str, jobs: Sequence[Job]) -> str:
    """Complete the `text` of a compiler, which names its files, or of the linker, which does not."""
    targets = ", ".join(str(architecture) for job in jobs for architecture in job.architectures)
    if isinstance(jobs[0], LinkJob):
        # A single image is assembled under its own name.
        verb = "assembling" if jobs[0].name == jobs[0].inputs[0].name else "linking"
        return f"{jobs[0].name}: {verb} for {targets}: {text}"
    return f"{text}\n(compiling {jobs[0].name} for {targets})"


def _check_sizes(unit: TranslationUnit, image: CompiledImage, signatures: Signatures) -> None:
    """Compare `signatures` with `image`: one name must not stand for different things."""
    for lowered in image.entries:
        kernel, own = signatures.kernels[lowered], image.signatures.kernels[lowered]
        if unit.kind in PYTHON and own.constants != kernel.constants:
            raise _other_constants(unit, image, own, kernel)
        types, own_types = ([p.type for p in each.parameters] for each in (kernel, own))
        if own.sizes != kernel.sizes or own_types != types:
            raise differs(f"kernel {kernel.expression!r}", "parameters", image, unit.name)
    for lowered, variable in image.signatures.symbols.items():
        if variable.size != signatures.symbols[lowered].size:
            raise differs(f"variable {variable.name!r}", "size", image, unit.name)


def _other_constants(
    unit: TranslationUnit, image: CompiledImage, own: Kernel, kernel: Kernel
) -> CompilationError:
    """Return the error for a default that depends on the GPU. Grids depend on such constants."""
    name, value = min({*own.constants.items()} ^ {*kernel.constants.items()})
    return CompilationError(
        f"{unit.instantiate[0]}: {name} has another default for {image.architecture}",
        where=unit.name,
        remedy=f"give it a value, as in {name}={value}",
    )


def _check_linked(name: str, image: CompiledImage) -> None:
    where = f"{name}: linking for {image.architecture}"
    if image.architecture.kind == "ptx" and (missing := ptx.undefined(image.data)):
        if missing[0].startswith("__cuda"):
            raise CompilationError(
                "PTX cannot hold the device runtime library, which launches kernels from the device",
                where=where,
                remedy=f"leave {image.architecture} out of the architectures",
            )
        raise CompilationError(
            f"no source defines {', '.join(missing)}",
            where=where,
            remedy="name the source that does in sources",
        )
    # The linker renames a kernel that would hide another.
    for entry in image.entries:
        hidden, _, number = entry.rpartition("$")
        if number.isdigit() and hidden in image.entries:
            raise CompilationError(
                f"two sources define {hidden}",
                where=where,
                remedy="rename one of them or put it into a namespace",
            )
