"""DS4D with a branch fraction p = H/L, so that the main branch remembers as long as delays are apart.

The main branch forgets within about 1/p steps, and delays on a grid are L/H steps apart. Where 1/p is less than that,
as with the paper's p = 0.1 in some mini runs, there are lags that no channel reaches directly. With p = H/L there are
none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from delayssm.layers.layer import DS4DConfig
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.general import BenchmarkName, mini
from delayssm_lab.report import tables
from delayssm_lab.studies.general import metric_text, row_label, run_files
from delayssm_lab.studies.trained import Trained, adopt
from delayssm_lab.study import File
from delayssm_lab.training.run import Run

#: Mini runs with delays on a grid that are at least 2/p steps apart, except Path-X, which stays at the chance level.
COARSE_GRIDS: tuple[BenchmarkName, ...] = ("sc-ar", "sc-bi", "bidmc-rr", "bidmc-spo2", "listops", "text")
LABEL = "DS4D, p = H/L"


def with_matched_fraction(run: Run) -> Run:
    """Return the same run of DS4D with p = H/L."""
    assert isinstance(run.model, StateSpaceSpec)
    fraction = round(run.model.d_model / run.task.max_length, 3)
    return replace(run, model=run.model.with_layer(branch_fraction=fraction), label=LABEL)


def mini_runs() -> tuple[Run, ...]:
    """Return the mini runs of S4D, of DS4D with the paper's p, and of DS4D with p = H/L."""
    runs = []
    for name in COARSE_GRIDS:
        ds4d = mini(name, "ds4d")
        runs += [mini(name, "s4d"), ds4d, with_matched_fraction(ds4d)]
    return tuple(runs)


@dataclass(frozen=True)
class BranchFraction(Trained):
    """Test results of DS4D with either branch fraction, and of S4D."""

    name = "branch-fraction"
    title = "DS4D with branch fractions that match the spacing of its delays (general benchmarks, mini scale)"

    runs: tuple[Run, ...] = field(default_factory=mini_runs)
    root: str = "general"

    def adopt(self, out: Path, work: Path) -> None:
        for directory in (out, out.parent / "general"):
            adopt(self.runs, directory / "runs.json", work / self.root)

    def files(self, work: Path) -> Iterable[File]:
        results = self.collected(work)
        models = [model for model in ("S4D", "DS4D", LABEL) if model in results.models]
        rows = []
        for label, task in results.tasks.items():
            cells = (metric_text(task, results.cells.get((label, model))) for model in models)
            specs = (run.model for run in self.runs if run.task == task)
            layers = (spec.layer for spec in specs if isinstance(spec, StateSpaceSpec))
            fractions = (f"{layer.branch_fraction:g}" for layer in layers if isinstance(layer, DS4DConfig))
            rows.append([row_label(task), *cells, *fractions])
        yield "table.md", tables.markdown(["task", *models, "p of DS4D", "H/L"], rows).encode()
        yield from run_files(results)
