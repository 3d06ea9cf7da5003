"""Update the pages from results/: `python -m docs.refresh`.

The text between <!-- results/NAME/FILE --> and <!-- end --> is replaced by the content of that file, so no number of a
table is ever typed. Markdown is inserted as it is, and an about.json as one line with the command, date, machine and
duration. <!-- delayssm_lab.measure.roofline --> encloses the tables of that module, which are computed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from delayssm_lab.measure import roofline

ROOT = Path(__file__).resolve().parent.parent
RESULTS = sorted((ROOT / "docs" / "results").glob("*.md"))
PAGES = ROOT / "README.md", *RESULTS, ROOT / "docs" / "gpu.md", ROOT / "BENCHMARKS.md"
ENCLOSURE = re.compile(r"(<!-- (results/[\w./-]+|delayssm_lab\.measure\.roofline) -->\n).*?(<!-- end -->)", re.DOTALL)


def refreshed(page: str, root: Path) -> str:
    """Return the page with the present content of the files that it encloses."""
    return ENCLOSURE.sub(lambda match: match[1] + _content(match[2], root) + match[3], page)


def _content(source: str, root: Path) -> str:
    if source == roofline.__name__:
        return roofline.text()
    path = root / source
    if not path.exists():
        raise FileNotFoundError(f"there is no {source}; make it with `delayssm reproduce {path.parent.name}`")
    return _summary(json.loads(path.read_text())) if path.name == "about.json" else path.read_text()


def _summary(about: dict[str, object]) -> str:
    """Return command, date, machine and duration in one line, and how much is done if that is not everything."""
    environment = about["environment"]
    assert isinstance(environment, dict)
    done, total = about["done"], about["total"]
    facts = [
        f"`{about['command']}`",
        str(about["date"]),
        f"{environment['machine']}, {environment['threads']} thread{'' if environment['threads'] == '1' else 's'}",
        f"torch {environment['torch']}",
        _duration(float(str(about["seconds"]))),
    ]
    unfinished = "" if done == total else f" · **{done} of {total} done**"
    return " · ".join(facts) + unfinished + "\n"


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(refreshed(path.read_text(), ROOT))
