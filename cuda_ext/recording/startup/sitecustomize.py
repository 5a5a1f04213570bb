"""Record each Python process of a recorded program, whose PYTHONPATH begins with this directory.

Python imports a module of this name when it starts. That of the user, if there is one, follows. Nothing else
is imported before the program imports a module whose launches are recorded.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

# The modules to change, and the functions of `watched_launches` that do it.
_WATCHED = {
    "cuda_ext.runtime.launch.fast_launch": "watch_modules",
    "triton.runtime.jit": "watch_functions",
    "triton.runtime.autotuner": "watch_autotuner",
    "cuda.tile": "watch_tiles",
    "cupy": "watch_raw_kernels",
}


class _Finder:
    def find_spec(self, name: str, *place: Any) -> Any:
        if name not in _WATCHED:
            return None
        finders: list[Any] = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, *place) for finder in finders)), None)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                if module.__name__ == name:  # archives have one loader for all modules
                    launches = import_module("cuda_ext.recording.watched_launches")
                    getattr(launches, _WATCHED[name])(module)

            spec.loader.exec_module = exec_module
        return spec


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to import
    own = sys.modules[__name__]
    sys.path[:] = [path for path in sys.path if path != here]
    if "CUDA_EXT_RECORD" in os.environ:
        try:
            import_module("cuda_ext.recording")
        except ImportError as error:
            sys.stderr.write(f"cuda-ext record: nothing is recorded in {sys.executable}: {error}\n")
        else:
            sys.meta_path.insert(0, _Finder())
    del sys.modules[__name__]
    try:
        import_module(__name__)  # that of the user
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
    sys.modules.setdefault(__name__, own)  # the import of this module expects one


_start()
