"""Write the page of all messages that a user can meet: ``python scripts/document_messages.py``.

They are read from the sources, so that the page has each as it is. Needs nothing but Python 3.11.
"""

from __future__ import annotations

import sys

from _environment import ROOT
from messages.page import as_markdown

PAGE = "docs/reference/messages.md"


def main() -> int:
    path = ROOT / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_markdown(), encoding="utf-8", newline="\n")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
