"""All data sets."""

from __future__ import annotations

from delayssm.data.aan import Aan
from delayssm.data.bidmc import Bidmc
from delayssm.data.cifar10 import Cifar10
from delayssm.data.dataset import DataSet
from delayssm.data.errors import DataError
from delayssm.data.imdb import Imdb
from delayssm.data.listops import ListOps
from delayssm.data.mnist import Mnist
from delayssm.data.pathfinder import Unpublished, pathfinder
from delayssm.data.speech_commands import SpeechCommands


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
