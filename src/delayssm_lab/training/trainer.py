"""The training loop.

A run is a directory: `config.json` says what it is, and everything else follows from that. Training it means to go on
from wherever it is, so a new run, a resumed one and one that is finished are the same call. Each step depends on the
weights, the moments and its number alone (data and dropout are drawn from (seed, step)), so a run that was killed and
resumed ends with the same bits as one that was not.
"""

from __future__ import annotations

import atexit
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from filelock import FileLock, Timeout
from torch import distributed, nn

from delayssm.allocator import keep_freed_memory
from delayssm.layers.norms import BatchNorm
from delayssm.layers.optim import param_groups
from delayssm.storage import files
from delayssm_lab.display import Display, Silent, Status
from delayssm_lab.environment import Device, best_device, describe
from delayssm_lab.tasks.task import Batch, Split
from delayssm_lab.training import checkpoint
from delayssm_lab.training.checkpoint import Progress
from delayssm_lab.training.evaluate import evaluate
from delayssm_lab.training.interrupt import Interrupted, Interruption
from delayssm_lab.training.run import Run, load
from delayssm_lab.training.run import save as save_run

Summary = dict[str, float]


class Busy(OSError):
    """Two processes cannot train the same run."""


def create(directory: Path, run: Run) -> None:
    """Make the directory of a run, unless it is there already. Another run there is an error."""
    if (directory / "config.json").exists():
        found, _ = load(directory)
        if found != run:
            raise FileExistsError(f"{directory} holds another run; choose another directory or delete that one")
        return
    save_run(directory, run, {})


def train(directory: Path, display: Display) -> Summary:
    """Take a run from where it is to its end, and give its summary.

    Ctrl-C ends the current step, saves, and raises `Interrupted`. Under `torchrun` or `accelerate launch` the batch is
    shared among the processes.
    """
    run, environment = load(directory)
    if (summary := read_summary(directory)) is not None:
        return summary
    keep_freed_memory()
    accelerator = make_accelerator(run)
    if not accelerator.is_main_process:
        return Trainer(run, directory, accelerator, Silent()).finish()
    try:
        with FileLock(directory / ".lock", timeout=0):
            trainer = Trainer(run, directory, accelerator, display)
            if trainer.progress.step == 0:
                save_run(directory, run, describe())
            else:
                _warn_of_changes(environment, display)
            return trainer.finish()
    except Timeout:
        raise Busy(f"another process is training in {directory}") from None


def make_accelerator(run: Run, device: Device | None = None) -> Accelerator:
    """What spreads a run over processes and devices, GPUs if there are any. Runs may differ in precision."""
    AcceleratorState._reset_state()
    # Said explicitly, because without a GPU accelerate would let several processes each train alone.
    return Accelerator(mixed_precision=run.training.precision, cpu=(device or best_device()) == "cpu")


_last_word: list[distributed.Work] = []


def part() -> None:
    """The last thing the processes of a run do together, unless they train another one.

    The threads that carry what processes say to each other drop it a little later. What they drop can be Python's, and
    if Python is ending by then, they abort the process. So the last word is kept here, and is not theirs to drop.
    """
    if not _together():
        return
    if not _last_word:
        atexit.register(_leave)
    word = distributed.barrier(async_op=True)
    word.wait()
    _last_word[:] = [word]


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _leave() -> None:
    if _together():  # a script may have ended it itself
        distributed.destroy_process_group()


def read_summary(directory: Path) -> Summary | None:
    """What a finished run came to; None if it is not finished."""
    path = directory / "summary.json"
    if not path.exists():
        return None
    summary: Summary = json.loads(path.read_text())
    return summary


def read_metrics(directory: Path) -> list[dict[str, float]]:
    """One entry for each evaluation so far."""
    path = directory / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may have been cut off by a crash


class Trainer:
    """One process of a run: a model, its optimiser, and where it is."""

    def __init__(self, run: Run, directory: Path, accelerator: Accelerator, display: Display) -> None:
        self.run, self.training, self.directory = run, run.training, directory
        self.metric, self.steps = run.task.metric, run.steps
        self.accelerator, self.display = accelerator, display
        if run.training.batch_size < accelerator.num_processes:
            raise ValueError(
                f"a batch of {run.training.batch_size} cannot be shared by {accelerator.num_processes} processes; "
                "raise batch_size or use fewer"
            )
        model = run.initial_model()
        if accelerator.num_processes > 1:
            self._share_statistics(model)
        self.parameters = sum(p.numel() for p in model.parameters())
        groups = param_groups(
            model,
            self.training.lr,
            weight_decay=self.training.weight_decay,
            dt_lr=self.training.dt_lr,
            dynamics_lr=self.training.dynamics_lr,
        )
        self.rates = [group["lr"] for group in groups]
        self.model: nn.Module
        self.optimiser: torch.optim.Optimizer
        self.model, self.optimiser = accelerator.prepare(model, torch.optim.AdamW(groups, fused=True))
        self.progress = Progress()
        if (saved := checkpoint.load_training(directory)) is not None:
            tensors, self.progress = saved
            checkpoint.restore(self.model, self.optimiser, tensors)
        # What was measured after the checkpoint is about to be measured again.
        self.metrics = [entry for entry in read_metrics(directory) if entry["step"] <= self.progress.step]
        self.validation = self.metrics[-1][self.metric.value] if self.metrics else None

    def _share_statistics(self, model: nn.Module) -> None:
        """Let batch norms see the whole batch, so that nothing depends on the number of processes."""
        norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
        batch, processes = self.training.batch_size, self.accelerator.num_processes
        if norms and batch % processes:
            raise ValueError(
                f"with batch norm, all processes must have equally many samples: a batch of {batch} cannot be shared "
                f"by {processes}; make it a multiple of that"
            )
        for norm in norms:
            norm.everywhere = True

    def finish(self) -> Summary:
        """Train to the end."""
        if self.accelerator.is_main_process:
            lines = "".join(f"{json.dumps(entry)}\n" for entry in self.metrics)
            files.write(self.directory / "metrics.jsonl", lines.encode())
        with Interruption() as interruption:
            while not self._done():
                began = time.perf_counter()
                self.step()
                step = self.progress.step
                if step % self.training.evaluate_every == 0 or step == self.steps:
                    self.evaluate()
                self._add(seconds=time.perf_counter() - began)
                interrupted = self._sum([float(interruption.wanted)])[0] > 0
                if step % self.training.checkpoint_every == 0 or self._done() or interrupted:
                    self.save()
                if interrupted and not self._done():
                    part()
                    raise Interrupted(f"stopped after step {step} of {self.steps}")
        summary = self._summarise()
        part()
        return summary

    def step(self) -> None:
        """One optimiser step on the next batch: every process takes its rows, a few at once."""
        began = time.perf_counter()
        training, step, processes = self.training, self.progress.step, self.accelerator.num_processes
        torch.manual_seed(_seed(self.run.seed, step, self.accelerator.process_index))
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * training.schedule.factor(step, self.steps)
        self.model.train()
        batches = list(self._batches(Split.TRAIN, step * training.batch_size, training.batch_size))
        (answers,) = self._sum([sum(batch.targets.numel() for batch in batches)])
        loss = points = 0.0
        for batch in batches:
            alone = batch is not batches[-1]  # gradients are exchanged once, with the last rows
            with self.accelerator.no_sync(self.model) if alone else nullcontext():
                found = batch.score(self.model)
                # Processes average their gradients; the factor makes that the mean over all answers of the batch.
                self.accelerator.backward(found.loss * (processes / answers))
            loss, points = loss + float(found.loss.detach()), points + float(found.points)
        loss, points = self._sum([loss, points])
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} at step {step + 1}; a lower learning rate, a longer warm-up or clipping may help"
            )
        if training.clip is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), training.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        elapsed = time.perf_counter() - began
        self._add(step=1, step_seconds=elapsed, loss=loss, points=points, count=answers)
        self.display.show(self._status(loss / answers, self.metric.of(points / answers)))

    def evaluate(self) -> None:
        """Measure on the validation samples, and keep the weights if they are the best so far."""
        loss, value = self.measure(Split.VALIDATION, self.training.validation_size)
        progress, name = self.progress, self.metric.value
        entry = {
            "step": progress.step,
            "train_loss": progress.loss / progress.count,
            f"train_{name}": self.metric.of(progress.points / progress.count),
            "loss": loss,
            name: value,
            "seconds": progress.seconds,
        }
        self.metrics.append(entry)
        self.validation = value
        self.progress = replace(progress, loss=0.0, points=0.0, count=0.0)
        if progress.best is None or self.metric.better(value, progress.best):
            self.progress = replace(self.progress, best=value, best_step=progress.step)
            weights = checkpoint.weights(self.model)
            if self.accelerator.is_main_process:
                checkpoint.write(checkpoint.best(self.directory), weights, self.progress)
        if self.accelerator.is_main_process:
            files.append(self.directory / "metrics.jsonl", json.dumps(entry))
        self.display.show(self._status(entry["train_loss"], entry[f"train_{name}"], evaluated=True))

    def measure(self, split: Split, count: int | None) -> tuple[float, float]:
        """Return mean loss and metric on the first `count` samples of a split, if there are as many; None: on all."""
        size = self.run.task.size(split)
        if count is None and size is None:
            raise ValueError(f"{self.run.task.label} has no end of samples; say how many to evaluate on")
        count = min(n for n in (count, size) if n is not None)
        totals = evaluate(self.model, self._batches(split, 0, count))
        loss, points, answers = self._sum([totals.loss, totals.points, totals.answers])
        return loss / answers, self.metric.of(points / answers)

    def _batches(self, split: Split, first: int, count: int) -> Iterator[Batch]:
        """The share of this process in `count` samples, as many at once as may be."""
        mine = range(first, first + count)[self.accelerator.process_index :: self.accelerator.num_processes]
        at_once = self.training.rows_at_once or -(-self.training.batch_size // self.accelerator.num_processes)
        for i in range(0, len(mine), at_once):
            batch = self.run.task.batch(self.run.seed, split, mine[i : i + at_once])
            yield batch.to(self.accelerator.device)

    def save(self) -> None:
        """Write a checkpoint to resume from."""
        tensors = checkpoint.training_state(self.model, self.optimiser)
        if self.accelerator.is_main_process:
            checkpoint.save_training(self.directory, tensors, self.progress)

    def _done(self) -> bool:
        target, patience = self.training.target, self.training.patience
        reached = target is not None and self.validation is not None and not self.metric.better(target, self.validation)
        fruitless = sum(entry["step"] > self.progress.best_step for entry in self.metrics)
        hopeless = patience is not None and fruitless >= patience
        return reached or hopeless or self.progress.step >= self.steps

    def _summarise(self) -> Summary:
        progress, name = self.progress, self.metric.value
        assert progress.best is not None
        summary: Summary = {
            name: progress.best,
            "best_step": progress.best_step,
            f"final_{name}": self.metrics[-1][name],
            **({f"test_{name}": self.test()} if self.run.task.size(Split.TEST) else {}),
            "steps": progress.step,
            "parameters": self.parameters,
            "seconds": progress.seconds,
            "tokens_per_second": self._tokens_per_second(),
        }
        if self.accelerator.is_main_process:
            files.write(self.directory / "summary.json", json.dumps(summary, indent=2).encode())
        return summary

    def test(self) -> float:
        """The metric of the best weights on test samples, which nothing was chosen by."""
        self.accelerator.wait_for_everyone()  # until the first process has written them
        best, _ = checkpoint.read(checkpoint.best(self.directory))
        checkpoint.restore_weights(self.model, best)
        return self.measure(Split.TEST, self.training.test_size)[1]

    def _status(self, loss: float, value: float, evaluated: bool = False) -> Status:
        step, name = self.progress.step, self.metric.value
        return Status(step, self.steps, loss, name, value, self.validation, self._tokens_per_second(), evaluated)

    def _tokens_per_second(self) -> float:
        tokens = self.progress.step * self.training.batch_size * self.run.task.max_length
        return tokens / self.progress.step_seconds

    def _sum(self, values: Sequence[float]) -> list[float]:
        """Over all processes."""
        if self.accelerator.num_processes == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.accelerator.device)
        found: list[float] = self.accelerator.reduce(total).tolist()
        return found

    def _add(self, **amounts: float) -> None:
        now = {name: getattr(self.progress, name) + amount for name, amount in amounts.items()}
        self.progress = replace(self.progress, **now)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _warn_of_changes(before: dict[str, str], display: Display) -> None:
    now = describe()
    changes = [f"{name} {before.get(name)} -> {value}" for name, value in now.items() if before.get(name) != value]
    if changes:
        display.say(f"Not as when this run began, so last digits may differ: {', '.join(changes)}")
