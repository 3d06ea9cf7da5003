"""The study of language models at toy size."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from delayssm import TokenModel
from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig
from delayssm_lab.display import Silent
from delayssm_lab.models.specs import LlamaSpec, LSTMSpec, Spec, StateSpaceSpec
from delayssm_lab.recipes.delayed import LEARNING_RATES
from delayssm_lab.studies import language, trained
from delayssm_lab.studies.contest import Contest
from delayssm_lab.studies.language import LANGUAGE, SCREENING, Language, compressed_bits, language_contests, ranges
from delayssm_lab.studies.trained import Shelf, of_this_code
from delayssm_lab.study import Places
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import trainer as training
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run, Training
from delayssm_lab.training.sweep import Outcome
from tests.support.command_line import Here
from tests.support.runs import create
from tests.support.studies import make_at, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

TASK = FilmReviews(context=12, train_bytes=500)
DS4D = StateSpaceSpec(depth=1, block=BlockConfig(layer=DS4DConfig(8, 4, TASK.context)))


@pytest.fixture
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the runs of a sweep in this process, which saves the seconds in which others would begin."""

    def sweep(runs: Sequence[Run], root: Path, finished: Callable[[Path], None]) -> list[Outcome]:
        for run in runs:
            training.train(create(root / run.name, run), Silent())
            finished(root / run.name)
        return []

    monkeypatch.setattr(trained, "sweep", sweep)


def _contest(model: Spec, *seeds: int) -> Contest:
    settings = Training(steps=8, batch_size=4, evaluate_every=2, validation_size=4, test_size=4)
    run = Run(task=TASK, model=model, training=settings)
    return Contest(run, (1e-3,), seeds, short_shelf=SCREENING, whole_shelf=LANGUAGE)


@pytest.mark.usefixtures("data", "_no_processes")
def test_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    contests = _contest(DS4D, 0, 1), _contest(LSTMSpec(d_model=8, depth=1), 0)
    study, places = Language(contests, samples=5, written=30), Places(tmp_path / "work", tmp_path / "results")
    SCREENING.train(contests[0].screening(of_this_code(places)), places)
    _check_a_part(study, places)
    content = make_at(study, places)
    assert set(content) == {
        "about.json", "rates.md", "table.md", "curves.png", "ablations.md", "positions.md", "positions.png",
        "delays.png", "texts.md",
    }  # fmt: skip
    head, _, *rows = table_rows(content["table.md"])
    cells = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert list(cells) == ["DS4D", "LSTM", "entropy of single bytes", "lzma, after all training text"]
    assert cells["entropy of single bytes"]["test"] == f"{TASK.chance_level():.3f}"
    find = of_this_code(places)
    finals = contests[0].finals(find)
    records = [find(LANGUAGE, run) for run in finals]
    assert cells["DS4D"]["validation"].startswith(f"{np.mean([r.best for r in records if r]):.3f} ± ")
    assert cells["DS4D"]["seeds"] == "2"
    model = LANGUAGE.store(places).model(finals[0])
    bits = TASK.batch(0, Split.TEST, range(5)).bits(model)
    positions = {row[0]: row[1:] for row in table_rows(content["positions.md"])}
    assert positions["bytes before the target"] == [
        "DS4D", "DS4D, τ = 1 step", "DS4D, μ = 0", "DS4D, p = 0", "LSTM",
    ]  # fmt: skip
    assert positions["8 to 12"][0] == f"{bits[:, 7:].mean():.3f}"
    ablations = table_rows(content["ablations.md"])[2:]
    assert ablations[0] == ["DS4D", f"{bits.mean():.3f}", ""]
    assert all("±" in row[2] for row in ablations[1:4])
    bundle = places.work / "film-reviews"
    assert "`delayssm reproduce language`" in (bundle / "README.md").read_text()
    assert TokenModel.from_pretrained(bundle).vocab_size == 256
    capsys.readouterr()
    here = Here(monkeypatch, capsys)
    code, out, errors = here("write", bundle, "--prompt", "Bad ", "--length", 5, "--seed", 1)
    assert code == 0, errors
    assert out.startswith("Bad ")
    assert out == here("write", bundle, "--prompt", "Bad ", "--length", 5, "--seed", 1)[1]


def _check_a_part(study: Language, places: Places) -> None:
    """Check that the screening of one model gives a readable table."""
    assert study.progress(places) == (1, 2 + 3)
    content = dict(study.files(places))
    assert set(content) == {"rates.md", "table.md"}
    head, _, *rows = table_rows(content["table.md"])
    assert [row[0] for row in rows] == ["DS4D", "entropy of single bytes", "lzma, after all training text"]
    assert rows[0][head.index("validation")] == "–"
    assert rows[0][head.index("validation, a quarter of the bytes")] != "–"


def test_further_rates_are_tried_while_the_best_is_at_an_end() -> None:
    contest = Contest(_contest(DS4D, 0).run, rates=(1e-3, 4e-3), seeds=(0,), further=(1e-4, 1.6e-2, 6.4e-2))
    results: dict[float, float] = {}

    def find(shelf: Shelf, run: Run) -> Record | None:
        bits = results.get(run.training.lr)
        metrics = [] if bits is None else [{"step": 1.0, "bits_per_byte": bits}]
        return Record(run, {}, "", metrics, {}, [], [], []) if metrics else None

    def tried() -> list[float]:
        return [run.training.lr for run in contest.screening(find)]

    assert tried() == [1e-3, 4e-3]
    results |= {1e-3: 3.0, 4e-3: 2.0}
    assert tried() == [1e-3, 4e-3, 1.6e-2]
    results[1.6e-2] = 2.5
    assert tried() == [1e-3, 4e-3, 1.6e-2]
    assert {run.training.lr for run in contest.finals(find)} == {4e-3}
    results |= {1e-3: 1.0}
    assert tried() == [1e-4, 1e-3, 4e-3]


def test_every_model_has_the_same_chance() -> None:
    contests = language_contests()
    assert [contest.run.model_label for contest in contests] == ["DS4D", "S4D", "Mamba", "Llama"]
    assert len({(contest.run.training, contest.rates, contest.further, contest.seeds) for contest in contests}) == 1
    assert contests[0].rates == (*LEARNING_RATES, 4e-3)
    assert all(isinstance(contests[i].run.model, kind) for i, kind in ((0, StateSpaceSpec), (3, LlamaSpec)))


def test_a_compressor_uses_the_text_before() -> None:
    random = np.random.default_rng(0)
    text = random.bytes(3000)
    assert compressed_bits(b"", text) == pytest.approx(8, rel=0.02)
    assert compressed_bits(random.bytes(100_000) + text, text) < 2


@pytest.mark.parametrize("context", [1, 2, 12, 1024])
def test_ranges_leave_no_position_out(context: int) -> None:
    positions = [p for first, last in ranges(context) for p in range(first, last + 1)]
    assert positions == list(range(1, context + 1))
    assert len(ranges(1024)) == 10
    assert math.prod(ranges(1024)[-1]) == 512 * 1024
    assert language.PROMPTS[0] == ""
