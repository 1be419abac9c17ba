"""Near copies left out of a selection: against a plain greedy pass over exact Jaccard similarities,
and at the edges.
"""

from __future__ import annotations

import numpy as np
import pytest

from tasklm.corpus.words import words
from tasklm.select import near_duplicates
from tasklm.select.base import Chosen
from tasklm.select.near_duplicates import without_near_duplicates
from tasklm.tracking import SILENT


def chosen_of(passages, asked=()):
    count = len(passages)
    asked = list(asked) or [[] for _ in passages]
    return Chosen(
        np.array(passages, np.int64),
        np.linspace(9, 1, count, dtype=np.float32),
        np.arange(count, dtype=np.int32),
        np.cumsum([0] + [len(own) for own in asked]),
        np.array([asker for own in asked for asker in own], np.int32),
    )


def runs(text):
    found = words(text)
    return {tuple(found[at : at + 3]) for at in range(max(len(found) - 2, 1))} if found else set()


def plain_greedy(texts, order, threshold, most=None):
    kept: list[int] = []
    sets = {number: runs(texts[number]) for number in order}
    for number in order:
        if len(kept) == most:
            break
        own = sets[number]
        if not any(
            own and len(own & sets[old]) / len(own | sets[old]) >= threshold for old in kept
        ):
            kept.append(number)
    return kept


def with_copies(make_texts, count, seed):
    """Texts of many scripts of which half are others with some words changed,
    from none to a third.
    """
    random = np.random.default_rng(seed)
    texts = make_texts(count, seed=seed, longest=80)
    for number in range(1, count, 2):
        found = texts[random.integers(0, number)].split(" ")
        for place in random.integers(
            0, len(found), size=int(random.integers(0, max(len(found) // 3, 2)))
        ):
            found[place] = f"other{random.integers(0, 1000)}"
        texts[number] = " ".join(found)
    return texts


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize(("at_once", "threads"), [(1024, 1), (7, 5)])
def test_equals_a_plain_greedy_pass(
    make_store, make_texts, monkeypatch, threshold, at_once, threads
):
    monkeypatch.setattr(near_duplicates, "_READ_AT_ONCE", at_once)
    monkeypatch.setattr(near_duplicates, "usable_cores", lambda: threads)
    texts = with_copies(make_texts, 700, seed=4)
    order = np.random.default_rng(1).permutation(700).tolist()
    found = without_near_duplicates(chosen_of(order), make_store(texts), threshold, None, SILENT)
    expected = plain_greedy(texts, order, threshold)
    assert found.passages.tolist() == expected
    assert 50 < len(expected) < 660  # there was something to find, and something to keep


def test_pages_of_a_common_form(make_store):
    random = np.random.default_rng(2)
    form = [f"word{number}" for number in range(60)]
    texts = []
    for _ in range(
        500
        # most pairs are a little below the threshold, and there are more of them than are compared
        # as sets
    ):
        own = list(form)
        for place in random.integers(0, 60, size=int(random.integers(1, 5))):
            own[place] = f"own{random.integers(0, 40)}"
        texts.append(" ".join(own))
    found = without_near_duplicates(chosen_of(range(500)), make_store(texts), 0.8, None, SILENT)
    expected = plain_greedy(texts, range(500), 0.8)
    assert found.passages.tolist() == expected and 150 < len(expected) < 400


def test_stops_when_there_are_enough(make_store, make_texts):
    texts = with_copies(make_texts, 300, seed=6)
    order = list(range(299, -1, -1))
    for most in (1, 40, 10_000):
        found = without_near_duplicates(chosen_of(order), make_store(texts), 0.7, most, SILENT)
        assert found.passages.tolist() == plain_greedy(texts, order, 0.7, most)


def test_scores_ranks_and_askers_stay_with_their_passages(make_store):
    store = make_store(
        ["a b c d e f g h", "x y z", "A b c, d e f g H!", "", "x y", "X Y", "ไทย", "ไท", "", "ไทย"]
    )
    asked = [[n, n + 1] if n % 3 else [] for n in range(10)]
    whole = chosen_of(range(10), asked)
    found = without_near_duplicates(whole, store, 0.8, None, SILENT)
    assert found.passages.tolist() == [0, 1, 3, 4, 6, 7, 8]  # without words: copies of nothing
    assert (
        found.scores.tolist() == whole.scores[found.passages].tolist()
        and found.ranks.tolist() == found.passages.tolist()
    )
    bounds = zip(found.matched_offsets[:-1], found.matched_offsets[1:], strict=True)
    assert [found.matched_queries[a:z].tolist() for a, z in bounds] == [
        asked[n] for n in found.passages.tolist()
    ]
    off = without_near_duplicates(whole, store, 0, 4, SILENT)
    assert off.passages.tolist() == [0, 1, 2, 3] and off.matched_queries.tolist() == [1, 2, 2, 3]
    assert off.matched_offsets.tolist() == [0, 0, 2, 4, 4]
    assert without_near_duplicates(chosen_of([]), store, 0.8, 5, SILENT).passages.tolist() == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        without_near_duplicates(whole, store, 1.5, None, SILENT)
