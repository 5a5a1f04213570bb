"""Begin recording in each Python process of a recorded program, whose PYTHONPATH begins with this directory.

Python imports a module of this name when it starts. That of the user, if there is one, follows.
"""

import os
import sys
from importlib import import_module


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to import
    own = sys.modules[__name__]
    sys.path[:] = [path for path in sys.path if path != here]
    if "CUDA_EXT_RECORD" in os.environ:
        try:
            from cuda_ext.recording.watched_imports import watch
        except ImportError as error:
            sys.stderr.write(f"cuda-ext record: nothing is recorded in {sys.executable}: {error}\n")
        else:
            watch()
    del sys.modules[__name__]
    try:
        import_module(__name__)  # that of the user
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
    sys.modules.setdefault(__name__, own)  # the import of this module expects one


_start()
