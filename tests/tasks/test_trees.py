from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tasklm.tasks.heads.trees import best_tree, tree_faults


def is_tree(heads: tuple[int, ...]) -> bool:
    """Says by the definition whether each word leads to the root, and one
    word alone hangs on it.
    """
    for word in range(1, len(heads) + 1):
        for _ in heads:
            word = heads[word - 1] if word else 0
        if word:
            return False
    return heads.count(0) == 1


TREES = {
    n: np.array([heads for heads in product(range(n + 1), repeat=n) if is_tree(heads)])
    for n in range(1, 6)
}


def total(scores: np.ndarray, heads: np.ndarray) -> np.ndarray:
    return scores[np.arange(1, len(scores)), heads].sum(-1)


def test_cayley_counts_the_trees_of_the_brute_force() -> None:
    assert [len(TREES[n]) for n in range(1, 6)] == [n ** (n - 1) for n in range(1, 6)]


@pytest.mark.parametrize("words", range(1, 6))
def test_the_best_tree_is_that_of_brute_force(words: int) -> None:
    random = np.random.default_rng(words)
    for case in range(200):
        scores = random.normal(size=(words + 1, words + 1)) * 10.0 ** random.integers(-3, 4)
        if case % 4 == 0:
            scores = np.round(scores)  # ties
        found = best_tree(scores)
        assert is_tree(tuple(int(head) for head in found))
        assert total(scores, found) == pytest.approx(
            total(scores, TREES[words]).max(), rel=1e-9, abs=1e-12
        )


def test_a_cycle_of_best_arcs_is_broken_and_a_second_root_is_not_taken() -> None:
    cycle = np.array([[0, 0, 0], [1.0, 0, 9], [2.0, 9, 0]])  # each word wants the other as its head
    assert best_tree(cycle).tolist() == [2, 0]
    both = np.array([[0, 0, 0], [9.0, 0, 1], [8.0, 2, 0]])  # both words want the root
    assert best_tree(both).tolist() == [0, 1]
    assert best_tree(np.zeros((1, 1))).tolist() == []


def test_what_does_not_count_is_not_read() -> None:
    scores = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    other = scores.copy()
    other[0] = np.inf
    np.fill_diagonal(other, 1e9)
    assert best_tree(other).tolist() == best_tree(scores).tolist()
    scores[3, 2] = np.nan
    with pytest.raises(ValueError, match="finite"):
        best_tree(scores)


def test_long_sentences_give_trees_that_no_change_of_one_head_betters() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        scores = random.normal(size=(61, 61))
        heads = best_tree(scores)
        assert tree_faults(heads.tolist()) == []
        for word in range(1, 61):
            for head in range(61):
                changed = heads.copy()
                changed[word - 1] = head
                if scores[word, head] > scores[word, heads[word - 1]] and head != word:
                    assert tree_faults(changed.tolist())


def test_faults_are_told() -> None:
    assert tree_faults([2, 0, 2]) == []
    assert tree_faults([]) == []
    assert tree_faults([2, 5, 0]) == ["the head of word 2 is 5, but there are only 3 words"]
    assert tree_faults([-1, 0]) == ["the head of word 1 is -1, but there are only 2 words"]
    assert tree_faults([0, 1, 0]) == ["words 1, 3 are all roots"]
    assert tree_faults([0, 3, 4, 2]) == ["a cycle: 2 → 3 → 4 → 2"]
    assert tree_faults([1]) == ["no word is the root (has the head 0)", "a cycle: 1 → 1"]
    for heads in product(range(5), repeat=4):
        assert bool(tree_faults(list(heads))) != is_tree(heads)
