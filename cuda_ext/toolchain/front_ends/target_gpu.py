"""The GPU that sources see while they are imported and compiled: the one that the build is for.

Triton's active driver and ``torch.cuda`` answer with its compute capability, whether this machine has a GPU
or not. They do not know other properties, such as the number of multiprocessors.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from cuda_ext.compiler.front_ends.kernel_description import SHARED_MEMORY
from cuda_ext.toolchain.front_ends.source_import import forget_sources

# Modules of these packages hold no answers.
_FORGETFUL = {*sys.stdlib_module_names, "cuda_ext", "torch", "triton"}

_lock = threading.RLock()
_askers: dict[int | None, set[str]] = {}


class _UnknownError(LookupError):
    """A question that only a GPU can answer."""

    def __init__(self, what: str) -> None:
        super().__init__(f"asks for {what} of the GPU, and a build knows only its compute capability")


class _Gpu:
    """The GPU of compute capability `number`, such as ``90``; ``None`` stands for several."""

    def __init__(self, number: int | None) -> None:
        self._number = number

    @property
    def number(self) -> int:
        """Its compute capability. The packages that ask are remembered."""
        if packages := _find_askers():
            _askers.setdefault(self._number, set()).update(packages)
        if self._number is None:
            raise LookupError("asks for the GPU, and Tile IR is for several")
        return self._number

    @property
    def capability(self) -> tuple[int, int]:
        return divmod(self.number, 10)

    def properties(self) -> dict[str, Any]:
        """Return its properties, as ``torch.cuda`` and Triton name them."""
        major, minor = self.capability
        known = {"name": f"NVIDIA GPU {major}.{minor}", "major": major, "minor": minor}
        known |= dict.fromkeys(("warp_size", "warpSize"), 32)
        shared = SHARED_MEMORY.get(self.number)
        names = ("max_shared_mem", "shared_memory_per_block_optin")
        return known | (dict.fromkeys(names, shared << 10) if shared else {})


class _Properties(dict[str, Any]):
    """Properties as items, for Triton, and as attributes, for PyTorch."""

    def __missing__(self, name: str) -> Any:
        raise _UnknownError(repr(name))

    __getattr__ = dict.__getitem__


@contextmanager
def target_gpu(number: int | None) -> Iterator[None]:
    """Within this block, answer with the compute capability `number`, or refuse to answer if it is ``None``.

    What was imported when it asked for another GPU is forgotten, so that it is imported again. A program that
    uses such a GPU, and compiles on demand, goes on to ask it: its other threads may launch kernels.
    """
    if number and number == _used_gpu():
        yield
        return
    with _lock, ExitStack() as stack:
        if _askers.keys() - {number}:
            _forget_answers()
        answers = _Answers(_Gpu(number), stack)
        for name, change in answers.changes.items():
            if name in sys.modules:
                change()
        sys.meta_path.insert(0, answers)
        stack.callback(sys.meta_path.remove, answers)
        yield


def _used_gpu() -> int | None:
    """Return the compute capability of the GPU that PyTorch uses in this process, or ``None``."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return None
    major, minor = cuda.get_device_capability()
    return int(10 * major + minor)


def _forget_answers() -> None:
    packages = set().union(*_askers.values())
    _askers.clear()
    forget_sources()
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def _find_askers() -> set[str]:
    """Return the packages whose code asks: the callers up to the code of this room that runs them."""
    packages: set[str] = set()
    frame = sys._getframe().f_back
    while frame:
        name = str(frame.f_globals.get("__name__"))
        if name != __name__ and name.startswith(f"{__package__}."):
            return packages - _FORGETFUL
        packages.add(name.partition(".")[0])
        frame = frame.f_back
    return set()


class _Answers(MetaPathFinder):
    """Changes packages as soon as they are imported. `stack` takes the changes back."""

    def __init__(self, gpu: _Gpu, stack: ExitStack) -> None:
        self._gpu = gpu
        self._stack = stack
        self.changes = {"torch": self._change_torch, "triton": self._change_triton}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.changes:
            return None
        finders = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        if spec and spec.loader:
            spec.loader = _ChangingLoader(spec.loader, self.changes[name])
        return spec

    def _change_torch(self) -> None:
        def ask(question: Callable[[], Any]) -> Callable[..., Any]:
            return lambda *_, **__: question()  # the device

        properties = ask(lambda: _Properties(self._gpu.properties()))
        answers = {
            "is_available": ask(lambda: True),
            "device_count": ask(lambda: 1),
            "current_device": ask(lambda: 0),
            "get_device_capability": ask(lambda: self._gpu.capability),
            "get_device_name": ask(lambda: self._gpu.properties()["name"]),
            "get_device_properties": properties,
        }
        if cuda := sys.modules.get("torch.cuda"):
            self._replace(vars(cuda), answers)

    def _change_triton(self) -> None:
        from triton.backends import backends
        from triton.runtime import driver

        others = {name: backends.pop(name) for name in [*backends] if name != "nvidia"}
        self._stack.callback(backends.update, others)
        backend = backends["nvidia"]
        own = _driver_class(backend.driver, self._gpu)
        self._replace(backends, {"nvidia": type(backend)(backend.compiler, own)})
        # Its attributes are the default and the active driver.
        self._replace(vars(driver), dict.fromkeys(vars(driver), own()))

    def _replace(self, contents: dict[str, Any], changes: Mapping[str, Any]) -> None:
        self._stack.callback(contents.update, {name: contents[name] for name in changes})
        contents.update(changes)


class _ChangingLoader(Loader):
    """Loads a module as `loader` does, and calls `change` then."""

    def __init__(self, loader: Loader, change: Callable[[], None]) -> None:
        self._loader = loader
        self._change = change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._change()


def _driver_class(base: Any, gpu: _Gpu) -> Any:
    """Return a subclass of Triton's driver `base`, which needs no GPU."""

    class Utilities:
        def get_device_properties(self, _device: int) -> _Properties:
            return _Properties(gpu.properties())

        def __getattr__(self, name: str) -> Any:
            raise _UnknownError(repr(name))

    class Driver(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.utils = Utilities()

        @staticmethod
        def is_active() -> bool:
            return True

        def get_device_capability(self, _device: int = 0) -> tuple[int, int]:
            return gpu.capability

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, _device: int) -> None:
            """There is one device."""

        def get_current_stream(self, _device: int = 0) -> int:
            return 0

        def get_current_target(self) -> Any:
            from triton.backends.compiler import GPUTarget

            return GPUTarget("cuda", gpu.number, 32)

    return Driver
