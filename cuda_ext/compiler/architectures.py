"""Architectures, spelled as nvcc spells them.

``sm_90a`` stands for a cubin, ``compute_90`` for PTX, ``lto_90`` for LTO-IR. The installed compiler says
which exist; the table of GPUs here only suggests a spelling for their names.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Sequence

from cuda_ext.compiler.spelled_settings import spell_override
from cuda_ext.compiler.translation_unit import CompilerInfo, SourceKind
from cuda_ext.errors import BuildError, closest_name
from cuda_ext.facts.architecture import TILE_IR, Architecture

GROUPS = ("all", "all-major", "native")

# Names of GPUs and of their generations, without spaces and dashes, by compute capability: "CUDA GPU Compute
# Capability" on developer.nvidia.com.
_GPUS = {
    60: "p100|pascal",
    61: "p4|p40|gtx10[5-8]0(ti)?",
    70: "v100s?|titanv|volta",
    72: "xavier",
    75: "t4g?|gtx16[56]0(ti)?|rtx20[678]0(ti)?|titanrtx|rtx[4568]000|turing",
    80: "a100|a800|a30|ampere",
    86: "a2|a10g?|a16|a40|rtx30[5-9]0(ti)?|rtxa[2456]000",
    87: "orin|agxorin",
    89: "l4|l20|l40s?|rtx40[5-9]0(ti)?|rtx6000ada|ada|adalovelace",
    90: "h100|h200|h800|h20|gh200|hopper",
    100: "b100|b200|gb200",
    103: "b300|gb300",
    110: "thor|agxthor",
    120: "rtx50[5-9]0(ti)?|rtxpro6000(blackwell)?",
    121: "gb10|dgxspark",
}


def expand(
    names: Iterable[str], compiler: CompilerInfo, where: str, native: Sequence[int] = ()
) -> tuple[Architecture, ...]:
    """Turn spellings and groups into a sorted list of architectures without duplicates.

    ``all`` means each capability that `compiler` supports and ``all-major`` the lowest of each generation,
    both with PTX for the newest of them, for future GPUs. ``native`` means the capabilities in `native`,
    those of the GPUs in this machine.

    Raises :class:`BuildError` for an unknown spelling, for an architecture that the compiler does not
    support, and for ``native`` on a machine without a GPU; `where` is the place that the error names.
    """
    capabilities = compiler.capabilities()
    groups = {
        "all": capabilities,
        "all-major": tuple({n // 10: n for n in reversed(capabilities)}.values())[::-1],
    }
    architectures: set[Architecture] = set()
    for name in names:
        if group := groups.get(name):
            architectures.update(Architecture("cubin", n) for n in group)
            architectures.add(Architecture("ptx", group[-1]))
        elif name == "native":
            if not native:
                raise BuildError(
                    '"native" means the GPUs of this machine, and it has none that can be asked',
                    where=where,
                    remedy='name architectures instead, such as "all-major" or "sm_90"',
                )
            architectures.update(_parse(f"sm_{n}", compiler, where) for n in native)
        else:
            architectures.add(_parse(name, compiler, where))
    return tuple(sorted(architectures))


def from_cmake(text: str) -> list[str]:
    """Read the list of architectures `text` as CMake spells it.

    There ``90-real`` is the cubin, ``90-virtual`` the PTX, and ``90`` both. Other names are kept.
    """
    names: list[str] = []
    for item in filter(None, re.split(r"[;,\s]+", text)):
        number, _, kind = item.partition("-")
        if not re.fullmatch(r"[0-9]+[af]?", number) or kind not in ("", "real", "virtual"):
            names.append(item)
            continue
        names += [f"sm_{number}"] if kind != "virtual" else []
        names += [f"compute_{number}"] if kind != "real" else []
    return names


# From this compute capability on, Triton and tileiras compile for exactly one GPU: their targets end with
# ``a``.
FIRST_SPECIFIC = 90


def targets_of(kind: SourceKind, architectures: Sequence[Architecture]) -> tuple[Architecture, ...]:
    """Return the targets of the compiler of this `kind` for `architectures`; front-ends make no LTO-IR."""
    match kind:
        case "tile" | "cutile":
            return _targets_of_tiles(architectures)
        case "triton":
            return _targets_of_triton(architectures)
        case _:
            return tuple(architectures)


def _targets_of_tiles(architectures: Iterable[Architecture]) -> tuple[Architecture, ...]:
    """Return tileiras's targets for `architectures`: specific code for newer GPUs, and Tile IR for PTX."""
    found = (a for a in architectures if a.kind != "ltoir")
    return tuple(sorted({_specific(a) if a.kind == "cubin" else TILE_IR for a in found}))


def _targets_of_triton(architectures: Iterable[Architecture]) -> tuple[Architecture, ...]:
    """Return Triton's targets: specific code for newer GPUs, and the newest PTX that is not specific."""
    found = list(architectures)
    cubins = {_specific(a) for a in found if a.kind == "cubin"}
    ptx = {a for a in found if a.kind == "ptx" and a.number < FIRST_SPECIFIC}
    if any(a.kind == "ptx" and a.number >= FIRST_SPECIFIC for a in found):
        ptx.add(
            max(
                (a.as_kind("ptx") for a in cubins if a.number < FIRST_SPECIFIC),
                default=Architecture("ptx", 80),
            )
        )
    return tuple(sorted(cubins | ptx))


def _specific(target: Architecture) -> Architecture:
    return Architecture(target.kind, target.number, "a" if target.number >= FIRST_SPECIFIC else "")


def _parse(name: str, compiler: CompilerInfo, where: str) -> Architecture:
    try:
        architecture = Architecture.parse(name)
    except ValueError:
        raise BuildError(
            f"unknown architecture {reprlib.repr(name)}", where=where, remedy=_hint(name, compiler)
        ) from None
    if architecture.kind == "tileir":
        raise BuildError(
            "Tile IR is the image of tile kernels for later GPUs",
            where=where,
            remedy=f"ask for it as for PTX, with compute_{architecture.target}",
        )
    if not compiler.supports(architecture):
        hint = _hint(name, compiler)
        if architecture.number < min(compiler.capabilities()):
            hint = _older(architecture.number, compiler)
        supported = ", ".join(f"sm_{n}" for n in compiler.capabilities())
        title = "CUDA Tile of CUDA" if compiler.name == "tile" else compiler.name
        raise BuildError(
            f"{title} {compiler.version} cannot compile for {reprlib.repr(name)}",
            where=where,
            remedy=f"{hint} (it supports {supported})",
        )
    return architecture


def _hint(name: str, compiler: CompilerInfo) -> str:
    """Suggest the architecture of the GPU `name`, or the nearest valid spelling."""
    capabilities = compiler.capabilities()
    if capability := _capability_of(name):
        known = f"{name} is sm_{capability}"
        return known if capability in capabilities else f"{known}, for which {_older(capability, compiler)}"
    spelled = re.match(r"(?:(sm|compute|lto)|cc)?[-_ ]?(\d+(?:\.\d+)?)", name.lower())
    if spelled is None:
        if close := closest_name(name.lower().replace("_", "-"), GROUPS, 0.5):
            return f"did you mean {close!r}?"
        return f"expected sm_{capabilities[0]} or the like, compute_..., lto_..., or {', '.join(GROUPS)}"
    number = spelled[2].replace(".", "")[:4]  # no capability is longer
    begun = [n for n in capabilities if str(n).startswith(number)]
    nearest = begun[0] if begun else min(capabilities, key=lambda n: (abs(n - int(number)), n))
    suffix = re.search(r"\d([af])$", name)
    likely = Architecture.parse(f"{spelled[1] or 'sm'}_{nearest}{suffix[1] if suffix else ''}")
    if not compiler.supports(likely):
        likely = Architecture(likely.kind, nearest)
    return f"did you mean '{likely}'?"


def _capability_of(name: str) -> int | None:
    """Return the compute capability of the GPU that is called `name`; ``None`` if it is not known."""
    plain = re.sub(r"nvidia|geforce|tesla|jetson|quadro|(sxm|pcie|nvl)\d*|[-_ ]|\d+gb$", "", name.lower())
    return next((number for number, names in _GPUS.items() if re.fullmatch(names, plain)), None)


def _older(number: int, compiler: CompilerInfo) -> str:
    """Advise on a capability that `compiler` does not support any more, or not yet."""
    if number > max(compiler.capabilities()):
        return f"a newer {compiler.name} is needed"
    if compiler.name not in ("nvrtc", "nvcc"):
        return f"name others in {spell_override()} for these sources"
    return 'CUDA 12 is needed: install "cuda-ext[cu12]"' if number >= 50 else "an older CUDA is needed"
