"""Build the sample projects of a checkout in copies, and digest what they ship."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from _environment import Environment

SAMPLES = ("example_project", "tests/packages/*", "examples/*", "examples/ported/*/after", "tests/cmake/*")
# Links what tests/cmake/library installs; includes an example that its test names; holds other projects.
NOT_BUILT = ("tests/cmake/consumer", "tests/cmake/jit", "examples/ported")
# setuptools projects that are also built with hatchling.
WITH_HATCHLING = ("tests/packages/several_modules", "tests/packages/headers")
HATCHLING = {
    '"setuptools>=77"': '"hatchling>=1.27"',
    '"setuptools.build_meta"': '"hatchling.build"\n\n[tool.hatch.build.hooks.cuda-ext]',
}
BACKENDS = ("setuptools", "hatchling", "scikit-build-core", "nanobind", "meson-python", "meson")
TOOLS = (*BACKENDS, "cmake", "ninja")

# Beginnings of environment variables that change what is built, and the values that are set instead.
COMPILER_VARIABLES = ("CC", "CFLAGS", "CXX", "LDFLAGS", "CUDA", "NVCC")
REMOVED_VARIABLES = (*COMPILER_VARIABLES, "CMAKE", "SKBUILD", "PYTHON", "VIRTUAL_ENV")
VARIABLES = {
    "SOURCE_DATE_EPOCH": "1700000000",  # without it, wheels hold the time at which they were built
    "SKBUILD_CMAKE_BUILD_TYPE": "None",  # quick: what the host compiler writes is not digested
    "PYTHONUTF8": "1",
}

# The outputs of a CMake module in the build tree. The other files are internal: stamps, dependency files and
# the description of the module that CMake hands to cuda-ext, all with absolute paths.
GENERATED = ("include/**/*", "python/**/*", "*.cpp")
NO_DIGEST = "no digest"
REPEATS_DIGESTS = f"{NO_DIGEST}: repeats the digests of the other files"
HOST_COMPILER = f"{NO_DIGEST}: output of the host compiler"
HOST_SUFFIXES = (".so", ".pyd", ".dll", ".dylib", ".a", ".lib", ".exe")


@dataclass(frozen=True)
class Sample:
    """A project to build: its directory in the checkout, and whether hatchling replaces setuptools."""

    directory: str
    hatchling: bool = False

    @property
    def title(self) -> str:
        return f"{self.directory} with hatchling" if self.hatchling else self.directory

    def copy(self, checkout: Path, to: Path) -> Path:
        project = Path(shutil.copytree(checkout / self.directory, to))
        if self.hatchling:
            pyproject = project / "pyproject.toml"
            text = pyproject.read_text(encoding="utf-8")
            for setuptools, hatchling in HATCHLING.items():
                assert setuptools in text, f"{self.directory}/pyproject.toml does not say {setuptools}"
                text = text.replace(setuptools, hatchling)
            pyproject.write_text(text, encoding="utf-8")
        return project


def find_samples(checkout: Path) -> Iterator[Sample]:
    """Find the projects in a checkout; exit if a pattern matches none, which must not pass unseen."""
    for pattern in SAMPLES:
        found = sorted(
            path.relative_to(checkout).as_posix() for path in checkout.glob(pattern) if path.is_dir()
        )
        if not found:
            sys.exit(f"{checkout}: there is no {pattern}; correct SAMPLES in {Path(__file__).name}")
        yield from (Sample(directory) for directory in found if directory not in NOT_BUILT)
    yield from (Sample(directory, hatchling=True) for directory in WITH_HATCHLING)


def copy_checkout(checkout: Path, to: Path) -> Path:
    """Copy what git tracks or would add: neither caches nor the leftovers of earlier builds."""
    listed = ("git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, check=True, capture_output=True, encoding="utf-8").stdout
    for name in names.split("\0"):
        if name and os.path.lexists(checkout / name):  # git lists deleted files until the next commit
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, to / name, follow_symlinks=False)
    return to


@dataclass(frozen=True)
class Builder:
    """Builds samples below `work`, with the packages of `environment` and the variables `environ`."""

    environment: Environment
    work: Path
    environ: Mapping[str, str]

    @classmethod
    def prepare(cls, checkout: Path, work: Path, versions: Mapping[str, str]) -> Builder:
        """Install the cuda-ext of `checkout` and the build tools, in the given `versions`."""
        environment = Environment(work / "environment")
        path = f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(REMOVED_VARIABLES)}
        environ = {**inherited, **VARIABLES, "PATH": path, "UV_PYTHON": str(environment.python)}
        constraints = work / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
        environment.pip("install", "uv", "--constraint", constraints)
        builder = cls(environment, work, environ)
        builder.python("-m", "uv", "build", "--wheel", "--out-dir", work / "dist", checkout)
        (wheel,) = (work / "dist").glob("*.whl")
        what = (f"cuda-ext[nvcc-cu13,cutile,triton] @ {wheel.as_uri()}", *TOOLS)
        builder.python("-m", "uv", "pip", "install", "--upgrade", "--constraints", constraints, *what)
        return builder

    def versions(self) -> dict[str, str]:
        """The version of each package in the environment, except cuda-ext."""
        packages = json.loads(self.python("-m", "uv", "pip", "list", "--format", "json"))
        return {each["name"]: each["version"] for each in packages if each["name"] != "cuda-ext"}

    def build(self, sample: Sample, checkout: Path) -> Path:
        """Build `sample` of `checkout`; return the directory of its outputs."""
        place = self.work / "samples" / sample.title.replace("/", "-")
        tree, outputs = place / "tree", place / "outputs"
        # One empty cache per sample: no result depends on what was built before.
        variables = {"CUDA_EXT_CACHE": str(place / "cache"), "SKBUILD_BUILD_DIR": str(tree)}
        project = sample.copy(checkout, place / "project")
        if (project / "pyproject.toml").is_file():
            how = ("--wheel", "--no-build-isolation", "--offline", "--out-dir", place / "dist")
            self.python("-m", "uv", "build", *how, project, **variables)
            (wheel,) = (place / "dist").glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(outputs / wheel.name)
        else:
            prefix = self.python("-m", "cuda_ext", "cmake-dir").strip()
            defined = (
                f"-DCMAKE_PREFIX_PATH={prefix}",
                f"-DCudaExt_PYTHON_EXECUTABLE={self.environment.python}",
            )
            self.run("cmake", "-G", "Ninja", "-S", project, "-B", tree, *defined, **variables)
            self.run("cmake", "--build", tree, **variables)
            self.run("cmake", "--install", tree, "--prefix", outputs / "installed")
        for pattern in GENERATED:
            for file in tree.glob(f"cuda_ext/*/{pattern}"):
                if file.is_file():
                    to = outputs / "generated" / file.relative_to(tree / "cuda_ext")
                    to.parent.mkdir(parents=True, exist_ok=True)
                    # Generated C++ refers to the files that it embeds by absolute paths, in literals.
                    within = rb'"[^"\n]*' + re.escape(os.fsencode(self.work.name))
                    to.write_bytes(re.sub(within, b'"<work>', file.read_bytes()))
        return outputs

    def python(self, *arguments: str | Path, **variables: str) -> str:
        return self.run(self.environment.python, *arguments, **variables)

    def run(self, *command: str | Path, **variables: str) -> str:
        """Run a program that must succeed, or end the script; return what it prints to stdout."""
        environ = {**self.environ, **variables}
        done = subprocess.run(
            command, cwd=self.work, env=environ, capture_output=True, encoding="utf-8", check=False
        )
        if done.returncode:
            printed = f"{done.stdout}{done.stderr}"
            sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{printed}")
        return done.stdout


def digest_files(outputs: Path) -> dict[str, str]:
    """Map the path of each file in `outputs` to its SHA-256, or to the reason why it has none."""
    files = [path for path in outputs.rglob("*") if path.is_file()]
    return {path.relative_to(outputs).as_posix(): _digest(path) for path in files}


def _digest(file: Path) -> str:
    if file.name == "RECORD" and file.parent.suffix == ".dist-info":
        return REPEATS_DIGESTS
    if file.suffix in HOST_SUFFIXES or file.parent.name == "bin":
        return HOST_COMPILER
    return hashlib.sha256(file.read_bytes()).hexdigest()
