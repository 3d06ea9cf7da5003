"""What is public, what is imported, and which way dependencies point."""

import ast
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import delayssm

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "delayssm"

#: Each part may use itself and those before it.
ORDER = ["backends", "system", "layers", "models", "data", "tasks", "runtime", "lab", "studies", "cli", "__main__"]


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_public_names() -> None:
    assert sorted(delayssm.__all__) == [
        "Block", "DS4D", "DelaySSM", "DiagonalSSM", "PairModel", "PooledModel", "S4D", "Stack", "TokenModel", "Tokens",
        "Values", "backend", "match_width", "param_groups",
    ]  # fmt: skip
    assert all(hasattr(delayssm, name) for name in delayssm.__all__)


def test_the_readme_runs(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))
    assert code.count("from delayssm") == 5
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cascade" in done.stdout
    assert (tmp_path / "chat.safetensors").exists()


def test_version_is_the_distribution_version() -> None:
    from importlib.metadata import version

    assert version("delayssm") == delayssm.__version__


def test_import_is_light() -> None:
    heavy = "numba", "triton", "transformers", "matplotlib", "scipy", "accelerate", "ray", "rich"
    done = _run(f"import delayssm, sys; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_dependencies_point_downwards() -> None:
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                if name.startswith("delayssm."):
                    used = name.split(".")[1]
                    assert used in ORDER[: ORDER.index(part) + 1], f"{path} imports {name}"


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
    done = _run("from delayssm.allocator import keep_freed_memory; print(keep_freed_memory())")
    assert done.stdout.strip() == str(expected), done.stderr


def test_threads_may_share_a_module() -> None:
    code = """
import threading, torch, delayssm
torch.manual_seed(0)
ssm = delayssm.DelaySSM(64, 64, 500)
x = torch.randn(4, 600, 64)
expected = ssm(x)
found = []
def work():
    for _ in range(5):
        found.append(torch.equal(ssm(x), expected))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(found), all(found))
"""
    done = _run(code)
    assert done.stdout.strip() == "20 True", done.stderr
