"""Measure the structure of the package: ``python scripts/measure_house.py [--checkout DIR] [--walk]``.

The rows:

- lines of code: lines with a token that is neither comment nor docstring;
- types: classes and structures whose name has the word Kernel, Parameter or Image in it;
- modules in a folder: its ``.py`` files except ``__init__.py`` and ``__main__.py``, subfolders not included;
- lines: as ``wc -l`` counts them, blank lines and comments included;
- import circle: a strongly connected component of the import graph. Every import statement counts, also under
  ``TYPE_CHECKING`` and inside functions. ``from package import name`` imports the submodule of that name if
  there is one, else the package's ``__init__.py``;
- module entry: a call in any thread of the main process whose nearest caller within the package lies in
  another module, or that has none. Calls through other libraries count; running the body of a module on
  import and resuming a generator do not. Counted are ``python -m cuda_ext build`` of one kernel for two
  targets with an empty cache, the same once more, and the kernel's first launch with the tests' fake driver.

``--walk`` lists the modules in the order of their first entry; ``--script FILE`` counts the entries of
another script instead. Standard library only, but the interpreter needs what a build needs, and a first
launch takes a C compiler.
"""

from __future__ import annotations

import argparse
import ast
import dis
import hashlib
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "cuda_ext"
CPP_SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hpp", ".cuh"}
NOT_MODULES = {"__init__.py", "__main__.py"}
STAND_FOR = ("Kernel", "Parameter", "Image")
_WITHOUT_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_CPP_COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL)
_CPP_TYPE = re.compile(
    r"^[ \t]*(?:typedef[ \t]+)?(?:struct|class|union)[ \t]+(\w+)[^;(){}=]*\{"
    r"|^\}[ \t]*(\w+);|^static PyTypeObject (\w+)",
    re.MULTILINE,
)

_KERNEL = """\
extern "C" __global__ void scale(int n, float a, float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= a;
}
"""
_PROJECT = """\
[project]
name = "tiny"
version = "0.1.0"
dependencies = ["cuda-ext>=0.1"]

[tool.cuda_ext]
architectures = ["sm_80", "sm_90"]

[tool.cuda_ext.modules."tiny.kernels"]
"""
_LAUNCH = """\
import sys
sys.path.insert(0, "output")
from tiny import kernels
kernels.scale(10, 2.0, 0x7F0000000000, grid=1, block=32, stream=0)
"""


def main() -> int:
    arguments = _parse()
    if arguments.result:
        _run_and_count(arguments.checkout / PACKAGE, arguments.script, arguments.result)
        return 0
    package = (arguments.checkout / PACKAGE).resolve()
    files = sorted(file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    # A stub stands for a module that is written in C.
    modules = [file for file in files if file.suffix in {".py", ".pyi"}]
    lines = {file.relative_to(package): file.read_bytes().count(b"\n") for file in files}
    sources = {name: count for name, count in lines.items() if name.suffix == ".py"}
    cpp = {n: c for n, c in lines.items() if CPP_SUFFIXES.intersection({n.suffix, Path(n.stem).suffix})}
    code = sum(count_code((package / name).read_text(encoding="utf-8")) for name in sources)
    cpp_code = sum(count_cpp_code((package / name).read_text(encoding="utf-8")) for name in cpp)
    folders = Counter(name.parent for name in sources if name.name not in NOT_MODULES)
    circles = find_circles(import_graph(package, modules))
    print(f"{package}\n")
    print(f"modules in one folder    {_largest(folders)}")
    print(f"lines of a file          {_largest(sources)}")
    print(f"import circles           {len(circles)}")
    for circle in circles:
        print(f"  {len(circle)} modules: {', '.join(circle)}")
    print(
        f"Python                   {code:,} of {sum(sources.values()):,} lines are code, {len(sources)} files"
    )
    print(f"C and C++                {cpp_code:,} of {sum(cpp.values()):,} lines are code, {len(cpp)} files")
    print(f"tests                    {_count_test_lines(arguments.checkout / 'tests'):,} lines of Python")
    types = _types([package / name for name in sources], [package / name for name in cpp])
    for word in STAND_FOR:
        named = sorted(name for name in types if word in re.findall(r"[A-Z]+[a-z]*", name.rstrip("s")))
        print(f"types with {word:14}{len(named)}: {', '.join(named)}")
    if not arguments.static:
        _print_entries(arguments.checkout.resolve(), arguments.script, arguments.walk)
    return 0


def count_code(text: str) -> int:
    """The lines of a Python module that hold a token other than comments and docstrings."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                documentation.update(range(first.lineno, (first.end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _WITHOUT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documentation)


def count_cpp_code(text: str) -> int:
    """The lines of C or C++ that hold more than comments."""
    bare = _CPP_COMMENT.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text)
    return sum(bool(line.strip()) for line in bare.splitlines())


def _count_test_lines(tests: Path) -> int:
    generated = {"build", "__pycache__", ".venv"}
    return sum(
        file.read_bytes().count(b"\n")
        for file in tests.rglob("*.py")
        if not generated.intersection(file.parts)
    )


def _types(python: Iterable[Path], cpp: Iterable[Path]) -> set[str]:
    """The classes and structures, with the folder where two have one name."""
    found: set[str] = set()
    for file in python:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef):
                found.add(node.name)
    for file in cpp:
        language = "C" if file.suffix in {".c", ".h"} else "C++"
        for match in _CPP_TYPE.finditer(file.read_text(encoding="utf-8")):
            found.add(f"{language} {next(filter(None, match.groups()))}")
    return found


def _largest(counts: Mapping[Path, int], shown: int = 5) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])[:shown]
    return ", ".join(f"{count} {name.as_posix()}" for name, count in ordered)


def import_graph(package: Path, files: Iterable[Path]) -> dict[str, set[str]]:
    """The modules of `package` that each of its modules imports, by their full names."""
    paths = {_module_name(package, file): file for file in files}
    return {
        name: {imported for imported in _imports(path, name, paths) if imported != name}
        for name, path in paths.items()
    }


def _module_name(package: Path, file: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, name: str, modules: Mapping[str, Path]) -> Iterator[str]:
    folder = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_bytes(), path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            yield from names.intersection(modules)
            if source in modules and not names <= modules.keys():
                yield source


def find_circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, the largest first."""
    reachable = {name: _reachable(graph, name) for name in graph}
    circles = {
        tuple(sorted(other for other in reachable[name] if name in reachable[other]))
        for name in graph
        if name in reachable[name]
    }
    return sorted(map(list, circles), key=lambda circle: (-len(circle), circle))


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        new = graph[pending.pop()] - found
        found |= new
        pending += new
    return found


def _print_entries(checkout: Path, script: Path | None, walk: bool) -> None:
    """Build a project of one kernel and launch it, or run `script`, each in a process that counts."""
    with tempfile.TemporaryDirectory() as name:
        project, result = Path(name, "project"), Path(name, "result.json")
        (project / "device").mkdir(parents=True)
        (project / "device" / "scale.cu").write_text(_KERNEL, encoding="utf-8")
        (project / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
        disturbing = {"CUDAARCHS", "PYTHONSAFEPATH"}
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("CUDA_EXT_") and name not in disturbing
        }
        # The checkout comes before an editable install of another one.
        environment |= {
            "PYTHONPATH": str(checkout),
            "CUDA_EXT_CACHE": str(Path(name, "cache")),
            "MAX_JOBS": "2",
        }

        def count(title: str, script: Path | None = None, **more: str) -> None:
            command: list[str | Path] = [sys.executable, __file__, "--checkout", checkout, "--result", result]
            command += ["--script", script] if script else []
            result.unlink(missing_ok=True)
            ended = subprocess.run(
                command,
                cwd=project,
                env=environment | more,
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
            if ended.returncode or not result.is_file():
                sys.exit(f"{title} failed:\n{ended.stdout}{ended.stderr}")
            _print_counted(title, json.loads(result.read_text()), walk)

        if script:
            count(str(script), script.resolve())
            return
        count("cold build")
        count("unchanged build")
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler or sys.platform != "linux":
            print("first launch             not counted: it takes Linux and a C compiler")
            return
        driver = Path(name, "driver", "libcuda.so.1")
        driver.parent.mkdir()
        source = checkout / "tests" / "fake_driver" / "libcuda.c"
        subprocess.run([compiler, "-shared", "-fPIC", "-w", source, "-o", driver], check=True)
        # What the fake driver reads in the place of an image.
        module = project / "output" / "tiny" / "kernels"
        replaced = hashlib.sha256((module / "scale.fatbin").read_bytes()).hexdigest()
        image = b"kernel scale 0 4 4 8\n"
        (module / "scale.fatbin").write_bytes(image)
        manifest = (module / "manifest.json").read_text(encoding="utf-8")
        manifest = manifest.replace(replaced, hashlib.sha256(image).hexdigest())
        (module / "manifest.json").write_text(manifest, encoding="utf-8")
        launch = project / "launch.py"
        launch.write_text(_LAUNCH, encoding="utf-8")
        count("first launch", launch, LD_LIBRARY_PATH=str(driver.parent), FAKE_CUDA_LOG=os.devnull)


def _print_counted(title: str, counted: Mapping[str, Mapping[str, int]], walk: bool) -> None:
    entered = counted["entered"]
    imported = len(counted["imported"])
    print(f"{title:25}{sum(entered.values())} entries into {len(entered)} modules; {imported} are imported")
    for number, (module, count) in enumerate(entered.items() if walk else (), 1):
        print(f"{number:4} {module} ({count})")


def _run_and_count(package: Path, script: Path | None, result: Path) -> None:
    """Run `script`, or build the working directory; write what was entered, in order, to `result`."""
    inside = f"{package.resolve()}{os.sep}"
    known: dict[str, str | None] = {}
    entered: Counter[str] = Counter()

    def file_of(frame: FrameType) -> str | None:
        path = frame.f_code.co_filename
        if path not in known:
            real = os.path.realpath(path)
            ours = real.startswith(inside) and real.endswith(".py")  # a template has another suffix
            known[path] = real.removeprefix(inside) if ours else None
        return known[path]

    def count(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (entering := file_of(frame)) is None or not _begins(frame):
            return
        caller = frame.f_back
        while caller is not None and file_of(caller) is None:
            caller = caller.f_back
        if caller is None or file_of(caller) != entering:
            entered[entering] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        if script:
            sys.argv = [str(script)]
            runpy.run_path(str(script), run_name="__main__")
        else:
            sys.argv = [PACKAGE, "build", "--output", "output"]
            runpy.run_module(PACKAGE, run_name="__main__", alter_sys=True)
    except SystemExit as exit_:
        if exit_.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    loaded = {os.path.realpath(file) for m in sys.modules.values() if (file := getattr(m, "__file__", None))}
    imported = sorted(file.removeprefix(inside) for file in loaded if file.startswith(inside))
    if not imported:
        raise RuntimeError(f"imported {sys.modules[PACKAGE].__file__}, not {package}")
    result.write_text(json.dumps({"entered": entered, "imported": imported}))


def _begins(frame: FrameType) -> bool:
    """Return True if `frame` begins a function: no module's body, and no generator that goes on."""
    if frame.f_code.co_name == "<module>":
        return False
    before = dis.get_instructions(frame.f_code)
    resumed = next((i for i in before if i.offset == frame.f_lasti), None)
    return resumed is None or resumed.opname != "RESUME" or resumed.arg == 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkout", type=Path, default=ROOT, metavar="DIR", help="measure this checkout")
    parser.add_argument(
        "--walk", action="store_true", help="list the modules in the order of their first entry"
    )
    parser.add_argument("--static", action="store_true", help="leave out what takes a build")
    parser.add_argument("--script", type=Path, metavar="FILE", help="count the entries of this script")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
