"""Every table, one after another. Nothing else should run on the machine meanwhile."""

from benchmarks import accuracy, generators, imports, models, streaming, training, transfer
from delayssm_lab.environment import describe


def main() -> None:
    """Print all tables."""
    print(
        "# Benchmarks\n\nMade by `make bench`; times are the best of several, one process per row. On this machine:\n"
    )
    for name, value in describe().items():
        print(f"- {name}: {value}")
    for part in (accuracy, imports, transfer, training, models, streaming, generators):
        part.main()


if __name__ == "__main__":
    main()
