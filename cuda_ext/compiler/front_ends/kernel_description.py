"""Descriptions of kernels, with types and launch configurations that their images do not contain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cuda_ext.compiler.front_ends.instantiation import Instantiation
from cuda_ext.facts.kernels import SIZES, Kernel, Parameter, ParameterKind
from cuda_ext.facts.launches import FixedLaunch, HiddenParameter
from cuda_ext.formats.spelling import STANDARD_INTEGERS, normalise
from cuda_ext.formats.variant_conditions import Condition, spell
from cuda_ext.text.brackets import split_arguments


class KernelDescription(NamedTuple):
    """A `kernel` of an image, with what the image does not contain.

    Its parameters have no offsets, and the size 0 if only the image knows it. ``launch`` is ``None`` if the
    image does not fix the configuration. ``when`` has the conditions under which it was compiled; a launch
    checks that one holds.
    """

    kernel: Kernel
    launch: FixedLaunch | None = None
    when: tuple[Condition, ...] = ()

    @property
    def expression(self) -> str:
        """The name of the kernel in a manifest; kernels of one name are told apart by their conditions."""
        name = self.kernel.expression
        return f"{name} if {spell(self.when)}" if self.when else name


# The largest numbers of threads in a block and of blocks in a cluster.
LIMITS = {"block": (1024, "threads"), "cluster": (16, "blocks")}
# The most KiB of shared memory in a block by compute capability: "Maximum amount of shared memory per thread
# block" in the CUDA Programming Guide, and `max_shared_memory_per_block_optin` in CCCL.
SHARED_MEMORY = {
    75: 64,
    **dict.fromkeys((86, 88, 89, 120, 121), 99),
    **dict.fromkeys((80, 87), 163),
    **dict.fromkeys((90, 100, 103, 107, 110), 227),
}
# The registers of a block, of all GPUs that CUDA 13 compiles for.
REGISTERS = 1 << 16
# The bytes of types, also of those that only CUDA has.
ELEMENT_SIZES = SIZES | {"__half": 2, "__nv_bfloat16": 2, "__nv_fp8_e4m3": 1, "__nv_fp8_e5m2": 1}


class Dtype(NamedTuple):
    """A type of elements: as PyTorch, Triton, cuTile and C++ spell it."""

    torch: str
    triton: str
    cutile: str
    cpp: str


DTYPES = (
    Dtype("bool", "i1", "bool", "bool"),
    Dtype("int8", "i8", "i8", "signed char"),
    Dtype("int16", "i16", "i16", "short"),
    Dtype("int32", "i32", "i32", "int"),
    Dtype("int64", "i64", "i64", "long long"),
    Dtype("uint8", "u8", "u8", "unsigned char"),
    Dtype("uint16", "u16", "u16", "unsigned short"),
    Dtype("uint32", "u32", "u32", "unsigned int"),
    Dtype("uint64", "u64", "u64", "unsigned long long"),
    Dtype("float16", "fp16", "f16", "__half"),
    Dtype("bfloat16", "bf16", "bf16", "__nv_bfloat16"),
    Dtype("float32", "fp32", "f32", "float"),
    Dtype("float64", "fp64", "f64", "double"),
    Dtype("float8_e4m3fn", "fp8e4nv", "f8e4m3", "__nv_fp8_e4m3"),
    Dtype("float8_e5m2", "fp8e5", "f8e5m2", "__nv_fp8_e5m2"),
)
_PARAMETER = re.compile(r"(?P<type>[^=]*[>*&\s])(?P<name>[A-Za-z_]\w*)\s*(?:=\s*(?P<source>.+))?", re.DOTALL)
_SOURCE = re.compile(r"0|scratch|(\w+)\.(?:shape|stride)\[\d{1,2}\]")


def describe_function(
    instantiation: Instantiation, names: Sequence[str], types: Iterable[str], values: Mapping[str, str]
) -> Kernel:
    """Describe the kernel of a Python function, for a front-end to complete.

    `names` are the parameters of the function, and `values` spells the options and the parameters with
    values. The name of the kernel contains `types` and constants, but no option and no part of a
    configuration.
    """
    configuration = {name: values[name] for name in instantiation.configuration}
    constants = {name: values[name] for name in names if name in values and name not in configuration}
    arguments = ", ".join([*dict.fromkeys(types), *(f"{name}={value}" for name, value in constants.items())])
    order: dict[str, list[str]] = {name: [name] for name in constants}
    for parameter in instantiation.parameters:
        order.setdefault(parameter.name, []).append(parameter.argument)
    return Kernel(
        f"{instantiation.function}<{arguments}>" if arguments else instantiation.function,
        instantiation.function,
        0,
        (),
        constants=constants,
        configuration=configuration,
        order=tuple(a for name in names for a in order.get(name, ())) if constants else (),
        options={name: value for name, value in values.items() if name not in names},
        derived=instantiation.derived,
    )


def parse_signature(text: str) -> tuple[tuple[Parameter, ...], tuple[HiddenParameter, ...]]:
    """Parse a list of parameters in parentheses, as C++ declares them.

    A parameter with a default is no argument of a call: ``int rows = x.shape[0]``, ``void* memory =
    scratch``, ``long reserved = 0``. Raises :class:`ValueError` that says what is wrong.
    """
    inner = re.fullmatch(r"\s*\((.*)\)\s*", text, re.DOTALL)
    if not inner:
        raise ValueError("expected parameters in parentheses, such as (const float* x, float* y, int n)")
    parameters: list[Parameter] = []
    hidden: list[HiddenParameter] = []
    for position, each in enumerate(split_arguments(inner[1])):
        match = _PARAMETER.fullmatch(each)
        if not match:
            raise ValueError(f"expected a type and a name, found {each!r}")
        parameter = declare_parameter(match["name"], match["type"])
        if match["source"] is None:
            parameters.append(parameter)
            continue
        source = " ".join(match["source"].split())
        if not (of := _SOURCE.fullmatch(source)):
            raise ValueError(
                f"{parameter.name!r} = {source}: expected 0, scratch, or the shape or stride of an argument, "
                "such as x.shape[0]"
            )
        hidden.append(HiddenParameter(position, parameter.size, "zero" if source == "0" else source))
        if of[1] and of[1] not in [p.name for p in parameters if p.kind == "pointer"]:
            raise ValueError(f"{parameter.name!r} = {source}: no pointer {of[1]!r} stands before it")
    names = [parameter.name for parameter in parameters]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two parameters are named {min(repeated)!r}")
    return tuple(parameters), tuple(hidden)


def declare_parameter(name: str, text: str) -> Parameter:
    """Make the parameter `name` of the C++ type `text`, with the size 0 if it is not known."""
    spelled = normalise(re.sub(r"\b(?:__restrict__\b|__restrict\b|std::)", " ", text).strip())
    spelled = re.sub(r"(?<=\*) ?const$", "", spelled)  # const applies to the pointer itself
    spelled = re.sub(r"(?<!\S)\w+(?![^ *])", lambda word: STANDARD_INTEGERS.get(word[0], word[0]), spelled)
    if spelled.endswith("*"):
        target = spelled.removesuffix("*")
        is_const = target.startswith("const ") and not target.endswith("*")
        element = target.removeprefix("const ") if is_const else target
        return Parameter(name, spelled, "pointer", 8, 0, element, is_const)
    spelled = spelled.removeprefix("const ")
    kind: ParameterKind = "integer"
    if spelled not in ELEMENT_SIZES or spelled.startswith("__"):
        kind = "struct"
    elif spelled in ("float", "double"):
        kind = "float"
    elif spelled == "bool":
        kind = "bool"
    elif spelled.startswith("unsigned"):
        kind = "unsigned"
    return Parameter(name, spelled, kind, ELEMENT_SIZES.get(spelled, 0), 0)
