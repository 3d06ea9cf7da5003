"""IMDB movie reviews (Large Movie Review Dataset): text files aclImdb/{train,test}/{neg,pos}/ID_RATING.txt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.characters import CharacterCounter, CharacterEncoder
from delayssm_lab.data.published.dataset import DataSet, Download, ReadContext, decode_utf8

_REVIEW = re.compile(r"(train|test)/(neg|pos)/(\d+)_(\d+)\.txt")
#: Characters of a review that models see, without the end token.
_HEAD = 4095


@dataclass(frozen=True, kw_only=True)
class PublishedImdb(DataSet):
    """Published files of the IMDB reviews.

    Arrays: {train,test}_tokens and _bytes, ragged, and _y uint8 (0 for neg, 1 for pos), ordered by label, then by
    review ID. about["characters"] lists the tokens in order. Texts are not normalised: they keep capitals and HTML line
    breaks.
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
    file_pattern: str = _REVIEW.pattern

    def _read(self, context: ReadContext) -> dict[str, int]:
        tree = context.tree
        keys = {name: match.groups() for name in tree.names if (match := _REVIEW.fullmatch(name))}
        for name, (_, sentiment, _, rating) in keys.items():
            if not (1 <= int(rating) <= 4 if sentiment == "neg" else 7 <= int(rating) <= 10):
                raise DataError(f"{tree.path_of(name)}: a rating of {rating} is not {sentiment}; download it again")
        numbers = Counter(split for split, _, _, _ in keys.values())
        context.check_counts(numbers)
        context.total = len(keys)
        reviews: dict[str, bytes] = {}  # not as text, which may take four times the memory
        for name, content in tree.read_each(keys, limits.REVIEW_BYTES):
            if not decode_utf8(tree.path_of(name), content):
                raise DataError(f"{tree.path_of(name)}: empty; download it again")
            if b"\0" in content:  # which stands between reviews when they are one text
                raise DataError(f"{tree.path_of(name)}: not text, it has a byte 0; download it again")
            reviews[name] = content
            context.advance()
        ordered = sorted(reviews, key=lambda name: (keys[name][1], int(keys[name][2])))
        counter = CharacterCounter(_HEAD, str(tree.path))
        for name in ordered:
            if keys[name][0] == "train":
                counter.add(reviews[name].decode())
        characters = counter.vocabulary()
        context.out.about(characters=characters)
        encode, counts = CharacterEncoder(characters), {}
        for split in self.counts:
            names = [name for name in ordered if keys[name][0] == split]
            tokens, texts = (context.out.ragged(f"{split}_{kind}") for kind in ("tokens", "bytes"))
            for name in names:
                tokens.append(encode(reviews[name].decode()))
                texts.append(reviews[name])
            context.out.put(f"{split}_y", np.array([keys[name][1] == "pos" for name in names], np.uint8))
            counts[split] = len(names)
        return counts
