"""Trees without looking at a sentence: the neighbour as head, or the usual arc of each word."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TypeVar

from tasklm.tasks.examples import Example

Arc = tuple[int, str]  # number of the head (0: root), relation
Key = TypeVar("Key", bound=Hashable)


class Neighbours:
    """The word before, or the word after, as head of every word, whichever is right more often in
    train, with its usual relation.
    """

    def __init__(self, train: Sequence[Example]) -> None:
        if _right_heads(train, -1) >= _right_heads(train, 1):
            self._step, self.side = -1, "before"
        else:
            self._step, self.side = 1, "after"
        of_root: Counter[str] = Counter()
        of_others: Counter[str] = Counter()
        for head, relation in chain.from_iterable(example.label for example in train):
            (of_others if head else of_root)[relation] += 1
        self._relations = {True: most(of_root or of_others), False: most(of_others or of_root)}

    def arcs(self, example: Example) -> list[Arc]:
        """The arcs of a sentence."""
        return [(head, self._relations[head == 0]) for head in _heads(example, self._step)]


def _heads(example: Example, step: int) -> list[int]:
    """The number of the next word on one side of each, 0 if there is none."""
    count = len(example.words)
    return [(word + step) % (count + 1) for word in range(1, count + 1)]


def _right_heads(train: Sequence[Example], step: int) -> int:
    """How many words have the next word on one side as head."""
    right = 0
    for example in train:
        arcs = zip(example.label, _heads(example, step), strict=True)
        right += sum(head == guess for (head, _), guess in arcs)
    return right


class UsualArcs:
    """The most frequent distance to the head, with relation, of each word in train; for unknown
    words that of all words.
    """

    def __init__(self, train: Sequence[Example]) -> None:
        words: dict[str, Counter[tuple[int, str]]] = defaultdict(Counter)
        overall: Counter[tuple[int, str]] = Counter()
        for example in train:
            for number, (word, (head, relation)) in enumerate(
                zip(example.words, example.label, strict=True), 1
            ):
                distance = head - number if head else 0  # 0: the root
                arc = (distance, relation)
                words[word][arc] += 1
                overall[arc] += 1
        self._words = {word: most(counts) for word, counts in words.items()}
        self._overall = most(overall)

    def arcs(self, example: Example) -> list[Arc]:
        """The arcs of a sentence; distances beyond it are clipped to its first or last word."""
        arcs = []
        for number, word in enumerate(example.words, 1):
            distance, relation = self._words.get(word, self._overall)
            head = 0
            if distance:
                head = min(max(number + distance, 1), len(example.words))
            arcs.append((head, relation))
        return arcs


def most(counts: Counter[Key]) -> Key:
    """The most frequent key; the alphabetically first in a tie."""
    return min(counts, key=lambda key: (-counts[key], str(key)))
