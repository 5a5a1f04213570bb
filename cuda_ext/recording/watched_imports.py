"""Watch the imports of a recorded program, and change the modules whose launches are recorded.

Nothing else is imported before the program imports one of these.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# The modules to change, and the functions that do it.
_WATCHED = {
    "cuda_ext.runtime.launch.fast_launch": "cuda_ext.recording.own_launches:watch",
    "triton.runtime.jit": "cuda_ext.recording.triton_launches:watch_functions",
    "triton.runtime.autotuner": "cuda_ext.recording.triton_launches:watch_autotuner",
    "cuda.tile": "cuda_ext.recording.cutile_launches:watch",
    "cupy": "cuda_ext.recording.cupy_launches:watch",
}


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _WATCHED:
            return None
        finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in finders)
        spec = next(filter(None, specs), None)
        if spec and spec.loader:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if module.__name__ == name:  # archives have one loader for all modules
                    place, _, function = _WATCHED[name].partition(":")
                    getattr(import_module(place), function)(module)

            loader.exec_module = exec_module
        return spec


def watch() -> None:
    """Watch the imports of this process."""
    sys.meta_path.insert(0, _Finder())
