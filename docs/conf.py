"""Configuration of the site, which `make docs` builds from the pages of this repository as they are."""

import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
#: Bytes above which a picture is reduced to 256 colours, and to a width of two pixels for each one of the page.
LARGE, WIDEST = 50_000, 1500

project = "delayssm"
author = "the delayssm contributors"
copyright = f"2026, {author}"
version = release = version_of(project)

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.linkcode", "sphinx.ext.napoleon", "sphinx_copybutton"]
# The root of the repository is the source, so that links between pages are the same here and on a code host.
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/reference/*.md", "docs/results/*.md", "docs/tutorials/*.md"]
exclude_patterns = [".*", "README.md", "build", "data", "docs/playground", "results", "runs", "src", "tests"]
html_additional_pages = {"index": "to_front_page.html"}

myst_heading_anchors = 4
highlight_language = "text"
# Their contrast is high enough for small type on both backgrounds.
pygments_style, pygments_dark_style = "a11y-light", "github-dark"
default_role = "py:obj"
copybutton_exclude = ".linenos, .gp, .go"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False
maximum_signature_line_length = 88
napoleon_use_rtype = False

html_theme = "furo"
html_title = project
html_favicon = "static/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_copy_source = False
html_show_sphinx = False


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return where the source of an object of the reference is shown."""
    found: Any = sys.modules[info["module"]]
    for name in info["fullname"].split("."):
        found = getattr(found, name, None)
    found = found.fget if isinstance(found, property) else found
    try:
        path, (_, line) = inspect.getsourcefile(inspect.unwrap(found)), inspect.getsourcelines(inspect.unwrap(found))
    except TypeError:  # a value, of which there is no source
        return None
    shown = Path(path or "").resolve()
    return f"../../source/{shown.relative_to(ROOT)}.html#L-{line}" if shown.is_relative_to(ROOT / "src") else None


def link_to_files(app: Sphinx, document: nodes.document) -> None:
    """Lead links to files that are no pages to their sources, and to pages of their own without a server."""
    for link in list(document.findall(addnodes.download_reference)):
        here = ROOT / app.env.docname
        path = (here.parent / link["reftarget"]).resolve().relative_to(ROOT)
        to_root = "../" * (len(Path(app.env.docname).parts) - 1)
        uri = f"{to_root}source/{path}.html" if path.suffix == ".py" else f"{to_root}{path}"
        if path.suffix == ".py":
            app.env.metadata[app.env.docname].setdefault("sources", []).append(path)
        link.replace_self(nodes.reference("", "", *link.children, refuri=uri))


def keep_numbers_whole(app: Sphinx, document: nodes.document) -> None:
    """Let no line break after the hyphen of a number such as 1e-06."""
    for text in list(document.findall(nodes.Text)):
        whole = re.sub(r"(?<=\de-)(?=\d)", "\N{WORD JOINER}", text)
        if whole != text and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            text.parent.replace(text, nodes.Text(whole))


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each file of the library, and for each other one that pages link to."""
    library = [path.relative_to(ROOT) for path in (ROOT / "src" / "delayssm").rglob("*.py")]
    linked = [path for about in app.env.metadata.values() for path in about.get("sources", [])]
    for path in sorted({*library, *linked}):
        shown = app.builder.highlighter.highlight_block(
            (ROOT / path).read_text(), "python", linenos="inline", anchorlinenos=True, lineanchors="L"
        )
        yield f"source/{path}", {"title": str(path), "body": f"<h1>{path}</h1>{shown}"}, "page.html"


def finish(app: Sphinx, failure: Exception | None) -> None:
    """Copy the playground, with a link back to these pages, and make large pictures light."""
    for path in Path(app.outdir, "_images").glob("*.png"):
        if path.stat().st_size > LARGE:
            with Image.open(path) as picture:
                smaller = picture.convert("RGB")
                smaller.thumbnail((WIDEST, picture.height))
                smaller.quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    playground = ROOT / "docs" / "playground"
    if failure is None and playground.exists():
        copied = Path(shutil.copytree(playground, Path(app.outdir) / "docs" / "playground", dirs_exist_ok=True))
        menu = '<nav aria-label="Playground">\n'
        for page in copied.glob("*.html"):
            page.write_text(page.read_text().replace(menu, f'{menu}<a href="../index.html">Documentation</a>\n'))


def setup(app: Sphinx) -> None:
    """Register what is not configuration."""
    app.connect("doctree-read", link_to_files, priority=100)  # before files are copied to be downloaded
    app.connect("doctree-read", keep_numbers_whole)
    app.connect("html-collect-pages", source_pages)
    app.connect("build-finished", finish)
