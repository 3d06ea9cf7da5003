"""The Large Movie Review Dataset: one text file per review, aclImdb/{train,test}/{neg,pos}/ID_RATING.txt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.characters import Counter, Encoder
from delayssm_lab.data.published.dataset import DataSet, Download, Reading, text

_REVIEW = re.compile(r"(train|test)/(neg|pos)/(\d+)_(\d+)\.txt")
#: What models see of a review, without the token for its end.
_HEAD = 4095


@dataclass(frozen=True, kw_only=True)
class Imdb(DataSet):
    """Arrays: {train,test}_tokens, ragged, and _y uint8 (1: pos), first neg and then pos, each by number.

    about["characters"] are the tokens in order. Texts are taken as they are, with capitals and line breaks in HTML.
    """

    name: str = "imdb"
    title: str = "IMDB movie reviews"
    licence: str = "none stated; cite Maas et al. 2011"
    page: str = "https://ai.stanford.edu/~amaas/data/sentiment"
    size: int = 84_125_825
    downloads: tuple[Download, ...] = (
        Download(
            "aclImdb_v1.tar.gz",
            "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            "md5:7c2ac02c03563afcf9b574c7e56c153a",
        ),
    )
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 25_000, "test": 25_000})
    landmark: str = _REVIEW.pattern

    def _read(self, reading: Reading) -> dict[str, int]:
        keys = {name: match.groups() for name in reading.tree.names if (match := _REVIEW.fullmatch(name))}
        for name, (_, side, _, rating) in keys.items():
            if not (1 <= int(rating) <= 4 if side == "neg" else 7 <= int(rating) <= 10):
                raise DataError(f"{reading.tree.where(name)}: a rating of {rating} is not {side}")
        reading.total = len(keys)
        reviews = {}
        for name, content in reading.tree.each(keys):
            reviews[name] = text(reading.tree.where(name), content)
            reading.step()
        ordered = sorted(reviews, key=lambda name: (keys[name][1], int(keys[name][2])))
        counter = Counter(_HEAD)
        for name in ordered:
            if keys[name][0] == "train":
                counter.add(reviews[name])
        characters = counter.frequent()
        reading.out.about(characters=characters)
        encode, found = Encoder(characters), {}
        for split in self.counts:
            names = [name for name in ordered if keys[name][0] == split]
            tokens = reading.out.ragged(f"{split}_tokens")
            for name in names:
                tokens.append(encode(reviews[name]))
            reading.out.put(f"{split}_y", np.array([keys[name][1] == "pos" for name in names], np.uint8))
            found[split] = len(names)
        return found
