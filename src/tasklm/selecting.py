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

_HOW = ("memory", "index", "master", "spark", "url")  # settings that change how fast, not what is found
_AFTER_SCORING = ("k", "passages", "near_duplicates")  # settings of choosing, and k, which a plan decides


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
    k = _k(settings, corpus, plan)
    ranking_key = digest([task.key, corpus.key, k, _what(settings)])
    key = digest([ranking_key, plan.passages, settings.near_duplicates])

    def build(folder: Path) -> None:
        selector = fitted(settings, task)
        ranking = _ranking(run, selector, corpus, k, ranking_key)
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
    """Returns the settings that decide what scoring finds; here and on Spark it is the same."""
    values = {name: value for name, value in dataclasses.asdict(settings).items() if name not in _HOW + _AFTER_SCORING}
    return values | {"engine": "elastic" if settings.engine == "elastic" else "exact"}


def _k(settings: Select, corpus: CorpusData, plan: Plan) -> int:
    """Returns how many passages are ranked: per example, or in all, where leaving out near copies may need any of them."""
    if SELECTORS.get(settings.method).per_example:
        return plan.k
    return len(corpus.store) if settings.near_duplicates or not plan.passages else plan.passages


def _ranking(run: Run, selector: Selector, corpus: CorpusData, k: int, key: str) -> Ranking:
    """Returns the ranking, an artefact of its own: another number of passages is then chosen without scoring again."""

    def build(folder: Path) -> None:
        scratch = folder / "scratch"
        scratch.mkdir(exist_ok=True)
        place = Workplace(run.cache, scratch, run.tracker, bytes_of(run.recipe.select.memory), run.machine.threads)
        selector.score(corpus.store, corpus.contamination.banned, k, place).save(folder)
        shutil.rmtree(scratch)

    return Ranking.load(run.artefacts.build("ranking", key, build))


def _chosen(run: Run, selector: Selector, ranking: Ranking, corpus: CorpusData, plan: Plan, folder: Path) -> tuple[Chosen, Passages]:
    """Returns the chosen passages without near copies, and where their texts are."""
    threshold, wanted = run.recipe.select.near_duplicates, plan.passages
    if not isinstance(corpus.store, SparkStore):
        chosen = selector.choose(ranking, None if threshold else wanted)
        if threshold:
            chosen = without_near_duplicates(chosen, corpus.store, threshold, wanted, run.tracker)
        return chosen, corpus.store
    enough = wanted
    while True:  # texts come from the cluster: no more of them than it takes to have enough without near copies
        pool = selector.choose(ranking, enough)
        texts = FetchedPassages(corpus.store, pool.passages, folder)
        if not threshold:
            return pool, texts
        chosen = without_near_duplicates(pool, texts, threshold, wanted, run.tracker)
        if enough is None or wanted is None or len(chosen.passages) == wanted or len(pool.passages) < enough:
            return chosen, texts
        enough = enough + max(wanted // 4, 2 * (wanted - len(chosen.passages)))
