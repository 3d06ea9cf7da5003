"""The pages: what they show is what results/ holds, their links lead somewhere, and their examples run."""

import json
import re
from pathlib import Path

import pytest

from docs.pictures import PICTURES, TUTORIALS, code_of, pictures_of, run
from docs.refresh import PAGES, RESULTS, ROOT, refreshed

EVERY_PAGE = [
    ROOT / "README.md",
    ROOT / "BENCHMARKS.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
by_name = {"ids": lambda page: str(page.relative_to(ROOT))}


@pytest.mark.parametrize("page", PAGES, **by_name)
def test_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert refreshed(text, ROOT) == text, "run `python -m docs.refresh`"


@pytest.mark.parametrize("page", EVERY_PAGE, **by_name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in target]
    missing = []
    for target in targets:
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        if not linked.exists() or (anchor and anchor not in _anchors(linked)):
            missing.append(target)
    assert missing == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in EVERY_PAGE if code_of(page)], **by_name)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    done = run(page, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [name for name in pictures_of(page) if not (tmp_path / name).exists()] == []
    if page == ROOT / "docs" / "streaming.md":
        assert "a history of 256 tokens" in done.stdout
        assert (tmp_path / "chat.safetensors").exists()


def test_every_page_that_teaches_has_examples() -> None:
    names = {page.name for page in EVERY_PAGE if code_of(page)}
    assert names >= {
        "README.md",
        "getting-started.md",
        "model.md",
        "models.md",
        "training.md",
        "streaming.md",
        "forecasting.md",
        "export.md",
        "laboratory.md",
        "gpu.md",
        "transformers.md",
    }


def test_tutorials_begin_with_what_one_will_have_and_show_their_pictures() -> None:
    assert len(TUTORIALS) == 6
    for page in TUTORIALS:
        assert page.read_text().split("\n")[2].startswith("**At the end you have**"), page
    shown = {name for page in TUTORIALS for name in pictures_of(page)}
    assert shown == {path.name for path in PICTURES.iterdir()}


def test_every_result_is_shown() -> None:
    """All tables and pictures are on a page of results or among the benchmarks, and each table is on one of them."""
    pages = [path.read_text() for path in (*RESULTS, ROOT / "BENCHMARKS.md")]
    for path in [*ROOT.glob("results/*/table.md"), *ROOT.glob("results/*/about.json")]:
        assert sum(f"<!-- {path.relative_to(ROOT)} -->" in page for page in pages) == 1, path
    for path in ROOT.glob("results/*/*.png"):
        assert any(f"{path.relative_to(ROOT)})" in page for page in pages), path


def test_no_cell_is_empty_handed() -> None:
    assert [page.name for page in EVERY_PAGE if "not run" in page.read_text()] == []


def test_files_are_put_where_they_belong(tmp_path: Path) -> None:
    directory = tmp_path / "results" / "x"
    directory.mkdir(parents=True)
    (directory / "table.md").write_text("| new |\n")
    about = {"command": "c", "date": "d", "done": 2, "total": 3, "seconds": 7200}
    where = {"machine": "M", "threads": "8", "torch": "2"}
    (directory / "about.json").write_text(json.dumps({**about, "environment": where}))
    page = "a\n<!-- results/x/table.md -->\nold\n<!-- end -->\nb\n<!-- results/x/about.json -->\n<!-- end -->\n"
    expected = (
        "a\n<!-- results/x/table.md -->\n| new |\n<!-- end -->\nb\n"
        "<!-- results/x/about.json -->\n`c` · d · M, 8 threads · torch 2 · 2.0 h · **2 of 3 done**\n<!-- end -->\n"
    )
    assert refreshed(page, tmp_path) == expected
    assert refreshed(expected, tmp_path) == expected


def test_a_missing_result_is_an_error_that_names_the_study(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="delayssm reproduce x"):
        refreshed("<!-- results/x/table.md -->\n<!-- end -->\n", tmp_path)
