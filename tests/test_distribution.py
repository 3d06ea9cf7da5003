"""The package as others install it: into an environment that has nothing else. And the papers that come with it."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import delayssm

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the source distribution, and the wheel that was built from it."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", directory, ROOT], check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def python(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a new environment with the library and no extras."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    interpreter = environment / "bin" / "python"
    (wheel,) = distributions.glob("*.whl")
    install = [interpreter, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel]
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
    assert done.stderr.strip().endswith("pip install '.[lab]' in a clone")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_distributions_are_ready_to_be_published(distributions: Path) -> None:
    version = delayssm.__version__
    names = sorted(path.name for path in distributions.iterdir())
    assert names == [f"delayssm-{version}-py3-none-any.whl", f"delayssm-{version}.tar.gz"]
    checked = _run(sys.executable, "-m", "twine", "check", "--strict", *distributions.iterdir(), cwd=ROOT)
    assert checked.returncode == 0, checked.stdout
    with zipfile.ZipFile(distributions / names[0]) as wheel, tarfile.open(distributions / names[1]) as source:
        inside = wheel.namelist()
        assert f"delayssm-{version}/pyproject.toml" in source.getnames()
    for path in [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("pretrained/*/*"),
        *(ROOT / "src").rglob("py.typed"),
    ]:
        assert path.is_dir() or str(path.relative_to(ROOT / "src")) in inside
    assert not [name for name in inside if not name.startswith(("delayssm/", "delayssm_lab/", f"delayssm-{version}."))]


def test_papers_name_the_version() -> None:
    assert f"\nversion: {delayssm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1].rstrip(",") == delayssm.__version__


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_pinned_actions_and_may_only_read(path: Path) -> None:
    text = path.read_text()
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v[\d.]+", action)] == []
    assert "\npermissions:\n  contents: read\n\n" in text
    assert re.findall(r": write\b", text) == ([": write"] if path.name == "release.yml" else [])
