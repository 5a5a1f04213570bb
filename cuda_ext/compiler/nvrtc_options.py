"""Options in NVRTC's words."""

from __future__ import annotations

from cuda_ext.manifest import Options

__all__ = ["nvrtc_options"]

# What CCCL unrolls in its lists of types: 10 under nvcc, 16 elsewhere, where one header takes as long as all
# others together (CCCL 3.5, cuda/std/__type_traits/type_list.h). The images are the same.
_UNROLL_LIMIT = "_CCCL_META_UNROLL_LIMIT"


def nvrtc_options(name: str, options: Options) -> list[str]:
    """What NVRTC is told about the source `name`, on every machine and for every architecture."""
    # Without a seed, internal names hold the time and the process id.
    told = [f"--frandom-seed={name}"]
    if options.relaxed_constexpr:
        # NVRTC has no --expt-relaxed-constexpr. This does more: what has no annotation is device code.
        told.append("--device-as-default-execution-space")
    if options.relocatable:
        told.append("--relocatable-device-code=true")
    told += options.spelled()
    if not any(_UNROLL_LIMIT in option for option in told):
        told.append(f"-D{_UNROLL_LIMIT}=10")
    return told
