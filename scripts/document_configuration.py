"""Write what is made from the configuration's dataclasses: ``python scripts/document_configuration.py``.

That is the JSON schema that the package ships, and the reference of all keys. Needs nothing but Python 3.11.
"""

from __future__ import annotations

import sys

from _environment import ROOT

sys.path.insert(0, str(ROOT))

from cuda_ext.builder.config.key_reference import as_markdown
from cuda_ext.builder.config.schema import as_json

FILES = {"cuda_ext/build/schema.json": as_json, "docs/reference/configuration.md": as_markdown}


def main() -> int:
    for name, render in FILES.items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(), encoding="utf-8", newline="\n")
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
