"""Run blocks of Python of a page as one program: ``python docs_program.py blocks.json``.

What ``pycon`` blocks show is held against what is printed. Where there is no GPU, kernels do nothing, and
what blocks of the class ``gpu`` show is not compared.
"""

from __future__ import annotations

import doctest
import json
import sys
from pathlib import Path

from cuda_ext.devices import capabilities


class Unseen(doctest.OutputChecker):
    """For output that takes a GPU, where there is none."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return True


def is_unlike(classes: list[str], gpu: bool) -> bool:
    """Whether a block prints something else here: what takes a GPU, or a certain one."""
    if not gpu:
        return "gpu" in classes  # the stand-in calls itself sm_90
    capability = next(iter(capabilities()), None)
    return any(name.startswith("sm_") and name != f"sm_{capability}" for name in classes)


def main(file: str) -> int:
    program = json.loads(Path(file).read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "__main__"}
    failed = 0
    for block in program["blocks"]:
        if block["language"] == "python":
            text = "\n" * (block["line"] - 1) + block["text"]
            exec(compile(text, block["page"], "exec", dont_inherit=True), names)
            continue
        checker = Unseen() if is_unlike(block["classes"], program["gpu"]) else None
        runner = doctest.DocTestRunner(checker, verbose=False, optionflags=doctest.ELLIPSIS)
        test = doctest.DocTestParser().get_doctest(
            block["text"], names, block["page"], block["page"], block["line"] - 1
        )
        test.globs = names  # what a block defines, the next one has
        failed += runner.run(test, clear_globs=False).failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
