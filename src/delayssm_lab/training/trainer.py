"""The training loop.

A run is a directory with a `config.json`, which determines everything else. `train` continues from the last checkpoint,
so that it starts a new run, resumes an interrupted one, and returns at once for a finished one. Each step depends only
on the weights, the moments and the number of the step: data and dropout are drawn from (seed, step). A run that was
killed and resumed therefore ends with the same bits as one that was not.
"""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import distributed, nn

from delayssm.allocator import keep_freed_memory
from delayssm.layers.norms import BatchNorm
from delayssm.layers.optim import param_groups
from delayssm_lab.display import Display, Messages, Silent, Status
from delayssm_lab.environment import Device, best_device, describe
from delayssm_lab.tasks.task import Batch, Split
from delayssm_lab.training import checkpoint, fingerprint, tracking
from delayssm_lab.training.checkpoint import TrainingProgress
from delayssm_lab.training.directory import check, check_loaded, check_origin, locked, tidy
from delayssm_lab.training.evaluate import available, batches, evaluate
from delayssm_lab.training.interrupt import NOTICE, Interrupted, Interruption
from delayssm_lab.training.logbook import (
    Summary,
    add_metrics,
    check_evaluations,
    ends_early,
    read_metrics,
    read_summary,
    write_metrics,
    write_summary,
)
from delayssm_lab.training.run import Run, load
from delayssm_lab.training.run import save as save_run
from delayssm_lab.training.tracking import Tracker


def train(directory: Path, display: Display, tracker: Tracker | None = None) -> Summary:
    """Train a run from its last checkpoint to its end and return its summary.

    After Ctrl-C, the current step ends, a checkpoint is written, and `Interrupted` is raised. Under `torchrun` or
    `accelerate launch`, the processes share each batch.

    Args:
        directory: Directory of the run.
        display: Where progress is shown.
        tracker: Experiment tracker to report each evaluation to.
    """
    tracking.check(tracker)
    run, environment = load(directory)
    if (summary := read_summary(directory, run)) is not None:
        return summary
    keep_freed_memory()
    accelerator = make_accelerator(run, log_with=tracker, project_dir=tracking.place(directory))
    if not accelerator.is_main_process:
        return Trainer(run, directory, accelerator, Silent()).finish()
    with locked(directory):
        tidy(directory)
        trainer = Trainer(run, directory, accelerator, display)
        if trainer.progress.step == 0:
            fingerprint.write(directory, run)
            digest = run.task.data_digest()
            save_run(directory, run, describe() | ({} if digest is None else {"data": digest}))
        else:
            check_origin(directory, run, environment)
            _warn_of_changes(environment, display)
        tracking.start(accelerator, run, directory, begins=trainer.progress.step == 0)
        try:
            return trainer.finish()
        finally:
            tracking.finish(accelerator)


def make_accelerator(run: Run, device: Device | None = None, **options: Any) -> Accelerator:
    """Return the accelerator that distributes a run over processes and devices; by default GPUs if there are any."""
    AcceleratorState._reset_state()  # it keeps the precision of the first run of the process
    # `cpu` is explicit, because without a GPU accelerate would let several processes each train alone.
    return Accelerator(mixed_precision=run.training.precision, cpu=(device or best_device()) == "cpu", **options)


_last_barrier: list[distributed.Work] = []


def barrier_before_exit() -> None:
    """Wait for the other processes of a run at its end, so that all of them can exit safely.

    The communication threads release a finished operation some time later. If theirs is the last reference, they
    release Python objects, and abort the process if the interpreter is already shutting down. This module therefore
    keeps a reference to the last operation.
    """
    if not _is_distributed():
        return
    if not _last_barrier:
        atexit.register(_destroy_process_group)
    barrier = distributed.barrier(async_op=True)
    barrier.wait()
    _last_barrier[:] = [barrier]


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _destroy_process_group() -> None:
    if _is_distributed():  # a script may have destroyed it already
        distributed.destroy_process_group()


class Trainer:
    """Training of a run in one process: the model, its optimiser and the progress."""

    def __init__(self, run: Run, directory: Path, accelerator: Accelerator, display: Display) -> None:
        self.run, self.training, self.directory = run, run.training, directory
        self.metric, self.steps = run.task.metric, run.steps
        self.accelerator, self.display = accelerator, display
        if run.training.batch_size < accelerator.num_processes:
            raise ValueError(
                f"a batch of {run.training.batch_size} cannot be shared by {accelerator.num_processes} processes; "
                "raise batch_size or use fewer processes"
            )
        saved = checkpoint.load_training(directory, run)  # first, because it tells if this is not the run of the files
        check_loaded(directory, run, check)
        model = run.initial_model()
        if accelerator.num_processes > 1:
            self._synchronise_batch_norms(model)
        self.config = checkpoint.configuration(model)
        self.parameters = sum(p.numel() for p in model.parameters())
        groups = param_groups(
            model,
            self.training.lr,
            weight_decay=self.training.weight_decay,
            dt_lr=self.training.dt_lr,
            dynamics_lr=self.training.dynamics_lr,
            decay_output=self.training.decay_output,
        )
        self.rates = [group["lr"] for group in groups]
        self.model: nn.Module
        self.optimiser: torch.optim.Optimizer
        self.model, self.optimiser = accelerator.prepare(model, torch.optim.AdamW(groups, fused=True))
        self.progress = TrainingProgress()
        if saved is not None:
            self.progress = saved.progress
            checkpoint.restore(self.model, self.optimiser, saved.tensors, saved.path)
        # Evaluations after the checkpoint will be repeated.
        self.metrics = [entry for entry in read_metrics(directory, run) if entry["step"] <= self.progress.step]
        check_evaluations(directory, self.metrics, self.progress, run)
        self.validation = self.metrics[-1][self.metric.value] if self.metrics else None

    def _synchronise_batch_norms(self, model: nn.Module) -> None:
        """Make batch norms use the statistics of the whole batch, whatever the number of processes."""
        norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
        batch, processes = self.training.batch_size, self.accelerator.num_processes
        if norms and batch % processes:
            raise ValueError(
                f"with batch norm, all processes need the same number of samples, but a batch of {batch} cannot be "
                f"shared equally by {processes}; make batch_size a multiple of {processes}"
            )
        for norm in norms:
            norm.everywhere = True

    def finish(self) -> Summary:
        """Train to the end of the run and return its summary."""
        if self.accelerator.is_main_process:
            write_metrics(self.directory, self.run, self.metrics)
        quiet = isinstance(self.display, Silent | Messages)  # another process has a user to talk to
        with Interruption("" if quiet else NOTICE) as interruption:
            if self.progress.step == self.steps and not (self.metrics and self.metrics[-1]["step"] == self.steps):
                self.evaluate()  # its line has been lost, or the run was made to end here
            while not self._done():
                began = time.perf_counter()
                self.step()
                step = self.progress.step
                if step % self.training.evaluate_every == 0 or step == self.steps:
                    self.evaluate()
                self._advance(seconds=time.perf_counter() - began)
                interrupted = self._sum([float(interruption.requested)])[0] > 0
                if step % self.training.checkpoint_every == 0 or self._done() or interrupted:
                    self.save()
                if interrupted and not self._done():
                    barrier_before_exit()
                    raise Interrupted(f"stopped after step {step} of {self.steps}")
        summary = self._summarise()
        barrier_before_exit()
        return summary

    def step(self) -> None:
        """Take one optimiser step on the next batch. Every process runs its share, `rows_at_once` rows at a time."""
        began, cpu_began = time.perf_counter(), time.process_time()
        training, step, processes = self.training, self.progress.step, self.accelerator.num_processes
        torch.manual_seed(_seed(self.run.seed, step, self.accelerator.process_index))
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * training.schedule.factor(step, self.steps)
        self.model.train()
        microbatches = list(self._batches(Split.TRAIN, step * training.batch_size, training.batch_size))
        (answers,) = self._sum([sum(batch.targets.numel() for batch in microbatches)])
        loss = points = 0.0
        for batch in microbatches:
            # Processes exchange their accumulated gradients once, with the last microbatch.
            with nullcontext() if batch is microbatches[-1] else self.accelerator.no_sync(self.model):
                score = batch.score(self.model)
                # Processes average their gradients. The factor turns that into the mean over all answers of the batch.
                self.accelerator.backward(score.loss * (processes / answers))
            loss, points = loss + float(score.loss.detach()), points + float(score.points)
        loss, points = self._sum([loss, points])
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} at step {step + 1}; try a lower learning rate, a longer warm-up or clipping"
            )
        if training.clip is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), training.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        elapsed, cpu_elapsed = time.perf_counter() - began, time.process_time() - cpu_began
        self._advance(step=1, step_seconds=elapsed, cpu_seconds=cpu_elapsed, loss=loss, points=points, count=answers)
        self.display.show(self._status(loss / answers, self.metric.of(points / answers)))

    def evaluate(self) -> None:
        """Evaluate on the validation samples, and keep the weights if they are the best so far."""
        loss, value = self.measure(Split.VALIDATION, self.training.validation_size)
        progress, name = self.progress, self.metric.value
        train_loss = progress.loss / progress.count if progress.count else math.nan
        train_value = self.metric.of(progress.points / progress.count) if progress.count else math.nan
        entry = {
            "step": progress.step,
            "train_loss": train_loss,
            f"train_{name}": train_value,
            "loss": loss,
            name: value,
            "seconds": progress.seconds,
            "cpu_seconds": progress.cpu_seconds,
        }
        self.metrics.append(entry)
        self.validation = value
        self.progress = replace(progress, loss=0.0, points=0.0, count=0.0)
        if progress.best is None or self.metric.better(value, progress.best):
            self.progress = replace(self.progress, best=value, best_step=progress.step)
            weights = checkpoint.weights(self.model)
            if self.accelerator.is_main_process:
                checkpoint.save_best(self.directory, self.config, weights, self.progress, self.run)
        if self.accelerator.is_main_process:
            add_metrics(self.directory, entry)
            self.accelerator.log(entry, step=progress.step)
        self.display.show(self._status(train_loss, train_value, evaluated=True))

    def measure(self, split: Split, count: int | None) -> tuple[float, float]:
        """Return mean loss and metric on at most `count` samples of a split; None means all."""
        totals = evaluate(self.model, self._batches(split, 0, available(self.run.task, split, count)))
        loss, points, answers = self._sum([totals.loss, totals.points, totals.answers])
        return loss / answers, self.metric.of(points / answers)

    def _batches(self, split: Split, first: int, count: int) -> Iterator[Batch]:
        """Yield this process's share of `count` samples, `rows_at_once` rows at a time."""
        process, processes = self.accelerator.process_index, self.accelerator.num_processes
        share = range(first, first + count)[process::processes]
        rows_at_once = self.training.rows_at_once or math.ceil(self.training.batch_size / processes)
        for batch in batches(self.run.task, self.run.seed, split, share, rows_at_once):
            yield batch.to(self.accelerator.device)

    def save(self) -> None:
        """Write a checkpoint from which the run can be resumed."""
        tensors = checkpoint.training_state(self.model, self.optimiser)
        if self.accelerator.is_main_process:
            checkpoint.save_training(self.directory, tensors, self.progress, self.run)

    def _done(self) -> bool:
        return self.progress.step >= self.steps or ends_early(self.run, self.metrics, self.progress.best_step)

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
            write_summary(self.directory, self.run, summary)
        return summary

    def test(self) -> float:
        """Return the metric of the best weights on the test samples, which are used for nothing else."""
        self.accelerator.wait_for_everyone()  # the first process may still be writing the weights
        path = checkpoint.best(self.directory)
        checkpoint.restore_weights(self.model, checkpoint.read_best(path, self.run), path)
        return self.measure(Split.TEST, self.training.test_size)[1]

    def _status(self, loss: float, value: float, evaluated: bool = False) -> Status:
        step, name = self.progress.step, self.metric.label
        return Status(step, self.steps, loss, name, value, self.validation, self._tokens_per_second(), evaluated)

    def _tokens_per_second(self) -> float:
        tokens = self.progress.step * self.training.batch_size * self.run.task.max_length
        return tokens / self.progress.step_seconds if self.progress.step_seconds else 0.0

    def _sum(self, values: Sequence[float]) -> list[float]:
        """Return sums over all processes."""
        if self.accelerator.num_processes == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.accelerator.device)
        sums: list[float] = self.accelerator.reduce(total).tolist()
        return sums

    def _advance(self, **amounts: float) -> None:
        """Add amounts to fields of the progress."""
        values = {name: getattr(self.progress, name) + amount for name, amount in amounts.items()}
        self.progress = replace(self.progress, **values)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _warn_of_changes(before: dict[str, str], display: Display) -> None:
    now = describe()
    changes = [f"{name} {before.get(name)} -> {value}" for name, value in now.items() if before.get(name) != value]
    if changes:
        display.say(f"The environment has changed since this run began. Last digits may differ: {', '.join(changes)}")
