"""Write the text of a failed compilation: the compiler's errors, and remedies for known causes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from cuda_ext.compiler.compile_options import nvcc_only
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.toolchain.diagnostics import shorten_output
from cuda_ext.toolchain.remedies.bad_instantiations import explain_instantiations
from cuda_ext.toolchain.remedies.host_code import explain_host_code, explain_host_constexpr
from cuda_ext.toolchain.remedies.missing_headers import explain_missing_headers
from cuda_ext.toolchain.remedies.missing_types import explain_missing_types

# Lines that are not about the failure: hints about warnings, and counts of errors, some of which are removed.
_ASIDES = (
    r"(?m)^(?:Remark: The warnings can be suppressed .*\n?|"
    r".*\berrors? detected in the compilation of .*|[Cc]ompilation terminated\.|Error limit reached\.)\n?"
)
# The answer of nvcc and NVRTC to a launch in code that is not relocatable.
_LAUNCHES_KERNELS = (
    r"kernel launch from __device__ or __global__ functions requires separate compilation mode"
    r"|device-side kernel launch could not be processed as the required runtime APIs are not declared"
)
_OPTION = r"nvrtc: error: unrecognized option (?P<nvrtc>\S+) found|nvrtc: error|Command-line error|nvcc fatal"


def explain(
    log: str,
    unit: TranslationUnit,
    nvrtc_headers: Callable[[], Sequence[Path]] | None = None,
    compile_again: Callable[[TranslationUnit], str] = lambda _: "",
) -> CompilationError:
    """Make the error of a failed compilation: its `log` with remedies, and without unrelated lines.

    `compile_again` returns the compiler's text about a changed unit. With `nvrtc_headers`, NVRTC's header
    directories, the log is NVRTC's, which compiles no host code; otherwise it is nvcc's. If an option is at
    fault, the error's ``where`` is ``options``.
    """
    log = re.sub(_ASIDES, "", log)
    log, notes = explain_instantiations(log, unit, by_nvrtc=nvrtc_headers is not None)
    log, about_headers = explain_missing_headers(log, unit, nvrtc_headers, compile_again)
    notes += about_headers
    log, about_types = explain_missing_types(log, by_nvrtc=nvrtc_headers is not None)
    notes += about_types
    explained = explain_host_code(log, nvrtc_headers) if nvrtc_headers else explain_host_constexpr(log)
    log = explained[0]
    notes += explained[1]
    if option := re.match(_OPTION, log.strip()):
        notes.append(_about_option(option["nvrtc"]))
    if "uses too much shared data" in log:
        notes.append(
            "__shared__ arrays of a fixed size have 48 KiB together; declare a larger one extern __shared__, "
            "and give its size to the launch as shared="
        )
    if unresolved := re.findall(r"Unresolved extern function '(\S+)'", log):
        missing = ", ".join(dict.fromkeys(unresolved))
        notes.append(
            f"this source does not define {missing}; if another one does, set {spell_setting('link', True)}"
        )
    if re.search(_LAUNCHES_KERNELS, log):
        notes.append(
            "kernels that launch kernels are linked with the device runtime library: "
            f"set {spell_setting('link', True)}"
        )
    remedies = "\n".join(dict.fromkeys(notes))
    text = f"{shorten_output(log.strip())}\n{shorten_output(remedies)}".strip()
    return CompilationError(text, where="options" if option and unit.options.raw else "")


def _about_option(unknown_to_nvrtc: str | None) -> str:
    if unknown_to_nvrtc and (found := nvcc_only([unknown_to_nvrtc])):
        return f"{unknown_to_nvrtc} is an option of nvcc; {found[1]}"
    if unknown_to_nvrtc:
        nvcc = spell_setting("compiler", "nvcc")
        return f"correct {unknown_to_nvrtc}, or take it out; for options of nvcc, set {nvcc}"
    keys = ", ".join(map(spell_setting, ("std", "options", "define", "pre-include")))
    return f"this is about the options: see {keys} of the module"
