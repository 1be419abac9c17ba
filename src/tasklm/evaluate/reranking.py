"""Re-ranking lists of candidates, such as the n best of a speech recogniser or a translator: argmax
of score + λ · PLL.

λ is chosen on other lists whose references or answers are known, from 0.05, 0.10, … 1.00, as with
Electric (*Pre-Training Transformers as Energy-Based Cloze Models*, arXiv 2012.08561): by the word
error rate where there are references, or else by how often the right candidate wins.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.corpus.tables import kind_of, read_rows
from tasklm.errors import DataError
from tasklm.evaluate.word_errors import UNITS, edits

WEIGHTS = tuple(round(0.05 * step, 2) for step in range(1, 21))
_FORM = (
    'Write lines such as {"id": 1, "candidates": '
    '[{"text": "a text", "score": -1.5}, …], "answer": 0, "reference": "a text"}.'
)


@dataclass(frozen=True)
class CandidateList:
    """One list of candidates."""

    id: Any
    texts: list[str]
    scores: list[float]  # of the system that produced the list
    # indices of the right ones, empty if the answer is not in the list; None: unknown
    right: frozenset[int] | None
    reference: str | None = None  # what was said; None: unknown

    def chosen(self, likelihoods: Sequence[float], weight: float) -> int:
        """The index of the candidate with the largest score + weight · PLL; the first in a tie."""
        sums = [
            score + weight * likelihood
            for score, likelihood in zip(self.scores, likelihoods, strict=True)
        ]
        return max(range(len(sums)), key=lambda number: (sums[number], -number))


def read_candidates(path: Path) -> list[CandidateList]:
    """The lists of a file of JSON lines; `answer` is a candidate's index, from 0, or a text."""
    if kind_of(path) not in (".jsonl", ".ndjson", ".json"):
        raise DataError("lists of candidates must be JSON lines (.jsonl)", file=path, remedy=_FORM)
    lists = []
    for row in read_rows(path):

        def wrong(problem: str, line: int = row.line) -> DataError:
            return DataError(problem, file=path, line=line, remedy=_FORM)

        candidates = row.values.get("candidates")
        if not isinstance(candidates, list) or not candidates:
            raise wrong("'candidates' is not a non-empty list")
        texts = [_text(candidate, number, wrong) for number, candidate in enumerate(candidates)]
        scores = [_score(candidate, number, wrong) for number, candidate in enumerate(candidates)]
        right = _right(row.values.get("answer"), texts, wrong)
        reference = row.values.get("reference")
        if reference is not None and not isinstance(reference, str):
            raise wrong(f"'reference' is {json.dumps(reference)}, not a text")
        number = row.values.get("id", row.line)
        lists.append(CandidateList(number, texts, scores, right, reference))
    return lists


def _text(candidate: Any, number: int, wrong: Callable[[str], DataError]) -> str:
    if not isinstance(candidate, dict) or not isinstance(candidate.get("text"), str):
        raise wrong(f"candidate {number} has no 'text'")
    text: str = candidate["text"]
    return text


def _score(candidate: Any, number: int, wrong: Callable[[str], DataError]) -> float:
    score = candidate.get("score")
    if (
        isinstance(score, bool)
        or not isinstance(score, int | float)
        or not abs(score) <= sys.float_info.max
    ):
        raise wrong(f"candidate {number} has no numeric 'score'")
    return float(score)


def _right(
    answer: Any, texts: list[str], wrong: Callable[[str], DataError]
) -> frozenset[int] | None:
    if answer is None:
        return None
    if isinstance(answer, str):
        return frozenset(number for number, text in enumerate(texts) if text == answer)
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(texts):
        raise wrong(
            f"'answer' is {json.dumps(answer)}, "
            f"neither a text nor the index of a candidate (0 to {len(texts) - 1})"
        )
    return frozenset([answer])


def accuracy(
    lists: Sequence[CandidateList], likelihoods: Sequence[Sequence[float]], weight: float
) -> float | None:
    """The share of the lists with answers whose right candidate is chosen; None if none has one."""
    hits = [
        each.chosen(scores, weight) in each.right
        for each, scores in zip(lists, likelihoods, strict=True)
        if each.right is not None
    ]
    if not hits:
        return None
    return sum(hits) / len(hits)


@dataclass(frozen=True)
class ErrorRates:
    """The words, or characters, to edit over those of all references, in percent."""

    chosen: float
    by_score: float  # of the candidates with the largest scores alone
    least: float  # of the best candidates
    lists: int  # with a reference


@dataclass(frozen=True)
class Errors:
    """The edits from each candidate of the lists with references to what was said."""

    lists: Sequence[CandidateList]
    edits: dict[int, list[int]]  # number of a list → those of its candidates
    total: int  # words, or characters, of all references

    @classmethod
    def of(cls, lists: Sequence[CandidateList], unit: str) -> Errors:
        """Counts them in `words` or `characters`."""
        split, counted, total = UNITS[unit], dict[int, list[int]](), 0
        for number, each in enumerate(lists):
            if each.reference is None:
                continue
            wanted = split(each.reference)
            total += len(wanted)
            counted[number] = [edits(split(text), wanted) for text in each.texts]
        return cls(lists, counted, total)

    def rates(self, likelihoods: Sequence[Sequence[float]], weight: float) -> ErrorRates:
        """The error rates of what is chosen; there must be a reference that is not empty."""

        def rate(by: float) -> float:
            wrong = [
                own[self.lists[number].chosen(likelihoods[number], by)]
                for number, own in self.edits.items()
            ]
            return 100.0 * sum(wrong) / self.total

        least = 100.0 * sum(map(min, self.edits.values())) / self.total
        return ErrorRates(rate(weight), rate(0.0), least, len(self.edits))


def best_weight(
    lists: Sequence[CandidateList],
    likelihoods: Sequence[Sequence[float]],
    file: Path,
    unit: str = "words",
) -> float:
    """The best λ of WEIGHTS, the smallest in a tie: by the error rate where there are references,
    else by the accuracy; `file` is named if no list has either.
    """
    errors = Errors.of(lists, unit)
    if not errors.total and all(each.right is None for each in lists):
        raise DataError(
            "no list has a 'reference' or an 'answer', so λ cannot be chosen",
            file=file,
            remedy="Add references or answers, or set λ with --weight.",
        )

    def quality(weight: float) -> float:
        if errors.total:
            return -errors.rates(likelihoods, weight).chosen
        return accuracy(lists, likelihoods, weight) or 0.0

    return max(WEIGHTS, key=lambda weight: (quality(weight), -weight))
