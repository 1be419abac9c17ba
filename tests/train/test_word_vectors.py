"""Vectors of words, beside the same computed by plain loops and NumPy's full decomposition."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np

from tasklm.train.init.counts import SMOOTHING, WINDOW
from tasklm.train.init.word_vectors import RAREST, word_vectors


def by_loops(texts: list[str], words: list[str]) -> np.ndarray:
    """The vectors' products with one another, as the formulas say them."""
    number = {word: row for row, word in enumerate(words)}
    weights = np.zeros((len(words), len(words)))
    for text in texts:
        tokens = text.lower().split()
        for i, one in enumerate(tokens):
            for j, other in enumerate(tokens):
                if i != j and abs(i - j) <= WINDOW and one in number and other in number:
                    weights[number[one], number[other]] += 1 / abs(i - j)
    near = weights.sum(1)
    smoothed = near**SMOOTHING / (near**SMOOTHING).sum()
    with np.errstate(divide="ignore"):
        information = np.maximum(0, np.log(weights / (near[:, None] * smoothed)))
    left, sizes, _ = np.linalg.svd(information)
    table = left * np.sqrt(sizes)
    return np.asarray(table @ table.T)


def test_vectors_are_those_of_the_formulas_and_rare_words_have_none() -> None:
    draw = random.Random(3)
    names = [f"W{number}" for number in range(30)]
    texts = [" ".join(draw.choices(names, weights=range(1, 31), k=9)) for _ in range(80)] + [
        "once ONCE twice"
    ]
    learnt = word_vectors([texts[:10], texts[10:]])
    assert learnt is not None
    counts = Counter(" ".join(texts).lower().split())
    wanted = sorted(
        (word for word in counts if counts[word] >= RAREST), key=lambda word: (-counts[word], word)
    )
    assert learnt.words == wanted and "once" not in wanted
    np.testing.assert_allclose(
        learnt.shares, [counts[word] / sum(counts.values()) for word in wanted], rtol=1e-6
    )
    np.testing.assert_allclose(learnt.table @ learnt.table.T, by_loops(texts, wanted), atol=0.02)


def test_the_most_frequent_words_alone_where_there_are_many() -> None:
    learnt = word_vectors([["b a b a b a c"] * RAREST], most_types=2)
    assert learnt is not None and learnt.words == ["a", "b"]


def test_text_with_nothing_to_count_has_none() -> None:
    assert word_vectors([]) is None
    assert word_vectors([["one two three"], [""]]) is None
