"""Combine images with the descriptions of their kernels, which must not contradict the images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cuda_ext.compiler.front_ends.kernel_description import (
    LIMITS,
    REGISTERS,
    SHARED_MEMORY,
    KernelDescription,
)
from cuda_ext.compiler.products import CompiledImage, Signatures, Trace
from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError, CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.formats.variant_conditions import check_terms

_WARP = 32  # threads


def describe_images(
    images: Sequence[CompiledImage],
    signatures: Signatures,
    descriptions: Sequence[KernelDescription],
    where: str,
) -> tuple[list[CompiledImage], Signatures]:
    """Return `images` and `signatures` with only the kernels of `descriptions`.

    Raises :class:`BuildError` for a description that contradicts the images of the source `where`.
    """
    if all(image.architecture.kind == "ltoir" for image in images):
        raise BuildError(
            "LTO-IR does not show the kernels that are described",
            where=where,
            remedy='add a cubin or PTX to architectures, such as "sm_90", to which the build links it',
        )
    described: dict[str, Kernel] = {}
    for each in descriptions:
        kernel = each.kernel
        if kernel.lowered not in signatures.kernels:
            known = ", ".join(sorted(signatures.kernels)) or "none"
            raise BuildError(
                f"has no kernel {kernel.lowered!r}, which describes {kernel.expression!r}",
                where=where,
                remedy=f"its kernels: {known}",
            )
        others = {lowered: kernel.expression for lowered, kernel in described.items()}
        if kernel.lowered in others or each.expression in others.values():
            raise BuildError(
                f"{each.expression!r}, or its kernel {kernel.lowered!r}, is described twice",
                where=where,
                remedy="describe each kernel once, under a name of its own or with another condition",
            )
        described[kernel.lowered] = _described(each, signatures.kernels[kernel.lowered].parameters, where)
        for condition in (*each.when, *kernel.derived.values()):
            check_terms(condition, kernel.expression, kernel.parameters, kernel.hidden, where)
        if each.launch:
            _check_launch(each.expression, each.launch, where)
    launches = {each.kernel.lowered: each.launch for each in descriptions if each.launch}
    reduced = []
    for image in images:
        entries = tuple(name for name in image.entries if name in described)
        for name in entries:
            sizes, found = described[name].sizes, image.signatures.kernels[name].sizes
            if found != sizes:
                raise BuildError(
                    f"the parameters of {described[name].expression!r} have {_list(sizes)} bytes as "
                    f"described, and {_list(found)} bytes in the image for {image.architecture}",
                    where=where,
                    remedy="correct the signature",
                )
        own = {name: launch for name, launch in launches.items() if name in entries}
        for name, launch in own.items():
            check_resources(described[name].expression, name, launch, image, where)
        reduced.append(replace(image, entries=entries, variables=(), launches=own))
    conditions = {each.expression: each.when for each in descriptions}
    return reduced, replace(signatures, kernels=described, symbols={}, conditions=conditions)


def describe_image(
    architecture: Architecture,
    data: bytes,
    description: KernelDescription,
    unit: TranslationUnit,
    reads: frozenset[str],
) -> CompiledImage:
    """Describe the image `data`, with one kernel, that a front-end made of `unit` for `architecture`.

    `reads` are the files of the project on which it depends.
    Raises :class:`CompilationError`.
    """
    image = read_image(architecture, data)
    try:
        (image,), signatures = describe_images([image], image.signatures, [description], unit.name)
    except BuildError as error:  # an error of this source only: the build continues with others
        raise CompilationError(error.problem, where=error.where, remedy=error.remedy) from None
    return replace(image, signatures=signatures, trace=Trace(reads=reads - {unit.name}))


def _described(each: KernelDescription, slots: Sequence[Parameter], where: str) -> Kernel:
    """Make the kernel of a description, with the sizes and offsets of `slots`, the parameters in an image."""
    kernel = each.kernel
    count = len(kernel.parameters) + len(kernel.hidden)
    if len(slots) != count:
        raise BuildError(
            f"kernel {kernel.lowered!r} has {len(slots)} parameters, and {kernel.expression!r} is described "
            f"with {count}",
            where=where,
            remedy=f"their sizes in bytes are {_list(p.size for p in slots)}" if slots else "describe none",
        )
    hidden_at = {h.position for h in kernel.hidden}
    own = [slot for i, slot in enumerate(slots) if i not in hidden_at]
    parameters = tuple(
        p._replace(size=p.size or slot.size, offset=slot.offset)
        for p, slot in zip(kernel.parameters, own, strict=True)
    )
    hidden = tuple(h._replace(size=h.size or slots[h.position].size) for h in kernel.hidden)
    return kernel._replace(expression=each.expression, parameters=parameters, hidden=hidden)


def _check_launch(expression: str, launch: FixedLaunch, where: str) -> None:
    for key, (most, what) in LIMITS.items():
        if (count := math.prod(getattr(launch, key))) > most:
            raise BuildError(
                f"{expression} is for {count} {what} in a {key}, and a GPU has at most {most}",
                where=where,
                remedy="compile it for fewer",
            )


def check_resources(
    expression: str, lowered: str, launch: FixedLaunch, image: CompiledImage, where: str
) -> None:
    """Check that a GPU of `image` has what a block takes of it. GPUs that run PTX may have more.

    Raises :class:`BuildError`.
    """
    architecture, usage = image.architecture, image.usage.get(lowered)
    if architecture.kind != "cubin":
        return
    warps = -(-math.prod(launch.block) // _WARP)
    # Warps take multiples of eight registers for each thread.
    registers = -(-((usage and usage.registers) or 0) // 8) * 8 * warps * _WARP
    most = SHARED_MEMORY.get(architecture.number, 0) << 10
    size = launch.shared + ((usage and usage.shared) or 0)
    for taken, available, what, cause in (
        (size, most, "bytes of shared memory", "smaller tiles or fewer stages"),
        (registers, REGISTERS, "registers", "a smaller block or __launch_bounds__"),
    ):
        if available and taken > available:
            raise BuildError(
                f"{expression} takes {taken:,} {what} in a block, and {architecture} has at most "
                f"{available:,}",
                where=where,
                remedy=f"compile it for less, as by {cause}, or leave {architecture} out",
            )


def _list(sizes: Iterable[int]) -> str:
    return ", ".join(map(str, sizes))
