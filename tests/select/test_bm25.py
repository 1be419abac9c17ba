"""BM25 against a plain float64 brute force, by hand, and at its edges."""

from __future__ import annotations

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasklm.artifacts import Artefacts
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Select
from tasklm.select.base import SELECTORS, Workplace
from tasklm.select.lexical import search, text
from tasklm.select.lexical.index import FreshIndex
from tasklm.select.lexical.search import Scoring
from tasklm.select.lexical.terms import terms
from tasklm.tracking import SILENT


def brute_force(passages, queries, k1=1.2, b=0.75):
    """Scores of every query against every passage, [queries, passages],
    straight from the formula.
    """
    bags = [Counter(terms(passage)) for passage in passages]
    lengths = [sum(bag.values()) for bag in bags]
    average = sum(lengths) / len(lengths)
    holders = Counter(word for bag in bags for word in bag)
    table = np.zeros((len(queries), len(passages)))
    for row, query in enumerate(queries):
        for term in terms(query):  # a repeated term counts again
            idf = math.log(1 + (len(bags) - holders[term] + 0.5) / (holders[term] + 0.5))
            for column, bag in enumerate(bags):
                if bag[term]:
                    table[row, column] += (
                        idf * bag[term] / (bag[term] + k1 * (1 - b + b * lengths[column] / average))
                    )
    return table


def ranked(store, queries, folder, k, banned=None, **dials):
    selector = SELECTORS.get("bm25")(Select(**dials))
    selector.fit(queries, [])
    banned = np.zeros(len(store), bool) if banned is None else banned
    return selector.score(store, banned, k, Workplace(Artefacts(folder), folder, SILENT))


def rows(ranking):
    bounds = zip(ranking.offsets[:-1], ranking.offsets[1:], strict=True)
    return [(ranking.passages[a:z], ranking.scores[a:z]) for a, z in bounds]


def check_against(table, ranking, k, banned):
    for truth, (found, scores) in zip(table, rows(ranking), strict=True):
        allowed = np.flatnonzero((truth > 0) & ~banned)
        assert len(found) == min(k, len(allowed))
        assert len(set(found.tolist())) == len(found) and not banned[found].any()
        np.testing.assert_allclose(scores, truth[found], rtol=1e-5)
        best = np.sort(truth[allowed])[::-1][: len(found)]
        np.testing.assert_allclose(truth[found], best, rtol=1e-6)  # the same passages, up to ties
        pairs = list(zip((-scores).tolist(), found.tolist(), strict=True))
        assert pairs == sorted(pairs)  # best first, ties by lower number


@pytest.mark.parametrize("k", [1, 7, 50, 10_000])
def test_equals_brute_force_on_text_of_many_scripts(make_store, make_texts, tmp_path, k):
    passages = make_texts(600, seed=1)
    queries = [*make_texts(25, seed=2), "the the the model", "", "nothingknown"]
    banned = np.random.default_rng(3).random(600) < 0.2
    ranking = ranked(make_store(passages), queries, tmp_path, k, banned)
    check_against(brute_force(passages, queries), ranking, k, banned)


@pytest.mark.parametrize(("k1", "b"), [(0.0, 0.75), (1.2, 0.0), (0.9, 1.0), (10.0, 0.4)])
def test_equals_brute_force_for_other_dials(make_store, make_texts, tmp_path, k1, b):
    passages, queries = make_texts(300, seed=4), make_texts(10, seed=5)
    ranking = ranked(make_store(passages), queries, tmp_path, 20, k1=k1, b=b)
    check_against(brute_force(passages, queries, k1, b), ranking, 20, np.zeros(300, bool))


def test_many_blocks_and_many_batches_change_nothing(make_store, make_texts, tmp_path, monkeypatch):
    passages, queries = make_texts(500, seed=6), make_texts(30, seed=7)
    whole = ranked(make_store(passages), queries, tmp_path / "one", 15)
    monkeypatch.setattr(text, "BLOCK_PASSAGES", 64)
    monkeypatch.setattr(text, "BLOCK_BYTES", 5000)
    monkeypatch.setattr(search, "_BATCH_QUERIES", 4)
    parts = ranked(make_store(passages), queries, tmp_path / "many", 15)
    assert len(list((tmp_path / "many").glob("bm25-*/block-*"))) > 7
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


def test_tiny_case_by_hand(make_store, tmp_path):
    # N = 3, lengths 2 2 5, avgdl 3. "cat": df 2, idf log(1 + 1.5/2.5) = log 1.6; "dog": df 1, idf
    # log(1 + 2.5/1.5) = log(8/3). norms k1·(1 − b + b·dl/avgdl): 1.2·0.75 = 0.9 for length 2;
    # 1.2·1.5 = 1.8 for length 5.
    store = make_store(["Cat sat.", "a dog", "cat CAT cat on mats"])
    ((found, scores), (dogs, dog_scores)) = rows(ranked(store, ["cat", "dog dog"], tmp_path, 5))
    assert found.tolist() == [2, 0] and dogs.tolist() == [1]
    assert scores == pytest.approx([math.log(1.6) * 3 / 4.8, math.log(1.6) / 1.9], rel=1e-6)
    assert dog_scores == pytest.approx([2 * math.log(8 / 3) / 1.9], rel=1e-6)


def test_ties_go_to_the_lower_number(make_store, tmp_path):
    store = make_store(["same words here", "other", "same words here", "here words same"] * 30)
    ((found, _),) = rows(ranked(store, ["words same"], tmp_path, 10))
    assert found.tolist() == [n for n in range(120) if n % 4 != 1][:10]


def test_frequent_repetition_is_counted_exactly(make_store, tmp_path):
    passages = ["tok " * 300 + "end", "tok " * 70_000, "tok end"]
    check_against(
        brute_force(passages, ["tok"]),
        ranked(make_store(passages), ["tok"], tmp_path, 3),
        3,
        np.zeros(3, bool),
    )


def test_unknown_words_and_no_queries_find_nothing(make_store, tmp_path):
    store = make_store(["one two", "three", "", "—"])
    ranking = ranked(store, ["zebra", "", "three"], tmp_path, 3)
    assert ranking.offsets.tolist() == [0, 0, 0, 1] and ranking.passages.tolist() == [1]
    assert ranked(store, [], tmp_path, 3).offsets.tolist() == [0]
    assert ranked(make_store(["", "—"]), ["a"], tmp_path, 3).offsets.tolist() == [0, 0]


def test_nothing_left_is_an_error_with_a_way_out(make_store, tmp_path):
    for method in ("bm25", "random"):
        selector = SELECTORS.get(method)(Select())
        selector.fit(["a"], [])
        with pytest.raises(
            DataError, match=r"all 2 passages share text with dev or test\. Give a corpus"
        ):
            selector.score(
                make_store(["a", "b"]),
                np.ones(2, bool),
                1,
                Workplace(Artefacts(tmp_path), tmp_path, SILENT),
            )
        with pytest.raises(DataError, match="no passages"):
            selector.score(
                make_store([]),
                np.ones(0, bool),
                1,
                Workplace(Artefacts(tmp_path), tmp_path, SILENT),
            )


def test_stop_words_leave_queries_only_when_asked(make_store, tmp_path):
    store = make_store(["the", "whale", "the sea"])
    assert ranked(store, ["the whale"], tmp_path, 5).passages.tolist() == [1, 0, 2]
    assert ranked(store, ["the whale"], tmp_path, 5, stop_words="en").passages.tolist() == [1]


def texts_of(*terms):
    return st.lists(st.sampled_from(terms), max_size=6).map(" ".join)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    passages=st.lists(texts_of("a", "b", "Ä", "日本", "c d"), min_size=1, max_size=12),
    queries=st.lists(texts_of("a", "ä", "日", "d", "z"), max_size=4),
    k=st.integers(1, 15),
    seed=st.integers(0, 9),
)
def test_any_small_store(make_store, tmp_path: Path, passages, queries, k, seed):
    banned = np.random.default_rng(seed).random(len(passages)) < 0.3
    banned[0] = False
    store = make_store(passages)
    check_against(
        brute_force(passages, queries)
        if any(map(terms, passages))
        else np.zeros((len(queries), len(passages))),
        ranked(store, queries, tmp_path, k, banned),
        k,
        banned,
    )


def close_scores(found: list[int], scores: list[list[int]], best: int) -> search.Candidates:
    """Candidates with the given sums; passage numbers count from 0 in each row."""
    with ThreadPoolExecutor(1) as pool:
        made = search.Candidates(len(scores), best, 1000, 1, pool)
        for row, sums in enumerate(scores):
            made.keys[row, : len(sums)] = [
                (total << 32) | (0xFFFFFFFF - number) for number, total in enumerate(sums)
            ]
            made.counts[row] = found[row]
        made.sort()
    return made


def test_a_last_place_too_close_to_call_is_settled_by_exact_scores():
    sums = [
        [900_000, 500_010, 500_000, 499_990, 100_000],
        [900_000, 700_000, 500_000, 300_000, 100_000],
    ]
    found = close_scores([5, 5], sums, best=5)
    queries = search.Queries(*(np.zeros(0),) * 1, np.array([0, 4, 8]), *(np.zeros(0),) * 5)
    close = search.too_close(found, queries, k=2)
    assert list(zip(close.query.tolist(), close.number.tolist(), strict=True)) == [
        (0, 1),
        (0, 2),
        (0, 3),
    ]
    search.settle(
        found, close, np.array([1.0, 1.0, 2.0]), k=2
    )  # passage 3 is really the best of the three
    assert search.numbers_of(found.keys[0, :2]).tolist() == [0, 3] and found.counts.tolist() == [
        2,
        2,
    ]
    found = close_scores([5, 5], sums, best=5)
    search.settle(found, close, np.array([1.0, 1.0, 1.0]), k=2)  # a tie goes to the lower number
    assert search.numbers_of(found.keys[0, :2]).tolist() == [0, 1]


@pytest.mark.parametrize("memory", [1, 40_000, 1 << 30])
def test_any_memory_gives_the_same(make_store, make_texts, tmp_path, memory):
    store = make_store(make_texts(400, seed=11))
    queries = [terms(text) for text in make_texts(40, seed=12)]
    index = FreshIndex(store, None, 2)
    banned = np.zeros(400, bool)
    whole = search.search(
        index,
        queries,
        banned,
        Scoring(1.2, 0.75, 9),
        Workplace(Artefacts(tmp_path), tmp_path / "a", SILENT),
    )
    place = Workplace(Artefacts(tmp_path), tmp_path / "b", SILENT, memory, 3)
    parts = search.search(index, queries, banned, Scoring(1.2, 0.75, 9), place)
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    assert len(list((tmp_path / "b").glob("search-*/done-*"))) == (
        40 if memory == 1 else 1 if memory == 1 << 30 else 6
    )


def test_an_interrupted_search_goes_on_after_its_finished_blocks(
    make_store, make_texts, tmp_path, monkeypatch
):
    monkeypatch.setattr(text, "BLOCK_PASSAGES", 50)
    monkeypatch.setattr(search, "_SAVE_EVERY", -1.0)
    monkeypatch.setattr(search, "_BATCH_QUERIES", 10)
    store = make_store(make_texts(400, seed=13))
    queries = [terms(text) for text in make_texts(30, seed=14)]
    place = Workplace(Artefacts(tmp_path), tmp_path / "scratch", SILENT)
    scoring = Scoring(1.2, 0.75, 9)
    banned = np.zeros(400, bool)
    seen: list[int] = []

    class Dying(FreshIndex):
        left = 12  # the second batch dies in its fifth block

        def blocks(self, first=0):
            for block in super().blocks(first):
                if len(seen) == self.left:
                    raise KeyboardInterrupt
                seen.append(block.start)
                yield block

        def statistics(self, terms):
            return FreshIndex(store, None, 1).statistics(terms)

    with pytest.raises(KeyboardInterrupt):
        search.search(Dying(store, None, 1), queries, banned, scoring, place)
    assert len(list((tmp_path / "scratch").glob("search-*/open-00001-00004/done.json"))) == 1
    del seen[:]
    again = Dying(store, None, 1)
    again.left = 10**9
    found = search.search(again, queries, banned, scoring, place)
    assert seen[:4] == [200, 250, 300, 350]
    assert (
        seen.count(0) == len(seen[4:]) // 8
    )  # the third batch, and blocks read again for exact scores
    fresh = Workplace(Artefacts(tmp_path), tmp_path / "fresh", SILENT)
    straight = search.search(FreshIndex(store, None, 1), queries, banned, scoring, fresh)
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(straight, name), getattr(found, name))


def test_pairs_of_characters_stand_for_words_where_there_are_no_spaces(make_store, tmp_path):
    assert terms("日本語 is 日 本") == ["日本", "本語", "is", "日", "本"]
    store = make_store(["本日は晴天", "日本の天気", "日 本"])
    assert ranked(store, ["日本"], tmp_path, 3).passages.tolist() == [1]
