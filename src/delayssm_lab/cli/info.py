"""Print versions, backend, threads and GPU."""

from __future__ import annotations


def command() -> None:
    """Print versions, backend, threads and GPU."""
    from delayssm_lab.environment import describe

    for name, value in describe().items():
        print(f"{name:10} {value}")
