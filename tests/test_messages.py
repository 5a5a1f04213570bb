"""The page of all messages: it has each as it is in the sources, and none that says too little."""

# ruff: noqa: RUF001 - what differs in a message stands in these brackets

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from cuda_ext.errors import __all__ as errors

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "messages.md"


@pytest.fixture(scope="module")
def script() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of ``scripts/messages``, which stand beside the package."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield lambda name: importlib.import_module(f"messages.{name}")
    sys.path.remove(str(ROOT / "scripts"))


def texts(script: Callable[[str], ModuleType], path: Path, *kinds: str) -> list[str]:
    """The messages of the package that `path` holds."""
    modules = script("python").Package(path).modules.values()
    return [m.text for module in modules for m in sorted(module.messages(frozenset(kinds)))]


def test_the_page_has_the_messages_as_they_are(script: Callable[[str], ModuleType]) -> None:
    assert PAGE.read_text("utf-8") == script("page").as_markdown(), "run python scripts/document_messages.py"


def test_every_exception_that_is_raised_is_on_the_page() -> None:
    """By another way: each line of the package that raises with words of its own has them on the page."""
    page = " ".join(PAGE.read_text("utf-8").split())
    users = "|".join([*errors, "ConditionError", "Failure", "ImportError", "UsageError"])
    raised = re.compile(rf'raise (?:{users})\(\s*f?"([^"{{}}\\]*)')
    found = [
        words.strip()
        for path in (ROOT / "cuda_ext").rglob("*.py")
        for words in raised.findall(path.read_text("utf-8"))
        if re.search(r"[a-z]{2}", words)
    ]
    assert len(found) > 100
    assert [words for words in found if words not in page] == []


def test_messages_speak_as_one(script: Callable[[str], ModuleType]) -> None:
    """They blame nobody, shout at nobody, and end without a full stop, since more may follow."""
    blame = re.compile(r"\b(?:invalid|illegal|bad|wrong|must|please|sorry|oops)\b|!$|[^.]\.$", re.IGNORECASE)
    told = [m for found in script("page").messages().values() for m in found]
    assert [message for message in told if blame.search(message.text)] == []


_REMEDY = re.compile(r"; |, or |\bset |did you mean|‹remedy›|expected .*, found ")

# Beginnings of messages that say what is wrong, and not what to do, each with why that is enough.
_ENOUGH = {
    # What is put in says what to do.
    "‹where›.when: ‹when›: ‹error›": "it is of a condition",
    "‹name›: its project has changed since it was compiled, and cannot be compiled now": "of a build",
    "nothing can be kept: ‹why›": "as the warnings about the cache",
    "compiling goes on without a cache: ‹error›": "as the errors of the cache",
    "Dask worker ‹address›: ‹error›": "of the tool chain, there",
    "argument '‹parameter›': ‹error›": "of a value",
    "argument '‹name›': ‹error›": "of a value",
    "symbol '‹name›' (‹type›): ‹error›": "of a value",
    "‹error› in a launch of ‹signature›": "of an argument",
    "‹reason› in a launch of ‹kernel›": "of an argument",
    "‹text› (compiling ‹recipe› for ‹architecture›)": "of the compiler",
    # What is put in is another's, who knows more.
    "‹function› failed: ": "the driver's words",
    "the launch failed: ‹unknown›": "the driver's words",
    "‹module›: the driver refuses ‹found› on ‹device›: ‹error›": "the driver's words",
    "‹data›: the driver refuses ‹sources› (‹architecture›, compiled on demand)": "the driver's words",
    "expected a tensor with shape, stride and element_size (‹error›)": "its library's words",
    "expected a tensor with memory of its own: ‹error›": "its library's words",
    "expected a __cuda_array_interface__ with ": "its library's words",
    "expected an array that can be read: ‹error›": "its library's words",
    "expected an array that DLPack can lend: ‹error›": "its library's words",
    # It shows what is to be written.
    "‹where›.overrides: expected an array of tables, as in [[‹where›.overrides]]": "so",
    # There is nothing else to do than not to do it.
    "‹number› is out of the range of ‹type›": "another value is of who calls",
    "‹number› is out of the range of __nv_bfloat16": "another value is of who calls",
    "(‹given›) fits none of:‹candidates›": "the list says what fits",
    "cooperative: this GPU, ‹device›, cannot launch cooperatively": "another GPU can",
    "there is no CUDA driver for macOS: ": "it says where there is one",
    # A place within a file, of which whoever names the file says what to do.
    "fatbin, offset ": "only what has read the file knows where it is from",
}


def test_messages_say_what_to_do(script: Callable[[str], ModuleType]) -> None:
    told = {" ".join(m.text.split()) for found in script("page").messages().values() for m in found}
    silent = {text for text in told if not _REMEDY.search(text)}
    assert sorted(text for text in silent if not text.startswith(tuple(_ENOUGH))) == []
    assert [words for words in _ENOUGH if not any(text.startswith(words) for text in silent)] == []


# How a message is read from a source.


def test_what_reaches_a_message_is_put_in(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "names.py").write_text('TABLE = "tool.x"\n')
    (package / "mistakes.py").write_text(
        """
from package.names import TABLE

def check(name, others, size):
    remedy = "rename it"
    if name in others:
        raise BadError(f"{TABLE}.{name.lower()}: is there {'twice' if size else 'already'}; {remedy}")
    raise BadError(f"{others[0].path} is {name!r}{_hint(name)}")

def _hint(name) -> str:
    return f"; did you mean {name.near!r}?" if name.near else ""

def _mismatch(expected, found) -> BadError:
    return BadError(f"expected {expected}, found {found}")

def count(value):
    raise _mismatch(f"{value.type} of one", value)

def inner(value):
    raise OtherError("nobody sees this")
"""
    )
    assert texts(script, package, "BadError") == [
        "tool.x.‹name›: is there already; rename it",
        "tool.x.‹name›: is there twice; rename it",
        "‹path› is '‹name›'; did you mean '‹near›'?",
        "expected ‹type› of one, found ‹value›",
    ]


def test_the_words_of_cpp_and_cmake_are_read(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    header = tmp_path / "a.hpp"
    header.write_text(
        'return failure(ErrorKind::no_image,\n    {module.name, ": no image (", f(a, {1, 2}), "); "\n'
        '     "add \\"sm_", capability, "\\""});\n// failure(ErrorKind::load, {"not this"})\n'
    )
    assert [(m.kind, m.text) for m in script("cpp").in_cpp(header)] == [
        ("NoImageError", '‹module›: no image (‹f›); add "sm_‹capability›"')
    ]
    module = tmp_path / "A.cmake"
    module.write_text(
        'message(FATAL_ERROR "${target}: is none; "\n  "say \\"a\\"")\nmessage(FATAL_ERROR "${all}")'
    )
    assert [m.text for m in script("cmake").in_cmake(module)] == ['‹target›: is none; say "a"']


def test_an_explanation_of_no_message_is_refused(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = script("page")
    explanation = {"message": "never said", "text": "x"}
    monkeypatch.setitem(page._PAGE, "explanations", [explanation])
    with pytest.raises(ValueError, match="no message begins with 'never said'"):
        page.as_markdown()
