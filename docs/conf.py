"""The documentation site: ``python -m sphinx -W -b html docs build/site``. Requires no network."""

from __future__ import annotations

import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import cuda_ext  # noqa: E402

project = "cuda_ext"
author = "the cuda_ext developers"
copyright = "the cuda_ext developers"  # noqa: A001 - Sphinx's name
release = version = cuda_ext.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_click",
    "sphinxcontrib.moderncmakedomain",
]
needs_sphinx = "8.0"

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3

# References to this package must resolve. Those to other packages are not linked.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!cuda_ext\.).*"),
    (
        r"py:.*",
        r"cuda_ext\.runtime\.(launch\.streams|launch\.configuration|lookup|arrays\.device_memory|arrays\.host_arrays|description|module)\..*",
    ),
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 80
add_module_names = False

smartquotes_action = "qe"  # two dashes stay two

highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"cuda_ext {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["pyproject.json", "../cuda_ext/schema.json"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": True,
    "source_repository": "https://github.com/cuda-ext/cuda_ext/",
    "source_branch": "main",
    "source_directory": "docs/",
    "footer_icons": [
        {
            "name": "GitHub",
            "url": "https://github.com/cuda-ext/cuda_ext",
            "html": "cuda-ext/cuda_ext on GitHub",
            "class": "",
        }
    ],
    "light_css_variables": {"color-brand-primary": "#3f7d00", "color-brand-content": "#356a00"},
    "dark_css_variables": {"color-brand-primary": "#8fd14f", "color-brand-content": "#8fd14f"},
}


def write_llms_txt(app: Sphinx, exception: Exception | None) -> None:
    """Write ``llms.txt``: each page with its first sentence, for programs that read documentation."""
    if exception or app.builder.name != "html":
        return
    lines = ["# cuda_ext", "", "> CUDA kernels in a Python package as easily as data files."]
    for toctree in app.env.get_doctree("index").findall(addnodes.toctree):
        lines += ["", f"## {toctree['caption']}", ""]
        for _, page in toctree["entries"]:
            doctree = app.env.get_doctree(page)
            paragraphs = (
                node.astext() for node in doctree.findall(nodes.paragraph) if node.parent.tagname == "section"
            )
            about = (text for text in paragraphs if not text.startswith("This page continues"))
            first = " ".join(next(about, "").split()).partition(". ")[0].rstrip(".:")
            link = f"[{app.env.titles[page].astext()}]({app.builder.get_target_uri(page)})"
            lines.append(f"- {link}: {first}" if first else f"- {link}")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", write_llms_txt)
