"""Rankings on disk, their union, random selection, and the selection file."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.artifacts import Artefacts
from tasklm.errors import DamagedError, RecipeError
from tasklm.recipe.data_sections import Select
from tasklm.select import base
from tasklm.select.base import (
    ASKED_KEPT,
    SELECTORS,
    Ranking,
    Workplace,
    read_selection_texts,
    union,
    write_selection,
)
from tasklm.tracking import SILENT


def ranking_of(*queries: list[tuple[int, float]]) -> Ranking:
    flat = [entry for query in queries for entry in query]
    return Ranking(
        np.cumsum([0] + [len(query) for query in queries]),
        np.array([p for p, _ in flat], np.int64),
        np.array([s for _, s in flat], np.float32),
    )


HAND = ranking_of(
    [(7, 5.0), (3, 4.0), (9, 1.0)], [], [(3, 2.0), (7, 1.5), (1, 1.0)], [(4, 5.0), (3, 3.0)]
)


def asked(chosen):
    return [
        chosen.matched_queries[a:z].tolist()
        for a, z in zip(chosen.matched_offsets[:-1], chosen.matched_offsets[1:], strict=True)
    ]


def test_union_by_hand():
    chosen = union(HAND, None)
    assert chosen.passages.tolist() == [
        4,
        7,
        3,
        1,
        9,
    ]  # rank 0: 4 and 7 tie on score 5, then 3; rank 2: 1 and 9 tie
    assert chosen.scores.tolist() == [5.0, 5.0, 4.0, 1.0, 1.0]
    assert chosen.ranks.tolist() == [0, 0, 0, 2, 2]
    assert asked(chosen) == [[3], [0, 2], [2, 0, 3], [2], [0]]
    assert (chosen.passages.dtype, chosen.scores.dtype, chosen.ranks.dtype) == (
        np.int64,
        np.float32,
        np.int32,
    )
    assert (chosen.matched_offsets.dtype, chosen.matched_queries.dtype) == (np.int64, np.int32)


def test_union_cut_to_a_size():
    chosen = union(HAND, 2)
    assert chosen.passages.tolist() == [4, 7] and asked(chosen) == [[3], [0, 2]]
    assert union(ranking_of([], []), 5).passages.tolist() == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 12), unique=True, max_size=8), max_size=40),
    st.one_of(st.none(), st.integers(1, 6)),
)
def test_union_equals_a_plain_loop(queries, size):
    scored = [
        [(p, float(np.float32(10 - rank - p / 100))) for rank, p in enumerate(query)]
        for query in queries
    ]
    seen: dict[int, list[tuple[int, int, float]]] = {}
    for number, query in enumerate(scored):
        for rank, (passage, score) in enumerate(query):
            seen.setdefault(passage, []).append((rank, number, score))
    best = {
        p: (min(r for r, _, _ in all_), -max(s for _, _, s in all_), p) for p, all_ in seen.items()
    }
    expected = sorted(best, key=best.__getitem__)[:size]
    kept, base._ENTRIES_AT_ONCE = base._ENTRIES_AT_ONCE, 7
    try:
        chosen = union(ranking_of(*scored), size)
    finally:
        base._ENTRIES_AT_ONCE = kept
    assert chosen.passages.tolist() == expected
    assert asked(chosen) == [
        [number for _, number, _ in sorted(seen[p])][:ASKED_KEPT] for p in expected
    ]
    assert [
        (r, -s, p)
        for r, s, p in zip(chosen.ranks.tolist(), chosen.scores.tolist(), expected, strict=True)
    ] == [best[p] for p in expected]


def test_ranking_survives_the_disk_and_damage_is_named(tmp_path):
    HAND.save(tmp_path / "ranking")
    loaded = Ranking.load(tmp_path / "ranking", 20)
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(HAND, name))
    assert union(loaded, 3).passages.tolist() == [4, 7, 3]
    ranking_of([], []).save(tmp_path / "empty")
    assert Ranking.load(tmp_path / "empty", 0).offsets.tolist() == [0, 0, 0]
    with pytest.raises(
        DamagedError, match=r"passages\.npy is damaged \(it does not fit the corpus"
    ):
        Ranking.load(tmp_path / "ranking", int(HAND.passages.max()))
    for harm in (-1, HAND.offsets[-1] + 1):
        offsets = HAND.offsets.copy()
        offsets[1] = harm
        np.save(tmp_path / "ranking" / "offsets.npy", offsets)
        with pytest.raises(
            DamagedError, match=r"offsets\.npy is damaged \(its offsets are inconsistent"
        ):
            Ranking.load(tmp_path / "ranking", 20)
    np.save(tmp_path / "ranking" / "offsets.npy", HAND.offsets)
    np.save(tmp_path / "ranking" / "scores.npy", HAND.scores[:-1])
    with pytest.raises(DamagedError, match=r"it does not fit .* Delete .*ranking and run"):
        Ranking.load(tmp_path / "ranking", 20)
    (tmp_path / "ranking" / "scores.npy").unlink()
    with pytest.raises(DamagedError, match=r"scores\.npy is damaged \(it is missing"):
        Ranking.load(tmp_path / "ranking", 20)


def drawn(store, banned, k, folder, seed=1):
    selector = SELECTORS.get("random")(Select(seed=seed))
    selector.fit([], [])
    return selector, selector.score(store, banned, k, Workplace(Artefacts(folder), folder, SILENT))


def test_random_smaller_samples_are_beginnings_of_larger_ones(make_store, tmp_path):
    store, banned = make_store(["text"] * 1000), np.zeros(1000, bool)
    banned[::3] = True
    _, small = drawn(store, banned, 50, tmp_path)
    selector, large = drawn(store, banned, 400, tmp_path)
    assert small.passages.tolist() == large.passages[:50].tolist()
    assert len(set(large.passages.tolist())) == 400 and not banned[large.passages].any()
    chosen = selector.choose(large, 100)
    assert chosen.passages.tolist() == large.passages[:100].tolist()
    assert chosen.ranks.tolist() == list(range(100))
    assert chosen.matched_queries.tolist() == [] and chosen.matched_offsets.tolist() == [0] * 101
    assert (
        drawn(store, banned, 50, tmp_path, seed=2)[1].passages.tolist() != small.passages.tolist()
    )
    assert (
        sorted(drawn(store, banned, 5000, tmp_path)[1].passages.tolist())
        == np.flatnonzero(~banned).tolist()
    )


def test_random_is_uniform(make_store, tmp_path):
    store, banned = make_store(["text"] * 20), np.zeros(20, bool)
    hits = np.zeros(20)
    for seed in range(600):
        hits[drawn(store, banned, 5, tmp_path, seed)[1].passages] += 1
    assert abs(hits - 150).max() < 5 * np.sqrt(600 * 0.25 * 0.75)


def test_selection_file(make_store, make_texts, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "_ROWS_AT_ONCE", 2)
    store = make_store(make_texts(10))
    path = tmp_path / "selected" / "passages.parquet"
    write_selection(path, store, union(HAND, None))
    table = pq.read_table(path)
    assert table.column_names == [
        "id",
        "text",
        "source",
        "score",
        "rank",
        "matched_queries",
        "number",
    ]
    assert table["number"].to_pylist() == [4, 7, 3, 1, 9]
    assert table["text"].to_pylist() == [store.text(n) for n in [4, 7, 3, 1, 9]]
    assert table["id"].to_pylist() == [store.id(n) for n in [4, 7, 3, 1, 9]]
    assert table["matched_queries"].to_pylist() == [[3], [0, 2], [2, 0, 3], [2], [0]]
    assert table["rank"].to_pylist() == [0, 0, 0, 2, 2] and table["score"].to_pylist() == [
        5.0,
        5.0,
        4.0,
        1.0,
        1.0,
    ]
    assert pq.ParquetFile(path).num_row_groups == 3
    assert [len(batch) for batch in read_selection_texts(path)] == [2, 2, 1]
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_selection_file_is_named(tmp_path):
    path = tmp_path / "passages.parquet"
    path.write_bytes(b"PAR1 nothing")
    for broken in (path, tmp_path / "none.parquet"):
        with pytest.raises(DamagedError, match=broken.name):
            list(read_selection_texts(broken))


def test_selectors_are_found_by_name():
    assert {"bm25", "random"} <= set(SELECTORS.names())
    with pytest.raises(RecipeError, match="did you mean 'bm25'"):
        SELECTORS.get("bm52")
