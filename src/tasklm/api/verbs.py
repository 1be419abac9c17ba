"""Verbs of the package: a forecast before training, a model that finished runs teach, a comparison
of ways to make one, and an update of a finished run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tasklm.api.estimator import TaskLM, Texts
from tasklm.comparing.entries import USUAL, entries_of
from tasklm.comparing.flow import MINUTES
from tasklm.comparing.flow import compare as compare_entries
from tasklm.comparing.results import Comparison
from tasklm.forecasting.forecast import SECONDS, Forecast
from tasklm.forecasting.forecast import forecast as forecast_recipe
from tasklm.pipeline.flow import fit as run_pipeline
from tasklm.pipeline.teachers import student_of
from tasklm.recipe.toml import load as load_recipe
from tasklm.storage.files import require_own
from tasklm.tracking import Tracker
from tasklm.updating.flow import update as update_run
from tasklm.updating.reading import Request
from tasklm.updating.record import UpdateResult


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
    overrides = {**(settings or {}), **_files(train, corpus, dev, test)}
    return forecast_recipe(load_recipe(None, overrides), seconds)


class CompareSettings(TypedDict, total=False):
    """Further arguments of `compare`."""

    minutes: float
    out: str | Path
    settings: Mapping[str, Any]


def compare(
    train: str | Path,
    *,
    corpus: Texts | None = None,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    contestants: Sequence[str] = USUAL,
    **more: Unpack[CompareSettings],
) -> Comparison:
    """Compares tasklm with other kinds of models on a labelled file, and says which to use when;
    `print` shows it as a table.

    `contestants` are named as on the command line: "tfidf", "run=runs/first", "minilm=FOLDER" …
    `minutes` (20) is the time limit for each. `out` ("compare") is the folder; the same call
    continues there. `settings` are recipe keys by dotted name, such as {"data.leaks": "drop"}.
    """
    overrides = {**(more.get("settings") or {}), **_files(train, corpus, dev, test)}
    overrides["budget.minutes"] = more.get("minutes", MINUTES)
    recipe, folder = load_recipe(None, overrides), Path(more.get("out", "compare"))
    return compare_entries(recipe, entries_of(contestants), folder, Tracker())


def _files(
    train: str | Path,
    corpus: Texts | None,
    dev: str | Path | None,
    test: str | Path | None,
) -> dict[str, Any]:
    """The recipe keys of some files."""
    keys: dict[str, Any] = {"data.train": str(train)}
    if isinstance(corpus, str | Path):
        keys["data.corpus"] = [str(corpus)]
    elif corpus is not None:
        keys["data.corpus"] = [str(one) for one in corpus]
    given = {"data.dev": dev, "data.test": test}
    return keys | {key: str(value) for key, value in given.items() if value}


def distill(
    teachers: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
) -> TaskLM:
    """Trains a model taught by finished runs, in the folder `out`; returns it.

    The recipe is that of the first run, changed by `settings` with dotted names, such as
    {"model.size": "mini"}.
    """
    given = [teachers] if isinstance(teachers, str | Path) else teachers
    require_own(Path(out))
    run_pipeline(student_of([str(one) for one in given], settings or {}), Path(out), Tracker())
    return TaskLM.load(out)


def update(
    run: str | Path,
    *,
    train: str | Path | None = None,
    corpus: Texts | None = None,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> UpdateResult:
    """Teaches the model of a finished run new examples, classes or text, in a part of its first
    time; `print` shows the scores before and after.

    The updated model replaces the one in the run unless it is worse on dev. `settings` are recipe
    keys by dotted name, such as {"data.leaks": "drop"}.
    """
    files = _files(train or "", corpus, dev, test)
    request = Request(
        train=files["data.train"],
        dev=files.get("data.dev", ""),
        test=files.get("data.test", ""),
        corpus=tuple(files.get("data.corpus", ())),
        settings=settings or {},
    )
    return update_run(Path(run), request, Tracker())
