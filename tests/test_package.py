"""The public names, what is imported when, and which way dependencies point."""

import ast
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import delayssm

ROOT = Path(__file__).parents[1]

#: The parts of each package. Each may use itself and those before it.
ORDER = {
    "delayssm": [
        "config", "backends", "storage", "system", "layers", "models", "suggestion", "allocator", "hf", "estimators",
        "export",
    ],
    "delayssm_lab": [
        "environment", "display", "pretrained", "data", "models", "tasks", "training", "listener", "recipes", "report",
        "study", "measure", "studies", "cli", "__main__",
    ],
}  # fmt: skip

#: What only the laboratory and the extras need.
LABORATORY = [
    "accelerate", "cattrs", "filelock", "jinja2", "matplotlib", "PIL", "pooch", "psutil", "ray", "rich",
    "sklearn", "transformers", "tyro",
]  # fmt: skip


def _run(code: str, directory: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, **environment},
        check=False,
    )


def test_public_names() -> None:
    assert sorted(delayssm.__all__) == [
        "Block", "Config", "DS4D", "DelayEvidence", "DelaySSM", "DeltaMemory", "DiagonalSSM", "PairModel",
        "PooledModel", "Pretrained", "Rule", "S4D", "SeriesModel", "Spans", "Stack", "Streaming", "TokenModel",
        "Tokens", "Values", "backend", "check_finite", "delay_evidence", "keep_freed_memory", "match_width",
        "param_groups", "suggest_delays",
    ]  # fmt: skip
    assert all(hasattr(delayssm, name) for name in delayssm.__all__)


def test_version_is_the_distribution_version() -> None:
    from importlib.metadata import version

    assert version("delayssm") == delayssm.__version__


def test_import_is_light() -> None:
    heavy = (
        "numba", "triton", "transformers", "matplotlib", "scipy", "sklearn", "accelerate", "ray", "rich", "onnx",
        "onnxruntime",
    )  # fmt: skip
    for imported in ("delayssm", "delayssm.export"):
        done = _run(f"import {imported}, sys; print([m for m in {heavy} if m in sys.modules])")
        assert done.stdout.strip() == "[]", done.stderr


def _imports(path: Path) -> list[str]:
    """Return the full names of all that a file imports."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("package", ORDER)
def test_dependencies_point_downwards(package: str) -> None:
    order, source = ORDER[package], ROOT / "src" / package
    parts = {path: path.relative_to(source).parts[0].removesuffix(".py") for path in source.rglob("*.py")}
    assert set(parts.values()) - {"__init__"} == set(order)
    wrong = []
    for path, part in parts.items():
        allowed = order if part == "__init__" else order[: order.index(part) + 1]
        used = [name for name in _imports(path) if name.startswith(f"{package}.")]
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in used if name.split(".")[1] not in allowed]
    assert wrong == []


def test_the_library_does_not_know_the_laboratory() -> None:
    for path in (ROOT / "src" / "delayssm").rglob("*.py"):
        assert not [name for name in _imports(path) if name.split(".")[0] == "delayssm_lab"], path


def test_the_library_works_without_what_the_laboratory_needs(tmp_path: Path) -> None:
    code = f"""
import sys
for name in {[*LABORATORY, "delayssm_lab"]}:
    sys.modules[name] = None
import torch
from delayssm import DS4D, Block, Stack, TokenModel, keep_freed_memory, param_groups

keep_freed_memory()
model = TokenModel(9, Stack([Block(DS4D(8, 4, 30)), Block(DS4D(8, 4, 30))]))
tokens = torch.randint(0, 9, (2, 20))
optimiser = torch.optim.AdamW(param_groups(model, 1e-3))
before = model.head.weight.clone()
torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
optimiser.step()
assert not torch.equal(model.head.weight, before)
model.eval()
with torch.no_grad():
    _, state = model.stream(tokens[:, :15], model.init_state(2, max_length=20))
    state.save("state.safetensors")
    restored = model.load_state("state.safetensors")
    y, z = (model.stream(tokens[:, 15:], streams)[0] for streams in (state, restored))
    error = float((y - model(tokens)[:, 15:]).abs().max())
print(torch.equal(y, z), error < 1e-5, model.config.build().vocab_size, len(list(model.generate([1], 3))))
"""
    done = _run(code, tmp_path)
    assert done.stdout.split() == ["True", "True", "9", "3"], done.stderr


def test_backend_is_chosen_shown_and_forced() -> None:
    show = "import delayssm; print(delayssm.backend())"
    assert _run(show, DELAYSSM_BACKEND="").stdout.strip() == "numba"
    assert _run(show, DELAYSSM_BACKEND="eager").stdout.strip() == "eager"
    wrong = _run(show, DELAYSSM_BACKEND="fast")
    assert "no backend is called 'fast'" in wrong.stderr


def test_an_unavailable_backend_is_an_error() -> None:
    hide = "import sys; sys.modules['numba'] = None; import delayssm; "
    assert _run(hide + "print(delayssm.backend())", DELAYSSM_BACKEND="").stdout.strip() == "eager"
    forced = _run(hide + "delayssm.backend()", DELAYSSM_BACKEND="numba")
    assert forced.returncode != 0
    assert "the backend 'numba' cannot run here" in forced.stderr


def test_compiled_code_needs_no_place_on_disk() -> None:
    code = """
import numba.core.dispatcher as dispatcher
def nowhere(self): raise RuntimeError("no locator available")
dispatcher.Dispatcher.enable_caching = nowhere
import delayssm, torch
print(delayssm.backend(), delayssm.DelaySSM(2, 4, 8)(torch.randn(1, 9, 2)).isfinite().all().item())
"""
    done = _run(code)
    assert done.stdout.strip() == "numba True", done.stderr


def test_memory_is_kept_where_that_is_possible() -> None:
    expected = platform.system() == "Linux" and platform.libc_ver()[0] == "glibc"
    done = _run("import delayssm; print(delayssm.keep_freed_memory())")
    assert done.stdout.strip() == str(expected), done.stderr


def test_threads_may_share_a_module() -> None:
    code = """
import threading, torch, delayssm
torch.manual_seed(0)
ssm = delayssm.DelaySSM(64, 64, 500)
x = torch.randn(4, 600, 64)
expected = ssm(x)
results = []
def work():
    for _ in range(5):
        results.append(torch.equal(ssm(x), expected))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(results), all(results))
"""
    done = _run(code)
    assert done.stdout.strip() == "20 True", done.stderr
