"""The JSON schema of ``[tool.cuda_ext]``, for completion in editors and the checks of validate-pyproject.

It is derived from :mod:`~cuda_ext.builder.config.keys`, and accepts what the checks of the build accept,
except for spellings of architectures that the compiler refuses later. It cannot check:

* combinations of keys: ``launcher`` and ``compiler``, ``compress`` and ``emit``, an option and the next one;
* whether the placeholders of an instantiation are those that its table has;
* whether a string has control characters, or an integer more than 64 bits;
* how many instantiations a table stands for;
* whether modules lie within each other, and whether a name is in the form that Python imports;
* whether the default of variants is the last candidate;
* whether the expressions of a kernel to tune can be evaluated, and which candidates they leave;
* that ``1.0`` is no integer.
"""

from __future__ import annotations

from copy import deepcopy

from cuda_ext.builder.config.keys import TABLE
from cuda_ext.builder.config.kinds import Schema
from cuda_ext.builder.config.modules import DEFINITIONS, PROJECT_TABLE

_ID = "https://cuda-ext.github.io/cuda_ext/schema.json"  # on the documentation site


def tool_schema(_: str) -> Schema:
    """CUDA kernels in a Python package."""
    return schema()


def schema() -> Schema:
    """Return the schema, in draft 7 of the standard. It is the same on every machine."""
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": _ID,
        "title": f"[{TABLE}]",
        "description": "CUDA kernels of the project. Keys of modules are defaults for all of them here.",
        **PROJECT_TABLE.schema,
        "definitions": DEFINITIONS,
    }
    return deepcopy(document)  # validators write into what they get
