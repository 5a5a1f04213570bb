"""``python -m cuda_ext``: the command ``cuda-ext``, where no directory for scripts is on the path."""

from __future__ import annotations

from cuda_ext.cli import main

if __name__ == "__main__":
    main()
