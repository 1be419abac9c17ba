"""Chooses texts to label: of the half that the model is least sure of, those that stand for most of
the others.

Doubt alone asks for odd texts, and for one sort of text again and again; spread alone asks for what
the model knows. `benchmarks/log.md` has what else was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasklm.corpus.dedupe import near_duplicates
from tasklm.labelling.doubts import Doubt
from tasklm.labelling.spread import Chosen, spread
from tasklm.labelling.vectors import text_vectors
from tasklm.tasks.examples import Example
from tasklm.tasks.marks import usual_marks

UNSURE = 0.5  # share of the candidates that are unsure enough
ALIKE = 0.8  # of the runs of words of two texts: near copies


@dataclass(frozen=True)
class Suggestion:
    """A text to label, and why."""

    example: Example
    doubt: float  # from 0 to 1
    reason: str


def choose(
    candidates: Sequence[Example],
    doubts: Sequence[Doubt],
    labelled: Sequence[Example],
    count: int,
) -> list[Suggestion]:
    """At most `count` of the candidates, the one that helps most first."""
    amounts = np.array([doubt.amount for doubt in doubts])
    unsure = np.argsort(-amounts, kind="stable")
    unsure = unsure[: max(count, round(UNSURE * len(unsure)))]
    vectors = text_vectors([*(candidates[place] for place in unsure), *labelled])
    chosen = spread(vectors[: len(unsure)], vectors[len(unsure) :], count)
    suggestions = []
    for one in chosen:
        place = int(unsure[one.number])
        doubt = doubts[place]
        reason = reason_for(doubt, one)
        suggestions.append(Suggestion(candidates[place], round(doubt.amount, 4), reason))
    return suggestions


def reason_for(doubt: Doubt, chosen: Chosen) -> str:
    """Why a text was chosen, in plain words."""
    (first, odds), (second, other) = doubt.rivals
    parts = [f"between {first} ({odds:.2f}) and {second} ({other:.2f})"]
    if chosen.stands_for > 1:
        parts.append(f"represents {chosen.stands_for:,} similar texts")
    elif chosen.stands_for:
        parts.append("represents a similar text")
    else:
        parts.append("unlike the others")
    if doubt.disagree:
        parts.append("seeds disagree")
    return "; ".join(parts)


def without_near_copies(
    candidates: Sequence[Example], labelled: Sequence[Example]
) -> list[Example]:
    """The candidates that are no near copies of labelled texts or of earlier candidates.

    Where texts have marks, the same words with other marks are another example, so that all stay.
    """
    if usual_marks(labelled):
        return list(candidates)
    texts = [example.text for example in (*labelled, *candidates)]
    left = set(range(len(labelled), len(texts)))
    for earlier, later, _ in sorted(near_duplicates(texts, ALIKE)):
        if later in left and (earlier < len(labelled) or earlier in left):
            left.discard(later)
    return [candidates[place - len(labelled)] for place in sorted(left)]
