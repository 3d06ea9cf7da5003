"""The site: it is built without a warning, leads nowhere that is not there, and has a place for every public name."""

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = "delayssm", "delayssm.estimators", "delayssm.export", "delayssm.hf"
#: Attributes that make a browser load something, or go somewhere.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
#: A page, with its own pictures, scripts and styles.
HEAVIEST = 2_000_000


class Page(HTMLParser):
    """What a page leads to, what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what a tag leads to."""
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif (tag, name) in LOADED and value:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site from the repository, with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    where = ["-d", folder / "doctrees", "-c", ROOT / "docs", ROOT, folder / "html"]
    done = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def _local(target: str) -> bool:
    return urlsplit(target).scheme == "" and not target.startswith("//")


def _dead(site: Path) -> list[str]:
    """Return the links of a site that lead to nothing in it."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        for target in filter(_local, page.links + page.loaded):
            parts = urlsplit(target)
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment) if file in pages else ""
            anchor = "" if "=" in anchor else anchor  # settings of the playground
            there = file.is_relative_to(site) and file.is_file()
            if not there or (anchor and anchor not in pages[file].anchors):
                dead.append(f"{path.relative_to(site)}: {target}")
    return dead


@pytest.mark.slow
def test_no_link_is_dead(site: Path) -> None:
    assert _dead(site) == []


def test_the_checker_finds_dead_links(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there"></a><a href="b.html#not"></a><img src="c.png"><i id="x">')
    (tmp_path / "b.html").write_text('<h1 id="there"></h1><a href="a.html#x"></a><a href="../b.html"></a>')
    assert _dead(tmp_path) == ["a.html: b.html#not", "a.html: c.png", "b.html: ../b.html"]


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        elsewhere = [target for target in Page(path).loaded if not _local(target) and not target.startswith("data:")]
        assert elsewhere == [], path
    for path in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*|@import[^;]*//", path.read_text()) == [], path


@pytest.mark.slow
def test_every_page_is_light(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = {
            (path.parent / unquote(urlsplit(target).path)).resolve() for target in filter(_local, Page(path).loaded)
        }
        size = path.stat().st_size + sum(file.stat().st_size for file in loaded)
        assert size < HEAVIEST, f"{path.relative_to(site)} weighs {size:,} bytes"


@pytest.mark.slow
def test_every_public_name_has_a_place_in_the_reference(site: Path) -> None:
    anchors = {anchor for path in (site / "docs" / "reference").glob("*.html") for anchor in Page(path).anchors}
    names = [f"{package}.{name}" for package in PACKAGES for name in importlib.import_module(package).__all__]
    assert [name for name in names if name not in anchors] == []


@pytest.mark.slow
def test_every_page_can_be_found_from_the_front_page(site: Path) -> None:
    """All that Markdown became is in the menu."""
    menu = {urlsplit(target).path for target in Page(site / "docs" / "index.html").links}
    pages = {os.path.relpath(path, site / "docs") for path in site.rglob("*.html") if "source" not in path.parts}
    generated = {"index.html", "../index.html", "../genindex.html", "../search.html"}
    assert {page for page in pages - menu - generated if not page.startswith("playground/")} == set()


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_an_example_that_runs(package: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.examples", package]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error::UserWarning"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
