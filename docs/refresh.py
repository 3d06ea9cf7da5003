"""Bring the pages up to date with what is in results/: `python -m docs.refresh`.

A page encloses what a file says between <!-- results/NAME/FILE --> and <!-- end -->. Markdown is put there as it is, an
about.json as one line on how the results came to be; so no number of a table is ever typed. What is only counted is
enclosed by <!-- benchmarks.roofline -->.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks import roofline

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "gpu.md"
ENCLOSED = re.compile(r"(<!-- (results/[\w./-]+|benchmarks\.roofline) -->\n).*?(<!-- end -->)", re.DOTALL)


def refreshed(page: str, root: Path) -> str:
    """The page with the present content of the files that it encloses."""
    return ENCLOSED.sub(lambda match: match[1] + _content(match[2], root) + match[3], page)


def _content(source: str, root: Path) -> str:
    if source == "benchmarks.roofline":
        return roofline.text()
    path = root / source
    return _how(json.loads(path.read_text())) if path.name == "about.json" else path.read_text()


def _how(about: dict[str, object]) -> str:
    """Command, date, machine, and what it took; unfinished work is called that."""
    where = about["environment"]
    assert isinstance(where, dict)
    done, total = about["done"], about["total"]
    parts = [
        f"`{about['command']}`",
        str(about["date"]),
        f"{where['machine']}, {where['threads']} thread{'' if where['threads'] == '1' else 's'}",
        f"torch {where['torch']}",
        _duration(float(str(about["seconds"]))),
    ]
    unfinished = "" if done == total else f" · **{done} of {total} done**"
    return " · ".join(parts) + unfinished + "\n"


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(refreshed(path.read_text(), ROOT))
