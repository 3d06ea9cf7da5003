"""The measurements and the pages belong together."""

import re
from pathlib import Path

from delayssm_lab.studies.catalogue import gpu_measurements, measurements

ROOT = Path(__file__).parents[3]


def test_every_measurement_is_on_a_page() -> None:
    pages = [
        (ROOT / name).read_text()
        for name in ("BENCHMARKS.md", "docs/results/general.md", "docs/results/system.md", "README.md")
    ]
    for study in measurements():
        made = {path.name for path in (ROOT / "results" / study.name).glob("*.md")}
        for name in {"table.md", "about.json", *made}:
            assert any(f"<!-- results/{study.name}/{name} -->" in page for page in pages), (study.name, name)


def test_benchmarks_has_no_numbers_of_its_own() -> None:
    """Tables are enclosed, not typed."""
    page = (ROOT / "BENCHMARKS.md").read_text()
    assert "|" not in re.sub(r"<!-- results/.*?<!-- end -->", "", page, flags=re.DOTALL)


def test_gpu_measurements_have_names_of_their_own() -> None:
    names = {study.name.removesuffix("-cuda") for study in gpu_measurements()}
    assert all(study.name.endswith("-cuda") for study in gpu_measurements())
    assert names <= {study.name for study in measurements()}
