"""DS4D with a main branch that remembers as long as its delays are apart.

The main branch forgets within about 1/p steps, and delays on a grid are L/H steps apart. Where 1/p is less than that,
as with the paper's p = 0.1 in some small runs, there are lags that no channel reaches without a detour. p = H/L leaves
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
from delayssm_lab.studies.general import evidence, heading, tested
from delayssm_lab.studies.study import File
from delayssm_lab.studies.trained import Trained, adopt
from delayssm_lab.training.run import Run

#: Small runs with delays on a grid that are at least 2/p steps apart; besides Path-X, of which nothing is learned.
WIDE: tuple[BenchmarkName, ...] = ("sc-ar", "sc-bi", "bidmc-rr", "bidmc-spo2", "listops", "text")
LABEL = "DS4D, p = H/L"


def spaced(run: Run) -> Run:
    """The same run with p = H/L."""
    assert isinstance(run.model, StateSpaceSpec)
    fraction = round(run.model.d_model / run.task.max_length, 3)
    return replace(run, model=run.model.with_layer(branch_fraction=fraction), label=LABEL)


def mini_runs() -> tuple[Run, ...]:
    """S4D and DS4D as they are, and DS4D with the other p."""
    return tuple(run for name in WIDE for run in (mini(name, "s4d"), mini(name, "ds4d"), spaced(mini(name, "ds4d"))))


@dataclass(frozen=True)
class BranchFraction(Trained):
    """Runs of both kinds, and of S4D."""

    name = "branch-fraction"
    title = "DS4D with branch fractions from the spacing of its delays (general benchmarks, mini scale)"

    runs: tuple[Run, ...] = field(default_factory=mini_runs)
    root: str = "general"

    def adopt(self, out: Path, work: Path) -> None:
        for place in (out, out.parent / "general"):
            adopt(self.runs, place / "runs.json", work / self.root)

    def files(self, work: Path) -> Iterable[File]:
        results = self.found(work)
        models = "S4D", "DS4D", LABEL
        rows = []
        for label, task in results.tasks.items():
            cells = (tested(task, results.cells.get((label, model))) for model in models)
            specs = (run.model for run in self.runs if run.task == task)
            layers = (spec.layer for spec in specs if isinstance(spec, StateSpaceSpec))
            fractions = (f"{layer.branch_fraction:g}" for layer in layers if isinstance(layer, DS4DConfig))
            rows.append([heading(task), *cells, *fractions])
        yield "table.md", tables.markdown(["task", *models, "p of DS4D", "H/L"], rows).encode()
        yield from evidence(results)
