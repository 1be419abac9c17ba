"""The step that selects: score the passages, choose among them, leave near copies out, write them down."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from tasklm.budget import Plan
from tasklm.corpus.spark_store import SparkStore
from tasklm.errors import DataError
from tasklm.recipe import Select
from tasklm.runs import digest
from tasklm.select.base import SELECTORS, Chosen, Passages, Ranking, Selector, Workplace, bytes_of, write_selection
from tasklm.select.bm25_spark import FetchedPassages
from tasklm.select.near_duplicates import without_near_duplicates
from tasklm.select.terms import stemmer
from tasklm.workspace import CorpusData, Run, TaskData

_SPARE_FETCHED = 1.25  # of the passages wanted are brought from a cluster, so that near copies can be left out
_HOW = ("memory", "index", "master", "spark", "url")  # settings that change how fast, not what is selected


def check_settings(settings: Select) -> None:
    """Raises at once what would otherwise show only after the corpus was read."""
    SELECTORS.get(settings.method)
    bytes_of(settings.memory)
    stemmer(settings.stemming)


def fitted(settings: Select, task: TaskData) -> Selector:
    """Returns the selector that knows the task."""
    selector = SELECTORS.get(settings.method)(settings)
    selector.fit(task.texts("train"), [str(example.label) for example in task.splits.train])
    return selector


def select(run: Run, task: TaskData, corpus: CorpusData, plan: Plan) -> tuple[Path, str]:
    """Returns the Parquet file of the selected passages and its key."""
    settings = run.recipe.select
    key = digest([task.key, corpus.key, plan.k, plan.passages, _what(settings)])

    def build(folder: Path) -> None:
        selector = fitted(settings, task)
        ranking = _ranking(run, selector, corpus, plan, folder)
        chosen, texts = _chosen(run, selector, ranking, corpus, plan, folder)
        if not len(chosen.passages):
            raise DataError(
                "no passage of the corpus has a word in common with the task",
                file=", ".join(run.recipe.data.corpus),
                remedy="Give a corpus in the task's language, or --select.method random.",
            )
        write_selection(folder / "selected.parquet", texts, chosen)
        if isinstance(corpus.store, SparkStore):
            corpus.store.spark.stop()  # training needs no cluster
        wanted = f" of the {plan.passages:,} wanted" if plan.passages and plan.passages > len(chosen.passages) else ""
        run.tracker.say(f"selected {len(chosen.passages):,}{wanted} of {len(corpus.store):,} passages by {settings.method}")

    return run.artefacts.build("selected", key, build) / "selected.parquet", key


def _what(settings: Select) -> dict[str, Any]:
    """Returns the settings that decide what is selected; here and on Spark it is the same."""
    values = {name: value for name, value in dataclasses.asdict(settings).items() if name not in _HOW}
    return values | {"engine": "elastic" if settings.engine == "elastic" else "exact"}


def _ranking(run: Run, selector: Selector, corpus: CorpusData, plan: Plan, folder: Path) -> Ranking:
    """Returns the stored ranking, scored first unless it is there: another number of passages is then free."""
    settings = run.recipe.select
    in_all = len(corpus.store) if settings.near_duplicates or not plan.passages else plan.passages
    k = plan.k if selector.per_example else in_all
    ranking, scratch = folder / "ranking", folder / "scratch"
    if not (ranking / "done").exists():
        scratch.mkdir(exist_ok=True)
        place = Workplace(run.cache, scratch, run.tracker, bytes_of(settings.memory), run.machine.threads)
        selector.score(corpus.store, corpus.contamination.banned, k, place).save(ranking)
        (ranking / "done").touch()
    shutil.rmtree(scratch, ignore_errors=True)
    return Ranking.load(ranking)


def _chosen(run: Run, selector: Selector, ranking: Ranking, corpus: CorpusData, plan: Plan, folder: Path) -> tuple[Chosen, Passages]:
    """Returns the chosen passages without near copies, and where their texts are."""
    threshold = run.recipe.select.near_duplicates
    if not isinstance(corpus.store, SparkStore):
        chosen = selector.choose(ranking, None if threshold else plan.passages)
        if threshold:
            chosen = without_near_duplicates(chosen, corpus.store, threshold, plan.passages, run.tracker)
        return chosen, corpus.store
    enough = int(_SPARE_FETCHED * plan.passages) if threshold and plan.passages else plan.passages
    chosen = selector.choose(ranking, enough)
    texts = FetchedPassages(corpus.store, chosen.passages, folder)
    if threshold:
        chosen = without_near_duplicates(chosen, texts, threshold, plan.passages, run.tracker)
    return chosen, texts
