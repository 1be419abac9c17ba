"""What raw text changed: words and texts that the labelled examples do not show, answered with and
without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tasklm.corpus.words import words
from tasklm.tasks.examples import Example

SHOWN = 20  # cases
SHOWN_TEXTS = 3  # texts of a case in which its word stands


@dataclass(frozen=True)
class Answered:
    """An answer for a word, or for a whole text, that has words unseen in train."""

    unseen: tuple[str, ...]  # folded
    word: str  # as it stands in the text; several unseen words of a text are joined
    text: str
    gold: Any
    ours: Any
    other: Any


def unseen_words(
    train: Iterable[Example],
    examples: Sequence[Example],
    labels: tuple[Sequence[Any], Sequence[Any]],
    raw: Sequence[Example],
) -> dict[str, Any]:
    """How often answers about unseen words are right, in the first labels (with raw text) and in
    the second (without), and cases that are right in the first alone, with raw texts that have the
    word.
    """
    known = set(chain.from_iterable(words(example.text) for example in train))
    answered: list[Answered] = []
    for example, ours, other in zip(examples, labels[0], labels[1], strict=True):
        answered += _answered(example, ours, other, known)
    gained = [one for one in answered if one.ours == one.gold != one.other]
    lost = sum(one.other == one.gold != one.ours for one in answered)
    wanted = set(chain.from_iterable(one.unseen for one in gained))
    where: dict[str, list[str]] = {word: [] for word in wanted}
    for text in dict.fromkeys(example.text for example in raw):
        for word in wanted.intersection(words(text)):
            where[word].append(text)
    cases = [_case(one, where) for one in gained]
    # first those whose word the raw text has, the rarest first: they can have been learnt from it
    cases.sort(key=lambda case: (not case["count"], case["count"]))
    return {
        "answers": len(answered),
        "right": sum(one.ours == one.gold for one in answered),
        "right_before": sum(one.other == one.gold for one in answered),
        "gained": len(gained),
        "lost": lost,
        "cases": cases[:SHOWN],
    }


def _answered(example: Example, ours: Any, other: Any, known: set[str]) -> list[Answered]:
    """The answers of an example that concern unseen words."""
    gold, ours, other = (_of_task(example, label) for label in (example.label, ours, other))
    rows = [(example.text, gold, ours, other)]
    if example.words and len(gold) == len(ours) == len(other) == len(example.words):
        rows = list(zip(example.words, gold, ours, other, strict=True))
    answered = []
    for text, right, first, second in rows:
        unseen = tuple(word for word in dict.fromkeys(words(text)) if word not in known)
        if unseen:
            label = text if len(rows) > 1 or example.words else ", ".join(unseen)
            answered.append(Answered(unseen, label, example.text, right, first, second))
    return answered


def _of_task(example: Example, label: Any) -> Any:
    """A label as its own task has it."""
    return label[1] if example.task else label


def _case(one: Answered, where: dict[str, list[str]]) -> dict[str, Any]:
    texts = list(dict.fromkeys(chain.from_iterable(where[word] for word in one.unseen)))
    return {
        "word": one.word,
        "text": one.text,
        "gold": _label_text(one.gold),
        "before": _label_text(one.other),
        "count": len(texts),
        "texts": texts[:SHOWN_TEXTS],
    }


def _label_text(label: Any) -> str:
    if isinstance(label, (list, tuple)):
        return " ".join(map(str, label)) or "none"
    return str(label)
