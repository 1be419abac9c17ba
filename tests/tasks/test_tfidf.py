"""Features of the linear baselines: those of single texts, and how alike the texts of a pair are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from tasklm.tasks.examples import Example
from tasklm.tasks.tfidf import SIMILARITY, features

PAIRS = [("a red ball", "a red ball"), ("one cat", "two dogs"), ("cold water here", "water is cold"), ("", "music")]


def pairs(part: list[tuple[str, str]]) -> list[Example]:
    return [Example(texts, 0.0) for texts in part]


def test_pairs_have_cosines_and_the_share_of_words_in_both() -> None:
    found = features(pairs(PAIRS), pairs(PAIRS[2:]), [])
    assert found is not None
    train, dev, none = found
    assert (none.shape, (dev - train[2:]).nnz) == ((0, train.shape[1]), 0)
    texts = [text for side in zip(*PAIRS, strict=True) for text in side]
    columns, place = [], 0
    for settings in ({"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}, {"analyzer": "char_wb", "ngram_range": (2, 5)}):
        both = TfidfVectorizer(sublinear_tf=True, **settings).fit_transform(texts).toarray()
        one, other = both[:4], both[4:]
        np.testing.assert_allclose(train[:, place : place + 2 * one.shape[1]].toarray(), np.hstack([one, other]))
        place += 2 * one.shape[1]
        columns.append(train[:, [place]].toarray()[:, 0])
        np.testing.assert_allclose(columns[-1], SIMILARITY * (one * other).sum(1))
        place += 1
    assert columns[0][0] == pytest.approx(SIMILARITY)
    np.testing.assert_allclose(train[:, [place]].toarray()[:, 0], SIMILARITY * np.array([1, 0, 2 / 4, 0]))
    assert train.shape[1] == place + 1


def test_texts_without_words_have_no_features() -> None:
    assert features([Example(("",), 0), Example((" ",), 1)]) is None
