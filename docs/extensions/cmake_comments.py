"""``.. cmake-comments:: file``: the bracket comments ``#[===[.rst:`` of a CMake file, which document it.

``.. cmake-keys::`` lists the keys of a module in CMake's spelling, from the schema of the configuration.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cuda_ext.builder.config.schema import schema
from cuda_ext.integrations.cmake.arguments import in_cmake

ROOT = Path(__file__).resolve().parents[2]
_COMMENT = re.compile(r"#\[(=*)\[\.rst:\n(.*?)#\]\1\]", re.DOTALL)


class CMakeComments(SphinxDirective):
    """The documentation in a CMake file, its path relative to the checkout."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        file = ROOT / self.arguments[0]
        self.env.note_dependency(str(file))
        texts = [text for _, text in _COMMENT.findall(file.read_text(encoding="utf-8"))]
        if not texts:
            raise self.error(f"{file}: has no comment in reStructuredText")
        text = "\n".join(texts).replace(":command:", ":literal:")
        return self.parse_text_to_nodes(text, offset=0, allow_section_headings=True)


class CMakeKeys(SphinxDirective):
    """A line for each key."""

    option_spec: ClassVar = {}

    def run(self) -> list[nodes.Node]:
        definitions = schema()["definitions"]
        keys = {key: definitions[key] for key in definitions["module"]["properties"]}
        lines = [
            ".. list-table::",
            "   :header-rows: 1",
            "",
            "   * - argument",
            "     - key",
            "     - meaning",
        ]
        for key, value in keys.items():
            if key == "overrides":  # OVERRIDE is written otherwise
                continue
            argument = in_cmake(f"keys.{key}", "keys").removeprefix("keys: ")
            meaning = value["description"].split(". ")[0].replace("`", "``").rstrip(".:")
            lines += [f"   * - ``{argument}``", f"     - ``{key}``", f"     - {meaning}"]
        return self.parse_text_to_nodes("\n".join(lines), offset=0)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("cmake-comments", CMakeComments)
    app.add_directive("cmake-keys", CMakeKeys)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
