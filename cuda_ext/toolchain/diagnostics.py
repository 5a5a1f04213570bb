"""What compilers write: remedies for errors, the resources that ptxas reports, and time traces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cuda_ext.compiler.name_expressions import kernel_names, normalise, template_name
from cuda_ext.compiler.products import CompiledImage, Span, Trace
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError, closest_name

__all__ = ["VERBOSE", "attach_log", "explain", "read_time_trace"]

# Makes ptxas report resources; NVRTC and nvcc pass it on.
VERBOSE = ("-Xptxas", "-v")

# Patterns, which the module re compiles when they are first used.
_ENTRY = r"(?m)^ptxas info\s*: Compiling entry function '([^']+)' for "
_LINE = (
    r"(?m)^(?:ptxas info\s*: .*|"
    r"(?:ptxas\s+\.)?\s+\d+ bytes (?:stack frame, .*|cumulative stack size.*))$\n?"
)
_COUNTS = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "shared": r"(\d+) bytes smem",
}
_CONSTANT = r"(\d+) bytes cmem\["

# As the CUDA front end writes it, and as host compilers do when they preprocess.
_MISSING_HEADER = (
    r"(?m)^(?P<place>.+?(?:\(\d+\)|:\d+(?::\d+)?)): (?:catastrophic |fatal )?error: "
    r'(?:cannot open source file "(?P<name>[^"]+)"|(?P<name2>\S+): No such file or directory'
    r"|'(?P<name3>[^']+)' file not found)(?P<by_macro>.*\n\s*#\s*include\s+\w)?"
)
_BAD_EXPRESSION = r'Input name expression was: "\s*(.*?)\s*"'
_NAME_MAP = (
    r"(?ms)^__nv_name_map\((?P<line>\d+)\): (?:error|note).*?"
    r"(?=^\S+\(\d+\): |^\d+ errors? detected|\Z)"
)
# As nvcc and NVRTC answer a launch in code that is not relocatable.
_LAUNCHES_KERNELS = (
    r"kernel launch from __device__ or __global__ functions requires separate compilation mode"
    r"|device-side kernel launch could not be processed as the required runtime APIs are not declared"
)
# Lines that are not about the failure: what ptxas reports about each kernel, and hints about warnings.
_ASIDES = r"(?m)^(?:ptxas (?:info|  ).*|Remark: The warnings can be suppressed .*\n?)\n?"


def attach_log(image: CompiledImage, log: str, trace: Trace) -> CompiledImage:
    """Return `image` with its trace, the resources that `log` reports, and the rest of `log` as warnings."""
    usage = dict(image.usage)
    _, *sections = re.split(_ENTRY, log)
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        if name in usage:
            matches = {key: re.search(pattern, section) for key, pattern in _COUNTS.items()}
            usage[name] = replace(
                usage[name],
                **{key: int(match[1]) if match else 0 for key, match in matches.items()},
                # From sm_90 on, ptxas 13 does not report it.
                constant=sum(map(int, re.findall(_CONSTANT, section))) or None,
            )
    return replace(image, log=re.sub(_LINE, "", log).strip(), usage=usage, trace=trace)


def read_time_trace(content: bytes) -> tuple[Span, ...]:
    """Read what ``-fdevice-time-trace`` writes: Chrome's trace format, in microseconds.

    Raises :class:`~cuda_ext.errors.CompilationError` for what the compiler could not write properly.
    """
    spans = []
    try:
        for event in json.loads(content, strict=False)["traceEvents"]:
            if event.get("ph") == "X":
                about = event.get("args", {})
                detail = about.get("detail") or about.get("name") or ""
                spans.append(Span(event["name"], detail, event["ts"] / 1e6, event["dur"] / 1e6))
    except (KeyError, TypeError, ValueError) as error:
        raise CompilationError(
            f"the compiler's time trace is damaged ({error})",
            remedy="check whether the disk is full, or a header has a name that is not text",
        ) from None
    return tuple(spans)


def explain(
    log: str, unit: TranslationUnit, nvrtc_headers: Callable[[], Sequence[Path]] | None = None
) -> str:
    """Append remedies to `log`, the text of a failed compilation, and remove lines about other things.

    With `nvrtc_headers`, the directories of its headers, it is NVRTC's, which cannot read the host's C++
    library; otherwise it is nvcc's.
    """
    notes = []
    log = re.sub(_ASIDES, "", log)
    refusals: dict[int, str] = {}
    for match in re.finditer(_NAME_MAP, log):
        line = int(match["line"])
        refusals[line] = refusals.get(line, "") + match[0]
    if refusals:
        log = re.sub(_NAME_MAP, "", log)
        # The compiler's count includes the lines that were removed.
        log = re.sub(r"^\d+ errors? detected in the compilation of .*\n?", "", log, flags=re.MULTILINE)
    # NVRTC repeats a name expression that it rejects; nvcc's have one line each, from the second on.
    requested = {} if nvrtc_headers else dict(enumerate(unit.instantiate, 2))
    for line, refusal in refusals.items():
        if repeated := re.search(_BAD_EXPRESSION, refusal):
            requested[line] = repeated[1]
        if line in requested:
            notes.append(_about_instantiation(normalise(requested[line]), refusal, unit.source))
        else:
            notes.append(refusal.strip())
    for match in re.finditer(_MISSING_HEADER, log):
        name = match["name"] or match["name2"] or match["name3"]
        if match["by_macro"]:
            notes.append(
                f"{match['place']}: an #include whose name is a macro is not followed; write out "
                f'#include "{name}"'
            )
        elif nvrtc_headers:
            notes.append(_about_header(match["place"], name, nvrtc_headers()))
        else:
            notes.append(
                f'{match["place"]}: "{name}" is neither in the include directories nor among the headers of '
                "nvcc and its host compiler; extend these, or install the package that brings it"
            )
    if re.match(r"nvrtc: error|Command-line error|nvcc fatal", log.strip()):
        notes.append("this is about the options: see std, options, define and pre-include of the module")
    if "uses too much shared data" in log:
        notes.append(
            "__shared__ arrays of a fixed size have 48 kB together; declare a larger one extern __shared__, "
            "and give its size to the launch as shared="
        )
    if unresolved := re.findall(r"Unresolved extern function '(\S+)'", log):
        missing = ", ".join(dict.fromkeys(unresolved))
        notes.append(f"this source does not define {missing}; if another one does, set link = true")
    if re.search(_LAUNCHES_KERNELS, log):
        notes.append(
            "kernels that launch kernels are linked with the device runtime library: set link = true"
        )
    return "\n".join([log.strip(), *dict.fromkeys(notes)]).strip()


def _about_instantiation(expression: str, reason: str, source: bytes) -> str:
    plain = template_name(expression).rpartition("::")[2]
    kernels = sorted(kernel_names(source))
    close = closest_name(plain, kernels)
    text = f"instantiation {expression!r} does not exist"
    if match := re.search(r"error: (.*)", reason):
        text += f": {match[1]}"
    if "cannot determine which instance of function template" in reason and not expression.endswith(">"):
        text += f"; write its template arguments, as in {f'{expression}<float>'!r}"
    elif close and close != plain:
        text += f"; did you mean {expression.replace(plain, close, 1)!r}?"
    elif kernels and not close:
        text += f"; this source defines {', '.join(kernels)}"
    return text


# Headers that nvcc includes by itself; NVRTC has what device code needs of them built in.
_BUILT_IN = {"cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h"}


def _about_header(place: str, name: str, directories: Sequence[Path]) -> str:
    if name in _BUILT_IN:
        return (
            f"{place}: NVRTC has built in what device code needs of <{name}>; leave this line out, or put it "
            "between #ifndef __CUDACC_RTC__ and #endif"
        )
    if any(Path(place).is_relative_to(directory) for directory in directories):
        return (
            f"{place}: this header needs <{name}>, which NVRTC does not have; if it is for host code, leave "
            'it out or set compiler = "nvcc"; otherwise a package of the tool chain is missing'
        )
    plain = name.removesuffix(".h")
    equivalent = [f"cuda/std/c{plain}"] if name != plain else []
    for directory in directories:
        for candidate in (*equivalent, f"cuda/std/{name}", f"cuda/std/{plain}"):
            if (directory / candidate).is_file():
                return (
                    f"{place}: NVRTC has no host headers; include <{candidate}> instead of <{name}> "
                    '(its names are in cuda::std), or set compiler = "nvcc"'
                )
    return (
        f'{place}: "{name}" is neither in the include directories nor among the headers of NVRTC; if it is a '
        'header of the host compiler, keep it out of device code or set compiler = "nvcc"; if it is of '
        "another CUDA package, such as nvidia-curand, install that"
    )
