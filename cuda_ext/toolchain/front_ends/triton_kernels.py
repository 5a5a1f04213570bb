"""Descriptions of kernels that Triton compiled, as a launch needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cuda_ext.compiler.front_ends.instantiation import Instantiation, TypedParameter
from cuda_ext.compiler.front_ends.kernel_description import (
    KernelDescription,
    declare_parameter,
    describe_function,
)
from cuda_ext.facts.kernels import FixedLaunch, HiddenParameter, Parameter, TensorMap
from cuda_ext.toolchain.front_ends.triton_types import DESCRIPTOR, SPELLED_IN_CPP, element_of

# The size of the parameters that Triton adds: global scratch memory, and profiling scratch memory.
_ADDRESS = 8


def describe_kernel(
    instantiation: Instantiation, names: Sequence[str], constants: Mapping[str, str], metadata: Any
) -> KernelDescription:
    """Describe the kernel of `instantiation`, whose parameters are in the order of `names`.

    `constants` spells all values, and `metadata` is Triton's description of the kernel.
    """
    typed = instantiation.parameters
    arrays = (p.type for p in typed if p.type.startswith("*") or DESCRIPTOR.fullmatch(p.type))
    hidden = list(_hidden(typed))
    count = len(typed) + len(hidden)
    return describe_function(instantiation, names, map(element_of, arrays), constants)._replace(
        lowered=metadata.name,
        parameters=tuple(map(_parameter, typed)),
        hidden=(
            *hidden,
            # Even if this image needs no scratch memory, that of another architecture may.
            HiddenParameter(count, _ADDRESS, "scratch"),
            HiddenParameter(count + 1, _ADDRESS, "zero"),
        ),
        launch=FixedLaunch(
            block=(metadata.target.warp_size * metadata.num_warps,),
            shared=metadata.shared,
            cluster=(metadata.num_ctas,) if metadata.num_ctas > 1 else (),
            cooperative=metadata.launch_cooperative_grid,
            dependent=metadata.launch_pdl,
            scratch=metadata.global_scratch_size,
            tensor_maps=_tensor_maps(typed, metadata),
        ),
    )


def _hidden(typed: Sequence[TypedParameter]) -> Iterator[HiddenParameter]:
    """Yield the shapes (32 bits) and strides (64 bits) behind each tensor descriptor."""
    position = 0
    for parameter in typed:
        position += 1
        if descriptor := DESCRIPTOR.fullmatch(parameter.type):
            axes = range(descriptor[2].count(",") + 1)
            for size, what in ((4, "shape"), (8, "stride")):
                for axis in axes:
                    yield HiddenParameter(position, size, f"{parameter.argument}.{what}[{axis}]")
                    position += 1


def _tensor_maps(typed: Sequence[TypedParameter], metadata: Any) -> dict[str, TensorMap]:
    """Return the formats of the tensor maps that the host makes, by parameter."""
    names = [parameter.argument for parameter in typed if DESCRIPTOR.fullmatch(parameter.type)]
    formats = getattr(metadata, "tensordesc_meta", None) or ()
    # Some types have other numbers on the device.
    types = {8: 10, 9: 8, 10: 9}
    return {
        name: TensorMap(
            types.get(each["elem_type"], each["elem_type"]),
            each["elem_size"],
            tuple(each["block_size"]),
            each["swizzle"],
        )
        for name, each in zip(names, formats, strict=True)
    }


def _parameter(typed: TypedParameter) -> Parameter:
    name, type_, element = typed.argument, typed.type, SPELLED_IN_CPP[element_of(typed.type)]
    if DESCRIPTOR.fullmatch(type_):
        return Parameter(name, "CUtensorMap", "struct", 128, 0, element, alignment=64)
    if not type_.startswith("*"):
        return declare_parameter(name, element)
    return declare_parameter(name, f"const {element}*" if type_.startswith("*k") else f"{element}*")
