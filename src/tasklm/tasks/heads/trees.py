"""Dependency trees: the best one for given arc scores, and what is wrong with one that was read.

Words count from 1 on, and 0 is the root. The search is that of Chu and Liu (1965) and Edmonds
(1967) in the form for dense graphs (Tarjan, 1977; quadratic in the number of words).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.kernels import compiled

# target of a word whose head is beyond the row, or whose relation is not in train; the word itself
# may be a head
UNKNOWN = -1
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def best_tree(scores: NDArray[Any]) -> Ints:
    """The head of each word (0: root) in the tree of highest total score in which one word alone
    hangs on the root.

    `scores` is (1 + words, 1 + words): [d, h] is the score of head h for word d; row 0 and the
    diagonal are not read.
    """
    words = len(scores) - 1
    if words < 1:
        return np.zeros(0, np.int64)
    weights = np.array(scores, np.float64)
    np.fill_diagonal(weights, 0.0)
    weights[0] = 0.0
    if not np.isfinite(weights).all():
        raise ValueError("a tree needs finite arc scores")
    # One child of the root: a price on arcs from it that no gain elsewhere can outweigh, so that
    # the best tree has as few as can be (Stanojević and Cohen, "A Root of a Problem: Optimizing
    # Single-Root Dependency Parsing", EMNLP 2021, section 4).
    weights[1:, 0] -= 1.0 + words * float(weights.max() - weights.min())
    return _expanded(len(weights), *_contracted(weights))[1:]


@compiled
def _merge(entering: Floats, into: Ints, cycle: Ints, worth: Floats, node: int) -> None:
    """Fills in the arcs that enter a new node: for each head the one that gains most over the arc
    of the cycle that it replaces.
    """
    entering[node] = -np.inf
    for member in cycle:
        for source in range(entering.shape[1]):
            gain = entering[member, source] - worth[member]
            if gain > entering[node, source]:
                entering[node, source], into[node, source] = gain, into[member, source]


@compiled
def _best_head(worth: Floats, node_of: Ints, node: int) -> int:
    """The word outside the node whose arc into it is worth most, the first of equals."""
    best = -1
    for place in range(len(worth)):
        if node_of[place] != node and (best < 0 or worth[place] > worth[best]):
            best = place
    return best


@compiled
def _contracted(weights: Floats) -> tuple[Ints, Ints, Ints]:
    """The tree of contractions: for each node (words, then cycles made one) its parent, and head
    and word of its arc.

    A path grows backwards along best incoming arcs. Where it meets itself, the cycle becomes one
    node, whose incoming arcs are worth what they gain over the arc of the cycle that they replace;
    where it meets the tree of the root, it joins it.
    """
    size = len(weights)
    # (node, head): worth of the best arc from the head into the node
    entering = np.zeros((2 * size, size))
    entering[:size] = weights
    into = np.zeros((2 * size, size), np.int64)  # the word of that arc
    parent = np.full(2 * size, -1)
    head = np.zeros(2 * size, np.int64)
    word = np.zeros(2 * size, np.int64)
    worth = np.zeros(2 * size)
    node_of = np.arange(size)  # outermost node that holds a word
    joined = np.zeros(2 * size, np.bool_)
    joined[0] = True
    step = np.zeros(2 * size, np.int64)  # where on the path a node stands; 0: nowhere
    path = np.zeros(2 * size, np.int64)
    nodes = size
    for place in range(size):
        into[place] = place
    for start in range(1, size):
        length = 0
        if not joined[node_of[start]]:
            path[0], length = node_of[start], 1
            step[path[0]] = 1
        while length:
            node = path[length - 1]
            best = _best_head(entering[node], node_of, node)
            head[node], word[node], worth[node] = best, into[node, best], entering[node, best]
            before = node_of[best]
            if joined[before]:
                for place in range(length):
                    joined[path[place]] = True
                length = 0
            elif not step[before]:
                path[length] = before
                length += 1
                step[before] = length
            else:
                first = step[before] - 1
                for place in range(first, length):
                    parent[path[place]] = nodes
                _merge(entering, into, path[first:length], worth, nodes)
                for place in range(size):
                    if parent[node_of[place]] == nodes:
                        node_of[place] = nodes
                path[first], length = nodes, first + 1
                step[nodes] = length
                nodes += 1
    return parent[:nodes], head[:nodes], word[:nodes]


@compiled
def _expanded(size: int, parent: Ints, head: Ints, word: Ints) -> Ints:
    """The heads of the first `size` nodes: the arc into a node that was a cycle takes the place of
    one arc of that cycle.
    """
    for node in range(len(parent) - 1, size - 1, -1):  # the outermost first
        member = word[node]
        while parent[member] != node:
            member = parent[member]
        head[member], word[member] = head[node], word[node]
    return head[:size]


def tree_faults(heads: Sequence[int]) -> list[str]:
    """The problems of the heads of a sentence's words (0: root), as text; empty if they form a tree
    with one root.
    """
    count = len(heads)
    outside = [
        f"the head of word {word} is {head}, but there are only {count} words"
        for word, head in enumerate(heads, 1)
        if not 0 <= head <= count
    ]
    if outside:
        return outside
    roots = [word for word, head in enumerate(heads, 1) if head == 0]
    problems = []
    if count and not roots:
        problems.append("no word is the root (has the head 0)")
    if len(roots) > 1:
        problems.append(f"words {', '.join(map(str, roots))} are all roots")
    cycle = _cycle(heads)
    if cycle:
        problems.append("a cycle: " + " → ".join(map(str, [*cycle, cycle[0]])))
    return problems


def _cycle(heads: Sequence[int]) -> list[int]:
    """The words of the first cycle, or none."""
    seen = [0] * (len(heads) + 1)  # by the word from which each was reached
    for start in range(1, len(heads) + 1):
        word = start
        while word and not seen[word]:
            seen[word] = start
            word = heads[word - 1]
        if word and seen[word] == start:
            cycle = [word]
            while heads[cycle[-1] - 1] != word:
                cycle.append(heads[cycle[-1] - 1])
            return cycle
    return []
