"""The server engine against the local engine and a brute force; where it must stop, go on, and
speak.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tasklm.artifacts import Artefacts
from tasklm.corpus.words import words
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Select
from tasklm.select.base import SELECTORS, Ranking, Workplace
from tasklm.select.elastic import index, selector
from tasklm.select.elastic.selector import elastic_ranking
from tasklm.select.lexical.terms import terms
from tasklm.tracking import SILENT, Tracker
from tests.select.elastic_double import ElasticDouble, serving, stored_length
from tests.select.test_bm25 import brute_force, check_against, ranked, rows


@dataclass(frozen=True)
class Settings:
    url: str
    k1: float = 1.2
    b: float = 0.75
    stemming: str = "none"


@pytest.fixture
def double() -> Iterator[ElasticDouble]:
    with serving() as server:
        yield server


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the client would have made."""
    made: list[float] = []
    monkeypatch.setattr("tasklm.select.elastic.client.sleep", made.append)
    return made


def asked(
    double, store, queries, folder: Path, k=5, banned=None, tracker=SILENT, **dials
) -> Ranking:
    banned = np.zeros(len(store), bool) if banned is None else banned
    place = Workplace(Artefacts(folder), folder, tracker)
    return elastic_ranking(
        [terms(query) for query in queries], store, banned, Settings(double.url, **dials), k, place
    )


def with_words(texts: list[str]) -> list[str]:
    return [text for text in texts if words(text)]


def assert_same(one: Ranking, other: Ranking) -> None:
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(
    ("k", "k1", "b"),
    [(1, 1.2, 0.75), (7, 1.2, 0.75), (10_000, 1.2, 0.75), (9, 0.0, 0.75), (9, 0.9, 1.0)],
)
def test_ranks_like_the_local_engine_and_the_formula(
    double, make_store, make_texts, tmp_path, k, k1, b
):
    passages = with_words(make_texts(260, seed=1))
    queries = [*make_texts(12, seed=2), "the the the model", "", "nothingknown"]
    banned = np.random.default_rng(3).random(len(passages)) < 0.2
    store = make_store(passages)
    found = asked(double, store, queries, tmp_path / "server", k, banned, k1=k1, b=b)
    check_against(brute_force(passages, queries, k1, b), found, k, banned)
    local = ranked(store, queries, tmp_path / "local", k, banned, k1=k1, b=b)
    np.testing.assert_array_equal(found.offsets, local.offsets)
    np.testing.assert_allclose(found.scores, local.scores, rtol=1e-5)
    assert (
        np.mean(found.passages == local.passages) > 0.95
    )  # rounding in single precision can swap near ties


def test_tiny_case_by_hand(double, make_store, tmp_path):
    # N = 3, lengths 2 2 5, avgdl 3; norms 0.9 for length 2 and 1.8 for length 5 (see test_bm25)
    store = make_store(["Cat sat.", "a dog", "cat CAT cat on mats"])
    ((cats, cat_scores), (dogs, dog_scores)) = rows(
        asked(double, store, ["cat", "dog dog"], tmp_path)
    )
    assert cats.tolist() == [2, 0] and dogs.tolist() == [1]
    assert cat_scores == pytest.approx([math.log(1.6) * 3 / 4.8, math.log(1.6) / 1.9], rel=1e-6)
    assert dog_scores == pytest.approx([2 * math.log(8 / 3) / 1.9], rel=1e-6)


def test_ties_go_to_the_lower_number_also_past_the_cut(double, make_store, tmp_path):
    store = make_store(["same words here", "other", "same words here", "here words same"] * 30)
    ((found, _),) = rows(asked(double, store, ["words same"], tmp_path, 10))
    assert found.tolist() == [n for n in range(120) if n % 4 != 1][:10]


def test_servers_that_scale_scores_rank_the_same(double, make_store, make_texts, tmp_path):
    passages, queries = with_words(make_texts(100, seed=5)), make_texts(5, seed=6)
    plain = asked(double, make_store(passages), queries, tmp_path / "plain")
    double.factor = 2.2  # Elasticsearch keeps the constant factor k1 + 1
    scaled = asked(double, make_store(passages), queries, tmp_path / "scaled")
    np.testing.assert_array_equal(plain.offsets, scaled.offsets)
    np.testing.assert_allclose(scaled.scores, plain.scores * 2.2, rtol=1e-5)


def test_more_is_asked_until_enough_allowed_passages_are_found(
    double, make_store, tmp_path, monkeypatch
):
    store = make_store(
        [f"word{' pad' * (number // 4)}" for number in range(400)]
    )  # shorter ones come first
    banned = np.zeros(400, bool)
    banned[:150] = True  # exactly those that rank first: far more than chance would bring
    ((found, _),) = rows(asked(double, store, ["word"], tmp_path, 3, banned))
    assert found.tolist() == [150, 151, 152]
    assert double.count("_msearch") > 1
    banned[:] = True
    banned[399] = False
    ((found, _),) = rows(asked(double, store, ["word"], tmp_path / "last", 50, banned))
    assert found.tolist() == [399]


def test_words_too_long_for_the_server_are_found_as_wholes(double, make_store, tmp_path):
    long, longer = "x" * 255 + "y", "x" * 255 + "z"
    store = make_store([long, longer, "y", f"{longer} z", "字" * 3])
    found = asked(double, store, [long, longer, "y", "字字"], tmp_path)
    assert [row.tolist() for row, _ in rows(found)] == [[0], [1, 3], [2], [4]]


def test_result_window_is_raised_where_k_needs_it(double, make_store, tmp_path, monkeypatch):
    store = make_store([f"a w{number}" for number in range(60)])
    monkeypatch.setattr(index, "_DEFAULT_WINDOW", 20)
    asked(double, store, ["a"], tmp_path / "first", 20)
    (held,) = double.indexes.values()
    assert "max_result_window" not in held.settings
    held.settings["max_result_window"] = "20"
    assert len(asked(double, store, ["a"], tmp_path / "second", 50).passages) == 50
    assert held.settings["max_result_window"] == "50"


def test_one_index_per_corpus_and_dials(double, make_store, tmp_path):
    store = make_store(["a b", "b c"])
    asked(double, store, ["a"], tmp_path / "1")
    asked(double, store, ["b"], tmp_path / "2")
    assert double.made == 1 and double.count("_bulk") == 1
    asked(double, store, ["b"], tmp_path / "3", k1=2.0)
    asked(double, make_store(["b c", "a b"]), ["b"], tmp_path / "4")
    assert double.made == 4 - 1
    assert all(name.startswith("tasklm-") for name in double.indexes)


def test_small_requests_change_nothing(double, make_store, make_texts, tmp_path, monkeypatch):
    passages, queries = with_words(make_texts(150, seed=8)), make_texts(23, seed=9)
    banned = np.random.default_rng(1).random(len(passages)) < 0.3
    whole = asked(double, make_store(passages), queries, tmp_path / "whole", 10, banned)
    double.indexes.clear()
    monkeypatch.setattr(index, "_BATCH_BYTES", 900)
    monkeypatch.setattr(index, "_READ_AT_ONCE", 7)
    monkeypatch.setattr(selector, "_REQUEST_BYTES", 2000)
    monkeypatch.setattr(selector, "_QUERIES_AT_ONCE", 4)
    monkeypatch.setattr(selector, "_HITS_AT_ONCE", 30)
    before = len(double.requests)
    assert_same(whole, asked(double, make_store(passages), queries, tmp_path / "parts", 10, banned))
    assert len(double.requests) - before > 30


def test_a_long_query_keeps_the_words_that_weigh_most(double, make_store, tmp_path, monkeypatch):
    monkeypatch.setattr(selector, "MOST_WORDS", 3)
    double.max_clauses = 3
    said: list[str] = []

    class Listening(Tracker):
        def say(self, message: str) -> None:
            said.append(message)

    passages = ["common rare1", "common rare2", "common often", "often common", "rare3", "common"]
    query = "common often often often rare1 rare2 missing"
    store = make_store(passages)
    found = asked(double, store, [query, "common"], tmp_path, 10, tracker=Listening())
    # weights: often 3·log(1 + 4.5/2.5), rare1 = rare2 = log(1 + 5.5/1.5), common log(1 + 1.5/5.5):
    # common is left out
    table = brute_force(passages, ["often often often rare1 rare2", "common"])
    check_against(table, found, 10, np.zeros(6, bool))
    assert said == [
        (
            "1 queries have more than the 3 distinct words that a server allows: their most "
            "common words were dropped"
        )
    ]


def test_unknown_words_ask_nothing_and_empty_corpora_are_refused(double, make_store, tmp_path):
    store = make_store(["one two", "three"])
    assert asked(double, store, ["", "—"], tmp_path).offsets.tolist() == [0, 0, 0]
    assert double.count("_msearch") == 0
    assert asked(double, store, [], tmp_path).offsets.tolist() == [0]
    with pytest.raises(DataError, match="all 2 passages share text"):
        asked(double, store, ["one"], tmp_path, banned=np.ones(2, bool))


def test_what_is_sent_is_words_and_numbers(double, make_store, tmp_path):
    asked(double, make_store(["Größe: STRASSE, straße!", "漢字 x²"]), ["größe"], tmp_path)
    (held,) = double.indexes.values()
    assert held.documents == {
        "0": (0, Counter({"grösse": 1, "strasse": 2})),
        "1": (1, Counter({"漢字": 1, "x2": 1})),
    }
    assert held.mappings["_source"] == {"enabled": False} and held.mappings["_meta"] == {
        "complete": True,
        "passages": 2,
    }
    assert held.settings["similarity"]["tasklm"] == {"type": "BM25", "k1": 1.2, "b": 0.75}


def test_ranking_can_be_saved_and_loaded(double, make_store, tmp_path):
    found = asked(double, make_store(["a b", "b"]), ["b", "z"], tmp_path)
    found.save(tmp_path / "ranking")
    assert_same(found, Ranking.load(tmp_path / "ranking", 2))


# what Lucene 9.9.1 (BM25Similarity, WhitespaceAnalyzer, boosted term queries, sorted by score, then
# number) answered
LUCENE_DOCUMENTS = ["a b c", "a a a b", "c " * 45 + "a", "b c d e f g h i j k " * 13, "d"]
LUCENE_ANSWERS = {
    (1.2, 0.75): {
        "a b": [(0.8614857, 1), (0.7849257, 0), (0.42646194, 3), (0.22226658, 2)],
        "c c c d": [(1.9720695, 3), (1.5673567, 2), (1.1773885, 0), (0.6610023, 4)],
        "a c e": [(1.5233183, 3), (0.7849257, 0), (0.7447188, 2), (0.47588944, 1)],
    },
    (0.9, 0.4): {
        "a b": [(0.7931077, 1), (0.68690515, 0), (0.47369337, 3), (0.2708525, 2)],
        "c c c d": [(2.1904798, 3), (1.5821816, 2), (1.0303578, 0), (0.5648978, 4)],
        "a c e": [(1.6920286, 3), (0.7982464, 2), (0.68690515, 0), (0.4517828, 1)],
    },
}


@pytest.mark.parametrize("dials", LUCENE_ANSWERS, ids=str)
def test_the_double_scores_like_lucene(double, make_store, tmp_path, dials):
    double.lossy = True
    queries = LUCENE_ANSWERS[dials]
    found = asked(
        double, make_store(LUCENE_DOCUMENTS), list(queries), tmp_path, 9, k1=dials[0], b=dials[1]
    )
    for (passages, scores), expected in zip(rows(found), queries.values(), strict=True):
        assert passages.tolist() == [passage for _, passage in expected]
        np.testing.assert_array_equal(
            scores, np.array([score for score, _ in expected], np.float32)
        )


def test_stored_lengths_follow_lucene():
    # from the definition: exact to 39, then steps of 2 up to 55, of 4 up to 87, of 8 …
    assert [stored_length(n) for n in (0, 7, 39, 40, 41, 55, 56, 59, 60, 127)] == [
        0,
        7,
        39,
        40,
        40,
        54,
        56,
        56,
        60,
        120,
    ]


@pytest.mark.parametrize("method", ["bm25", "balanced"])
def test_the_recipe_chooses_the_engine(double, make_store, make_texts, tmp_path, method):
    store, texts = make_store(with_words(make_texts(120, seed=21))), make_texts(6, seed=22)
    found = []
    for engine in ("local", "elastic"):
        selector = SELECTORS.get(method)(Select(method=method, engine=engine, url=double.url))
        selector.fit(texts, ["a", "b"] * 3)
        place = Workplace(Artefacts(tmp_path), tmp_path / engine, SILENT)
        place.scratch.mkdir()
        found.append(
            selector.choose(selector.score(store, np.zeros(len(store), bool), 10, place), 15)
        )
    np.testing.assert_array_equal(found[0].passages, found[1].passages)
    assert double.indexes
