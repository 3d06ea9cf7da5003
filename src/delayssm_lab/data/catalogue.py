"""Catalogue of all data sets."""

from __future__ import annotations

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.location import ABOUT, data_root
from delayssm_lab.data.prepared.reader import Prepared
from delayssm_lab.data.published.aan import PublishedAan
from delayssm_lab.data.published.bidmc import PublishedBidmc
from delayssm_lab.data.published.cifar10 import PublishedCifar10
from delayssm_lab.data.published.dataset import DataSet
from delayssm_lab.data.published.imdb import PublishedImdb
from delayssm_lab.data.published.listops import PublishedListOps
from delayssm_lab.data.published.mnist import PublishedMnist
from delayssm_lab.data.published.pathfinder import UnpublishedPathfinder, published_pathfinder
from delayssm_lab.data.published.speech_commands import PublishedSpeechCommands


def datasets() -> tuple[DataSet, ...]:
    """Return all data sets in the order in which they are listed."""
    return (
        PublishedMnist(),
        PublishedCifar10(),
        PublishedSpeechCommands(),
        PublishedBidmc(),
        PublishedImdb(),
        PublishedListOps(),
        PublishedAan(),
        UnpublishedPathfinder(),
        *(published_pathfinder(side, contour_length) for side in (32, 128) for contour_length in (6, 9, 14)),
    )


def find(name: str) -> DataSet:
    """Return the data set of this name."""
    by_name = {dataset.name: dataset for dataset in datasets()}
    if name not in by_name:
        raise DataError(f"there is no data set {name!r}; choose one of {', '.join(by_name)}")
    return by_name[name]


def load(name: str) -> Prepared:
    """Open a prepared data set. If it is not prepared, the error says how to prepare or generate it."""
    directory = data_root() / name
    if (directory / ABOUT).exists():
        return Prepared(directory)
    dataset = find(name)
    advice = []
    if dataset.downloads:
        advice.append(f"delayssm data prepare {name} --download")
        advice.append(f"delayssm data prepare {name} --root DIR (if its published files are in DIR)")
    if dataset.can_generate:
        advice.append(f"delayssm data generate {name}")
    raise DataError(f"{name} is not prepared in {data_root().resolve()}. Run: {', or '.join(advice)}")
