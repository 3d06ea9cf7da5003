"""Fuzzing of run directories: files of tiny runs are damaged, and then the run is read, resumed, extended or shown.

A case is accepted, and then what was read is what the files say, or refused by a clear error that names a file.
"""

import json
import os
import resource
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any
from unittest import mock

import torch
from hypothesis import strategies as st

from delayssm.storage import model_files
from delayssm.storage import tensors as tensor_file
from delayssm_lab.display import Silent
from delayssm_lab.report import figures, page
from delayssm_lab.report.collect import collect
from delayssm_lab.training import checkpoint, directory, evaluate, fingerprint, logbook, record
from delayssm_lab.training import trainer as training
from delayssm_lab.training.interrupt import Interrupted
from delayssm_lab.training.run import load
from delayssm_lab.training.store import Store
from tests.fuzz.mutations import Files, mutate
from tests.fuzz.outcomes import require_clear
from tests.support.runs import DS4D, LSTM, create, tiny

#: Seconds that no case may need, and bytes of memory that it may ask for.
SECONDS = 20
MEMORY = 1 << 30
#: Bytes of memory that runs believe to have: larger ones are refused, and others take milliseconds.
AVAILABLE = 4 << 20
#: Steps after which a resumed run is interrupted, because a mutated number of steps may be large.
MOST_STEPS = 6
RUNS = {"lstm": LSTM, "ds4d": DS4D}
NUMBERS = [0, -1, 1, 2, 3, 0.5, -0.0, 1e-300, 1e300, float("inf"), float("nan"), 2**31, 2**63, 10**40, 10**400, True]
Damage = Callable[[st.DataObject, Path], None]
WORDS = ["", "x", "\0", "\n", "\ud800", "nan", "DS4D", "../x", "a" * 300, None, [], {}, [[]], {"kind": "Copy"}]


def case(data: st.DataObject, tmp: Path) -> str:
    """Do one thing with one mutated run directory below `tmp`, which is empty before and after.

    Return "accepted" or "clear error". Raise AssertionError otherwise.
    """
    kind = data.draw(st.sampled_from(sorted(RUNS)), "model")
    state = data.draw(st.sampled_from(["finished", "interrupted", "begun"]), "state")
    place = tmp / "runs" / "run"
    try:
        put(place, pristine(kind, state))
        for _ in range(data.draw(st.sampled_from([1, 1, 1, 2, 3]), "mutations")):
            _damage(data, place)
        action = _load if _takes_long(place) else data.draw(st.sampled_from(ACTIONS), "action")
        with ExitStack() as stack:
            stack.enter_context(mock.patch("os.fsync"))  # no case ends in a power failure
            stack.enter_context(mock.patch("delayssm_lab.environment.revision", return_value="none"))
            stack.enter_context(mock.patch("delayssm_lab.training.memory.total_memory", return_value=AVAILABLE))
            stack.enter_context(mock.patch.object(training, "Interruption", _AfterSteps))
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")
            stack.enter_context(limits())
            outcome = _outcome(lambda: action(place, data), place)
        assert not caught, [str(warning.message) for warning in caught]
        assert not list(tmp.rglob("*.part")), "files are left that were not written to their end"
        return outcome
    finally:
        shutil.rmtree(tmp / "runs", ignore_errors=True)
        shutil.rmtree(tmp / "store", ignore_errors=True)


def _outcome(action: Callable[[], None], place: Path) -> str:
    try:
        action()
    except AssertionError:
        raise
    except Exception as error:
        require_clear(error, str(place.parent), "the loss is", "training has diverged")  # changed tensors do that
        return "clear error"
    return "accepted"


def _takes_long(place: Path) -> bool:
    """Return whether a run is a valid one that has more validation samples than there is time for."""
    try:
        return (load(place)[0].training.validation_size or 0) > 100
    except Exception:
        return False


class _AfterSteps:
    """Asks a run to stop after some steps."""

    def __init__(self, notice: str = "") -> None:
        self._asked = 0

    def __enter__(self) -> "_AfterSteps":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def requested(self) -> bool:
        self._asked += 1
        return self._asked >= MOST_STEPS


# What is done with a directory


def _load(place: Path, data: st.DataObject) -> None:
    run, environment = load(place)
    content = json.loads((place / "config.json").read_bytes())
    assert environment == content["environment"]
    assert run.seed == content["run"].get("seed", 0)


def _read(place: Path, data: st.DataObject) -> None:
    run, _ = load(place)
    for entry in logbook.read_metrics(place, run):
        assert all(isinstance(value, float | int) for value in entry.values())
        assert entry["step"] == int(entry["step"])
    if (summary := logbook.read_summary(place, run)) is not None:
        assert summary == {k: v for k, v in json.loads((place / "summary.json").read_text()).items() if k != "run"}
        assert f"{summary[run.task.metric.value]:.4f} {summary['best_step']:g} {summary['seconds']:.1f}"
    assert all(isinstance(value, float) for value in fingerprint.read(place, run))


def _load_model(place: Path, data: st.DataObject) -> None:
    model = evaluate.best_model(place, load(place)[0])
    saved = model_files.read(checkpoint.best(place)).tensors
    assert saved.keys() == model.state_dict().keys()
    for name, t in model.state_dict().items():
        assert t.dtype == saved[name].dtype
        assert torch.equal(t.view(torch.uint8) if t.ndim else t, saved[name].view(torch.uint8) if t.ndim else t), name


def _resume(place: Path, data: st.DataObject) -> None:
    if (end := logbook.summary_path(place)).is_file() and data.draw(st.booleans(), "without its end"):
        end.unlink()
    try:
        summary = training.train(place, Silent())
    except Interrupted:
        assert not logbook.summary_path(place).exists()
        return
    run = load(place)[0]
    assert logbook.read_summary(place, run) == summary
    metrics = logbook.read_metrics(place, run)
    assert 0 < summary["steps"] <= run.steps or metrics == []  # a summary alone is believed
    if (best := checkpoint.best(place)).exists():
        model_files.read(best)


def _extend(place: Path, data: st.DataObject) -> None:
    steps = data.draw(st.sampled_from([1, 4, 5, 6, 8, 10**6]), "steps")
    directory.extend(place, steps)
    assert load(place)[0].steps == steps
    _resume(place, data)


def _collect(place: Path, data: st.DataObject) -> None:
    if data.draw(st.booleans(), "with an undamaged run"):
        put(place.with_name("good"), pristine("lstm", "finished"))
    try:
        results = collect([place.parent])
    finally:
        shutil.rmtree(place.with_name("good"), ignore_errors=True)
    assert len(results.records) + len(results.unstarted) + len(results.left_out) >= 1
    assert page.to_markdown(results)
    assert page._cells_as_json(results)
    if data.draw(st.integers(0, 19), "figures") == 0:
        figures.learning_curves(results)
        figures.learned_delays(results)


def _keep(place: Path, data: st.DataObject) -> None:
    store = Store(place.parents[1] / "store")
    store.add(place, weights=data.draw(st.booleans(), "weights"))
    run = load(place)[0]
    found = store.read(run)
    assert found is not None
    again, made = json.dumps(found.to_json()), record.of_directory(place)
    assert made is not None
    assert again == json.dumps(made.to_json())


ACTIONS = [_load, *[_read] * 2, *[_load_model] * 3, *[_resume] * 4, *[_extend] * 2, _collect, _keep]


# How directories are made and damaged


@cache
def pristine(kind: str, state: str, seed: int = 0) -> Files:
    """Return the files of a run: finished, interrupted after its third step of four, or not begun."""
    run = tiny(RUNS[kind], seed, steps=4, batch_size=2, evaluate_every=2, checkpoint_every=1, validation_size=2)
    with TemporaryDirectory() as folder, mock.patch("delayssm_lab.environment.revision", return_value="none"):
        place = create(Path(folder) / "run", run)
        if state == "interrupted":
            patched = mock.patch.object(training, "Interruption", _AfterSteps)
            with mock.patch(f"{__name__}.MOST_STEPS", 3), patched, suppress(Interrupted):
                training.train(place, Silent())
        elif state == "finished":
            training.train(place, Silent())
        (place / ".lock").unlink(missing_ok=True)
        return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def put(place: Path, files: Files) -> None:
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)


def _damage(data: st.DataObject, place: Path) -> None:
    """Mutate, replace, swap or remove one file of a run."""
    names = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    if not names:
        return
    path = place / data.draw(st.sampled_from(names), "file")
    actions: list[Damage] = [_bytes, _remove, _to_directory, _swap, _foreign]
    actions += [*[_tensors] * 6, *[_about] * 3] if path.suffix == ".safetensors" else [_lines, *[_json] * 6]
    data.draw(st.sampled_from(actions), "damage")(data, path)


def _root(path: Path) -> Path:
    return path.parent.parent if path.parent.name in ("best", "last") else path.parent


def _foreign(data: st.DataObject, path: Path) -> None:
    """Replace a file by that of another run."""
    others = [(kind, "finished", seed) for kind in sorted(RUNS) for seed in (0, 3)]
    files = pristine(*data.draw(st.sampled_from(others), "other run"))
    path.write_bytes(files.get(str(path.relative_to(_root(path))), b""))


def _bytes(data: st.DataObject, path: Path) -> None:
    path.write_bytes(mutate(data, path.read_bytes()))


def _lines(data: st.DataObject, path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    at = data.draw(st.integers(0, len(lines) - 1), "line")
    new = data.draw(st.sampled_from([[], [lines[at]] * 2, [b"\n"], [b"{}\n"], [b"[" * 100_000], [b'{"run": {}}\n']]))
    path.write_bytes(b"".join([*lines[:at], *new, *lines[at + 1 :]]))


def _remove(data: st.DataObject, path: Path) -> None:
    path.unlink()


def _to_directory(data: st.DataObject, path: Path) -> None:
    """Replace a file, or its folder, by something else."""
    path.unlink()
    if path.parent.name in ("best", "last") and data.draw(st.booleans(), "folder"):
        shutil.rmtree(path.parent)
        path.parent.write_bytes(b"")
    else:
        path.mkdir()


def _swap(data: st.DataObject, path: Path) -> None:
    others = sorted(found for found in _root(path).rglob("*") if found.is_file())
    other = data.draw(st.sampled_from(others), "other file")
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def _json(data: st.DataObject, path: Path) -> None:
    """Change a value somewhere in a file of JSON, or add, remove or repeat a key."""
    text = path.read_text(errors="replace")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    at = data.draw(st.integers(0, max(0, len(lines) - 1)), "line")
    try:
        content = json.loads(lines[at])
    except (ValueError, IndexError, RecursionError):
        return
    lines[at] = json.dumps(_changed(data, content), indent=None if path.suffix == ".jsonl" else 1)
    path.write_text("".join(f"{line}\n" for line in lines))


def _changed(data: st.DataObject, content: Any) -> Any:
    """Return JSON-able values with one of them changed."""
    new = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS))
    places = list(_containers(content))
    if not places:
        return data.draw(new)
    container = data.draw(st.sampled_from(places), "where")
    keys = sorted(container) if isinstance(container, dict) else list(range(len(container)))
    action = data.draw(st.sampled_from(["set"] * 5 + ["remove", "add"]), "change")
    if action == "add" or not keys:
        if isinstance(container, dict):
            container[data.draw(st.sampled_from(["new", "", "\ud800", "kind", "step", "run", "steps"]))] = data.draw(
                new
            )
        else:
            container.append(data.draw(new))
    else:
        key = data.draw(st.sampled_from(keys), "key")
        if action == "set":
            container[key] = data.draw(new)
        else:
            del container[key]
    return content


def _containers(content: Any) -> Iterator[Any]:
    if isinstance(content, dict | list):
        yield content
        for inner in content.values() if isinstance(content, dict) else content:
            yield from _containers(inner)


def _tensors(data: st.DataObject, path: Path) -> None:
    """Change a tensor of a checkpoint and write it with a valid checksum."""
    try:
        tensors, about = tensor_file.read(path, _kind(path))
    except (ValueError, OSError):
        return
    name = data.draw(st.sampled_from(sorted(tensors) or ["x"]), "tensor")
    tensors.setdefault(name, torch.zeros(1))
    t = tensors[name]
    changes: dict[str, Callable[[], torch.Tensor]] = {
        "nan": lambda: torch.full_like(t, float("nan")) if t.is_floating_point() else t + 1,
        "large": lambda: torch.full_like(t, 1e38) if t.is_floating_point() else t - 10**9,
        "longer": lambda: torch.cat([t.reshape(-1), t.reshape(-1)]),
        "scalar": lambda: t.reshape(-1)[:1].sum(),
        "empty": lambda: t.reshape(-1)[:0],
        "integers": lambda: t.to(torch.int32),
        "doubles": lambda: t.double(),
        "halves": lambda: t.to(torch.bfloat16),
        "complex": lambda: t.to(torch.complex64),
    }
    action = data.draw(st.sampled_from([*changes, "remove", "add"]), "change")
    if action == "remove":
        del tensors[name]
    elif action == "add":
        tensors[f"{name}.new"] = t.clone()
    else:
        tensors[name] = changes[action]()
    tensor_file.write(path, _kind(path), tensors, about)


def _about(data: st.DataObject, path: Path) -> None:
    """Change what a checkpoint says about itself beside its tensors."""
    try:
        tensors, about = tensor_file.read(path, _kind(path))
    except (ValueError, OSError):
        return
    if not about:
        return
    key = data.draw(st.sampled_from(sorted(about)), "entry")
    action = data.draw(st.sampled_from(["json", "json", "text", "remove"]), "change")
    if action == "json":
        with suppress(ValueError):  # it was damaged before
            about[key] = json.dumps(_changed(data, json.loads(about[key])))
    elif action == "remove":
        del about[key]
    else:
        about[key] = mutate(data, about[key].encode())[:1000].decode(errors="replace")
    tensor_file.write(path, _kind(path), tensors, about)


def _kind(path: Path) -> str:
    """Return the format of a file with tensors."""
    return model_files.FORMAT if path.name == checkpoint.best(path).name else checkpoint.FORMAT


@contextmanager
def limits() -> Iterator[None]:
    """Refuse much more memory than there is in use already, and stop what takes too long."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"takes more than {SECONDS} s")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
