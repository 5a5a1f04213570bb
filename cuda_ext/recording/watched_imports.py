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

# The modules to change, and the functions of `watched_launches` that do it.
_WATCHED = {
    "cuda_ext.runtime.launch.fast_launch": "watch_modules",
    "triton.runtime.jit": "watch_functions",
    "triton.runtime.autotuner": "watch_autotuner",
    "cuda.tile": "watch_tiles",
    "cupy": "watch_raw_kernels",
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
                    getattr(import_module("cuda_ext.recording.watched_launches"), _WATCHED[name])(module)

            loader.exec_module = exec_module
        return spec


def watch() -> None:
    """Watch the imports of this process."""
    sys.meta_path.insert(0, _Finder())
