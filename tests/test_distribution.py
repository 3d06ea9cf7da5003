"""The package as others install it: into an environment that has nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a new environment with the library and no extras."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    interpreter = environment / "bin" / "python"
    install = [interpreter, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", ROOT]
    subprocess.run(install, check=True, capture_output=True)
    return interpreter


def _run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_library_works_without_extras(python: Path, tmp_path: Path) -> None:
    code = """
import torch
from delayssm import DS4D, Block, Stack, param_groups
model = Stack([Block(DS4D(8, 4, max_delay=20))])
optimiser = torch.optim.AdamW(param_groups(model, lr=1e-3))
model(torch.randn(2, 30, 8)).square().mean().backward()
optimiser.step()
with torch.no_grad():
    y, state = model.eval().stream(torch.randn(2, 30, 8), model.init_state(2))
state.save("state.safetensors")
model.load_state("state.safetensors")
print(model.config.build())
"""
    done = _run(python, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "DelaySSM(" in done.stdout


@pytest.mark.slow
def test_the_command_names_the_missing_extra(python: Path, tmp_path: Path) -> None:
    done = _run(python.parent / "delayssm", "train", "copy-fixed", "ds4d", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("pip install 'delayssm[lab]'")
    assert "Traceback" not in done.stderr
