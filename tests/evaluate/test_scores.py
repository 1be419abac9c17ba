"""Rows, the verdict's honesty, the terminal table and scores.json."""

from __future__ import annotations

import json
import statistics

import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import accuracy_score, f1_score

from tasklm.errors import RunError
from tasklm.evaluate.intervals import bootstrap_interval, paired_difference, statistics_of
from tasklm.evaluate.scores import (
    Row,
    Scores,
    flops_text,
    from_dict,
    make_row,
    spread,
    table,
    time_text,
    to_dict,
    verdict,
    with_verdict,
)
from tasklm.tasks.classify import Classify

RANDOM = np.random.default_rng(0)
GOLD = RANDOM.integers(0, 3, 400)


TASK = Classify(["0", "1", "2"])
METRIC = TASK.metric("macro_f1")


def named(numbers: np.ndarray) -> list[str]:
    return [str(number) for number in numbers]


def part_of(predicted: np.ndarray) -> tuple[list[str], list[list[str]]]:
    return named(GOLD), [named(row) for row in predicted]


def guesses(share_right: float, seeds: int = 3) -> np.ndarray:
    return np.where(RANDOM.random((seeds, 400)) < share_right, GOLD, (GOLD + 1) % 3)


STRONG, MIDDLE, WEAK = guesses(0.8), guesses(0.79), guesses(0.5, seeds=1)


def row(name: str, kind: str, predicted: np.ndarray, ours: np.ndarray, test: bool = True) -> Row:
    part = part_of(predicted)
    paired = part_of(ours)[1]
    return make_row(name, kind, TASK, "macro_f1", dev=part, test=part if test else None, ours_test=paired)  # type: ignore[arg-type]


def scores(ours: np.ndarray, *others: tuple[str, np.ndarray], test: bool = True) -> Scores:
    rows = [row("TLM", "ours", ours, ours, test), *(row(name, "baseline", other, ours, test) for name, other in others)]
    return with_verdict(Scores("macro_f1", ["a", "b", "c"], rows, {"train": 400}, seeds=3))


def test_row_holds_what_the_predictions_give() -> None:
    made = row("TF-IDF", "baseline", MIDDLE, STRONG)
    values = [f1_score(GOLD, seed, average="macro") for seed in MIDDLE]
    assert made.test is not None
    assert made.test.values == pytest.approx(values)
    assert (made.test.mean, made.test.sd) == pytest.approx((statistics.mean(values), statistics.stdev(values)))
    assert (made.test.low, made.test.high) == bootstrap_interval(METRIC, statistics_of(METRIC, *part_of(MIDDLE)))
    assert made.dev is not None and made.dev.low is None
    assert made.metrics["accuracy"] == pytest.approx(np.mean([accuracy_score(GOLD, seed) for seed in MIDDLE]))
    assert made.against == paired_difference(METRIC, statistics_of(METRIC, *part_of(STRONG)), statistics_of(METRIC, *part_of(MIDDLE)))


def test_metrics_come_from_dev_when_there_is_no_test() -> None:
    made = make_row("x", "ours", TASK, "accuracy", dev=part_of(WEAK), test=([], [[]]))
    assert made.test is None
    assert made.metrics["accuracy"] == pytest.approx(accuracy_score(GOLD, WEAK[0]))
    assert make_row("x", "ours", TASK, "accuracy").metrics == {}


def test_one_seed_has_no_spread() -> None:
    assert (spread([0.5]).sd, spread([0.5]).mean) == (0.0, 0.5)
    assert spread([0.0, 1.0]).sd == pytest.approx(0.5**0.5)


def test_verdict_says_who_is_ahead_and_whether_it_is_chance() -> None:
    clear = scores(STRONG, ("majority", WEAK)).verdict
    assert clear.startswith("TLM scores ") and "ahead of the best other row, majority" in clear
    assert ", significant)" in clear and "95% interval" in clear
    assert "may be chance" in scores(STRONG, ("majority", WEAK), ("close", MIDDLE)).verdict


def test_verdict_says_plainly_that_a_baseline_wins() -> None:
    lost = scores(WEAK, ("majority", WEAK), ("TF-IDF + linear", STRONG)).verdict
    assert lost.startswith("TF-IDF + linear wins: ")
    assert ", significant)" in lost
    assert "tie" in scores(STRONG, ("twin", STRONG)).verdict


def test_verdict_without_test_others_or_scores() -> None:
    assert "no test set" in scores(STRONG, ("majority", WEAK), test=False).verdict
    assert "dev macro-F1" in scores(STRONG, ("majority", WEAK), test=False).verdict
    assert "nothing to compare" in scores(STRONG).verdict
    assert verdict(Scores("accuracy", ["a"], [])) == "The model has not been scored yet."
    only_baseline = Scores("macro_f1", ["a", "b", "c"], [row("majority", "baseline", WEAK, STRONG)])
    assert "not been scored yet; the best other row is majority" in verdict(only_baseline)


def test_table_shows_every_row_with_interval() -> None:
    shown = scores(STRONG, ("[red]majority", WEAK))
    console = Console(width=110, force_terminal=False)
    with console.capture() as capture:
        console.print(table(shown))
    text = capture.get()
    ours = shown.rows[0].test
    assert ours is not None and ours.low is not None
    assert f"{100 * ours.mean:.1f} ± {100 * ours.sd:.1f} [{100 * ours.low:.1f}" in text
    assert "[95% interval]" in text
    assert "[red]majority" in text  # a name is text, not markup


def test_scores_survive_json() -> None:
    made = scores(STRONG, ("majority", WEAK))
    assert from_dict(json.loads(json.dumps(to_dict(made)))) == made


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": [{"name": "x"}]},
        {},
        {"rows": [], "metric": "accuracy", "labels": [], "no_such_key": 1},
    ],
)
def test_damaged_scores_name_the_way_out(damage: dict[str, object]) -> None:
    with pytest.raises(RunError, match="tasklm evaluate"):
        from_dict(damage)


def test_numbers_for_people() -> None:
    assert [time_text(s) for s in (0, 1.26, 9.97, 59.7, 61, 3599.9, 7325)] == [
        "–",
        "1.3 s",
        "10 s",
        "1 min",
        "1 min 1 s",
        "1 h",
        "2 h 2 min",
    ]
    assert [flops_text(f) for f in (0.0, 2.74e18, float("nan"))] == ["–", "2.7e18", "–"]


def test_the_verdict_is_about_one_model_beside_an_ensemble() -> None:
    alone = scores(MIDDLE, ("majority", WEAK))
    together = row("ensemble of 3 seeds", "ensemble", STRONG, MIDDLE)
    assert together.against is not None and together.against["difference"] < 0
    assert verdict(Scores("macro_f1", ["a", "b", "c"], [*alone.rows, together], {"train": 400}, seeds=3)) == alone.verdict
    nothing_else = verdict(Scores("macro_f1", ["a", "b", "c"], [alone.rows[0], together], seeds=3))
    assert "nothing to compare it with" in nothing_else
