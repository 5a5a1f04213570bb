"""What validate-pyproject asks for: the schema of ``[tool.cuda_ext]``, as it is shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["tool_schema"]


def tool_schema(_: str) -> dict[str, Any]:
    """CUDA kernels in a Python package."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text("utf-8"))
    return schema
