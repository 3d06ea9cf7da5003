"""What the pages show is what results/ holds."""

import json
import os
import re
from pathlib import Path

import pytest

from docs.refresh import PAGES, ROOT, refreshed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert "<!-- end -->" in text
    assert refreshed(text, ROOT) == text, "run `python -m docs.refresh`"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]
    assert missing == []


def test_every_result_is_on_a_page() -> None:
    """All tables on exactly one page of results, all pictures and origins on at least one."""
    results, pages = ROOT / "results", [ROOT / "docs" / "results.md", ROOT / "BENCHMARKS.md"]
    for path in results.glob("*/table.md"):
        assert sum(f"<!-- {path.relative_to(ROOT)} -->" in page.read_text() for page in pages) == 1, path
    for path in results.glob("*/about.json"):
        assert any(f"<!-- {path.relative_to(ROOT)} -->" in page.read_text() for page in pages), path
    for path in results.glob("*/*.png"):
        assert any(f"({os.path.relpath(path, page.parent)})" in page.read_text() for page in pages), path


def test_a_missing_result_names_the_study_to_run(tmp_path: Path) -> None:
    page = "<!-- results/kernel-speed/table.md -->\n<!-- end -->\n"
    with pytest.raises(FileNotFoundError, match="make it with `delayssm reproduce kernel-speed`"):
        refreshed(page, tmp_path)


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
