"""All data sets."""

from __future__ import annotations

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.aan import Aan
from delayssm_lab.data.published.bidmc import Bidmc
from delayssm_lab.data.published.cifar10 import Cifar10
from delayssm_lab.data.published.dataset import DataSet
from delayssm_lab.data.published.imdb import Imdb
from delayssm_lab.data.published.listops import ListOps
from delayssm_lab.data.published.mnist import Mnist
from delayssm_lab.data.published.pathfinder import Unpublished, pathfinder
from delayssm_lab.data.published.speech_commands import SpeechCommands


def datasets() -> tuple[DataSet, ...]:
    """In the order in which they are shown."""
    return (
        Mnist(),
        Cifar10(),
        SpeechCommands(),
        Bidmc(),
        Imdb(),
        ListOps(),
        Aan(),
        Unpublished(),
        *(pathfinder(side, contour_length) for side in (32, 128) for contour_length in (6, 9, 14)),
    )


def find(name: str) -> DataSet:
    """The data set of this name."""
    known = {dataset.name: dataset for dataset in datasets()}
    if name not in known:
        raise DataError(f"there is no data set {name}; there are {', '.join(known)}")
    return known[name]
