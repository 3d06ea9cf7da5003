"""How long `import delayssm` takes beyond `import torch`."""

import subprocess
import sys

from benchmarks import measure

CODE = "import torch, time; start = time.perf_counter(); import delayssm; print(time.perf_counter() - start)"


def main() -> None:
    """Print the table."""
    times = [
        float(subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    measure.table(
        "import delayssm, beyond import torch",
        ["best s", "worst s"],
        [[f"{min(times):.2f}", f"{max(times):.2f}"]],
    )


if __name__ == "__main__":
    main()
