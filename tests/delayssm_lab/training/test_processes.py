"""Tests of runs that several processes or threads train."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from delayssm_lab.display import Silent
from delayssm_lab.training import trainer as training
from delayssm_lab.training.directory import Busy
from tests.support import runs
from tests.support.runs import (
    DS4D,
    IMPORTABLE,
    LSTM,
    create,
    finish,
    run,
    start,
    tiny,
)

pytestmark = pytest.mark.usefixtures("one_thread")

TWO_PROCESSES = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    settings = {"batch_size": 7, "validation_size": 9, "rows_at_once": 3}  # shares are unequal
    run_ = tiny(DS4D.with_layer(d_model=16, dropout=0.0), **settings)
    one, two = create(tmp_path / "one", run_), create(tmp_path / "two", run_)
    runs.train_to(two, 3)  # begun alone, and the rest by two
    code, out, errors = run(*TWO_PROCESSES, "-m", "delayssm_lab", "resume", two)
    assert code == 0, errors
    assert out.count("Best accuracy") == 1
    training.train(one, Silent())
    a, b = runs.state(one), runs.state(two)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-5, rtol=1e-4)
    for x, y in zip(runs.metrics_without_times(one), runs.metrics_without_times(two), strict=True):
        assert x == pytest.approx(y, rel=1e-5)


SHARDED = """
import sys, torch
from pathlib import Path
from torch.distributed.fsdp import fully_shard
from delayssm_lab.training import checkpoint, trainer as training
from delayssm_lab.display import Silent
from tests.support.runs import DS4D, tiny

class Sharding:
    # Does what accelerate does with GPUs: the model is sharded, and the optimiser holds the shards.
    def __init__(self, accelerator): self.inner = accelerator
    def __getattr__(self, name): return getattr(self.inner, name)
    def prepare(self, model, optimiser):
        groups = [{k: v for k, v in g.items() if k != "params"} for g in optimiser.param_groups]
        names = {p: n for n, p in model.named_parameters()}
        members = [[names[p] for p in g["params"]] for g in optimiser.param_groups]
        for block in model.backbone.blocks:
            fully_shard(block)
        fully_shard(model)
        by_name = dict(model.named_parameters())
        groups = [{**g, "params": [by_name[n] for n in m]} for g, m in zip(groups, members)]
        return model, self.inner.prepare(torch.optim.AdamW(groups))
    def no_sync(self, model):
        import contextlib
        return contextlib.nullcontext()

directory = Path(sys.argv[1])
run = tiny(DS4D.with_layer(d_model=16, dropout=0.0))
for stop in (6, 12):  # to the middle, and from its checkpoint to the end
    accelerator = Sharding(training.make_accelerator(run))
    trainer = training.Trainer(run, directory, accelerator, Silent())
    shards = [p for p in trainer.model.parameters() if type(p).__name__ == "DTensor"]
    assert shards and sum(p.to_local().numel() for p in shards) < sum(p.numel() for p in shards)
    while trainer.progress.step < stop:
        trainer.step()
    trainer.save()
    training.barrier_before_exit()
"""


@pytest.mark.slow
def test_a_sharded_model_trains_as_a_whole_one(tmp_path: Path) -> None:
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    code, _, errors = finish(start(*TWO_PROCESSES, script, tmp_path / "two", environment=IMPORTABLE))
    assert code == 0, errors
    training.train(create(tmp_path / "one", tiny(DS4D.with_layer(d_model=16, dropout=0.0))), Silent())
    a, b = runs.state(tmp_path / "one"), runs.state(tmp_path / "two")
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-5, rtol=1e-4)


def test_training_in_a_thread(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny(LSTM))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(training.train, directory, Silent()).result()["steps"] == 12


def test_one_process_at_a_time(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny())
    with FileLock(directory / ".lock"), pytest.raises(Busy, match="another process is training the run"):
        training.train(directory, Silent())
