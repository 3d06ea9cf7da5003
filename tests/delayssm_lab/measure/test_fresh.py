"""Points measured in processes of their own."""

import os
import sys
from dataclasses import dataclass

import pytest

from delayssm_lab.measure import fresh


@dataclass(frozen=True)
class Identity:
    """A point that tells where it was measured."""

    number: float

    def measure(self) -> dict[str, float]:
        sys.stdout.write("output before the result\n")
        return {"process": os.getpid(), "number": self.number}


@dataclass(frozen=True)
class Failure:
    """A point that cannot be measured."""

    def measure(self) -> dict[str, float]:
        raise ArithmeticError("out of range")


def test_a_point_is_measured_in_another_process() -> None:
    first, second = fresh.measure(Identity(1.5)), fresh.measure(Identity(1.5))
    assert first["number"] == 1.5
    assert len({first["process"], second["process"], os.getpid()}) == 3


def test_errors_name_the_point_and_the_cause() -> None:
    with pytest.raises(ChildProcessError, match=r"^measuring Failure\(\) failed: ArithmeticError: out of range$"):
        fresh.measure(Failure())
