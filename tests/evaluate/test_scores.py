"""Rows, the verdict's honesty, the terminal table and scores.json."""

from __future__ import annotations

import json
import statistics

import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import accuracy_score, f1_score

from tasklm.errors import RunError
from tasklm.evaluate.intervals import (
    Predicted,
    bootstrap_interval,
    paired_difference,
    statistics_of,
)
from tasklm.evaluate.scores import (
    Row,
    RowInputs,
    Scores,
    SeedScore,
    flops_text,
    from_dict,
    make_row,
    over_seeds,
    spread,
    table,
    time_text,
    to_dict,
)
from tasklm.evaluate.verdict import verdict, with_verdict
from tasklm.tasks.classify import Classify

RANDOM = np.random.default_rng(0)
GOLD = RANDOM.integers(0, 3, 400)


TASK = Classify(["0", "1", "2"])
METRIC = TASK.metric("macro_f1")


def named(numbers: np.ndarray) -> list[str]:
    return [str(number) for number in numbers]


def part_of(predicted: np.ndarray, trainings: int = 1) -> Predicted:
    return Predicted(named(GOLD), [named(row) for row in predicted], trainings)


def guesses(share_right: float, seeds: int = 3) -> np.ndarray:
    return np.where(RANDOM.random((seeds, 400)) < share_right, GOLD, (GOLD + 1) % 3)


STRONG, MIDDLE, WEAK = guesses(0.8), guesses(0.79), guesses(0.5, seeds=1)


def row(
    name: str,
    kind: str,
    predicted: np.ndarray,
    ours: np.ndarray,
    test: bool = True,
    trainings: int = 1,
) -> Row:
    part = part_of(predicted, 1 if kind == "baseline" else trainings)
    paired = part_of(ours, trainings)
    on_test = part if test else None
    return make_row(
        RowInputs(name, kind, TASK, "macro_f1", dev=part, test=on_test, ours_test=paired)  # type: ignore[arg-type]
    )


def scores(
    ours: np.ndarray,
    *others: tuple[str, np.ndarray],
    test: bool = True,
    kind: str = "baseline",
    trainings: int = 1,
) -> Scores:
    rows = [
        row("TLM", "ours", ours, ours, test, trainings),
        *(row(name, kind, other, ours, test, trainings) for name, other in others),
    ]
    return with_verdict(
        Scores("macro_f1", ["a", "b", "c"], rows, {"train": 400}, seeds=3, trainings=trainings)
    )


def test_row_holds_what_the_predictions_give() -> None:
    made = row("TF-IDF", "baseline", MIDDLE, STRONG)
    values = [f1_score(GOLD, seed, average="macro") for seed in MIDDLE]
    assert made.test is not None
    assert made.test.values == pytest.approx(values)
    assert (made.test.mean, made.test.sd) == pytest.approx(
        (statistics.mean(values), statistics.stdev(values))
    )
    assert (made.test.low, made.test.high) == bootstrap_interval(
        METRIC, statistics_of(METRIC, part_of(MIDDLE))
    )
    assert made.dev is not None and made.dev.low is None
    assert made.metrics["accuracy"] == pytest.approx(
        np.mean([accuracy_score(GOLD, seed) for seed in MIDDLE])
    )
    assert made.against == paired_difference(
        METRIC, statistics_of(METRIC, part_of(STRONG)), statistics_of(METRIC, part_of(MIDDLE))
    )


def test_metrics_come_from_dev_when_there_is_no_test() -> None:
    made = make_row(
        RowInputs("x", "ours", TASK, "accuracy", dev=part_of(WEAK), test=Predicted([], [[]]))
    )
    assert made.test is None
    assert made.metrics["accuracy"] == pytest.approx(accuracy_score(GOLD, WEAK[0]))
    assert make_row(RowInputs("x", "ours", TASK, "accuracy")).metrics == {}


def test_one_seed_has_no_spread() -> None:
    assert (spread([0.5]).sd, spread([0.5]).mean) == (0.0, 0.5)
    assert spread([0.0, 1.0]).sd == pytest.approx(0.5**0.5)


def test_verdict_says_who_is_ahead_and_whether_it_is_chance() -> None:
    clear = scores(STRONG, ("majority", WEAK)).verdict
    assert clear.startswith("TLM scores ") and "ahead of the best other row, majority" in clear
    assert (
        "p ≤ 0.002 with 1,000 resamples: significant for this one training of stage 1)" in clear
        and "95% interval" in clear
    )
    assert clear.endswith(" Resampled: test examples and seeds of stage 2.")
    assert (
        "not significant; it may be chance"
        in scores(STRONG, ("majority", WEAK), ("close", MIDDLE)).verdict
    )


def test_verdict_says_plainly_that_a_baseline_wins() -> None:
    lost = scores(WEAK, ("majority", WEAK), ("TF-IDF + linear", STRONG)).verdict
    assert lost.startswith("TF-IDF + linear wins: ")
    named = scores(WEAK, ("task data only", MIDDLE)).verdict, scores(WEAK, ("x-1", MIDDLE)).verdict
    assert named[0].startswith("Task data only wins: ") and named[1].startswith("x-1 wins: ")
    assert ": significant for this one training of stage 1)" in lost
    assert "tie" in scores(STRONG, ("twin", STRONG)).verdict


def test_scores_that_print_alike_tie() -> None:
    many = np.repeat(STRONG, 8, axis=0)  # one answer of 9,600 differs: 0.01 points
    other = many.copy()
    other[0, 0] = (other[0, 0] + 1) % 3
    for one, two in ((many, other), (other, many)):
        told = scores(one, ("twin", two)).verdict
        assert "TLM and twin tie: both score " in told and "wins" not in told


@pytest.mark.parametrize(
    ("trainings", "told"), [(1, "one training of stage 1 each"), (2, "2 trainings of stage 1 each")]
)
def test_few_trainings_of_either_model_are_never_called_significant(
    trainings: int, told: str
) -> None:
    ours, other = guesses(0.9, 3 * trainings), guesses(0.5, 3 * trainings)
    compared = scores(ours, ("random selection", other), kind="ablation", trainings=trainings)
    against = compared.rows[1].against
    assert against is not None and against.p < 0.05
    assert "significant" not in compared.verdict
    assert (
        f"clear on these test examples, but {told}, "
        f"so it may be luck of the seed; to rule that out: --train.seeds 3"
    ) in compared.verdict


def test_three_trainings_of_each_model_may_be_called_significant() -> None:
    compared = scores(
        guesses(0.9, 9), ("random selection", guesses(0.5, 9)), kind="ablation", trainings=3
    )
    assert ", p ≤ 0.002 with 1,000 resamples: significant)" in compared.verdict
    assert compared.verdict.endswith(" Resampled: test examples and seeds of stages 1 and 2.")
    baseline = scores(
        guesses(0.9, 9), ("TF-IDF", guesses(0.5, 1)), trainings=3
    )  # it has one seed by nature
    assert ": significant)" in baseline.verdict


def test_a_model_that_another_seed_would_have_put_behind_is_not_ahead_for_sure() -> None:
    """Each seed alone beats each of the others on these examples, or is beaten: which, is luck."""
    lucky = np.concatenate([guesses(share, 3) for share in (0.95, 0.6, 0.6)])
    other = guesses(0.65, 9)
    by_training = scores(lucky, ("random selection", other), kind="ablation", trainings=3)
    assert "not significant; it may be chance" in by_training.verdict
    examples_alone = row("x", "ablation", other[:1], lucky[:1]).against
    assert examples_alone is not None and examples_alone.p < 0.05


def test_scores_list_each_seed_with_its_numbers() -> None:
    made = scores(guesses(0.8, 6), ("majority", WEAK), trainings=2)
    ours, majority = made.rows
    assert ours.test is not None and ours.dev is not None
    assert [(seed.stage1, seed.stage2) for seed in ours.seeds] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (2, 2),
        (2, 3),
    ]
    assert [(seed.dev, seed.test) for seed in ours.seeds] == list(
        zip(ours.dev.values, ours.test.values, strict=True)
    )
    assert ours.trainings == 2 and majority.seeds == [] and majority.resampled == "test examples"
    assert ours.test.stage1 == pytest.approx(
        [np.mean(ours.test.values[:3]), np.mean(ours.test.values[3:])]
    )
    assert ours.test.stage1_sd == pytest.approx(np.std(ours.test.stage1, ddof=1))
    assert over_seeds(made) == "mean ± sd over 6 seeds (2 of stage 1 × 3 of stage 2)"
    dev_only = make_row(RowInputs("x", "ours", TASK, "macro_f1", dev=part_of(WEAK)))
    assert dev_only.dev is not None and dev_only.seeds == [SeedScore(1, 1, dev_only.dev.mean, None)]


def test_scores_of_an_earlier_version_are_read() -> None:
    """Their intervals are over test examples alone, and nothing is known of the number of
    resamples.
    """
    values = to_dict(scores(STRONG, ("majority", WEAK)))
    del values["trainings"]
    for one in values["rows"]:
        del one["seeds"], one["resampled"], one["test"]["stage1"], one["dev"]["stage1"]
        if one["against"] is not None:
            one["against"] = {
                name: one["against"][name] for name in ("difference", "low", "high", "p")
            }
    old = from_dict(json.loads(json.dumps(values)))
    assert old.trainings == 1 and old.rows[1].against is not None
    assert (old.rows[0].resampled, old.rows[1].against.resampled) == (
        "test examples",
        "test examples",
    )
    assert "p = 0.002: significant for this one training of stage 1)" in verdict(old)


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
    assert "[95% interval]" in text and "mean ± sd over 3 seeds of stage 2" in text
    beneath = " ".join(text.split())
    assert (
        "resampled for the intervals: test examples and seeds of stage 2; other rows: test examples"
        in beneath
    )
    assert "[red]majority" in text  # a name is text, not markup
    assert text.splitlines()[0].strip().endswith("[95% interval]")  # the title is one line


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
    assert together.against is not None and together.against.difference < 0
    assert (
        verdict(
            Scores("macro_f1", ["a", "b", "c"], [*alone.rows, together], {"train": 400}, seeds=3)
        )
        == alone.verdict
    )
    nothing_else = verdict(Scores("macro_f1", ["a", "b", "c"], [alone.rows[0], together], seeds=3))
    assert "nothing to compare it with" in nothing_else
