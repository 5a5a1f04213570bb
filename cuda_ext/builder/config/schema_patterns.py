"""What strings of ``[tool.cuda_ext]`` look like, as patterns of the JSON schema.

They are read alike by Python, where ``\\w`` has letters of all scripts, and by editors, where it has those of
ASCII. So names are told by the ASCII that they lack. Each pattern takes all that the checker takes.
"""

from __future__ import annotations

import keyword

__all__ = [
    "ABSENT_PLACEHOLDER",
    "ARCHITECTURE",
    "BLANK",
    "CONDITION",
    "C_NAME",
    "MODULE",
    "OPTION_WITH_KEY",
    "RELATIVE_INCLUDE",
    "SCOPED_NAME",
    "STANDARD",
    "TEXT",
]

_FIRST = r"[^\x00-@\x5B-\x5E\x60\x7B-\x7F]"
_FURTHER = r"[^\x00-/:-@\x5B-\x5E\x60\x7B-\x7F]"
_NAME = rf"{_FIRST}{_FURTHER}*"
_C_NAME = rf"[A-Za-z_]{_FURTHER}*"
_KEYWORD = rf"(?:{'|'.join(keyword.kwlist)})"

TEXT = r"^[^\x00]+$"
BLANK = r"^\s*$"
C_NAME = rf"^{_C_NAME}$"
SCOPED_NAME = rf"^{_C_NAME}(?:::{_C_NAME})*$"
MODULE = rf"^(?!(?:.*\.)?{_KEYWORD}(?:\.|$)){_NAME}(?:\.{_NAME})+$"

ARCHITECTURE = r"^(?:all|all-major|native|(?:sm|compute|lto)_\d{2,4}[af]?)$"
STANDARD = r"^c\+\+\d[\da-z]$"
ABSENT_PLACEHOLDER = r"[<,]\s*\{[A-Za-z_]\w*\}"

OPTION_WITH_KEY = (
    r"^(?:-arch|--gpu-architecture|-gencode|--generate-code|-code|--?std|-rdc|--relocatable-device-code"
    r"|-dc|--device-c|-dlto|--?fatbin|--?cubin|--?ptx)(?:=|$)"
)
RELATIVE_INCLUDE = r"^(?:-I|--include-path|-isystem|--system-include)=?(?![=/\\]|[A-Za-z]:)."

# A condition is a list of leaves here, with parentheses that nobody counts.
_END = rf"(?!{_FURTHER})"
_TARGET = rf"sm_\d{{2,3}}[af]?{_END}"
_NUMBER = rf"(?:0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[0_]*|(?!0)\d[\d_]*){_END}"
_TERM = rf"(?!sm_\d|(?:and|or|not){_END}){_NAME}\s*(?:%\s*{_NUMBER}\s*)?"
_COMPARISON = rf"{_TERM}(?:[<>]=?|[=!]=)\s*-?{_NUMBER}"
_LEAF = rf"(?:(?:not{_END}|\()\s*)*(?:{_TARGET}|{_COMPARISON})\s*(?:\)\s*)*"
CONDITION = rf"^\s*(?:{_LEAF}(?:(?:and|or){_END}\s*(?=\S)|$))+$"
