"""A store of texts in memory, and text that looks real: uneven word frequencies, several scripts,
odd spacing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest


class ListStore:
    """Stands for a PassageStore; counts how often its texts are read."""

    def __init__(self, passages: Sequence[str]) -> None:
        self.passages, self.reads = list(passages), 0
        self.folder = Path("no-folder")  # nothing of it is on the disk
        self.local, self.cluster = self, None

    def __len__(self) -> int:
        return len(self.passages)

    def text(self, number: int) -> str:
        return self.passages[number]

    def texts(self, start: int, stop: int) -> list[str]:
        self.reads += 1
        return self.passages[start:stop]

    def raw(self, start: int, stop: int) -> tuple[bytes, np.ndarray]:
        encoded = [text.encode("utf-8", "replace") for text in self.texts(start, stop)]
        return b"".join(encoded), np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def ids(self, start: int, stop: int) -> np.ndarray:
        return np.array([int(self.id(number), 16) for number in range(start, stop)], np.uint64)

    def bytes_up_to(self, number: int) -> int:
        return sum(len(text.encode("utf-8", "replace")) for text in self.passages[:number])

    def id(self, number: int) -> str:
        return hashlib.blake2b(
            self.passages[number].encode("utf-8", "replace"), digest_size=8
        ).hexdigest()

    def source(self, number: int) -> str:
        return f"file-{number % 2}.txt"


@pytest.fixture
def make_store() -> type[ListStore]:
    return ListStore


_TEXT = (
    "the of and to in a is that for it The OF selection "
    "language model corpus query passage index score rank "
    "Größe STRASSE Straße naïve café Москва слово язык ﬁne "
    "ﬁsh ½ 漢字 かな 한국어 हिन्दी ağaç İstanbul Ọ̀rẹ́ x² don't e-mail "
    "C++ 3.14 2024 I/O foo_bar naïvely résumé data-driven tokens BERT pretraining labels"
)


@pytest.fixture
def make_texts() -> Callable[..., list[str]]:
    def made(count: int, seed: int = 0, longest: int = 60) -> list[str]:
        random = np.random.default_rng(seed)
        words = _TEXT.split() + [f"w{number}" for number in range(400)]
        shares = 1 / np.arange(1, len(words) + 1)
        texts = []
        for _ in range(count):
            chosen = random.choice(
                words, size=int(random.integers(0, longest)), p=shares / shares.sum()
            )
            ends = random.choice([" ", " ", " ", ", ", ". ", "\n", "\t"], size=len(chosen))
            texts.append("".join(word + end for word, end in zip(chosen, ends, strict=True)))
        return texts

    return made
