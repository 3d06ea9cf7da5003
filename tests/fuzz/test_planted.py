"""Faults that are planted in a copy of the code, to see that fuzzing finds them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Target that finds the fault, its file, what stands there, and what is put in its place.
FAULTS = {
    "options may be of any type": (
        "constructors",
        "delayssm/config.py",
        "if not _is_of_type(value, types[field.name]):",
        "if value is object:",
    ),
    "the skip term has the wrong sign in a stream": (
        "streams",
        "delayssm/layers/diagonal_ssm.py",
        "y = y + self.D * front",
        "y = y - self.D * front",
    ),
    "a bounded stream is not told that it is full": (
        "streams",
        "delayssm/layers/diagonal_ssm.py",
        "state.require_room(x.shape[1], counts)",
        "pass",
    ),
    "negative positions are believed": (
        "state_files",
        "delayssm/system/state.py",
        "if shortest < 0 or longest > bound:",
        "if longest > bound:",
    ),
    "weights of any shape are loaded": (
        "run_directories",
        "delayssm_lab/training/checkpoint.py",
        "if wrong := sorted(name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)):",
        "if wrong := sorted(name for name in {**theirs, **mine} if name not in theirs or name not in mine):",
    ),
    "damage of compressed files is not reported": (
        "published",
        "delayssm_lab/data/published/streams.py",
        "struct.error, zlib.error,",
        "struct.error,",
    ),
    "a path through a file is not explained": (
        "command_line",
        "delayssm/storage/files.py",
        "    except OSError as error:  # a part of the path is a file, or may not be written to\n"
        '        raise OSError(error.errno, f"could not make the directory {directory}: {error.strerror}") from error',
        "    finally:\n        pass",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_fuzzing_finds_it(fault: str, tmp_path: Path) -> None:
    target, name, before, after = FAULTS[fault]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    path = tmp_path / "src" / name
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--cases", "2000", "--as-found", target],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{target}: FAILED" in done.stdout
