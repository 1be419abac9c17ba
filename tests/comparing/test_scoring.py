"""Differences from the best and from tasklm, paired and corrected."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tasklm.comparing.entries import Entry
from tasklm.comparing.results import Cost
from tasklm.comparing.scoring import Contest, Labelled, scored
from tasklm.comparing.training import TrainedContestant
from tasklm.errors import RunError
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Example, Splits

DRAW = random.Random(4)
GOLD = [DRAW.choice("ab") for _ in range(200)]
EXAMPLES = [Example((f"t{place}",), label) for place, label in enumerate(GOLD)]
CONTEST = Contest(
    TASKS.get("classify").from_examples(EXAMPLES, Kind()),
    "accuracy",
    Splits(EXAMPLES, EXAMPLES[:50], EXAMPLES),
    2000,
    0.95,
)


def answers(wrong: int, seed: int) -> list[str]:
    """The gold labels with so many of them turned."""
    labels = list(GOLD)
    for place in random.Random(seed).sample(range(len(GOLD)), wrong):
        labels[place] = {"a": "b", "b": "a"}[labels[place]]
    return labels


def contestant(title: str, labels: list[str]) -> Labelled:
    outcome = TrainedContestant(Cost(1.0), "setting", "note", {"dev": labels[:50], "test": labels})
    return Labelled(Entry(title, title), "", outcome, None)


def test_each_is_paired_with_the_best_and_with_tasklm_and_p_is_corrected() -> None:
    labels = {"majority": answers(90, 1), "tfidf": answers(20, 2), "tasklm": answers(30, 3)}
    results = {
        one.title: one for one in scored(CONTEST, [contestant(*one) for one in labels.items()])
    }
    assert results["tfidf"].best is None and results["tasklm"].ours is None
    behind, beside = results["tasklm"].best, results["tfidf"].ours
    assert behind is not None and beside is not None
    assert behind.difference.difference == pytest.approx(0.05)
    assert beside.difference.difference == pytest.approx(-0.05)
    right = {name: np.array(own) == np.array(GOLD) for name, own in labels.items()}
    apart = right["tfidf"].astype(int) - right["tasklm"].astype(int)
    drawn = np.random.default_rng(1).choice(apart, (4000, 200)).mean(1)
    by_hand = 2 * min((drawn <= 0).mean(), (drawn >= 0).mean())
    assert behind.difference.p == pytest.approx(by_hand, abs=0.04)
    assert behind.p == pytest.approx(
        behind.difference.p
    )  # Holm: the larger of two p is not changed
    worst = results["majority"].best
    assert (
        worst is not None
        and worst.p == pytest.approx(2 * worst.difference.p)
        and worst.difference.at_floor
    )


def test_without_tasklm_there_is_no_difference_from_it_and_a_problem_has_no_score() -> None:
    failed = Labelled(Entry("static", "static"), "no text", None, None)
    results = scored(CONTEST, [contestant("tfidf", answers(9, 1)), failed])
    assert all(one.ours is None for one in results) and results[1].problem == "no text"
    assert scored(CONTEST, [failed])[0].score is None


def test_labels_of_another_number_of_examples_are_refused() -> None:
    with pytest.raises(RunError, match="the files changed meanwhile"):
        scored(CONTEST, [contestant("tfidf", answers(9, 1)[:-1])])
