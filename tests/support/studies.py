"""Studies run from their first step to their files."""

import json
from pathlib import Path

from delayssm_lab.study import Places, Study


def make(study: Study, places: Path) -> dict[str, bytes]:
    """Run a study and return its files, after checking about.json and that pictures are pictures."""
    return make_at(study, Places(places / "work", places / "results"))


def make_at(study: Study, places: Places) -> dict[str, bytes]:
    """Do as `make` in given places."""
    study.run(places)
    study.write(places)
    out = places.results / study.name
    about = json.loads((out / "about.json").read_text())
    assert about["command"] == f"delayssm reproduce {study.name}"
    assert about["done"] == about["total"]
    assert about["environment"]["machine"]
    content = {path.name: path.read_bytes() for path in out.iterdir()}
    assert all(data.startswith(b"\x89PNG") for name, data in content.items() if name.endswith(".png"))
    return content


def table_rows(table: bytes) -> list[list[str]]:
    """Return the cells of a Markdown table, line by line."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.decode().splitlines()]
