"""What an editor shows of a module's kernels, through pyright's language server."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.builder.package.generate import Package, generate
from cuda_ext.builder.package.stubs import write_stub
from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.formats.variant_conditions import parse
from tests.fixtures.device_code import module, unit

pytestmark = pytest.mark.xdist_group("stubs")

ROOT = Path(__file__).parents[3]

SOURCE = r"""
__constant__ float weights[3][3];
__device__ unsigned char flag;
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {}
__global__ void axpy_simple(int n, float a, const float* x, float* y) {}
template <char C> __global__ void character(int n) {}
namespace ns { __global__ void fill(float* x, float value) {} }
"""
USER = """\
from pkg import kernels

kernels.axpy
chosen = kernels.axpy["float"]
kernels.ns.fill
kernels.weights
kernels.flag
kernels.ns
kernels.fit
kernels.character
kernels.axpy["float"](10, 2.0, 0, 0, grid=1, block=1)
kernels.ns.fill(0, 1.0, grid=1, block=1)
"""


class LanguageServer:
    """pyright's language server, with requests about one file."""

    def __init__(self, process: subprocess.Popen[bytes], root: Path) -> None:
        self._process = process
        self._asked = 0
        self.root = root

    def send(self, **message: object) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
        self._process.stdin.flush()

    def ask(self, method: str, parameters: object) -> Any:
        self._asked += 1
        self.send(method=method, params=parameters, id=self._asked)
        while True:
            message = self._receive()
            if "method" in message and "id" in message:  # it asks, too
                items = (message["params"] or {}).get("items", ())
                self.send(id=message["id"], result=[None for _ in items])
            elif message.get("id") == self._asked:
                return message["result"]

    def about(self, method: str, line: str, at: str) -> Any:
        """Request information about the end of `at` in the line of the file that begins with `line`."""
        (number,) = (n for n, text in enumerate(USER.splitlines()) if text == line)
        position = {"line": number, "character": line.index(at) + len(at)}
        document = {"uri": (self.root / "user.py").as_uri()}
        return self.ask(f"textDocument/{method}", {"textDocument": document, "position": position})

    def hover(self, line: str, at: str = "") -> str:
        """Return the hover text of the last letter of `at`, or of the line."""
        return str(self.about("hover", line, (at or line)[:-1])["contents"]["value"])

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        length = 0
        while (line := self._process.stdout.readline().strip()) or not length:
            assert line or self._process.poll() is None
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return json.loads(self._process.stdout.read(length))


@contextmanager
def language_server(root: Path) -> Iterator[LanguageServer]:
    command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        server = LanguageServer(process, root)
        formats = {"contentFormat": ["plaintext"]}
        signatures = {"signatureInformation": {"documentationFormat": ["plaintext"]}}
        capabilities = {"textDocument": {"hover": formats, "signatureHelp": signatures}}
        folders = [{"uri": root.as_uri(), "name": "root"}]
        begin = {"processId": None, "rootUri": root.as_uri(), "capabilities": capabilities}
        server.ask("initialize", {**begin, "workspaceFolders": folders})
        server.send(method="initialized", params={})
        document = {"uri": (root / "user.py").as_uri(), "languageId": "python", "version": 1, "text": USER}
        server.send(method="textDocument/didOpen", params={"textDocument": document})
        yield server
        server.ask("shutdown", None)
        server.send(method="exit")


@pytest.fixture(scope="module")
def made() -> Package:
    instantiate = ("axpy<float>", "axpy<double>", "character<'\\n'>")
    compiled = module(unit(SOURCE, *instantiate, name="device/axpy.cu"))
    fit = Variants("fit", (Candidate("axpy<float>", parse("n > 64")), Candidate("axpy_simple")))
    return generate(compiled._replace(manifest=compiled.manifest._replace(variants=(fit,))))


@pytest.fixture(scope="module")
def server(made: Package, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    root = tmp_path_factory.mktemp("editor")
    made.write(root / "pkg" / "kernels")
    (root / "pkg" / "__init__.py").touch()
    (root / "user.py").write_text(USER)
    settings = {"extraPaths": [str(ROOT)], "include": ["user.py"], "venvPath": str(Path(sys.prefix).parent)}
    (root / "pyrightconfig.json").write_text(json.dumps({**settings, "venv": Path(sys.prefix).name}))
    with language_server(root) as server:
        yield server


PARAMETERS = "(int n, float a, const float* x, float* y)"
AXPY = f"axpy<float>{PARAMETERS}"
SHOWN = {
    "kernels.axpy": f"""(variable) axpy: _axpy

The kernels axpy of device/axpy.cu.

Built ahead::

    axpy<double>(int n, double a, const double* x, double* y)
    {AXPY}""",
    "kernels.fit": """(variable) fit: _fit

fit(int n, float a, const float* x, float* y)

A call takes the first of::

    axpy<float> if n > 64
    axpy_simple""",
    "kernels.ns.fill": """(variable) fill: _ns_fill

ns::fill(float* x, float value)

A kernel of device/axpy.cu.""",
    "kernels.weights": """(variable) weights: Symbol

__constant__ float weights[3][3]

A variable of device/axpy.cu, 36 bytes.""",
    "kernels.flag": """(variable) flag: Symbol

__device__ unsigned char flag

A variable of device/axpy.cu, 1 byte.""",
    "kernels.ns": """(variable) ns: _ns

The C++ namespace ns.""",
    "kernels.character": r"""(variable) character: _character

The kernels character of device/axpy.cu.

Built ahead::

    character<'\n'>(int n)""",
}


@pytest.mark.parametrize("line", SHOWN)
def test_an_editor_shows_the_cpp_declaration(server: LanguageServer, line: str) -> None:
    assert server.hover(line) == SHOWN[line]


def test_an_editor_tells_instantiations_apart(server: LanguageServer) -> None:
    assert "_axpy_float" in server.hover('chosen = kernels.axpy["float"]', "chosen")


@pytest.mark.parametrize(
    ("line", "at", "parameters", "active"),
    [
        ('kernels.axpy["float"](10, 2.0, 0, 0, grid=1, block=1)', "(10, ", PARAMETERS, "a: SupportsFloat"),
        ("kernels.ns.fill(0, 1.0, grid=1, block=1)", "(", "(float* x, float value)", "x: Pointer"),
    ],
)
def test_an_editor_shows_the_parameters_within_a_call(
    server: LanguageServer, line: str, at: str, parameters: str, active: str
) -> None:
    (shown,) = server.about("signatureHelp", line, at)["signatures"]
    assert shown["documentation"]["value"] == parameters
    assert shown["parameters"][shown["activeParameter"]]["label"] == active
    assert "grid: Dim | GridFunction" in shown["label"]


def test_docstrings_of_classes_equal_those_of_attributes(made: Package) -> None:
    """Some editors look at the class of an attribute, others at the docstring below it."""
    classes = {
        node.name: ast.get_docstring(node)
        for node in ast.parse(made.files["__init__.pyi"]).body
        if isinstance(node, ast.ClassDef)
    }
    assert classes["_axpy_float"] == f"{AXPY}\n\nA kernel of device/axpy.cu."
    for line in ("kernels.axpy", "kernels.fit", "kernels.ns"):
        assert classes[f"_{line.partition('.')[2]}"] == SHOWN[line].partition("\n\n")[2]


def test_what_lies_deep_in_namespaces_is_left_to_brackets() -> None:
    manifest = module(unit("__global__ void k() {}")).manifest
    deep = "::".join(["ns"] * 2000)
    kernel = manifest.kernels[0]._replace(expression=f"{deep}::k")
    stub = write_stub(manifest._replace(kernels=(kernel,)), {})
    assert "ns:" not in re.sub(r"(?:ns::)+", "", stub)
    assert f'["{deep}::k"]' in stub
    assert len(stub) < 10 * len(deep)


COMMENTED = """\
/** Copyright of the whole file. */

/// @brief Adds `a` times x to y.
///
/// @param[in] n  the number of elements
template <class T>
__global__ void axpy(int n, T a, const T* x, T* y) { const char* url = "http:///x"; }
constexpr int before = 1;  ///< on what precedes it
// An ordinary comment.
__global__ void plain(int* x) {}
namespace ns {
/**
 * Fills, and says "\\o/".
 *   Indented.
 */
__global__ void __launch_bounds__(128) fill(float* x) {}
}
"""


def test_comments_above_kernels_are_shown() -> None:
    compiled = module(unit(COMMENTED, "axpy<float>"))
    assert compiled.comments == {
        "axpy": "Adds `a` times x to y.\n\nn: the number of elements",
        "ns::fill": 'Fills, and says "\\o/".\n  Indented.',
    }
    stub = generate(compiled).files["__init__.pyi"].decode()
    documented = {
        node.name: ast.get_docstring(node, clean=False)
        for node in ast.parse(stub).body
        if isinstance(node, ast.ClassDef)
    }
    assert "Adds `a` times x to y.\n\n    n: the number" in str(documented["_axpy_float"])
    assert "Adds `a` times x to y." in str(documented["_axpy"])
    assert 'Fills, and says "\\o/".\n' in str(documented["_ns_fill"])
    assert "\n\n    A kernel of" in str(documented["_plain"])
