"""The selection step: score the passages, choose among them, drop near copies, write them to a
file.

With influence ("bm25,influence") these are candidates, and the passages that most help the task are
chosen from them.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.budget.rules import Plan
from tasklm.corpus.base import Passages
from tasklm.encoders.shapes import encoder_of, shape_of
from tasklm.errors import DataError
from tasklm.influence.costs import scoring_flops
from tasklm.influence.scores import Influence, Pieces, projection_for, scoring_model, tokens_at_once
from tasklm.models.task_model import cost_of
from tasklm.pipeline import steps
from tasklm.pipeline.context import CorpusData, Run, TaskData, Tokenised
from tasklm.recipe.data_sections import INFLUENCE, Select
from tasklm.run_folder import SUMMARY
from tasklm.select.base import (
    SELECTION_FORMAT,
    SELECTORS,
    Chosen,
    Ranking,
    Selector,
    Workplace,
    bytes_of,
    selection_size,
    write_selection,
)
from tasklm.select.influence import (
    BLOCK,
    FORMAT,
    CandidateTexts,
    InfluenceScores,
    choose,
    finish_scores,
    score_blocks,
)
from tasklm.select.lexical.terms import stemmer
from tasklm.select.near_duplicates import without_near_duplicates
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import digest, write_json
from tasklm.train.context import TrainingContext

BALANCED = "balanced"
NEAR_COPIES = "near-copies.npy"  # beside the selected passages: the numbers of those left out
# settings that change the speed, not the result
_SPEED = ("memory", "index", "master", "spark", "url")
# settings of choosing, and k, which a plan decides
_AFTER_SCORING = ("k", "passages", "near_duplicates")


def check_settings(settings: Select) -> None:
    """Raises early the errors that would otherwise appear only after reading the corpus."""
    SELECTORS.get(settings.stages[0])
    bytes_of(settings.memory)
    stemmer(settings.stemming)


def fitted(settings: Select, task: TaskData) -> Selector:
    """The selector, fitted to the task."""
    train = task.splits.train
    if equal_shares(settings, task):
        selector = SELECTORS.get(BALANCED)(dataclasses.replace(settings, method=BALANCED))
        selector.fit(task.texts("train"), [example.task for example in train])
        return selector
    selector = SELECTORS.get(settings.method)(settings)
    selector.fit(
        task.texts("train"), [" ".join(task.task.classes(example.label)) for example in train]
    )
    return selector


def equal_shares(settings: Select, task: TaskData) -> bool:
    """Whether several tasks take turns, as the classes of balanced selection do."""
    return task.equal_shares and settings.method == "bm25"


def select(run: Run, task: TaskData, corpus: CorpusData, plan: Plan) -> tuple[Path, str]:
    """The Parquet file of the selected passages and its key."""
    settings = dataclasses.replace(run.recipe.select, method=run.recipe.select.stages[0])
    if not run.recipe.select.by_influence:
        return _found(run, task, corpus, plan, settings, "selected")
    return _most_influential(
        run, task, plan, lambda: _found(run, task, corpus, plan, settings, "candidates")
    )


def _found(
    run: Run, task: TaskData, corpus: CorpusData, plan: Plan, settings: Select, name: str
) -> tuple[Path, str]:
    """The Parquet file of a selector's passages, the artefact `name`, and its key."""
    k = _k(settings, corpus, plan)
    ranking_key = digest([task.key, corpus.key, k, _what(settings)])
    shares = ["equal shares"] if equal_shares(settings, task) else []
    key = digest([SELECTION_FORMAT, ranking_key, plan.passages, settings.near_duplicates, *shares])

    def build(folder: Path) -> None:
        with run.tracker.progress("selecting"):
            choose_passages(folder)

    def choose_passages(folder: Path) -> None:
        selector = fitted(settings, task)
        ranking = _ranking(run, selector, corpus, k, ranking_key)
        chosen, texts, copies = _chosen(run, selector, ranking, corpus, plan, folder)
        if not len(chosen.passages):
            raise DataError(
                "no passage shares a word with the training examples",
                file=", ".join(run.recipe.data.corpus),
                remedy="Give a corpus in the task's language, or --select.method random.",
            )
        write_selection(folder / "selected.parquet", texts, chosen)
        np.save(folder / NEAR_COPIES, copies)
        corpus.store.close()
        wanted = ""
        if plan.passages and plan.passages > len(chosen.passages):
            wanted = f" ({plan.passages:,} requested)"
        count = f"{len(chosen.passages):,} of {len(corpus.store):,} passages"
        run.tracker.say(f"{count} by {settings.method}{wanted}", "selected")

    path = run.artefacts.build(name, key, build, uses=corpus.folders) / "selected.parquet"
    # only needed for explaining why a passage was selected
    if run.artefacts.is_damaged("ranking"):
        _ranking(run, fitted(settings, task), corpus, k, ranking_key)
    return path, key


def _what(settings: Select) -> dict[str, Any]:
    """The settings that decide the result of scoring; the same here and on Spark."""
    others = _SPEED + _AFTER_SCORING
    values = {
        name: value
        for name, value in dataclasses.asdict(settings).items()
        if name not in others and not name.startswith(INFLUENCE)
    }
    return values | {"engine": "elastic" if settings.engine == "elastic" else "exact"}


def _k(settings: Select, corpus: CorpusData, plan: Plan) -> int:
    """The number of ranked passages: per example, or in total if dropping near copies may need any
    of them.
    """
    if SELECTORS.get(settings.method).per_example:
        return plan.k
    return len(corpus.store) if settings.near_duplicates or not plan.passages else plan.passages


def _ranking(run: Run, selector: Selector, corpus: CorpusData, k: int, key: str) -> Ranking:
    """The ranking, as a separate artefact: another number of passages can then be chosen without
    scoring again.
    """

    def build(folder: Path) -> None:
        scratch = folder / "scratch"
        scratch.mkdir(exist_ok=True)
        place = Workplace(
            run.cache, scratch, run.tracker, bytes_of(run.recipe.select.memory), run.machine.threads
        )
        selector.score(corpus.store, corpus.contamination.banned, k, place).save(folder)
        shutil.rmtree(scratch)

    folder = run.artefacts.build("ranking", key, build, uses=corpus.folders)
    require_whole(folder)
    return Ranking.load(folder, len(corpus.store))


def _chosen(
    run: Run, selector: Selector, ranking: Ranking, corpus: CorpusData, plan: Plan, folder: Path
) -> tuple[Chosen, Passages, NDArray[np.int64]]:
    """The chosen passages without near copies, where their texts are, and the copies."""
    source, threshold, wanted = corpus.store, run.recipe.select.near_duplicates, plan.passages
    if not threshold:
        chosen = selector.choose(ranking, wanted)
        return chosen, source.fetch(chosen.passages, folder), np.zeros(0, np.int64)

    def without_copies(most: int | None) -> tuple[NDArray[np.int64], Chosen, Passages]:
        pool = selector.choose(ranking, most)
        texts = source.fetch(pool.passages, folder)
        rest = without_near_duplicates(pool, texts, threshold, wanted, run.tracker)
        return pool.passages, rest, texts

    # texts from a cluster: only as many as are needed for enough passages without near copies
    most = wanted if source.local is None else None
    ranked, chosen, texts = without_copies(most)
    while most and wanted and len(chosen.passages) < wanted and len(ranked) == most:
        most += max(wanted // 4, 2 * (wanted - len(chosen.passages)))
        ranked, chosen, texts = without_copies(most)
    return chosen, texts, _copies(ranked, chosen.passages, wanted)


def _copies(
    ranked: NDArray[np.int64], chosen: NDArray[np.int64], wanted: int | None
) -> NDArray[np.int64]:
    """The ranked passages that were left out as near copies: of those that come before the last
    chosen one, or of all, if fewer are chosen than wanted.
    """
    if len(chosen) == wanted:
        ranked = ranked[: int(np.flatnonzero(np.isin(ranked, chosen))[-1])]
    return ranked[~np.isin(ranked, chosen)]


def _most_influential(
    run: Run, task: TaskData, plan: Plan, candidates_of: Callable[[], tuple[Path, str]]
) -> tuple[Path, str]:
    """The Parquet file of the candidates that most help the task, and its key."""
    settings = run.recipe.select
    examples = task.splits.named().get(settings.influence_on, [])
    if not examples:
        problem = f"influence needs labelled {settings.influence_on} examples, but there are none"
        raise DataError(
            problem,
            remedy="Give some (data.dev or data.dev_share), or --select.influence_on train.",
        )
    scoring, scoring_plan = steps.scoring_run(run, plan)
    batches = -(-len(examples) // settings.influence_task_batch)
    # the layers do not depend on the vocabulary
    shape = shape_of(scoring.recipe.model, scoring_plan.size, 1, scoring.recipe.tokens.rows)
    encoder = encoder_of(scoring.recipe.model, scoring_plan.size)
    projection = projection_for(settings, encoder, shape, batches, bytes_of(settings.memory))
    candidates, candidates_key = candidates_of()
    tokens = steps.tokenize(run, task, candidates, candidates_key, "candidate-tokens")
    parts = steps.training_context(scoring, task, tokens, scoring_plan)
    model, model_key = steps.train_scoring_model(scoring, parts, tokens, scoring_plan)
    scores, scores_key = _influence(scoring, parts, tokens, model, model_key, projection)
    key = digest([scores_key, settings.influence_share])

    def build(folder: Path) -> None:
        chosen, k = choose(
            InfluenceScores(scores),
            selection_size(candidates),
            settings.influence_share,
            settings.influence_batch,
            settings.influence_task_batch,
            len(examples),
        )
        texts = CandidateTexts(candidates, chosen.passages)
        chosen.passages = texts.numbers
        write_selection(folder / "selected.parquet", texts, chosen, settings.influence_on)
        count = f"{len(chosen.passages):,} of {selection_size(candidates):,} candidates"
        run.tracker.say(f"{count} by influence", "selected")
        among = f"{batches:,} batches of {settings.influence_on} examples"
        run.tracker.detail(f"selected: those among the {k:,} best of any of {among}")

    folder = run.artefacts.build("selected", key, build, uses=[scores, candidates.parent])
    return folder / "selected.parquet", key


def _influence(
    run: Run,
    parts: TrainingContext,
    tokens: Tokenised,
    model: Path,
    model_key: str,
    projection: int,
) -> tuple[Path, str]:
    """The folder with the scores of all candidates on all task batches, computed jointly by all
    processes, and its key.
    """
    settings, machine = run.recipe.select, run.machine
    names = (
        "influence_on",
        "influence_layers",
        "influence_batch",
        "influence_task_batch",
        "influence_draws",
        "seed",
    )
    key = digest([FORMAT, model_key, projection, [getattr(settings, name) for name in names]])
    assert tokens.external is not None
    shards = tokens.external
    examples = parts.dev if settings.influence_on == "dev" else parts.train

    def build(folder: Path) -> None:
        at_once = tokens_at_once(machine)
        pieces = Pieces(shards, parts.vocabulary, parts.length, settings.influence_batch, at_once)
        scorer = Influence(
            scoring_model(model, parts, run.recipe.train),
            pieces,
            examples,
            settings,
            projection,
            machine,
        )
        ranks = machine.ranks
        mine = np.arange(len(pieces)) // BLOCK % ranks.count == ranks.rank
        with run.tracker.progress("influence", float(pieces.sizes[mine].sum())) as bar:
            score_blocks(folder, pieces.sizes, scorer.scores, (ranks.rank, ranks.count), bar)
        ranks.wait()
        if ranks.first:
            finish_scores(folder, pieces.order, scorer.task_batches)
            flops = scoring_flops(scorer, cost_of(parts.encoder, parts.shape), BLOCK)
            write_json(
                folder / SUMMARY,
                {"passages": len(shards), "task_batches": scorer.task_batches, "flops": flops},
            )

    return run.artefacts.build(
        "influence", key, build, uses=[model, tokens.folder], together=True
    ), key
