"""Studies whose points measure themselves, each in a process of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from delayssm_lab.environment import Device, require_device
from delayssm_lab.measure import fresh
from delayssm_lab.study import Measured, Places, Readings

M = TypeVar("M", bound=fresh.Point)


def of_kind(kind: type[M], results: Mapping[Any, Readings]) -> dict[M, Readings]:
    """Return the results of the points of one kind."""
    return {point: values for point, values in results.items() if isinstance(point, kind)}


class Isolated(Measured[M]):
    """A study that measures every point in a new process."""

    def measure(self, point: M, places: Places) -> Readings:
        return fresh.measure(point)


@dataclass(frozen=True)
class OnDevice(Isolated[M]):
    """A study of speed on the CPU or, as the study NAME-cuda, on a GPU."""

    device: Device = "cpu"

    @property
    @abstractmethod
    def quantity(self) -> str:
        """Name of the study on the CPU."""

    @property
    @abstractmethod
    def subject(self) -> str:
        """Title of the study on the CPU."""

    @property
    def name(self) -> str:
        return self.quantity if self.device == "cpu" else f"{self.quantity}-{self.device}"

    @property
    def title(self) -> str:
        return self.subject if self.device == "cpu" else f"{self.subject}, on a GPU"

    @property
    def request(self) -> str:
        if self.device == "cpu":
            return ""
        return "\nThis project has not been measured on a GPU yet. Please open an issue with table.md and about.json."

    def run(self, places: Places) -> None:
        require_device(self.device)
        super().run(places)
