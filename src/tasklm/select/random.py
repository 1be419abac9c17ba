"""Random selection, the control: a uniform sample of the allowed passages without replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tasklm.corpus.base import PassageSource
from tasklm.recipe.data_sections import Select
from tasklm.select.base import SELECTORS, Chosen, Ranking, Selector, Workplace, union
from tasklm.select.checks import require_passages

_DRAWN_AT_ONCE = 1 << 20


@SELECTORS.register("random")
class RandomSelector(Selector):
    """Gives every passage a seeded random score and takes the highest.

    The score of a passage depends only on the seed and its number, so a smaller sample is the
    beginning of a larger one, and banning a passage changes nothing for the others.
    """

    per_example: ClassVar[bool] = False

    def __init__(self, settings: Select) -> None:
        self.seed = settings.seed

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> None:
        """Nothing to fit: the sample does not depend on the task."""

    def score(
        self,
        store: PassageSource,
        banned: npt.NDArray[np.bool_],
        k: int,
        place: Workplace,
    ) -> Ranking:
        """A ranking with one query: `k` passages in random order."""
        require_passages(len(store), banned)
        generator = np.random.Generator(np.random.PCG64(self.seed))
        passages, scores = np.empty(0, np.int64), np.empty(0, np.float32)
        for start in range(0, len(store), _DRAWN_AT_ONCE):
            stop = min(start + _DRAWN_AT_ONCE, len(store))
            drawn = generator.random(stop - start, dtype=np.float32)
            allowed = np.flatnonzero(~banned[start:stop])
            passages = np.concatenate([passages, allowed + start])
            scores = np.concatenate([scores, drawn[allowed]])
            best = np.lexsort((passages, -scores))[:k]
            passages, scores = passages[best], scores[best]
        return Ranking(np.array([0, len(passages)], np.int64), passages, scores)

    def choose(self, ranking: Ranking, passages: int | None) -> Chosen:
        """The first `passages` of the random order; no task example retrieved them."""
        chosen = union(ranking, passages)
        chosen.matched_offsets = np.zeros_like(chosen.matched_offsets)
        chosen.matched_queries = np.empty(0, np.int32)
        return chosen
