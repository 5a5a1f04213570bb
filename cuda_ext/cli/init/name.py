"""What a new project is called: in the registry, and in Python."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass

from cuda_ext.cli.failure import Failure

__all__ = ["ProjectName"]

# What the project itself imports, and what can build it.
_USED = frozenset({"cuda", "cuda_ext", "hatchling", "numpy", "pytest", "scikit_build_core", "setuptools"})


@dataclass(frozen=True)
class ProjectName:
    """``my-project`` as a distribution, and ``my_project`` as a package."""

    distribution: str

    @property
    def package(self) -> str:
        return self.distribution.replace("-", "_")

    @classmethod
    def made_from(cls, text: str) -> ProjectName:
        """The name that is nearest to `text`. Raises :class:`Failure` where it would not do.

        >>> ProjectName.made_from("My Project.2")
        ProjectName(distribution='my-project-2')
        """
        name = cls(re.sub(r"[-_.\s]+", "-", text).strip("-").lower())
        if why := name._why_not():
            raise Failure(f"{text!r} makes no name for a package: {why}; give another one with --name")
        return name

    def _why_not(self) -> str | None:
        if not self.distribution:
            return "it has no letter"
        if foreign := re.search(r"[^a-z0-9-]", self.distribution):
            return f"{foreign[0]!r} is none of the letters a to z, digits, '-', '_' and '.'"
        if self.distribution[0].isdigit():
            return "it begins with a digit"
        if keyword.iskeyword(self.package):
            return f"{self.package!r} is a keyword of Python"
        if self.package in sys.stdlib_module_names | {"test"}:
            return f"{self.package!r} is a module of the standard library"
        if self.package in _USED:
            return f"{self.package!r} is a package that the project uses"
        return None
