"""Kernels of Triton in files that import absent packages: their slice, and the whole import, are the same."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.toolchain.front_ends.source_import import forget_sources, import_source

triton = pytest.importorskip("triton", reason="Triton runs under Linux only")

# A package that can do anything, and a library around kernels in the manner of public ones.
ABSENT = """
class Anything:
    def __init__(self, *_, **__): pass
    def __call__(self, *arguments, **__): return arguments[0] if arguments else self
    def __getattr__(self, name): return self
    def __bool__(self): return True
class Tensor: pass
def __getattr__(name): return Anything()
"""
FILES = {
    "lib/__init__.py": "import absent\nfrom .ops import everything\nVERSION = absent.version()\n",
    "lib/ops/__init__.py": """
        from absent import nn
        from .base import *
        from . import acts as m
        __all__ = ["double"]
        def everything(): pass
        """,
    "lib/ops/base.py": """
        import absent, os
        import triton
        import triton.language as tl
        from triton.language import *
        LIMIT: tl.constexpr = tl.constexpr(4)
        TABLE = [1, 2]
        TABLE.append(7)
        if absent.cuda.is_available():
            CONFIGS = absent.configs()
        if hasattr(tl, "exp2"):
            power = tl.exp2
        else:
            power = absent.exp2
        try:
            from absent import quick as half
        except ImportError:
            half = tl.constexpr(0.5)
        half = tl.constexpr(0.5)

        @triton.jit
        def double(x: absent.Tensor, by: tl.constexpr = 2) -> absent.Tensor:
            return x * by

        def up(n: absent.Size) -> int:
            import math
            return absent.up(n) if n < 0 else math.ceil(n)

        class Host(absent.nn.Module):
            pass
        """,
    "lib/ops/acts.py": """
        from __future__ import annotations
        import triton.language as tl
        import triton
        from absent import wraps
        from .base import power as raised, half
        SCALE = tl.constexpr(3)

        @wraps
        @triton.jit
        def act(x):
            return raised(x) * SCALE * half

        @triton.jit
        def twisted(x):
            return act(x) + 1
        """,
}
# What kernels store, and the lines before them.
KERNELS = {
    "double(tl.load(x), LIMIT)": "from .ops.base import double, LIMIT",
    "m.act(tl.load(x)) + m.SCALE": "from lib.ops import acts as m",
    "lib.ops.acts.twisted(tl.load(x))": "import lib.ops.acts",
    "double(tl.load(x))": "from .ops import *",
    "exp(tl.load(x)) + LIMIT": "from .ops.base import *",
    "tl.load(x) + LAST": "from .ops.base import TABLE\nLAST = tl.constexpr(TABLE[-1])",
    "ACT(tl.load(x))": "from .ops.acts import act, twisted",
    "tl.load(x) + UP": "from .ops.base import up\nUP = tl.constexpr(up(1.5))",
    "helped(tl.load(x), 3)": "from .ops.base import double\nhelped = triton.jit(double.fn)",
    "helped(tl.load(x))": "from .branch import helped",
    "tl.load(x) + settings.STEP": "from .state import settings",
    "tl.load(x) + lib.state.settings.STEP": "import lib.state\nlib.state",
}
ABSENT_PACKAGE = "imports absent, which is not installed; "
ALONE = f"lib/__init__.py:1: {ABSENT_PACKAGE}its kernels alone cannot be imported: "
# The same for kernels that need the whole import or the package, and what the error says without it.
WHOLE = {
    "tl.load(x) + HIDDEN": (
        "globals().update(HIDDEN=tl.constexpr(3))",
        f"{ALONE}no statement defines HIDDEN in lib/k.py; install absent",
    ),
    "tl.load(x) + CAPABILITY": (
        "CAPABILITY = tl.constexpr(absent.cuda.get_device_capability() and 9)",
        f"lib/k.py:1: {ABSENT_PACKAGE}lib/k.py:3 needs it; install absent for the build, or define",
    ),
    "tl.load(x) + m.settings.OTHER": (
        "from .state import settings as s, change\nfrom . import state as m\nchange()",
        f"{ALONE}other files call functions that assign OTHER of lib/state/settings.py; install absent",
    ),
}
FILES["lib/branch.py"] = """
    import triton, absent
    NEW = [int(part) for part in triton.__version__.split(".")[:1]] >= [3]
    if NEW:
        @triton.jit
        def helped(x):
            return x + 1
    else:
        @triton.jit
        def helped(x):
            return x - 1
"""
FILES["lib/state/__init__.py"] = """
    import absent
    from . import settings
    from .settings import *
    from .settings import change
"""
FILES["lib/state/settings.py"] = """
    from triton.language import constexpr
    from .more import *
    STEP = OTHER = constexpr(1)
    def change():
        global OTHER
        OTHER = constexpr(2)
    def init():
        global STEP
        STEP = constexpr(5)
    init()
"""
FILES["lib/state/more.py"] = "from .settings import *"
KERNEL = """\
import absent, triton
import triton.language as tl
{imports}
STAGES = [1, 2] if absent.cuda.get_device_capability() else [4]
absent.library.define("lib::k")

@absent.libentry(
    key=["B"],
)
@triton.autotune(configs=[triton.Config({{"B": 1}}, num_stages=s) for s in STAGES], key=[])
@triton.heuristics({{"EVEN": lambda args: absent.is_even(args)}})
@triton.jit
def kernel(out: absent.Tensor, x, ACT: tl.constexpr, B: tl.constexpr):
    value = {value}
    tl.store(out, value)

@absent.no_grad()
def host(x: absent.Tensor) -> absent.Tensor:
    return kernel[(1,)](x, ACT=None, B=1)
"""


def unit_of(value: str, lines: str) -> TranslationUnit:
    source = KERNEL.format(imports=lines, value=value).encode()
    files = {name: dedent(content).encode() for name, content in FILES.items()}
    constant = "ACT=twisted" if "ACT" in value else "ACT=0"
    text = f"kernel(out: *fp32, x: *fp32, {constant}, B=1)"
    return TranslationUnit("lib/k.py", source, "triton", files, instantiate=(text,))


def compile_kernel(module: ModuleType) -> dict[str, Any]:
    """What Triton makes of the kernel, its lines included."""
    kernel = module.kernel
    while not isinstance(kernel, triton.JITFunction):
        kernel = kernel.fn
    constants = {(2,): getattr(module, "twisted", 0), (3,): 1}
    signature = {"out": "*fp32", "x": "*fp32", "ACT": "constexpr", "B": "constexpr"}
    source = triton.compiler.ASTSource(kernel, signature, constants)
    compiled = triton.compile(source, target=triton.backends.compiler.GPUTarget("cuda", 90, 32))
    return {kind: compiled.asm[kind] for kind in ("source", "ttir", "ptx", "cubin")}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A function that installs the package that the library imports."""
    for name, value in {"DEFAULT_FP_FUSION": "1", "ALWAYS_COMPILE": "1", "CACHE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"TRITON_{name}", value)

    def install() -> None:
        (tmp_path / "absent.py").write_text(ABSENT)
        monkeypatch.syspath_prepend(tmp_path)

    yield install
    forget_sources()
    sys.modules.pop("absent", None)


@pytest.mark.parametrize("value", KERNELS)
def test_a_slice_compiles_to_the_same_as_the_whole_import(value: str, install: Callable[[], None]) -> None:
    unit = unit_of(value, KERNELS[value])
    without = compile_kernel(import_source(unit))
    install()
    whole = import_source(unit.replace(instantiate=()))
    assert "absent" in sys.modules
    assert compile_kernel(whole) == without


@pytest.mark.parametrize("value", WHOLE)
def test_a_slice_that_lacks_something_is_no_result(value: str, install: Callable[[], None]) -> None:
    lines, message = WHOLE[value]
    unit = unit_of(value, lines)
    with pytest.raises(CompilationError, match=re.escape(message)):
        import_source(unit)
    install()
    forget_sources()
    result = compile_kernel(import_source(unit))
    assert compile_kernel(import_source(unit.replace(instantiate=()))) == result


# Files in which code changes a value that a kernel reads: lib/k.py, and others.
CHANGES = {
    "a function that calls another": (
        "V = 2\ndef set_it():\n    global V\n    V = 4\ndef init(): set_it()\ninit()",
        {},
    ),
    "a function that appends": ("L = [1]\ndef add(): L.append(3)\nadd()\nV = len(L)", {}),
    "a decorator": ("L = []\ndef add(f):\n    L.append(f)\n@add\ndef other(): pass\nV = len(L)", {}),
    "the class of a function's argument": (
        "class C: n = 1\ndef patch(c): c.n = 2\npatch(C)\nV = C.n",
        {},
    ),
    "setattr": ("class C: n = 1\nsetattr(C, 'n', 2)\nV = C.n", {}),
    "another name": ("D = {'a': 1}\nE = D\nE['a'] = 3\nV = D['a']", {}),
    "a loop over its items": ("D = [[1], [2]]\nfor d in D: d.append(1)\nV = len(D[0])", {}),
    "a method whose result is taken": ("D = [1, 5]\nlast = D.pop()\nV = len(D)", {}),
    "a comprehension": ("D = []\n_ = [D.append(i) for i in range(3)]\nV = len(D)", {}),
    "the namespace": ("V = 2\nglobals()['V'] = 4", {}),
    "a text": ("V = 2\nexec('V = 4')", {}),
    "a condition on the module's name": ("V = 1\nif __name__ == 'lib.k': V = 2", {}),
    "import * behind it": ("V = 1\nfrom lib.b import *", {"b": "V = 2"}),
    "a package that imports it": (
        "from lib.b import V",
        {"__init__": "from . import b\nb.V = 7", "b": "V = 2"},
    ),
    "a file that is imported for this": (
        "import lib.c\nfrom lib.b import L\nV = len(L)",
        {"b": "L = []", "c": "from lib.b import L\nL.append(9)"},
    ),
    "a decorator in another file": (
        "import lib.c\nfrom lib.b import L\nV = len(L)",
        {"b": "L = []\ndef add(f): L.append(f)", "c": "from lib.b import add\n@add\ndef other(): pass"},
    ),
    "the name of its module": ("import lib.b as q\nq.W = 8\nfrom lib.b import W as V", {"b": "W = 4"}),
    "a method of an object of another file": (
        "from lib.b import c, get\nc.set(8)\nV = get()",
        {"b": "class C:\n    n = 4\n    def set(self, n): self.n = n\nc = C()\ndef get(): return c.n"},
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_a_value_is_in_its_slice(what: str) -> None:
    text, files = CHANGES[what]
    source = f"import triton\n{text}\n@triton.jit\ndef kernel(x): x + V\n".encode()
    contents = {f"lib/{name}.py": content.encode() for name, content in {"__init__": "", **files}.items()}
    unit = TranslationUnit("lib/k.py", source, "triton", contents, instantiate=("kernel(x: *fp32)",))
    value = import_source(unit).V
    forget_sources()
    assert value == import_source(unit.replace(instantiate=())).V
    forget_sources()
