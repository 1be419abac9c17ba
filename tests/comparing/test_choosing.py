"""The rules that choose, and what they say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tasklm.comparing.choosing import (
    BEST,
    FASTEST,
    LEANEST,
    OWN,
    SMALLEST,
    advice_of,
    needs_text,
    picks_of,
    times_text,
    within_chance,
)
from tasklm.comparing.results import Comparison, Cost, Result
from tests.comparing.here import against, comparison, result

LEAST = 2 / 1001  # p of the resamples of these tests


def advised(*results: Result, **changes: Any) -> tuple[dict[str, str], list[str]]:
    together = comparison(*results, **changes)
    together = dataclasses.replace(together, picks=picks_of(together))
    return together.picks, advice_of(together)


def test_each_pick_is_among_the_best_and_those_within_chance() -> None:
    picks, _ = advised(
        result("tasklm", 0.8, milliseconds=9.0, size=9_000_000, memory=9e8),
        result("tfidf", 0.79, best=against(0.01, 0.3), milliseconds=2.0, size=3_000_000),
        result("static", 0.78, best=against(0.02, 0.05), milliseconds=4.0, size=2_000_000),
        result("hashed", 0.7, best=against(0.1, 0.04), milliseconds=0.1, size=10, memory=1e6),
        result("minilm frozen", 0.785, best=against(0.015, 0.2), outside_weights=True, memory=4e8),
    )
    assert picks == {
        BEST: "tasklm",
        SMALLEST: "minilm frozen",
        FASTEST: "minilm frozen",
        LEANEST: "minilm frozen",
        OWN: "tasklm",
    }


def test_a_contestant_is_within_chance_from_one_less_the_confidence_on() -> None:
    together = comparison(
        result("a", 0.8),
        result("b", 0.7, best=against(0.1, 0.05)),
        result("c", 0.7, best=against(0.1, 0.0499)),
    )
    assert [one.title for one in within_chance(together)] == ["a", "b"]


def test_what_is_much_smaller_or_faster_and_within_chance_may_do() -> None:
    _, advice = advised(
        result("tasklm", 0.80, milliseconds=50.0, size=30_000_000),
        result("tfidf", 0.796, best=against(0.004, 0.31), milliseconds=1.0, size=1_000_000),
        result("static", 0.7, best=against(0.1, LEAST)),
    )
    assert advice == [
        "tasklm has the highest score, 80.0 (95% interval 78.0 to 82.0) test macro-F1; these 200 "
        "examples cannot tell tfidf from it.",
        "tfidf may do: within 0.4 points of the best, which may be chance (p = 0.31), at 1/30 of "
        "its size and 1/50 of its latency.",
    ]


def test_the_best_is_used_where_nothing_within_chance_is_much_cheaper() -> None:
    _, advice = advised(
        result("a", 0.8), result("b", 0.8, best=against(0.0, 1.0), milliseconds=0.9)
    )
    assert advice[1] == "None of those is much smaller, faster or leaner: use the best."
    picks, alone = advised(result("a", 0.8), result("b", 0.7, best=against(0.1, LEAST)))
    assert len(alone) == 1 and alone[0].endswith("no other contestant is within chance of it.")
    assert picks[FASTEST] == "a"


def test_it_says_so_where_tasklm_loses() -> None:
    tfidf = result("tfidf", 0.8)
    _, advice = advised(tfidf, result("tasklm", 0.75, best=against(0.05, LEAST)))
    assert advice[-1] == (
        "tasklm is 5.0 points behind tfidf (p ≤ 0.002, significant): for the score, do not use it here."
    )
    _, advice = advised(tfidf, result("tasklm", 0.79, best=against(0.01, 0.4)))
    assert advice[-1] == "tasklm is 1.0 points behind tfidf (p = 0.4, not significant)."


def test_the_best_without_weights_of_others_is_named_beside_one_with_them() -> None:
    picks, advice = advised(
        result("minilm fine-tuned", 0.9, outside_weights=True),
        result("tasklm", 0.85, best=against(0.05, LEAST)),
        result("tfidf", 0.8, best=against(0.1, LEAST)),
    )
    assert picks[OWN] == "tasklm"
    assert len(advice) == 2
    assert (
        "Without outside weights: tasklm, 85.0, 5.0 points behind (p ≤ 0.002, significant)."
        in advice
    )


def test_what_loses_points_but_is_far_faster_is_named() -> None:
    _, advice = advised(
        result("tasklm", 0.8, milliseconds=40.0),
        result("tfidf", 0.77, best=against(0.03, 0.01), milliseconds=2.0),
        result("hashed", 0.76, best=against(0.04, 0.01), milliseconds=0.5),
    )
    assert advice[1:] == [
        "tfidf gives up 3.0 points (p = 0.01, significant) for 1/20 of the latency of tasklm."
    ]


def test_the_majority_is_never_recommended_but_may_show_that_nothing_was_learnt() -> None:
    picks, advice = advised(
        result("majority", 0.61, size=0, latency=None),
        result("tfidf", 0.6, best=against(0.01, 0.9)),
        result("hashed", 0.5, best=against(0.11, 0.3)),
    )
    assert (
        set(picks.values()) == {"tfidf"}
        and "significantly better than the most frequent" in advice[-1]
    )
    fine = advised(result("tfidf", 0.8), result("majority", 0.2, best=against(0.6, LEAST)))
    assert len(fine[1]) == 1


def test_what_had_too_little_time_to_learn_is_named() -> None:
    _, advice = advised(
        result("tfidf", 0.8),
        result("majority", 0.2, best=against(0.6, LEAST)),
        result("minilm frozen", 0.2, best=against(0.6, LEAST)),
        result("minilm fine-tuned", 0.1, best=against(0.7, LEAST)),
    )
    assert advice[1:] == [
        "No better than the most frequent answer: minilm frozen and minilm fine-tuned; "
        "20 min on this machine may have been too short."
    ]


def test_scores_of_dev_are_called_optimistic() -> None:
    _, advice = advised(result("a", 0.8, test=None), split="dev", data={"train": 9, "dev": 5})
    assert advice[0].startswith("a has the highest score, 80.0 dev macro-F1")
    assert advice[-1].startswith("There is no test set")


def test_without_any_score_there_is_nothing_to_choose() -> None:
    failed = Result("tfidf", "tfidf", problem="no text")
    assert advised(failed) == ({}, ["No contestant has a score."])


@pytest.mark.parametrize(
    ("times", "text"), [(1.84, "1.8"), (3.0, "3"), (47.2, "47"), (1234.0, "1,200"), (99.6, "100")]
)
def test_ratios_have_two_digits(times: float, text: str) -> None:
    assert times_text(times) == text


def test_needs_are_named() -> None:
    assert needs_text(Cost()) == "–"
    assert (
        needs_text(Cost(reads_text=True, outside_weights=True, device="cpu"))
        == "outside weights, text"
    )
    assert needs_text(Cost(device="cuda")) == "a GPU was used"


def test_a_comparison_is_the_same_after_writing_and_reading() -> None:
    together = comparison(
        result("a", 0.8, ours=against(0.1, 0.2)),
        result("b", 0.7, best=against(0.1, 0.01), latency=None, note="seen"),
        Result("c", "c", problem="cannot"),
        picks={BEST: "a"},
        advice=["a"],
    )
    assert Comparison.from_dict(together.to_dict()) == together
