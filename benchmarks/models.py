"""Training steps of all models at the paper's sizes, batch 64."""

from benchmarks import measure
from delayssm_lab.environment import best_device
from delayssm_lab.measure.throughput import HEAD
from delayssm_lab.measure.throughput import measure as steps
from delayssm_lab.recipes.delayed import MODELS


def main() -> None:
    """Print the table."""
    rows = [list(row) for row in steps(["copy-fixed", "sum-fixed"], MODELS, "paper", 3, best_device())]
    measure.table("Training at the paper's sizes, batch 64: copy and sum with fixed delays", HEAD, rows)


if __name__ == "__main__":
    main()
