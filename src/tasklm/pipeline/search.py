"""Inspecting a corpus and a run: searching it, why a passage was selected, and which labels may be
wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from tasklm.artifacts import Artefacts, rebuilding
from tasklm.corpus.corpus_text import local_text
from tasklm.corpus.processes import usable_cores
from tasklm.corpus.store import PassageStore, kept_store
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.influence.label_check import Suspect, as_csv, features_of, suspects_of
from tasklm.influence.selection_reasons import InfluenceReasons, influence_reasons
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import cache_folder
from tasklm.run_folder import SELECTED, is_run, recipe_of
from tasklm.select.base import Ranking, Workplace, bytes_of, read_selection
from tasklm.select.bm25 import open_index
from tasklm.select.lexical.explain import Term, explained, spans
from tasklm.select.lexical.index import StoredIndex
from tasklm.select.lexical.queries import make_queries
from tasklm.select.lexical.search import Scoring, search
from tasklm.select.lexical.terms import stemmer
from tasklm.serve.finished_run import model_of, run_of, training_examples
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import write_text
from tasklm.storage.scratch import Scratch
from tasklm.tasks.readers.splits import read_splits
from tasklm.tracking import Tracker


@dataclass
class Hit:
    """A passage that a query found."""

    id: str
    number: int
    source: str
    score: float
    text: str
    marked: list[tuple[int, int]]  # positions of the query's terms in the text
    terms: list[Term]


@dataclass
class Query:
    """A task example that retrieved a passage."""

    text: str
    label: str
    rank: int  # 0 = the example's best passage
    score: float
    terms: list[Term]


@dataclass
class Reasons:
    """Why a passage is in a run's selection."""

    hit: Hit
    place: int  # in the selection, 0 = first
    queries: list[Query]  # best rank first; with influence, those that retrieved it as a candidate
    queries_in_all: int
    influence: InfluenceReasons | None = None  # if influence selected it among candidates


def find(where: Path, query: str, k: int, tracker: Tracker, cache: Path | None = None) -> list[Hit]:
    """The k best passages of a query; `where` is a run folder, or files or a folder of text."""
    return rebuilding(
        lambda: _find(where, query, k, tracker, cache), [_cache_of(where, cache)], tracker.warn
    )


def _find(where: Path, query: str, k: int, tracker: Tracker, cache: Path | None) -> list[Hit]:
    recipe, store, index = _opened(where, tracker, cache)
    settings = recipe.select
    stem = stemmer(settings.stemming)
    (own_query,) = make_queries([query], settings)
    scoring = Scoring(settings.k1, settings.b, k)
    with Scratch() as folder:
        place = Workplace(Artefacts(folder), folder, tracker, bytes_of(settings.memory))
        ranking = search(index, [own_query], np.zeros(len(store), np.bool_), scoring, place)
        ranked = list(zip(ranking.passages.tolist(), ranking.scores.tolist(), strict=True))
    return [
        _hit(
            store,
            number,
            score,
            explained(own_query, store.text(number), index, scoring, stem),
            recipe,
        )
        for number, score in ranked
    ]


def why_selected(folder: Path, name: str, most: int, tracker: Tracker) -> Reasons:
    """Why the passage with this id (or number) is in the selection of the run, with at most `most`
    of the examples that retrieved it.
    """
    return rebuilding(
        lambda: _why_selected(folder, name, most, tracker), [_cache_of(folder, None)], tracker.warn
    )


def _why_selected(folder: Path, name: str, most: int, tracker: Tracker) -> Reasons:
    recipe, store, index = _opened(folder, tracker, None)
    settings = recipe.select
    method, by_influence = settings.stages[0], settings.by_influence
    if method not in ("bm25", "balanced") and not by_influence:
        problem = "which has no queries that could explain a passage"
        raise RecipeError([f"{folder} selected by {settings.method}, {problem}"])
    place, number, score = _in_selection(folder / SELECTED, name)
    splits, influence = read_splits(recipe.data), None
    if by_influence:
        influence = influence_reasons(
            folder, number, settings, splits.named()[settings.influence_on], most
        )
        if method not in ("bm25", "balanced"):
            return Reasons(_hit(store, number, score, [], recipe), place, [], 0, influence)
    require_whole(folder / "ranking")
    ranking = Ranking.load(folder / "ranking", len(store))
    entries = np.flatnonzero(ranking.passages == number)
    numbers = np.searchsorted(ranking.offsets, entries, side="right") - 1
    ranks = entries - ranking.offsets[numbers]
    best = np.lexsort((numbers, ranks))[:most]
    examples = splits.train
    asking = make_queries([example.text for example in examples], settings)
    stem = stemmer(settings.stemming)
    scoring = Scoring(settings.k1, settings.b, settings.k or 1)
    text = store.text(number)
    queries = [
        Query(
            examples[query].text,
            str(examples[query].label),
            rank,
            value,
            explained(asking[query], text, index, scoring, stem),
        )
        for query, rank, value in zip(
            numbers[best].tolist(),
            ranks[best].tolist(),
            np.asarray(ranking.scores)[entries[best]].tolist(),
            strict=True,
        )
    ]
    shared = list(chain.from_iterable(query.terms for query in queries))
    return Reasons(
        _hit(store, number, score, shared, recipe), place, queries, len(entries), influence
    )


def suspicious_labels(where: Path, tracker: Tracker) -> tuple[list[Suspect], Path]:
    """The training examples of a run that are probably mislabelled, worst first, and the CSV file
    that lists them.
    """
    run = run_of(where)
    model = model_of(run)
    train = training_examples(run, model.task)
    if not all(isinstance(example.label, str) for example in train):
        problem = "labels can be checked only if each text has one class"
        raise RecipeError([f"{run} is of the kind {model.task.kind}; {problem}"])
    rows = [
        unit.tokens
        for unit in model.task.encode(train, model.loaded.vocabulary, model.loaded.length)
    ]
    tracker.say(
        f"checking the labels of {len(train):,} training examples, each with models of the others"
    )
    suspects = suspects_of(train, model.task.labels, features_of(rows))
    path = run / "suspicious_labels.csv"
    write_text(path, as_csv(suspects))
    return suspects, path


def _hit(store: PassageStore, number: int, score: float, terms: list[Term], recipe: Recipe) -> Hit:
    text = store.text(number)
    marked = spans(text, {term.term for term in terms}, stemmer(recipe.select.stemming))
    return Hit(store.id(number), number, store.source(number), score, text, marked, terms)


def _in_selection(path: Path, name: str) -> tuple[int, int, float]:
    """The (position, passage number, score) of a selected passage."""
    if not path.exists():
        raise RunError(
            f"nothing is selected in {path.parent.parent} "
            f"yet. Run: tasklm select {path.parent.parent}"
        )
    require_whole(path.parent)
    table = read_selection(path, "id", "number", "score")
    ids, numbers = table["id"].to_pylist(), table["number"].to_pylist()
    if name in ids:
        at = ids.index(name)
    elif name.isdecimal() and int(name) in numbers:
        at = numbers.index(int(name))
    else:
        raise DataError(
            f"the passage {name} is not in the selection",
            file=path,
            remedy="Ids are in the column 'id'; 'tasklm search' shows them too.",
        )
    return at, int(numbers[at]), float(table["score"][at].as_py())


def _opened(
    where: Path, tracker: Tracker, cache: Path | None
) -> tuple[Recipe, PassageStore, StoredIndex]:
    """The recipe, the corpus and the index of a run or of plain text; missing ones are built and
    kept.
    """
    recipe = recipe_of(where) if is_run(where) else Recipe()
    if recipe.select.engine == "spark":
        raise RecipeError(
            [f"the corpus of {where} is on Spark; only a corpus on this machine can be searched"]
        )
    data = recipe.data
    stores = Artefacts(_cache_of(where, cache), waiting=tracker.say, tell=tracker.warn)
    text = local_text(data, None if is_run(where) else [str(where)])
    store, _, _ = kept_store(text, stores, tracker)
    return recipe, store, open_index(store, stores, recipe.select.stemming, usable_cores(), tracker)


def _cache_of(where: Path, cache: Path | None) -> Path:
    """Where the corpus and the index of a run or of plain text are kept."""
    if cache is not None:
        return cache
    return cache_folder(recipe_of(where), where) if is_run(where) else Path("runs/.cache")
