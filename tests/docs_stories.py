"""A page of the documentation, done as it says: files written, commands typed, programs run.

Commands and programs run in a directory of the page's own, in a virtual environment of its own. Either it
sees what the tests have installed: then pip takes nothing from a registry, and what a page says to install
has to be there, or that block is skipped and says so. Or it is new, and pip does what it always does. In
both, pip is uv.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import signal
import site
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from packaging.requirements import Requirement

from tests.docs_pages import Block, commands, merged, toml_text
from tests.packages_fixtures import CHECKOUT, uv

__all__ = ["NOT_RUN", "Story"]

# Commands that are not run, and why. What begins with one of these is such a command.
NOT_RUN = {
    "cibuildwheel": "builds in containers, for minutes, and takes a network",
}
_PROGRAM = Path(__file__).with_name("docs_program.py")
_SCRIPTS = ("cuda-ext", "dask", "mypy", "pytest", "validate-pyproject")
# Packages that a page may use, and that tests need not have.
_OPTIONAL = ("cupy", "torch")
_QUIET = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", "COLUMNS": "100", "UV_NO_WRAP": "1", "NO_COLOR": "1"}


class Missing(Exception):
    """A block cannot be run here, for a reason that is told."""


@dataclass
class Story:
    """The page whose blocks are run in `directory`.

    ``driver`` is where the driver without a GPU lies, if there is no GPU, and ``wheel`` this package, if the
    environment is a new one. ``skipped`` tells what was not run: the block, and why.
    """

    directory: Path
    driver: Path | None
    wheel: Path | None = None
    skipped: list[str] = field(default_factory=list)
    background: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work = self.directory / "work"
        self.work.mkdir()
        self.prefix = self.directory / "env"
        uv("venv", "--quiet", "--python", sys.executable, self.prefix)
        self.scripts = self.prefix / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.scripts / "python"
        if self.wheel is None:
            self._see_the_tests()
        else:
            # Whatever versions a registry may have.
            pinned = f"cuda-ext=={self.wheel.name.split('-')[1]}\n"
            (self.directory / "constraints.txt").write_text(pinned, encoding="utf-8")

    def _see_the_tests(self) -> None:
        """Let the environment see what is installed where the tests run, with its programs."""
        (packages,) = self.prefix.glob("lib/*/site-packages")
        seen = "; ".join(f"site.addsitedir({place!r})" for place in site.getsitepackages())
        (packages / "of_the_tests.pth").write_text(f"import site; {seen}\n", encoding="utf-8")
        for point in metadata.entry_points(group="console_scripts"):
            if point.name in _SCRIPTS:
                script = self.scripts / point.name
                called = "if __name__ == '__main__':\n    main()\n"
                text = f"#!{self.python}\nfrom {point.module} import {point.attr} as main\n{called}"
                script.write_text(text, encoding="utf-8")
                script.chmod(0o755)

    def end(self) -> None:
        """End what is still running in the background."""
        for process in self.background:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.background:
            process.wait(30)

    # Blocks

    def tell(self, blocks: Sequence[Block]) -> None:
        """Run all `blocks`, in order. Raises :class:`AssertionError` for the first that is not true."""
        for is_python, group in groupby(blocks, lambda b: b.language in ("python", "pycon") and not b.file):
            if is_python:
                self._run_program(list(group))
                continue
            for block in group:
                try:
                    self._do(block)
                except Missing as missing:
                    self.skipped.append(f"{block}: {missing}")

    def _do(self, block: Block) -> None:
        match block.language:
            case _ if block.file:
                self._write(block.file, block.text)
                if block.language == "python":
                    self._check_bound(block.text, f"{block}")
            case "console":
                self._type(block)
            case "toml":
                self._merge(block)
            case "cmake":
                self._write("CMakeLists.txt", (self.work / "CMakeLists.txt").read_text() + "\n" + block.text)
            case "cuda":
                self._compile(block)
            case _:
                raise AssertionError(f"{block}: nobody runs the language {block.language!r}")

    def _write(self, name: str, text: str) -> None:
        path = self.work / name
        assert path.resolve().is_relative_to(self.work.resolve()), name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _merge(self, block: Block) -> None:
        file = self.work / "pyproject.toml"
        table = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        file.write_text(toml_text(merged(table, tomllib.loads(block.text))), encoding="utf-8")

    def _compile(self, block: Block) -> None:
        code = "import sys, cuda_ext; cuda_ext.compile(sys.stdin.read(), architectures=['sm_90'])"
        self._run([self.python, "-c", code], f"{block}", given=block.text)

    # Commands

    def _type(self, block: Block) -> None:
        for command, shown in commands(block.text):
            if reason := next((why for start, why in NOT_RUN.items() if command.startswith(start)), None):
                self.skipped.append(f"{block}: {command.split()[0]} {reason}")
                continue
            what = f"{block}: $ {command}"
            if command.endswith(" &"):
                self._start(command.removesuffix(" &"), shown, what)
                continue
            printed = self._run(["bash", "-c", self._with_uv(command)], what, fails="fails" in block.classes)
            _hold(shown, printed, what)

    def _start(self, command: str, shown: list[str], what: str) -> None:
        """Start `command` and go on when it has printed what is shown."""
        log = self.directory / f"background-{len(self.background)}"
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.work,
                env=self._environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.background.append(process)
        for _ in range(600):
            try:
                _hold(shown, log.read_text(encoding="utf-8"), what)
                return
            except AssertionError:
                if process.poll() is not None:
                    break
                time.sleep(0.1)
        _hold(shown, log.read_text(encoding="utf-8"), what)

    def _with_uv(self, command: str) -> str:
        """`command` with uv in the place of pip, which installs the project alone unless all is new."""
        match = re.match(r"((?:\w+=\S+ )*)(?:python -m )?pip (install|wheel)\b(.*)", command, re.DOTALL)
        if match is None:
            return command
        variables, verb, rest = match.groups()
        uv_here = f"{shlex.quote(sys.executable)} -m uv"
        if self.wheel:
            what = "build --wheel" if verb == "wheel" else "pip install"
            rest = rest.replace("--no-deps --wheel-dir", "--out-dir")
            return f"{variables}{uv_here} {what} --quiet --python {shlex.quote(str(self.prefix))}{rest}"
        alone = f"--quiet --python {shlex.quote(str(self.prefix))} --no-build-isolation --offline"
        words = shlex.split(rest)
        named = [
            w
            for w in words
            if not w.startswith("-") and not w.startswith((".", "/")) and not w.endswith(".whl")
        ]
        if verb == "wheel":
            self._check_requirements()
            (directory,) = (w for w in named if w != ".")
            return f"{variables}{uv_here} build --wheel {alone} --out-dir {directory} ."
        if named:
            _installed(named)
            return "true"
        if not any(word.endswith(".whl") for word in words):
            self._check_requirements()
        words = [word for word in words if word != "--no-build-isolation"]
        return f"{variables}{uv_here} pip install --reinstall {alone} --no-deps {shlex.join(words)}"

    def _check_requirements(self) -> None:
        table = tomllib.loads((self.work / "pyproject.toml").read_text(encoding="utf-8"))
        _installed([*table["build-system"]["requires"], *table["project"].get("dependencies", ())])

    def _environment(self) -> dict[str, str]:
        variables = {k: v for k, v in os.environ.items() if k not in ("CUDAARCHS", "MAX_JOBS", "PYTHONPATH")}
        path = [self.scripts, *([] if self.wheel else [Path(sys.executable).parent]), os.environ["PATH"]]
        own = {
            "PATH": os.pathsep.join(map(str, path)),
            "VIRTUAL_ENV": str(self.prefix),
        }
        own["MYPY_CACHE_DIR"] = str(CHECKOUT / ".test" / "mypy")  # that of all tests
        if self.wheel:
            own["UV_FIND_LINKS"] = str(self.wheel.parent)
            own["UV_CONSTRAINT"] = own["UV_BUILD_CONSTRAINT"] = str(self.directory / "constraints.txt")
        if self.driver:
            own["LD_LIBRARY_PATH"] = str(self.driver)
        return {**variables, **_QUIET, **own}

    def _run(self, command: Sequence[str | Path], what: str, fails: bool = False, given: str = "") -> str:
        done = subprocess.run(
            command,
            cwd=self.work,
            env=self._environment(),
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=240,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{what}\nended with {done.returncode}\n{done.stdout}"
        return done.stdout

    # Programs

    def _run_program(self, blocks: list[Block]) -> None:
        text = "".join(map(_python, blocks))
        absent = sorted(name for name in _imports(text) & {*_OPTIONAL} if find_spec(name) is None)
        if absent:
            self._check_names(text, f"{blocks[0]}")
            where = " and ".join(str(block.line) for block in blocks)
            missing = f"{' and '.join(absent)} is not installed; syntax and names are right"
            self.skipped.append(f"{blocks[0].page.name}:{where}: {missing}")
            return
        program = self.directory / "program.json"
        described = [
            {
                "page": b.page.name,
                "line": b.line,
                "language": b.language,
                "text": b.text,
                "classes": [*b.classes],
            }
            for b in blocks
        ]
        program.write_text(json.dumps({"blocks": described, "gpu": self.driver is None}), encoding="utf-8")
        self._run([self.python, _PROGRAM, program], f"{blocks[0]}")

    def _check_bound(self, text: str, what: str) -> None:
        """Every name in `text`, which is Python, is bound."""
        ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,E9", "-"]
        self._run(ruff, what, given=text)

    def _check_names(self, text: str, what: str) -> None:
        """Of a program that cannot run: every name is bound, and what it takes from our packages is there."""
        self._check_bound(text, what)
        tree = ast.parse(text)
        ours = {"cuda_ext"} | {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module not in _OPTIONAL
            for alias in node.names
        }
        imports = [
            ast.unparse(n) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) and _is_here(n)
        ]
        looked_up = [ast.unparse(chain) for chain in _chains(tree, ours)]
        # A package of the page may import what is not installed.
        code = "\n  ".join(["try:", "pass", *imports, *looked_up])
        code += f"\nexcept ModuleNotFoundError as error:\n  if error.name not in {_OPTIONAL}: raise"
        self._run([self.python, "-c", code], f"{what}: a name that is not there")


def _hold(shown: list[str], printed: str, what: str) -> None:
    """Every line that is `shown` has to be `printed`, in that order; ``...`` stands for anything."""
    lines = iter([line.rstrip() for line in printed.splitlines()])
    for expected in shown:
        pattern = ".*".join(map(re.escape, expected.split("...")))
        assert any(re.fullmatch(pattern, line) for line in lines), (
            f"{what}\nnot printed: {expected}\n{printed}"
        )


def _python(block: Block) -> str:
    """What a block has of Python, without what is shown."""
    if block.language == "python":
        return block.text
    lines = [line[4:] for line in block.text.splitlines() if line.startswith((">>> ", "... "))]
    return "\n".join(lines) + "\n"


def _imports(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


def _is_here(node: ast.Import | ast.ImportFrom) -> bool:
    return not _imports(ast.unparse(node)) & {*_OPTIONAL}


def _chains(tree: ast.AST, roots: set[str]) -> Iterable[ast.expr]:
    """The attributes and items that are taken from `roots`, such as ``kernels.axpy["float"].torch_op``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load):
            at: ast.expr = node
            while isinstance(at, ast.Attribute) or (
                isinstance(at, ast.Subscript) and isinstance(at.slice, ast.Constant | ast.Tuple)
            ):
                at = at.value
            if isinstance(at, ast.Name) and at.id in roots:
                yield node


def _installed(requirements: Iterable[str]) -> None:
    """Raise :class:`Missing` unless `requirements` and their extras are installed where the tests run."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            raise Missing(f"{requirement.name} is not installed") from None
        if not requirement.specifier.contains(found.version, prereleases=True):
            raise Missing(f"{requirement.name} is {found.version} here, not {requirement.specifier}")
        known = set(found.metadata.get_all("Provides-Extra") or ())
        assert requirement.extras <= known, f"{requirement.name} has no extra {requirement.extras - known}"
        for extra in requirement.extras:
            parts = map(Requirement, found.requires or ())
            _installed(
                str(p).partition(";")[0] for p in parts if p.marker and p.marker.evaluate({"extra": extra})
            )


# The pages are found by their paths in the checkout.
DOCS = CHECKOUT / "docs"
