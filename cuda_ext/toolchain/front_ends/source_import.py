"""Import the Python source of a translation unit, with the files of the project that it can import.

An import executes a slice of these files: what the functions of the instantiation need. If something is
missing in it, the whole files are imported. They are in memory, so that a product depends on nothing else of
the project. Their code objects have file names relative to the project, so that their bytes do not depend on
its location. Before the next source, all changes to the modules of this process are undone.
"""

from __future__ import annotations

import ast
import atexit
import importlib
import linecache
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn, cast

from cuda_ext.compiler.front_ends.instantiation import parse_instantiation
from cuda_ext.compiler.front_ends.python_file import modules_of
from cuda_ext.compiler.front_ends.python_slice import MISSING, Slice
from cuda_ext.compiler.translation_unit import NAMED, TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.toolchain.front_ends.contained_code import MissingImportError, contained

_FRONT_ENDS = ("triton", "cuda")
# The project's files do not take the place of these packages, which front-ends import.
_PROTECTED = {*sys.stdlib_module_names, *_FRONT_ENDS}

_imported: dict[tuple[str, frozenset[str]], ModuleType] = {}
_reads: dict[tuple[str, frozenset[str]], frozenset[str]] = {}  # of slices
_undo: list[Callable[[], None]] = []


def import_source(unit: TranslationUnit) -> ModuleType:
    """Import the source of `unit` for its instantiations, or as a whole without any.

    Raises :class:`CompilationError`.
    """
    with contained("cannot be imported", unit.name):
        key = _key(unit)
    if key not in _imported:
        forget_sources()
        finder = _Finder(unit)
        _undo.append(finder.install())
        with contained("cannot be imported", unit.name, lambda error: _describe(error, unit)):
            _imported[key] = _import(finder, unit, key)
    return _imported[key]


def files_read(unit: TranslationUnit) -> frozenset[str]:
    """Return the files of the project on which the import of `unit` depended."""
    return _reads.get(_key(unit)) or frozenset(unit.headers)


def forget_sources() -> None:
    """Undo the changes of the imported sources to the modules of this process."""
    _imported.clear()
    _reads.clear()
    while _undo:
        _undo.pop()()


def _key(unit: TranslationUnit) -> tuple[str, frozenset[str]]:
    return unit.sha256, frozenset(_names(unit))


def _names(unit: TranslationUnit) -> Iterator[str]:
    """Yield the functions of the instantiations, and the names among their constants."""
    for each in map(parse_instantiation, unit.instantiate):
        yield each.function
        for text in each.constants.values():
            yield from (node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))


def _import(finder: _Finder, unit: TranslationUnit, key: tuple[str, frozenset[str]]) -> ModuleType:
    """Import a slice for the names in `key`, or else all statements."""
    reason = ""
    if names := key[1]:
        part = Slice(finder.contents, unit.name, names, _public_names)
        reason = part.unresolved[0] if part.unresolved else ""
        if not reason:
            try:
                module = finder.load(unit.name, part)
                _reads[key] = part.reads
                return module
            except (CompilationError, MissingImportError):
                raise
            except Exception as error:  # the slice may lack a statement that has an effect on others
                reason = _describe(error, unit)
    finder.use_whole_files()
    try:
        return finder.load(unit.name)
    except BaseException as error:
        raise _explain(error, unit, finder, reason) from None


def _explain(error: BaseException, unit: TranslationUnit, finder: _Finder, reason: str) -> BaseException:
    """Return the error of an import that is necessary for this `reason`, if any."""
    alone = f"; its kernels alone cannot be imported: {reason}" if reason else ""
    if isinstance(error, ModuleNotFoundError) and f"{error.name}".partition(".")[0] not in finder.paths:
        place, line = next(_own_places(error, unit), (unit.name, 1))
        missing = MissingImportError(f"{place}:{line}", f"{error.name}", error)
        missing.problem += alone
        return missing
    described = _describe(error, unit)
    return error if reason in ("", described) else CompilationError(f"{described}{alone}")


def _public_names(module: str) -> Container[str]:
    try:
        attributes = vars(importlib.import_module(module))
    except ImportError:
        return ()
    public: Container[str] = attributes.get("__all__") or [n for n in attributes if not n.startswith("_")]
    return public


class _Finder(MetaPathFinder, InspectLoader):
    """Finds and executes the files of a unit, and undoes what that changes."""

    def __init__(self, unit: TranslationUnit) -> None:
        self.contents = {**unit.headers, unit.name: unit.source}
        self.paths = modules_of(self.contents)
        self._part: Slice | None = None
        self._earlier: dict[str, ModuleType] = {}

    def install(self) -> Callable[[], None]:
        """Hide modules with names of the unit's; return a function that restores them."""
        self._earlier = {name: module for name, module in sys.modules.items() if self._owns(name)}
        self.unload()
        restore_attributes = _remember_attributes()
        sys.meta_path.insert(0, self)

        def undo() -> None:
            sys.meta_path.remove(self)
            self.unload()
            sys.modules.update(self._earlier)
            restore_attributes()

        return undo

    def use_whole_files(self) -> None:
        """Forget the files of other packages, which are then imported themselves."""
        self.unload()
        self.contents = {name: text for name, text in self.contents.items() if not name.startswith(NAMED)}
        self.paths = modules_of(self.contents)
        others = {name: module for name, module in self._earlier.items() if not self._owns(name)}
        sys.modules.update(others)

    def unload(self) -> None:
        for name in [name for name in sys.modules if self._owns(name)]:
            del sys.modules[name]

    def load(self, path: str, part: Slice | None = None) -> ModuleType:
        """Import the file `path`, and in it only `part` if that is given."""
        self._part = part
        name = next(name for name, each in self.paths.items() if each == path)
        module = importlib.import_module(name)
        if getattr(module.__spec__, "loader", None) is not self:
            raise CompilationError(f"another module is called {name}, too", remedy="rename the source")
        return module

    def _owns(self, name: str) -> bool:
        top, *others = name.split(".")
        return name in self.paths and bool(others) if top in _PROTECTED else top in self.paths

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if name not in self.paths or not self._owns(name):
            return None
        file = self.paths[name]
        if not file:
            return ModuleSpec(name, None, is_package=True)
        package = file.endswith("/__init__.py")
        # No file is there.
        spec = ModuleSpec(name, self, origin=f"{_nowhere()}/{file}", is_package=package)
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        vars(module)[MISSING] = partial(_Missing, self.paths[spec.name])
        names = self._part.in_annotations(spec.name) if self._part else ()
        vars(module).update({name: _annotation(name) for name in names})
        return module

    def get_source(self, fullname: str) -> str:
        return decode_source(self.contents[self.paths[fullname]])

    def get_code(self, fullname: str) -> CodeType:
        path, text = self.paths[fullname], self.get_source(fullname)
        linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path
        tree = self._part.tree(fullname) if self._part else ast.parse(self.contents[path], path)
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code


def _remember_attributes() -> Callable[[], None]:
    """Return a function that restores the attributes of the modules and classes of front-ends."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in _FRONT_ENDS]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    own = [each for each in classes if each.__module__.partition(".")[0] in _FRONT_ENDS]
    earlier = [(owner, {**vars(owner)}) for owner in (*modules, *own)]

    def restore() -> None:
        for owner, attributes in earlier:
            now = {**vars(owner)}
            for name in now.keys() - attributes.keys():
                if not isinstance(now[name], ModuleType):  # imported since then
                    with suppress(AttributeError, TypeError):  # Python's own, such as annotations
                        delattr(owner, name)
            for name, value in attributes.items():
                if now.get(name, restore) is not value:
                    setattr(owner, name, value)

    return restore


class _Missing:
    """Stands for a name whose import failed. Any use raises :class:`MissingImportError`."""

    def __init__(self, path: str, line: int, module: str) -> None:
        vars(self)["import"] = f"{path}:{line}", module, cast("ImportError", sys.exc_info()[1])

    def _fail(self, *_: object, **__: object) -> NoReturn:
        error = MissingImportError(*vars(self)["import"])
        user = sys._getframe(1)
        if not Path(user.f_code.co_filename).is_absolute():  # it is a file of the project
            error.problem += f"; {user.f_code.co_filename}:{user.f_lineno} needs it"
        raise error

    __getattr__ = __setattr__ = __call__ = __getitem__ = __iter__ = __bool__ = __mro_entries__ = _fail


def _annotation(name: str) -> ModuleType:
    """Return a stand-in with any attributes for `name` in annotations. Triton accepts only modules."""
    if name.startswith("__"):
        raise AttributeError(name)
    module = ModuleType(name)
    vars(module)["__getattr__"] = _annotation
    return module


def scratch_directory() -> str:
    """Create a directory that lasts as long as this process."""
    directory = tempfile.mkdtemp(prefix="cuda_ext-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


_nowhere = cache(scratch_directory)


def _own_places(error: BaseException, unit: TranslationUnit) -> Iterator[tuple[str, int | None]]:
    """Yield the lines of the project that `error` passed, the last one first."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in (unit.name, *unit.headers):
            yield frame.filename, frame.lineno


def _describe(error: BaseException, unit: TranslationUnit) -> str:
    """Return the exception's message and the project line that raised it."""
    if isinstance(error, SyntaxError) and error.filename in (unit.name, *unit.headers):
        return f"{error.msg} (line {error.lineno})"
    place = "".join(f" ({file}, line {line})" for file, line in [*_own_places(error, unit)][:1])
    said = "".join(traceback.format_exception_only(error)).strip()
    return f"{said}{place}"
