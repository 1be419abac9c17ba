"""Per-class balanced selection: against a plain loop, by hand, and where plain BM25 starves a rare
class.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.artifacts import Artefacts
from tasklm.errors import RunError
from tasklm.recipe.data_sections import Select
from tasklm.select.base import ASKED_KEPT, SELECTORS, Ranking, Workplace
from tasklm.tracking import SILENT


def ranking_of(queries):
    flat = [entry for query in queries for entry in query]
    return Ranking(
        np.cumsum([0] + [len(query) for query in queries]),
        np.array([p for p, _ in flat], np.int64),
        np.array([s for _, s in flat], np.float32),
    )


def fitted(labels, method="balanced", texts=None):
    selector = SELECTORS.get(method)(Select())
    selector.fit(texts or ["text"] * len(labels), labels)
    return selector


def asked(chosen):
    return [
        chosen.matched_queries[a:z].tolist()
        for a, z in zip(chosen.matched_offsets[:-1], chosen.matched_offsets[1:], strict=True)
    ]


def test_by_hand():
    queries = [[(7, 5.0), (3, 4.0)], [(3, 9.0), (8, 8.0), (9, 1.0)], [(7, 6.0), (5, 2.0)], []]
    selector = fitted(["b", "a", "b", "c"])
    chosen = selector.choose(ranking_of(queries), None)
    # a: 3 8 9; b: 7 (rank 0), then 3 (4.0) and 5 (2.0) of rank 1; c: nothing. Turns: a 3, b 7, a 8,
    # b 5 (3 is taken), a 9.
    assert chosen.passages.tolist() == [3, 7, 8, 5, 9]
    assert chosen.ranks.tolist() == [0, 0, 1, 1, 2] and chosen.scores.tolist() == [
        9.0,
        6.0,
        8.0,
        2.0,
        1.0,
    ]
    assert asked(chosen) == [[1, 0], [0, 2], [1], [2], [1]]
    assert selector.choose(ranking_of(queries), 2).passages.tolist() == [3, 7]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 15), unique=True, max_size=9)),
        max_size=40,
    ),
    st.one_of(st.none(), st.integers(1, 20)),
)
def test_equals_a_plain_loop(examples, size):
    labels = [label for label, _ in examples]
    queries = [
        [(p, float(np.float32(9 - rank - p * n % 7 / 10))) for rank, p in enumerate(found)]
        for n, (_, found) in enumerate(examples)
    ]
    waiting = []
    for label in sorted(set(labels)):
        best: dict[int, tuple[int, float]] = {}
        for query, its_label in zip(queries, labels, strict=True):
            for rank, (passage, score) in enumerate(query if its_label == label else []):
                old = best.get(passage, (99, 0.0))
                best[passage] = (min(rank, old[0]), min(-score, old[1]))
        waiting.append(sorted(best, key=lambda passage: (*best[passage], passage)))
    expected: list[int] = []
    while any(waiting):
        for own in waiting:
            own[:] = [passage for passage in own if passage not in expected]
            expected += own[:1]
    expected = expected[:size]
    chosen = fitted(labels).choose(ranking_of(queries), size)
    assert chosen.passages.tolist() == expected
    found = {
        p: sorted(
            (r, n) for n, query in enumerate(queries) for r, (q, _) in enumerate(query) if q == p
        )
        for p in expected
    }
    assert asked(chosen) == [[number for _, number in found[p]][:ASKED_KEPT] for p in expected]
    assert chosen.ranks.tolist() == [found[p][0][0] for p in expected]
    assert chosen.scores.tolist() == [
        max(s for query in queries for q, s in query if q == p) for p in expected
    ]


def test_a_rare_class_gets_its_share_where_bm25_starves_it(make_store, tmp_path):
    sports = [f"football goal match team player number {n}" for n in range(60)]
    law = [f"court judge appeal ruling statute clause {n}" for n in range(60)]
    texts = [f"football goal match {n}" for n in range(40)] + ["court judge appeal"]
    labels = ["sports"] * 40 + ["law"]
    store, place = make_store(sports + law), Workplace(Artefacts(tmp_path), tmp_path, SILENT)
    share = {}
    rankings = []
    for method in ("bm25", "balanced"):
        selector = fitted(labels, method, texts)
        rankings.append(selector.score(store, np.zeros(120, bool), 30, place))
        share[method] = int((selector.choose(rankings[-1], 40).passages >= 60).sum())
    assert share["bm25"] < 5 and share["balanced"] == 20
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(rankings[0], name), getattr(rankings[1], name))


def test_a_stored_ranking_of_another_task_is_refused():
    with pytest.raises(RunError, match=r"has 2 task examples, but the task has 1\. Delete"):
        fitted(["a"]).choose(ranking_of([[(1, 1.0)], []]), None)
    with pytest.raises(ValueError, match="2 texts have 1 labels"):
        fitted(["a"], texts=["one", "two"])
