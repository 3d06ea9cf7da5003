"""Make the pictures of the tutorials again: `python -m docs.pictures`.

The Python blocks of a tutorial run one after another in docs/tutorials/pictures, where they leave the pictures that the
page shows. What else they leave, such as models, is removed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TUTORIALS = sorted((HERE / "tutorials").glob("*.md"))
PICTURES = HERE / "tutorials" / "pictures"


def code_of(page: Path) -> str:
    """Return the Python blocks of a page in order, but for those that need a GPU."""
    text = re.sub(r"<!-- needs a GPU -->\n```python\n.*?```", "", page.read_text(), flags=re.DOTALL)
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def pictures_of(page: Path) -> list[str]:
    """Return the names of the pictures that a tutorial makes and shows."""
    return re.findall(r"!\[[^\]]*\]\(pictures/([^)]+)\)", page.read_text())


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the code of a page in a folder. Warnings to users are errors, as readers should not meet any."""
    environment = {**os.environ, "PYTHONWARNINGS": "error::UserWarning", "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", code_of(page)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for page in TUTORIALS:
        with tempfile.TemporaryDirectory() as folder:
            done = run(page, Path(folder))
            sys.stdout.write(f"{page.name}\n{done.stdout}")
            if done.returncode:
                sys.exit(done.stderr)
            for name in pictures_of(page):
                shutil.copy(Path(folder) / name, PICTURES / name)


if __name__ == "__main__":
    main()
