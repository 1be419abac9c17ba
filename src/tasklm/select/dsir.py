"""Importance resampling by hashed n-grams (DSIR, arXiv 2302.03169): a sample of the corpus that is
distributed like the task.

The words and pairs of neighbouring words of a text are hashed into 10,000 buckets. A text is drawn
from p_task with each n-gram independent of the others; the corpus has p_raw likewise. The log
importance weight of a passage is then Σ over its n-grams of log p_task − log p_raw, as in the
paper: a sum, not a mean, so it is not normalised by length, and since most n-grams of most passages
are rarer in the task than in the corpus, short passages have an advantage. Passages are drawn
without replacement in proportion to their weights by the Gumbel top-k trick: log weight + Gumbel
noise, highest first.

Differences from the authors' code: words are those of `tasklm.corpus.words` (theirs keep
punctuation marks), one is added to every bucket of both distributions (theirs adds 1e-8 to the
shares, which lets single unseen n-grams dominate), p_raw is counted over the whole corpus instead
of a part, and short passages are not left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tasklm.console.progress import Bar
from tasklm.corpus.base import PassageSource
from tasklm.corpus.kernels import Ints, Keys
from tasklm.corpus.store import PassageStore
from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Select
from tasklm.select.base import SELECTORS, Chosen, Ranking, Selector, Workplace, union
from tasklm.select.checks import require_passages
from tasklm.select.lexical.kernels import compiled
from tasklm.select.lexical.word_hashes import word_hashes

BUCKETS = 10_000
_READ_AT_ONCE = 4096
_PAIR = np.uint64(0xD6E8FEB86659FD93)  # odd, so that multiplying loses nothing
_HALF = np.uint64(32)


@SELECTORS.register("dsir")
class DsirSelector(Selector):
    """Draws passages so that their n-grams are distributed like those of the task.

    The noise of a passage depends only on the seed and its number, so a smaller sample is the
    beginning of a larger one.
    """

    per_example: ClassVar[bool] = False

    def __init__(self, settings: Select) -> None:
        self.seed = settings.seed
        self.target = np.zeros(BUCKETS, np.int64)

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> None:
        """Counts the n-grams of the task's texts."""
        self.target = np.zeros(BUCKETS, np.int64)
        for start in range(0, len(texts), _READ_AT_ONCE):
            part = texts[start : start + _READ_AT_ONCE]
            count_ngrams(*word_hashes(part), np.zeros(len(part), np.bool_), self.target)
        if not self.target.any():
            raise DataError(
                "the training texts have no words",
                remedy="Name the column with the text: data.text_column.",
            )

    def score(
        self,
        store: PassageSource,
        banned: npt.NDArray[np.bool_],
        k: int,
        place: Workplace,
    ) -> Ranking:
        """A ranking with one query: `k` passages drawn by importance, in the order of the draw."""
        local = store.local
        if local is None:
            problem = "select.method = dsir works with select.engine = local only"
            raise RecipeError([f"{problem}; on Spark use bm25, balanced or random"])
        require_passages(len(store), banned)
        started = time.monotonic()
        generator = np.random.Generator(np.random.PCG64(self.seed))
        best = Best(k)
        with place.tracker.progress("importance", total=2 * len(store)) as bar:
            ratios = self.log_ratios(local, banned, bar)
            for part in _parts(local, bar):
                drawn = weigh(part.words, part.ends, ratios) + generator.gumbel(size=len(part.ends))
                allowed = np.flatnonzero(~banned[part.start : part.start + len(drawn)])
                best.add(allowed + part.start, drawn[allowed])
        passages, scores = best.sorted()
        place.tracker.event(
            "weighed",
            passages=len(store),
            kept=len(passages),
            seconds=round(time.monotonic() - started, 3),
        )
        return Ranking(np.array([0, len(passages)], np.int64), passages, scores.astype(np.float32))

    def log_ratios(
        self, store: PassageStore, banned: npt.NDArray[np.bool_], bar: Bar
    ) -> npt.NDArray[np.float64]:
        """The log p_task − log p_raw of every bucket; banned passages are excluded from p_raw."""
        raw = np.zeros(BUCKETS, np.int64)
        for part in _parts(store, bar):
            count_ngrams(
                part.words, part.ends, banned[part.start : part.start + len(part.ends)], raw
            )
        return np.asarray(_log_shares(self.target) - _log_shares(raw), np.float64)

    def choose(self, ranking: Ranking, passages: int | None) -> Chosen:
        """The first `passages` of the draw; no single task example retrieved them."""
        chosen = union(ranking, passages)
        chosen.matched_offsets = np.zeros_like(chosen.matched_offsets)
        chosen.matched_queries = np.empty(0, np.int32)
        return chosen


def _log_shares(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.asarray(np.log((counts + 1) / (counts.sum() + len(counts))), np.float64)


class Best:
    """The k highest scores so far, ties by lower number; holds k entries and those added since the
    last cut.
    """

    def __init__(self, k: int) -> None:
        self.k, self.floor = k, -np.inf
        self.numbers: list[npt.NDArray[np.int64]] = []
        self.scores: list[npt.NDArray[np.float64]] = []
        self.held = 0

    def add(self, numbers: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]) -> None:
        """Adds passages with higher numbers than all before."""
        # one that only equals the lowest kept score has lost to a lower number
        above = scores > self.floor
        self.numbers.append(numbers[above])
        self.scores.append(scores[above])
        self.held += int(above.sum())
        if self.held > 2 * self.k + (1 << 16):
            self.sorted()

    def sorted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The numbers and scores of the k best, best first."""
        numbers = np.concatenate([np.empty(0, np.int64), *self.numbers])
        scores = np.concatenate([np.empty(0, np.float64), *self.scores])
        order = np.lexsort((numbers, -scores))[: self.k]
        numbers, scores = numbers[order], scores[order]
        if len(scores) == self.k:
            self.floor = float(scores[-1])
        self.numbers, self.scores, self.held = [numbers], [scores], len(numbers)
        return numbers, scores


@dataclass
class _Part:
    start: int
    words: Keys
    ends: Ints


def _parts(store: PassageStore, bar: Bar) -> Iterator[_Part]:
    started = time.monotonic()
    for start in range(0, len(store), _READ_AT_ONCE):
        stop = min(start + _READ_AT_ONCE, len(store))
        yield _Part(start, *word_hashes(store.texts(start, stop)))
        bar.advance(stop - start, f"{stop / max(time.monotonic() - started, 1e-9):,.0f} passages/s")


@compiled
def _bucket(ngram: np.uint64) -> np.int64:
    return np.int64(((ngram >> _HALF) * np.uint64(BUCKETS)) >> _HALF)


@compiled
def count_ngrams(words: Keys, ends: Ints, left_out: npt.NDArray[np.bool_], counts: Ints) -> None:
    """Adds the n-grams of each text that is not left out to the counts of their buckets."""
    start = 0
    for text in range(ends.size):
        if not left_out[text]:
            for at in range(start, ends[text]):
                counts[_bucket(words[at])] += 1
                if at > start:
                    counts[_bucket(words[at - 1] * _PAIR + words[at])] += 1
        start = ends[text]


@compiled
def weigh(words: Keys, ends: Ints, ratios: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The sum of the ratios of each text's n-grams."""
    sums = np.zeros(ends.size, np.float64)
    start = 0
    for text in range(ends.size):
        for at in range(start, ends[text]):
            sums[text] += ratios[_bucket(words[at])]
            if at > start:
                sums[text] += ratios[_bucket(words[at - 1] * _PAIR + words[at])]
        start = ends[text]
    return sums
