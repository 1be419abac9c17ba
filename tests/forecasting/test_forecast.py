"""Forecasts: intervals cover what they claim on simulated data, every kind with a linear model has
one, test labels do not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tasklm
from tasklm.cli.app import app
from tasklm.errors import DataError, RecipeError
from tasklm.forecasting.forecast import (
    CONFIDENCE,
    SHIFT,
    Expected,
    added,
    averaged,
    chance_errors,
    first_look,
    forecast,
    outlook_of,
)
from tasklm.forecasting.gains import MACHINES, MINUTES, Gain
from tasklm.forecasting.learning_curve import Curve, Point
from tasklm.recipe.toml import load
from tasklm.tasks.metrics import class_metric
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.kind_data import CASES

ACCURACY = class_metric("accuracy", ["a", "b"])


def rights(share: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """Statistics of accuracy for so many examples, of which a share is right by chance."""
    right = generator.random(count) < share
    return np.asarray(
        ACCURACY.statistics(["a"] * count, ["a" if one else "b" for one in right]), np.float64
    )


def simulated(generator: np.random.Generator, shift: float) -> Curve:
    """A curve of 2,000 examples with accuracy 0.9 − 0.1 · share^−0.5, higher on dev by `shift`."""
    points = []
    for share in (0.1, 0.2, 0.4, 0.8):
        true = 0.9 - 0.1 * share**-0.5
        train = [rights(true, 400, generator) for _ in range(5)]
        points.append(Point(2000 * share, train, [rights(true + shift, 300, generator)] * 5))
    return Curve(ACCURACY, 2000, 2000, points, rights(0.8 + shift, 300, generator), 1.0)


def test_intervals_cover_simulated_scores() -> None:
    generator, now, twice = np.random.default_rng(3), 0, 0
    rounds = 30
    for number in range(rounds):
        outlook = outlook_of(simulated(generator, generator.normal(0, SHIFT)), 500, seed=number)
        strays = generator.normal(0, SHIFT)
        for truth, score, errors in (
            (0.8, outlook.score, outlook.errors),
            (0.9 - 0.1 * 2**-0.5, outlook.twice, outlook.twice_errors),
        ):
            expected = Expected.of(100 * score, 100 * errors)
            inside = (
                expected.low
                <= 100 * (generator.random(500) < truth + strays).mean()
                <= expected.high
            )
            now, twice = now + (inside and truth == 0.8), twice + (inside and truth != 0.8)
    assert 0.8 * rounds <= now and 0.8 * rounds <= twice


def test_first_looks_cover_simulated_scores() -> None:
    generator, rounds, inside = np.random.default_rng(4), 200, 0
    for number in range(rounds):
        splits = [
            rights(0.7 + generator.normal(0, SHIFT), count, generator) for count in (1500, 150)
        ]
        look = first_look(ACCURACY, splits, 400, seed=number)
        expected = Expected.of(100 * look.score, 100 * look.errors)
        actual = 100 * (generator.random(400) < 0.7 + generator.normal(0, SHIFT)).mean()
        inside += expected.low <= actual <= expected.high
    assert CONFIDENCE - 0.06 <= inside / rounds <= 0.99


def test_the_surer_split_counts_more() -> None:
    generator = np.random.default_rng(0)
    levels = np.stack(
        [0.7 + 0.002 * generator.standard_normal(201), 0.8 + 0.05 * generator.standard_normal(201)],
        axis=1,
    )
    levels[0] = 0.7, 0.8
    score, errors = averaged(levels, generator)
    variances = levels[1:].var(0, ddof=1) + SHIFT**2
    assert score == pytest.approx(np.average([0.7, 0.8], weights=1 / variances))
    assert score < 0.72 and errors.std() > 0.04  # splits that differ by 10 points make it unsure


def test_dev_counts_alone_where_train_is_surely_of_another_sort() -> None:
    generator = np.random.default_rng(0)
    levels = np.array([0.8, 0.6]) + 0.01 * generator.standard_normal((201, 2))
    levels[0] = 0.8, 0.6
    score, errors = averaged(levels, generator)
    assert score == 0.6 and errors.std() > 0.08  # test may be as far from dev
    assert averaged(levels[:, 1:], generator)[0] == 0.6


def test_small_test_sets_stray_further() -> None:
    rows = rights(0.8, 1000, np.random.default_rng(0))
    small, large = (
        chance_errors(ACCURACY, rows, size, 2000, np.random.default_rng(1)).std()
        for size in (50, 5000)
    )
    assert small == pytest.approx((0.8 * 0.2 / 50) ** 0.5, rel=0.1) and large == pytest.approx(
        small / 10, rel=0.1
    )


def test_a_gain_takes_half_of_the_errors_away_at_most() -> None:
    assert added(0.9, np.zeros(1), Gain(20.0, np.zeros(1))).score == 95.0
    assert added(0.9, np.zeros(1), Gain(2.0, np.zeros(1))).score == 92.0
    assert added(0.9, np.zeros(1), Gain(-2.0, np.zeros(1))).score == 88.0
    assert Expected.of(99.0, np.array([-1.0, 5.0])).high == 100.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "train.jsonl", labelled(120, 1))
    write_jsonl(tmp_path / "dev.jsonl", labelled(60, 2))
    write_jsonl(tmp_path / "test.jsonl", labelled(60, 3))
    (tmp_path / "texts.txt").write_text("\n".join(sentences(50, 4)), encoding="utf-8")
    return tmp_path


def made(folder: Path, **more: Any) -> Any:
    return tasklm.forecast(
        folder / "train.jsonl", corpus=folder / "texts.txt", dev=folder / "dev.jsonl", **more
    )


def test_labels_of_test_are_not_used(data: Path) -> None:
    with_labels = made(data, test=data / "test.jsonl")
    rows = [{"text": row["text"]} for row in labelled(60, 3)]
    without = made(data, test=write_jsonl(data / "bare.jsonl", rows))
    assert {**with_labels.to_dict(), "seconds": 0} == {**without.to_dict(), "seconds": 0}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.kind not in ("parse", "translate")],
    ids=lambda case: case.kind,
)
def test_every_kind_with_a_linear_model_has_a_forecast(case: Any, tmp_path: Path) -> None:
    train = case.write(tmp_path / f"train{case.suffix}", case.rows(90, 1))
    dev = case.write(tmp_path / f"dev{case.suffix}", case.rows(40, 2))
    (tmp_path / "texts.txt").write_text("\n".join(sentences(50, 4)), encoding="utf-8")
    result = tasklm.forecast(train, corpus=tmp_path / "texts.txt", dev=dev)
    assert result.kind == case.kind and result.metric == case.metrics[0]
    assert [(row.machine, row.minutes) for row in result.trained] == [
        (machine, minutes) for machine in MACHINES for minutes in MINUTES
    ]
    assert result.linear.low <= result.linear.score <= result.linear.high <= 100
    assert result.linear_twice.score >= result.linear.score


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.kind in ("parse", "translate")],
    ids=lambda case: case.kind,
)
def test_kinds_without_a_linear_model_are_told_what_to_do(case: Any, tmp_path: Path) -> None:
    train = case.write(tmp_path / f"train{case.suffix}", case.rows(60, 1))
    dev = case.write(tmp_path / f"dev{case.suffix}", case.rows(30, 2))
    (tmp_path / "texts.txt").write_text("\n".join(sentences(50, 4)), encoding="utf-8")
    with pytest.raises(DataError, match=f"kind {case.kind} has no linear model.*tasklm fit TRAIN"):
        tasklm.forecast(train, corpus=tmp_path / "texts.txt", dev=dev)


def test_what_is_missing_is_named(data: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt: no text files found there"):
        tasklm.forecast(data / "train.jsonl", corpus=data / "nothing.txt")
    with pytest.raises(RecipeError, match="a forecast needs the corpus"):
        forecast(load(None, {"data.train": str(data / "train.jsonl")}))
    with pytest.raises(RecipeError, match="at most 120 seconds, not 500"):
        made(data, seconds=500)
    with pytest.raises(DataError, match="too few"):
        tasklm.forecast(write_jsonl(data / "few.jsonl", labelled(12, 9)), corpus=data / "texts.txt")
    with pytest.raises(DataError, match="also occurs in test"):
        made(data, test=data / "dev.jsonl")


def test_a_corpus_that_is_too_large_for_the_minutes_adds_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklm.forecasting.forecast.reading_seconds", lambda corpus: 800.0)
    result = made(data)
    assert [row.reads_corpus for row in result.trained] == [False, False, True] * 2
    assert result.trained[0].labels.score == result.linear.score
    assert "too few minutes to read this corpus" in str(result)


def test_the_command_prints_a_table_and_json(data: Path) -> None:
    words = [
        "forecast",
        str(data / "train.jsonl"),
        "--corpus",
        str(data / "texts.txt"),
        "--dev",
        str(data / "dev.jsonl"),
    ]
    done = CliRunner().invoke(app, [*words, "--evaluate.metric", "accuracy"])
    assert done.exit_code == 0, done.output
    for text in (
        "TF-IDF + linear",
        "tasklm, 5 minutes, CPU",
        "tasklm, 60 minutes, GPU",
        "240 labels",
        "test accuracy",
    ):
        assert text in done.stdout
    values = json.loads(CliRunner().invoke(app, [*words, "--json", "--seconds", "30"]).stdout)
    assert values["examples"] == 120 and len(values["trained"]) == 6
    assert {"score", "low", "high"} == set(values["linear"])
