"""``python -m cuda_ext``: the command ``cuda-ext``, even if no directory of scripts is on ``PATH``."""

from __future__ import annotations

from cuda_ext.cli import main

if __name__ == "__main__":
    main()
