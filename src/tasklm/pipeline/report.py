"""From a finished run to what its report shows: curves, mistakes, the selection, and what the
analyses found.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import tasklm
from tasklm.analysis.run_files import curves_of
from tasklm.analysis.word_counts import overrepresented
from tasklm.budget.rules import Plan
from tasklm.evaluate.confusion import ClassScore, confusion_matrix
from tasklm.evaluate.scores import Scores
from tasklm.influence.explanation import ExampleSide
from tasklm.models.task_model import load_model
from tasklm.pipeline.analysis import SELECTED, matched_words, spread_texts
from tasklm.pipeline.context import CorpusData, Run, TaskData
from tasklm.pipeline.evaluation import Predictions
from tasklm.pipeline.planning import few_steps_warning
from tasklm.recipe.model_sections import FEWEST_TYPES
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute, dump, without_password
from tasklm.report.report import ReportParts
from tasklm.run_folder import Seed, best_seed, seed_title
from tasklm.select.base import asking_split, read_selection, selection_is_clear
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import read_json
from tasklm.tasks.base import Answer, Label, Task
from tasklm.tasks.examples import Example
from tasklm.train.stages import Ingredients
from tasklm.train.start import title_of

MOST_CLASSES = 2000  # of a confusion matrix: it has a cell for each pair
SHOWN = 10  # passages of the selection, and mistakes with what pushed them
MISTAKES = 200  # listed, with and without
PUSHED_SHOWN, PUSHED_COMPARED = (
    3,
    50,
)  # training examples shown for a mistake, and those compared for it: with its rarest words


def report_parts(
    run: Run,
    task: TaskData,
    corpus: CorpusData | None,
    plan: Plan,
    parts: Ingredients,
    selected: Path | None,
    seeds: list[Seed],
    predictions: Predictions,
    scores: Scores,
    found: dict[str, Any],
) -> ReportParts:
    """What the report shows, collected from the run folder; `found` is what the analyses found
    (`insights.insights`).
    """
    split = "test" if "test" in predictions else "dev"
    best = best_seed(seeds)
    examples, answers = task.splits.named()[split], predictions[split][seeds.index(best)]
    confusion, class_scores = _classes(
        task.task, examples, [task.task.label_of(answer) for answer in answers]
    )
    start = run.recipe.train.start
    shown = ReportParts(
        title=f"tasklm: {run.folder.name}",
        scores=scores,
        findings=[
            dataclasses.asdict(f) for f in [*task.findings, *(corpus.findings if corpus else [])]
        ],
        curves=curves_of(seeds),
        split=split,
        seed=f"{seed_title(best, seeds)} of {len(seeds)}, the best on dev"
        if len(seeds) > 1
        else "the one seed",
        confusion=confusion,
        class_scores=class_scores,
        mistakes=_mistakes(run, task, examples, answers),
        start=title_of(Path(start)) if start else "",
        recipe_toml=dump(without_password(absolute(decided(run, plan, parts, seeds)))),
        command=f"tasklm run recipe.toml --out {shlex.quote(run.folder.name + '-again')}",
        made_with=_made_with(run),
        reading=task.splits.notes,
        notes=_decisions(run, plan),
        contamination=corpus.contamination.examples if corpus else [],
        **found,
    )
    if selected is not None and corpus is not None:
        _describe_selection(shown, run, task, corpus, selected)
    return shown


def decided(run: Run, plan: Plan, parts: Ingredients, seeds: Sequence[Seed]) -> Recipe:
    """The recipe of a trained run with all that it decided by itself filled in, and no budget that
    would decide again.
    """
    recipe, shape = run.recipe, parts.shape
    stage1, stage2 = read_json(seeds[0].training / "summary.json"), seeds[0].summary()
    select = {"k": plan.k, "passages": plan.passages}
    if recipe.select.by_influence and parts.external is not None:
        select["influence_steps"] = read_json(run.artefacts.path("scoring-model") / "summary.json")[
            "steps"
        ]
    types = (
        None
        if recipe.tokens.kind == "file"
        else recipe.tokens.vocabulary or max(FEWEST_TYPES, len(parts.vocabulary))
    )
    numbers = {name: getattr(shape, name) for name in ("layers", "width", "heads", "feedforward")}
    return recipe.changed(
        select=select,
        tokens={"vocabulary": types},
        model={
            "encoder": parts.encoder,
            "size": plan.size,
            **numbers,
            "embedding": shape.token_width,
        },
        train={name: stage1[name] for name in ("steps", "batch", "rho1", "learning_rate")},
        finetune={name: stage2[name] for name in ("epochs", "learning_rate")},
        budget={"minutes": None, "flops": None},
    )


def _decisions(run: Run, plan: Plan) -> list[str]:
    """What was decided before training, and whether the budget was too small for it."""
    stage1 = read_json(run.artefacts.path("stage1") / "plan.json")["stage1"]
    warning = few_steps_warning(run.recipe, stage1["steps"], stage1["batch"])
    return [*plan.reasons, *([f"Warning: {warning}"] if warning else [])]


def _made_with(run: Run) -> str:
    """What the run was made with, as its manifest has it."""
    manifest = read_json(run.folder / "manifest.json")
    return (
        f"tasklm {tasklm.__version__}, torch "
        f"{manifest['torch']}, Python {manifest['python']}, on {manifest['device']}"
    )


def _classes(
    task: Task, examples: Sequence[Example], predicted: Sequence[Label]
) -> tuple[tuple[list[str], np.ndarray] | None, list[tuple[str, ClassScore]]]:
    """Which classes are taken for which, and the scores of each class; None and none where the kind
    has no classes.

    There is a matrix where a class is taken for one other: each label is one class, or has one for
    each word.
    """
    pairs = [
        (task.classes(example.label), task.classes(label))
        for example, label in zip(examples, predicted, strict=True)
    ]
    if not task.labels:
        return None, []
    aligned = task.classifies or all(
        len(right) == len(found) == len(example.words) > 0
        for (right, found), example in zip(pairs, examples, strict=True)
    )
    labels = sorted({*task.labels, *(name for pair in pairs for side in pair for name in side)})
    matrix = None
    if aligned and len(labels) <= MOST_CLASSES:
        number = {label: i for i, label in enumerate(labels)}
        rows, columns = (
            np.array([number[name] for pair in pairs for name in pair[side]], np.int64)
            for side in (0, 1)
        )
        matrix = labels, confusion_matrix(rows, columns, len(number))
    return matrix, _class_scores(labels, pairs, aligned)


def _class_scores(
    labels: Sequence[str], pairs: Sequence[tuple[list[str], list[str]]], aligned: bool
) -> list[tuple[str, ClassScore]]:
    """The scores of each class: by place where labels are aligned, else by
    membership in the sets.
    """
    both: Counter[str] = Counter()
    for right, found in pairs:
        both.update(
            [name for name, other in zip(right, found, strict=True) if name == other]
            if aligned
            else set(right) & set(found)
        )
    gold, given = (Counter(name for pair in pairs for name in pair[side]) for side in (0, 1))
    return [
        (
            label,
            ClassScore(
                precision=both[label] / given[label] if given[label] else 0.0,
                recall=both[label] / gold[label] if gold[label] else 0.0,
                f1=2 * both[label] / (gold[label] + given[label])
                if gold[label] + given[label]
                else 0.0,
                gold=gold[label],
                predicted=given[label],
            ),
        )
        for label in labels
    ]


def _mistakes(
    run: Run, task: TaskData, examples: Sequence[Example], answers: Sequence[Answer]
) -> list[dict[str, Any]]:
    """Returns mistakes, those first that the model was surest of where answers have a probability,
    else in the order of the file.

    The first come with the training examples that pushed most for the wrong label.
    """
    kind = task.task
    wrong: list[tuple[Example, dict[str, Any]]] = []
    for example, answer in zip(examples, answers, strict=True):
        label = kind.label_of(answer)
        if label != example.label and (kind.labels or example.options):
            gold, predicted = (_shown(kind, example, one) for one in (example.label, label))
            shown = {
                "text": example.text,
                "gold": gold,
                "predicted": predicted,
                "probability": _sure(answer),
            }
            wrong.append((dataclasses.replace(example, label=label), shown))
    surest = sorted(wrong, key=lambda mistake: -(mistake[1]["probability"] or 0.0))[:MISTAKES]
    pushed = [
        *_pushed_for(run, task, [asked for asked, _ in surest[:SHOWN]]),
        *([] for _ in surest[SHOWN:]),
    ]
    return [
        {**mistake, "pushed": found} for (_, mistake), found in zip(surest, pushed, strict=True)
    ]


def _shown(task: Task, example: Example, label: Label) -> str:
    return example.options[label] if example.options else " ".join(task.classes(label)) or "none"


def _sure(answer: Answer) -> float | None:
    """The probability of what was answered, where the answer is one class or
    one option and has it.
    """
    odds, given = answer.get("probabilities"), answer.get("number", answer.get("label"))
    return None if odds is None or given is None else float(odds[given])


def _pushed_for(run: Run, task: TaskData, asked: list[Example]) -> list[list[dict[str, Any]]]:
    """For each of some examples the training examples that pushed the model most for its label;
    none for one of several rows.
    """
    if (
        not asked or task.task.together > 1
    ):  # examples of several rows each have no gradient of their own here
        return [[] for _ in asked]
    own = load_model(run.artefacts.path("model"), run.machine.device)
    side = ExampleSide(own, run.machine, task.splits.train)
    short = side.fit_into_a_row(asked)
    compared = [example for example, fits in zip(asked, short, strict=True) if fits]
    if not compared:
        return [[] for _ in asked]
    found = iter(
        side.pushes(
            [example.text for example in compared],
            own.encoded(compared),
            PUSHED_SHOWN,
            PUSHED_COMPARED,
        )
    )
    return [
        [dataclasses.asdict(push) for push in next(found).pushed_for] if fits else []
        for fits in short
    ]


def _describe_selection(
    parts: ReportParts, run: Run, task: TaskData, corpus: CorpusData, selected: Path
) -> None:
    require_whole(selected.parent)
    table = read_selection(selected, "source", "score", "rank")
    sources = table.column("source").value_counts().to_pylist()
    parts.selected_sources = {entry["values"]: entry["counts"] for entry in sources}
    parts.selected_scores = table.column("score").to_numpy()
    parts.selected_ranks = table.column("rank").to_numpy() + 1  # people count from 1
    texts = task.texts(asking_split(selected))
    with selection_is_clear(selected), pq.ParquetFile(selected) as file:
        shown = next(file.iter_batches(batch_size=SHOWN)).to_pylist()
    for row, matched in zip(shown, matched_words(run, task, corpus, selected, shown), strict=True):
        asked = [texts[number] for number in row["asked_by"]]
        parts.selected = [
            *parts.selected,
            {**row, "rank": row["rank"] + 1, "asked_by": asked, "matched": matched},
        ]
    parts.words = overrepresented(spread_texts(selected, SELECTED), corpus.store.sample())
    if "random" in run.recipe.evaluate.compare:
        drawn = run.folder / "compare" / "random" / "selected" / "selected.parquet"
        parts.words_random = overrepresented(
            spread_texts(selected, SELECTED), spread_texts(drawn, SELECTED)
        )
