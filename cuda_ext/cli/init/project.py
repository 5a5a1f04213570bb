"""The files of a new project, from templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from cuda_ext.cli.init.name import ProjectName

__all__ = ["Backend", "project_files"]

Backend: TypeAlias = Literal["setuptools", "scikit-build-core", "hatchling"]

# Files by their paths in the project, and the templates that they come from.
_COMMON = {
    ".github/workflows/test.yml": "workflow.yml",
    ".gitignore": "gitignore",
    "README.md": "README.md",
    "device/axpy.cu": "axpy.cu",
    "pyproject.toml": "pyproject.toml",
    "src/{package}/__init__.py": "package.py",
    "src/{package}/py.typed": "py.typed",
    "tests/test_axpy.py": "test_axpy.py",
}
_ALSO: Mapping[Backend, Mapping[str, str]] = {"scikit-build-core": {"CMakeLists.txt": "CMakeLists.txt"}}


def project_files(name: ProjectName, backend: Backend) -> dict[str, str]:
    """The text of each file, by its path in the project."""
    from cuda_ext.builder.rendering import templates

    files = templates("cuda_ext.cli.init")
    context = {"name": name.distribution, "package": name.package, "backend": backend}
    return {
        path.format(package=name.package): files.get_template(f"{template}.j2").render(context)
        for path, template in sorted({**_COMMON, **_ALSO.get(backend, {})}.items())
    }
