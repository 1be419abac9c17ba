"""What is asked of no model: a forecast before training, and a model that finished runs teach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasklm.api.estimator import TaskLM, Texts
from tasklm.forecasting.forecast import SECONDS, Forecast
from tasklm.forecasting.forecast import forecast as forecast_recipe
from tasklm.pipeline.flow import fit as run_pipeline
from tasklm.pipeline.teachers import student_of
from tasklm.recipe.toml import load as load_recipe
from tasklm.storage.files import require_own
from tasklm.tracking import Tracker


def forecast(
    train: str | Path,
    *,
    corpus: Texts,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    seconds: float = SECONDS,
    settings: Mapping[str, Any] | None = None,
) -> Forecast:
    """Forecasts what a labelled file will score on test, before anything is trained; `print` shows
    it as a table.

    The labels of test are not used: its texts are removed from train, and its size determines how
    much a score may vary. `settings` are recipe keys by dotted name, such as {"evaluate.metric":
    "accuracy"}.
    """
    overrides: dict[str, Any] = {**(settings or {}), "data.train": str(train)}
    overrides["data.corpus"] = (
        [str(corpus)] if isinstance(corpus, str | Path) else [str(one) for one in corpus]
    )
    overrides |= {
        key: str(value) for key, value in (("data.dev", dev), ("data.test", test)) if value
    }
    return forecast_recipe(load_recipe(None, overrides), seconds)


def distill(
    teachers: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
) -> TaskLM:
    """Trains a model that finished runs teach, in the folder `out`; returns it.

    The recipe is that of the first run, with `settings` by dotted name over it, such as
    {"model.size": "mini"}.
    """
    given = [teachers] if isinstance(teachers, str | Path) else teachers
    require_own(Path(out))
    run_pipeline(student_of([str(one) for one in given], settings or {}), Path(out), Tracker())
    return TaskLM.load(out)
