"""What more labels would bring: the fitted curve against SciPy's, and what a run says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import curve_fit

from tasklm.errors import DataError
from tasklm.forecasting import growth as measuring
from tasklm.forecasting import learning_curve
from tasklm.forecasting.growth import Gain, Growth, growth_of
from tasklm.forecasting.power_law import fit_power_law
from tasklm.forecasting.samples import FEWEST
from tasklm.recipe.data_sections import Data, Kind
from tasklm.report.label_growth import label_growth
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.splits import read_splits, resolved
from tests.conftest import labelled, write_jsonl
from tests.end_to_end.conftest import files  # noqa: F401  (a fixture)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, Splits]:
    folder = tmp_path_factory.mktemp("growth")
    train = write_jsonl(folder / "train.jsonl", labelled(120, 1))
    dev = write_jsonl(folder / "dev.jsonl", labelled(60, 2))
    data = resolved(Data(train=str(train), dev=str(dev)))
    splits = read_splits(data)
    return TASKS.get(data.kind).from_examples(splits.train, Kind()), splits


def test_the_power_law_is_that_of_scipy() -> None:
    sizes = np.array([0.1, 0.2, 0.4, 0.8, 1.0])
    scores = 0.9 - 0.11 * sizes**-0.4 + np.array([0.002, -0.001, 0.001, -0.002, 0.001])

    def law(size: np.ndarray, level: float, slope: float, exponent: float) -> np.ndarray:
        return np.asarray(level - slope * size**-exponent)

    best, _ = curve_fit(law, sizes, scores, [0.9, 0.1, 0.5], sigma=1 / sizes)
    ours = fit_power_law(sizes, np.zeros(5, np.int64), scores, noise=1e-7)
    theirs = law(np.array([1.0, 2.0]), *best)
    assert float(ours.at(2.0)[0]) == pytest.approx(theirs[1], abs=2e-4)
    assert float(ours.gain(1.0, 2.0)) == pytest.approx(theirs[1] - theirs[0], abs=2e-4)


def test_more_labels_bring_less_than_twice_as_many(task: tuple[Task, Splits]) -> None:
    growth = growth_of(*task, "macro_f1", 2.0)
    assert growth.examples == 120 and growth.more.labels == 220 and growth.twice.labels == 240
    assert 0 <= growth.more.gain <= growth.twice.gain
    assert growth.twice.low <= growth.twice.gain <= growth.twice.high
    labels = [size for size, _ in growth.fitted]
    assert labels[-1] == 240 and growth.measured[-1][0] == 120
    assert np.all(np.diff([score for _, score in growth.fitted]) >= 0)
    assert Growth.from_dict(json.loads(json.dumps(growth.to_dict()))) == growth


def test_the_sentence_and_the_page_say_it(task: tuple[Task, Splits]) -> None:
    growth = growth_of(*task, "macro_f1", 2.0)
    said = Growth("macro_f1", 100, growth.measured, growth.fitted, GAIN, GAIN).sentence()
    assert said.startswith("100 more labels: +1.8 ± 0.6; twice the labels (200): +1.8 ± 0.6 points")
    page = str(label_growth(growth.to_dict()))
    assert "<svg" in page and growth.sentence() in page
    assert "Not measured: no time" in str(label_growth({"skipped": "no time"}))
    assert str(label_growth({})) == ""


GAIN = Gain(200, 1.8, 1.2, 2.4)


def test_without_dev_or_with_too_few_labels_there_is_none(task: tuple[Task, Splits]) -> None:
    own, splits = task
    with pytest.raises(DataError, match="no dev"):
        growth_of(own, Splits(splits.train, []), "macro_f1", 2.0)
    with pytest.raises(DataError, match="too few"):
        growth_of(own, Splits(splits.train[:30], splits.dev), "macro_f1", 2.0)


def test_a_class_that_a_sample_would_miss_is_in_it(
    task: tuple[Task, Splits], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long run's few seconds read a part of many examples, where a rare class may have none."""
    _, splits = task
    names = sorted({str(one.label) for one in splits.train})
    train = [*splits.train[:7], Example(("a word of its own",), "rare"), *splits.train[7:]]
    own = TASKS.get("classify").from_examples(train, Kind())
    assert own.labels == sorted([*names, "rare"])
    monkeypatch.setattr(learning_curve, "examples_in", lambda *given: FEWEST)
    chosen = learning_curve.with_all_classes(train, FEWEST)
    assert len(chosen) == FEWEST + 1 and train[7] in chosen
    assert growth_of(own, Splits(train, splits.dev), "macro_f1", 0.0).measured


def test_a_run_measures_it_once_and_only_where_its_time_allows(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasklm.pipeline import growth as step
    from tasklm.pipeline.flow import fit
    from tasklm.tracking import SILENT
    from tests.end_to_end.test_minutes import LATE, SetClock, recipe_of

    first = fit(recipe_of(files), tmp_path / "short", SILENT, clock=SetClock(LATE))
    assert first is not None and "at least 3 seconds" in first.growth["skipped"]
    page = (tmp_path / "short" / "report.html").read_text("utf-8")
    assert "What more labels would bring" in page and "Not measured: it takes" in page

    monkeypatch.setattr(step, "LEAST", 0.0)
    monkeypatch.setattr(step, "_left", lambda run: 1.0)
    scores = fit(recipe_of(files), tmp_path / "long", SILENT, clock=SetClock(LATE))
    assert scores is not None and scores.growth["twice"]["labels"] == 320
    said = Growth.from_dict(scores.growth).sentence()
    assert said in (tmp_path / "long" / "report.html").read_text("utf-8")
    assert said in (tmp_path / "long" / "log.txt").read_text("utf-8")
    monkeypatch.setattr(measuring, "measure_curve", None)  # it would fail if it were called
    again = fit(recipe_of(files), tmp_path / "long", SILENT, clock=SetClock())
    assert again is not None and again.growth == scores.growth
