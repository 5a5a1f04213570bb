"""An ``nvrtcProgram`` with what is asked of it: images, lowered names, and types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from cuda_ext.compiler.signatures.probes import PROBES, Probed, probe, read_probe
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.manifest import ImageKind

__all__ = ["OWN_HEADERS", "NvrtcProgram"]

# A header within NVRTC itself, and ours with the declaration of probes.
_PROBES = "cuda_ext_probes.h"
OWN_HEADERS = ("__nv_nvrtc_builtin_header.h", _PROBES)
# The name expression that an error is about.
_REJECTED = r"(?m)^[ \t]*#pragma nv_mangled_name (.*)$"
# An error of a probe whose types are of an anonymous namespace.
_INTERNAL = r"cuda_ext_probe::probe<T, ?subject>\(\) \[with [^\n]*?\bsubject=(\d+)"


class NvrtcProgram:
    """One ``nvrtcProgram``, destroyed with the object.

    It lowers the names of instantiations and of the variables at `addresses`, and has probes for `subjects`.
    """

    def __init__(
        self,
        nvrtc: Any,
        unit: TranslationUnit,
        subjects: Sequence[str] = (),
        addresses: Sequence[str] = (),
    ) -> None:
        self._nvrtc = nvrtc
        self._requested = unit.instantiate
        self._addresses = addresses
        self._probes = {probe(subject, index): subject for index, subject in enumerate(subjects)}
        headers = {**unit.headers, _PROBES: PROBES.encode()} if subjects else unit.headers
        names, contents = list(headers), list(headers.values())
        status, self._handle = nvrtc.nvrtcCreateProgram(
            unit.source, unit.name.encode(), len(names), contents, [n.encode() for n in names]
        )
        self._check(status)
        for expression in (*unit.instantiate, *addresses, *self._probes):
            self._check(nvrtc.nvrtcAddNameExpression(self._handle, expression.encode())[0])

    def compile(self, options: Sequence[str]) -> bool:
        """Compile, and return whether it succeeded. :attr:`log` has the compiler's text either way."""
        options = [*options, f"--pre-include={_PROBES}"] if self._probes else options
        arguments = [option.encode() for option in options]
        (status,) = self._nvrtc.nvrtcCompileProgram(self._handle, len(arguments), arguments)
        return int(status) == 0

    @property
    def log(self) -> str:
        return self._result("ProgramLog").rstrip(b"\0 \n").decode(errors="replace")

    def image(self, kind: ImageKind) -> bytes:
        data = self._result(kind.upper())
        return data.rstrip(b"\0") if kind == "ptx" else data

    def _result(self, kind: str) -> bytes:
        """The program's ``PTX``, ``CUBIN``, ``LTOIR`` or ``ProgramLog``."""
        status, size = getattr(self._nvrtc, f"nvrtcGet{kind}Size")(self._handle)
        self._check(status)
        buffer = bytes(size)
        self._check(getattr(self._nvrtc, f"nvrtcGet{kind}")(self._handle, buffer)[0])
        return buffer

    @cached_property
    def names(self) -> dict[str, str]:
        """The lowered name of each requested instantiation."""
        return {expression: self._lowered_name(expression) for expression in self._requested}

    @property
    def addresses(self) -> list[str]:
        """The lowered names of the variables."""
        return list(map(self._lowered_name, self._addresses))

    @cached_property
    def probed(self) -> dict[str, Probed]:
        """The types of the subjects."""
        types = {s: read_probe(self._lowered_name(expression)) for expression, s in self._probes.items()}
        return {subject: found for subject, found in types.items() if found is not None}

    def rejected(self) -> set[str]:
        """The subjects and addresses that were rejected.

        The compiler knows no or several such names, or a kernel has a parameter of an anonymous namespace.
        """
        names, subjects = set(re.findall(_REJECTED, self.log)), list(self._probes.values())
        unknown = {subject for expression, subject in self._probes.items() if expression in names}
        internal = {subjects[int(index)] for index in re.findall(_INTERNAL, self.log)}
        return unknown | internal | (names & set(self._addresses))

    def _lowered_name(self, expression: str) -> str:
        status, name = self._nvrtc.nvrtcGetLoweredName(self._handle, expression.encode())
        self._check(status)
        return str(name.decode())

    def _check(self, status: Any) -> None:
        if int(status) != 0:
            raise CompilationError(f"NVRTC: {status.name}")

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._nvrtc.nvrtcDestroyProgram(self._handle)
