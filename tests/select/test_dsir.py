"""Importance resampling: against plain Python, its draw, and its edges."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tasklm.artifacts import Artefacts
from tasklm.console.progress import Bar
from tasklm.corpus.words import words
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Select
from tasklm.select import dsir
from tasklm.select.base import SELECTORS, Workplace
from tasklm.select.dsir import BUCKETS, Best, weigh
from tasklm.select.lexical.word_hashes import word_hashes
from tasklm.tracking import SILENT
from tests.select.test_word_hashes import FULL, hashed


def buckets(text: str) -> Counter[int]:
    hashes = [hashed(word) for word in words(text)]
    ngrams = hashes + [
        (left * 0xD6E8FEB86659FD93 + right) & FULL for left, right in pairwise(hashes)
    ]
    return Counter((ngram >> 32) * BUCKETS >> 32 for ngram in ngrams)


def plain_weights(task, raw, passages):
    """Log importance weights straight from the definition."""
    target, corpus = sum(map(buckets, task), Counter()), sum(map(buckets, raw), Counter())
    target_size, corpus_size = target.total() + BUCKETS, corpus.total() + BUCKETS

    def ratio(bucket):
        return math.log((target[bucket] + 1) / target_size) - math.log(
            (corpus[bucket] + 1) / corpus_size
        )

    return [
        sum(count * ratio(bucket) for bucket, count in buckets(passage).items())
        for passage in passages
    ]


def fitted(task, seed=1):
    selector = SELECTORS.get("dsir")(Select(seed=seed))
    selector.fit(task, ["label"] * len(task))
    return selector


def drawn(store, banned, task, k, folder, seed=1):
    return fitted(task, seed).score(store, banned, k, Workplace(Artefacts(folder), folder, SILENT))


@pytest.mark.parametrize("at_once", [4096, 13])
def test_equals_plain_python_on_text_of_many_scripts(
    make_store, make_texts, tmp_path, monkeypatch, at_once
):
    monkeypatch.setattr(dsir, "_READ_AT_ONCE", at_once)
    passages, task = make_texts(300, seed=1), make_texts(40, seed=2)
    banned = np.random.default_rng(3).random(300) < 0.2
    expected = np.array(
        plain_weights(
            task, [p for p, out in zip(passages, banned, strict=True) if not out], passages
        )
    )
    store = make_store(passages)
    weights = weigh(*word_hashes(passages), fitted(task).log_ratios(store, banned, Bar()))
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)
    noisy = expected + np.random.Generator(np.random.PCG64(7)).gumbel(size=300)
    order = [n for n in np.argsort(-noisy, kind="stable").tolist() if not banned[n]]
    for k in (1, 50, 5000):
        ranking = drawn(store, banned, task, k, tmp_path, seed=7)
        assert ranking.offsets.tolist() == [0, min(k, len(order))]
        assert ranking.passages.tolist() == order[:k]
        np.testing.assert_allclose(ranking.scores, noisy[order[:k]], rtol=1e-6)


def test_task_like_passages_weigh_most(make_store):
    random = np.random.default_rng(5)
    law, cooking = [f"law{n}" for n in range(300)], [f"cook{n}" for n in range(300)]

    def write(vocabulary):
        return " ".join(random.choice(vocabulary, size=30))

    passages = [write(law if n % 10 == 0 else cooking) for n in range(500)]
    selector = fitted([write(law) for _ in range(30)])
    weights = weigh(
        *word_hashes(passages),
        selector.log_ratios(make_store(passages), np.zeros(500, bool), Bar()),
    )
    assert set(np.argsort(-weights)[:50].tolist()) == set(range(0, 500, 10))


def test_draws_in_proportion_to_the_weights(make_store, tmp_path):
    # in a draw of one, passage n must come up with probability w_n / Σ w
    passages, task = ["a b", "a a", "b c", "c c", "a c"], ["a b a", "c a"]
    weights = np.exp(plain_weights(task, passages, passages))
    shares = weights / weights.sum()
    store, banned = make_store(passages), np.zeros(5, bool)
    hits = np.zeros(5)
    for seed in range(1500):
        hits[drawn(store, banned, task, 1, tmp_path, seed).passages[0]] += 1
    assert (abs(hits - 1500 * shares) < 5 * np.sqrt(1500 * shares * (1 - shares))).all()
    assert abs(shares - 0.2).max() > 0.05  # a uniform draw would not pass


def test_choose_takes_the_beginning_and_names_no_asker(make_store, make_texts, tmp_path):
    passages, task = make_texts(100, seed=1), make_texts(9, seed=2)
    ranking = drawn(make_store(passages), np.zeros(100, bool), task, 60, tmp_path)
    chosen = fitted(task).choose(ranking, 25)
    assert chosen.passages.tolist() == ranking.passages[
        :25
    ].tolist() and chosen.ranks.tolist() == list(range(25))
    assert chosen.matched_queries.tolist() == [] and chosen.matched_offsets.tolist() == [0] * 26


def test_best_keeps_what_a_full_sort_keeps():
    random = np.random.default_rng(0)
    scores = random.integers(0, 50_000, 400_000).astype(float)  # many ties
    best = Best(1000)
    for start in range(0, len(scores), 7001):
        best.add(np.arange(start, min(start + 7001, len(scores))), scores[start : start + 7001])
        assert best.held <= 2 * 1000 + (1 << 16)
    numbers, kept = best.sorted()
    expected = np.argsort(-scores, kind="stable")[:1000]
    assert numbers.tolist() == expected.tolist() and kept.tolist() == scores[expected].tolist()


def test_refuses_what_cannot_work(make_store, tmp_path):
    with pytest.raises(DataError, match="have no words"):
        fitted(["", "—"])
    with pytest.raises(DataError, match="all 2 passages share text"):
        drawn(make_store(["a", "b"]), np.ones(2, bool), ["a"], 1, tmp_path)
