"""Embeddings from counts, beside the same computed by plain loops and by NumPy's full
decomposition.
"""

from __future__ import annotations

import numpy as np
import pytest

from tasklm.tokens.shards import Shards
from tasklm.train.init import counts
from tasklm.train.init.counts import Associations, associations, embeddings, frequencies, sampled

TYPES, LEFT_OUT = 40, [0, 3]


def shards(passages: list[list[int]]) -> Shards:
    return Shards(
        np.array([token for passage in passages for token in passage], np.uint16),
        np.cumsum([0, *map(len, passages)]),
    )


def some_text(seed: int, passages: int) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [(draw.zipf(1.4, draw.integers(1, 30)) % (TYPES - 2)).tolist() for _ in range(passages)]


def by_loops(passages: list[list[int]], window: int) -> np.ndarray:
    """Returns positive mutual information as the formula says it."""
    weights = np.zeros((TYPES, TYPES))
    for passage in passages:
        for i, one in enumerate(passage):
            for j, other in enumerate(passage):
                if (
                    i != j
                    and abs(i - j) <= window
                    and one not in LEFT_OUT
                    and other not in LEFT_OUT
                ):
                    weights[one, other] += 1 / abs(i - j)
    near = weights.sum(1)
    smoothed = near**0.75 / (near**0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.maximum(0, np.log(weights / (near[:, None] * smoothed))), nan=0.0)


def dense(found: Associations) -> np.ndarray:
    table = np.zeros((TYPES, TYPES))
    for row in range(TYPES):
        part = slice(found.starts[row], found.starts[row + 1])
        table[row, found.columns[part]] = found.values[part]
    return table


@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.parametrize(
    "block", [1 << 20, 7 * 4 * TYPES, 1]
)  # all rows at once, seven at a time, one at a time
def test_associations_are_those_of_the_formula(
    monkeypatch: pytest.MonkeyPatch, window: int, block: int
) -> None:
    first, second = some_text(1, 60), some_text(2, 25)
    monkeypatch.setattr(counts, "BLOCK_BYTES", block)
    found = associations([shards(first), shards(second)], TYPES, LEFT_OUT, window)
    wanted = by_loops(first + second, window)
    np.testing.assert_allclose(dense(found), wanted, atol=1e-5)
    assert (
        np.array_equal(found.seen, wanted.any(1))
        and not found.seen[LEFT_OUT].any()
        and not found.seen[TYPES - 1]
    )


def test_a_pair_by_hand() -> None:
    found = associations([shards([[5, 6], [7, 8]])], TYPES, LEFT_OUT)
    assert dense(found)[5, 6] == pytest.approx(
        np.log(4)
    )  # of four tokens, alike in frequency, each stands beside one alone
    assert len(found.values) == 4


def test_text_without_neighbours_has_no_associations() -> None:
    found = associations([shards([[5], [6], [0, 3, 0]])], TYPES, LEFT_OUT)
    assert not found.seen.any() and not embeddings(found, 4).any()


def test_embeddings_are_those_of_the_full_decomposition() -> None:
    found = associations([shards(some_text(3, 300))], TYPES, LEFT_OUT)
    left, sizes, _ = np.linalg.svd(dense(found))
    for width in (1, 8):
        ours, wanted = embeddings(found, width), left[:, :width] * np.sqrt(sizes[:width])
        np.testing.assert_allclose(
            ours @ ours.T, wanted @ wanted.T, atol=1e-3
        )  # directions have no sign of their own
        np.testing.assert_allclose((ours**2).sum(0), sizes[:width], rtol=1e-3)
        assert np.array_equal(ours, embeddings(found, width))
    assert embeddings(found, 100).shape == (TYPES, TYPES)


def test_frequencies_leave_out_what_is_left_out() -> None:
    often = frequencies([shards([[5, 5, 0]]), shards([[5, 7, 3]])], TYPES, LEFT_OUT)
    assert often.tolist() == [
        3.0 if token == 5 else 1.0 if token == 7 else 0.0 for token in range(TYPES)
    ]


def test_longer_text_is_sampled_by_whole_passages() -> None:
    passages = [[number] * 10 for number in range(100)]
    assert (
        sampled(shards(passages), 1000).tokens is not None
        and len(sampled(shards(passages), 1000)) == 100
    )
    some = sampled(shards(passages), 200)
    kept = [some.tokens[some.offsets[n] : some.offsets[n + 1]].tolist() for n in range(len(some))]
    assert (
        len(kept) == 20
        and all(passage in passages for passage in kept)
        and kept[0] == passages[0]
        and kept[-1] == passages[-1]
    )
