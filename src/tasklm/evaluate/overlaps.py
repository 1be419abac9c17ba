"""The words that a text shares with many others, as `corpus.words` splits them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tasklm.corpus.words import words


@dataclass(frozen=True)
class Overlaps:
    """Which words of one text occur in each of the others."""

    words: list[str]  # of the text, each once
    rarity: np.ndarray  # of each: ln((1 + texts) / texts that have it)
    numbers: np.ndarray  # numbers of words, text by text
    offsets: np.ndarray  # where each text's words begin, and the end

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def shared(self, place: int) -> list[str]:
        """The words shared with the text at a position, the rarest first."""
        own = self.numbers[self.offsets[place] : self.offsets[place + 1]]
        return [self.words[number] for number in own[np.argsort(-self.rarity[own], kind="stable")]]

    def nearest(self, most: int) -> np.ndarray:
        """The positions of the texts whose shared words are rarest in sum, at most `most`, in the
        order of the texts.

        A tie goes to the earlier text. Texts without a shared word are taken only if there are too
        few others.
        """
        adds = np.concatenate([[0.0], np.cumsum(self.rarity[self.numbers])])
        together = adds[self.offsets[1:]] - adds[self.offsets[:-1]]
        return np.sort(np.argsort(-together.round(9), kind="stable")[:most])


def overlaps(text: str, others: Iterable[str]) -> Overlaps:
    """The words that the text shares with each of the others, which are read once, in order."""
    own = list(dict.fromkeys(words(text)))
    number = {word: i for i, word in enumerate(own)}
    shared, offsets = array("i"), array("q", [0])
    for other in others:
        shared.extend(sorted(number[word] for word in set(words(other)) if word in number))
        offsets.append(len(shared))
    numbers = np.array(shared, np.int64)
    having = np.bincount(numbers, minlength=len(own))
    rarity = np.log(len(offsets) / np.maximum(1, having))
    return Overlaps(own, rarity, numbers, np.array(offsets))
