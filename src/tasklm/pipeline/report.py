"""From a finished run to the contents of its report: curves, mistakes, selection, and analyses."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import tasklm
from tasklm.analysis.run_files import curves_of
from tasklm.analysis.unseen_words import unseen_words
from tasklm.analysis.word_counts import overrepresented
from tasklm.bill.record import read_bill
from tasklm.budget.rules import Plan
from tasklm.coverage.measured import read_measured
from tasklm.evaluate.confusion import ClassScore, confusion_matrix
from tasklm.evaluate.scores import Scores
from tasklm.influence.explanation import ExampleSide
from tasklm.models.task_model import load_model
from tasklm.pipeline.analysis import COUNTED_PASSAGES, matched_words, spread_texts
from tasklm.pipeline.context import CorpusData, Run, TaskData, Trained
from tasklm.pipeline.stage_planning import short_time_warning
from tasklm.pipeline.timeline import up_to_report
from tasklm.pipeline.written_examples import written_examples
from tasklm.recipe.model_sections import FEWEST_TYPES
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute, dump, without_password
from tasklm.report.report import ReportParts
from tasklm.run_folder import (
    COMPARE,
    MANIFEST,
    MODEL,
    SELECTED,
    SUMMARY,
    SUPERVISED,
    best_seed,
    seed_title,
    stage1_name,
)
from tasklm.select.base import asking_split, read_selection, selection_is_clear
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import read_json
from tasklm.tasks.base import Answer, Label, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.writing import writes
from tasklm.train.start import title_of

MOST_CLASSES = 2000  # of a confusion matrix: it has a cell for each pair
SHOWN = 10  # passages of the selection, and mistakes with attributions
MISTAKES = 200  # listed, with and without
# training examples shown for a mistake, and those compared with it: the ones with its rarest words
ATTRIBUTIONS_SHOWN, ATTRIBUTIONS_COMPARED = 3, 50


def report_parts(trained: Trained, scores: Scores, analyses: dict[str, Any]) -> ReportParts:
    """The contents of the report, from the run folder and the analyses."""
    run, task, corpus = trained.run, trained.task, trained.corpus
    split = "test" if "test" in trained.predictions else "dev"
    examples, answers = task.splits.named()[split], trained.best_answers(split)
    labels = [task.task.label_of(answer) for answer in answers]
    confusion, class_scores = _classes(task.task, examples, labels)
    start = run.recipe.train.start
    findings = [*task.findings, *(corpus.findings if corpus else [])]
    parts = ReportParts(
        title=f"tasklm: {run.folder.name}",
        scores=scores,
        findings=[dataclasses.asdict(finding) for finding in findings],
        curves=curves_of(trained.seeds),
        split=split,
        seed=_seed_text(trained),
        confusion=confusion,
        class_scores=class_scores,
        mistakes=_mistakes(run, task, examples, answers),
        written=written_examples(task.task, examples, labels),
        start=title_of(Path(start)) if start else "",
        recipe_toml=dump(without_password(absolute(decided(trained)))),
        command=f"tasklm run recipe.toml --out {shlex.quote(run.folder.name + '-again')}",
        made_with=_made_with(run),
        reading=task.splits.notes,
        notes=_decisions(run, trained.plan),
        contamination=corpus.contamination.examples if corpus else [],
        bill=read_bill(run.folder),
        coverage=read_measured(run.folder),
        timeline=up_to_report(run.timeline()),
        growth=scores.growth,
        **analyses,
    )
    parts.raw_text = _raw_text_changes(trained, split)
    if trained.selected is not None and corpus is not None:
        _describe_selection(parts, run, task, corpus, trained.selected)
    return parts


def _raw_text_changes(trained: Trained, split: str) -> dict[str, Any] | None:
    """What raw text changed beside the ablation without it; None where there is no ablation, or
    where answers are texts, which are not right or wrong as a whole.
    """
    run, task, raw = trained.run, trained.task, trained.parts.raw
    if raw is None or SUPERVISED not in run.recipe.evaluate.compare or writes(task.task):
        return None
    seeds = [
        dataclasses.replace(one, run=run.folder / COMPARE / SUPERVISED) for one in trained.seeds
    ]
    best = seeds.index(best_seed(seeds)) + 1
    answers = read_json(seeds[0].run / "predictions" / f"{split}-{best}.json")
    alone = [task.task.label_of(answer) for answer in answers]
    ours = [task.task.label_of(answer) for answer in trained.best_answers(split)]
    examples = task.splits.named()[split]
    return unseen_words(task.splits.train, examples, (ours, alone), raw.examples)


def _seed_text(trained: Trained) -> str:
    """The seed whose answers are shown."""
    if len(trained.seeds) == 1:
        return "the one seed"
    title = seed_title(trained.best, trained.seeds)
    return f"{title} of {len(trained.seeds)}, the best on dev"


def decided(trained: Trained) -> Recipe:
    """The recipe with all automatic values filled in, and without the budget."""
    run, plan, parts, first = trained.run, trained.plan, trained.parts, trained.seeds[0]
    recipe, shape = run.recipe, parts.shape
    stage1, stage2 = read_json(first.training / SUMMARY), first.summary()
    select = {"k": plan.k, "passages": plan.passages}
    if recipe.select.by_influence and parts.external is not None:
        scoring = read_json(run.artefacts.path("scoring-model") / SUMMARY)
        select["influence_steps"] = scoring["steps"]
    types = None
    if recipe.tokens.kind != "file":
        types = recipe.tokens.vocabulary or max(FEWEST_TYPES, len(parts.vocabulary))
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
        finetune={
            **{name: stage2[name] for name in ("epochs", "learning_rate")},
            "seeds": len(trained.seeds) // recipe.train.seeds,
        },
        budget={"minutes": None, "flops": None},
    )


def _decisions(run: Run, plan: Plan) -> list[str]:
    """The decisions before training, and whether the budget was too small."""
    decided = read_json(run.artefacts.path(stage1_name(1)) / "plan.json")
    warning = short_time_warning(run.recipe, decided, plan.reach)
    if warning is None:
        return [*plan.reasons]
    return [*plan.reasons, f"Warning: {warning}"]


def _made_with(run: Run) -> str:
    """The versions and device of the run, from its manifest."""
    manifest = read_json(run.folder / MANIFEST)
    return (
        f"tasklm {tasklm.__version__}, torch {manifest['torch']}, "
        f"Python {manifest['python']}, on {manifest['device']}"
    )


def _classes(
    task: Task, examples: Sequence[Example], predicted: Sequence[Label]
) -> tuple[tuple[list[str], np.ndarray] | None, list[tuple[str, ClassScore]]]:
    """The confusion matrix and the scores of each class; none for a kind without classes.

    There is a matrix if each label is a single class, or has one class per word.
    """
    if not task.labels:
        return None, []
    gold = [task.classes(example.label) for example in examples]
    guesses = [task.classes(label) for label in predicted]
    aligned = task.classifies or all(
        len(right) == len(guess) == len(example.words) > 0
        for right, guess, example in zip(gold, guesses, examples, strict=True)
    )
    labels = sorted({*task.labels, *chain.from_iterable(gold), *chain.from_iterable(guesses)})
    matrix = None
    if aligned and len(labels) <= MOST_CLASSES:
        number = {label: i for i, label in enumerate(labels)}
        rows = np.array([number[name] for name in chain.from_iterable(gold)], np.int64)
        columns = np.array([number[name] for name in chain.from_iterable(guesses)], np.int64)
        matrix = labels, confusion_matrix(rows, columns, len(number))
    return matrix, _class_scores(labels, gold, guesses, aligned)


def _class_scores(
    labels: Sequence[str], gold: Sequence[list[str]], guesses: Sequence[list[str]], aligned: bool
) -> list[tuple[str, ClassScore]]:
    """The scores of each class: by position if labels are aligned, else by membership in sets."""
    right: Counter[str] = Counter()
    for own, guess in zip(gold, guesses, strict=True):
        if aligned:
            right.update(name for name, other in zip(own, guess, strict=True) if name == other)
        else:
            right.update(set(own) & set(guess))
    wanted = Counter(chain.from_iterable(gold))
    given = Counter(chain.from_iterable(guesses))
    return [
        (
            label,
            ClassScore(
                precision=_share(right[label], given[label]),
                recall=_share(right[label], wanted[label]),
                f1=_share(2 * right[label], wanted[label] + given[label]),
                gold=wanted[label],
                predicted=given[label],
            ),
        )
        for label in labels
    ]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _mistakes(
    run: Run, task: TaskData, examples: Sequence[Example], answers: Sequence[Answer]
) -> list[dict[str, Any]]:
    """The mistakes: most confident first if known, else in the order of the file; none of several
    tasks, whose labels are not compared.

    The first ones come with the training examples that most support the wrong label.
    """
    kind = task.task
    wrong: list[tuple[Example, dict[str, Any]]] = []
    for example, answer in zip(examples, answers, strict=True):
        label = kind.label_of(answer)
        compared = kind.labels or (example.options and not example.task)
        if label != example.label and compared:
            mistake = {
                "text": example.text,
                "gold": _label_text(kind, example, example.label),
                "predicted": _label_text(kind, example, label),
                "probability": _sure(answer),
            }
            wrong.append((dataclasses.replace(example, label=label), mistake))
    surest = sorted(wrong, key=lambda mistake: -(mistake[1]["probability"] or 0.0))[:MISTAKES]
    attributed = _supporting(run, task, [example for example, _ in surest[:SHOWN]])
    supporting = [*attributed, *([] for _ in surest[SHOWN:])]
    return [
        {**mistake, "supporting": attributions}
        for (_, mistake), attributions in zip(surest, supporting, strict=True)
    ]


def _label_text(task: Task, example: Example, label: Label) -> str:
    if example.options:
        return example.options[label]
    return " ".join(task.classes(label)) or "none"


def _sure(answer: Answer) -> float | None:
    """The probability of an answer, if it is a single class or option that has one."""
    odds, given = answer.get("probabilities"), answer.get("number", answer.get("label"))
    return None if odds is None or given is None else float(odds[given])


def _supporting(run: Run, task: TaskData, examples: list[Example]) -> list[list[dict[str, Any]]]:
    """For each example the training examples that most support its label.

    Examples of several rows have none: their gradients cannot be compared.
    """
    supporting: list[list[dict[str, Any]]] = [[] for _ in examples]
    if not examples or task.task.together > 1:
        return supporting
    own = load_model(run.artefacts.path(MODEL), run.machine.device)
    side = ExampleSide(own, run.machine, task.splits.train)
    places = [place for place, fits in enumerate(side.fit_into_a_row(examples)) if fits]
    if not places:
        return supporting
    compared = [examples[place] for place in places]
    texts = [example.text for example in compared]
    attributions = side.attributions(
        texts, own.encoded(compared), ATTRIBUTIONS_SHOWN, ATTRIBUTIONS_COMPARED
    )
    for place, both in zip(places, attributions, strict=True):
        supporting[place] = [dataclasses.asdict(attribution) for attribution in both.supporting]
    return supporting


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
        rows = next(file.iter_batches(batch_size=SHOWN)).to_pylist()
    for row, matched in zip(rows, matched_words(run, task, corpus, selected, rows), strict=True):
        askers = [texts[number] for number in row["matched_queries"]]
        passage = {**row, "rank": row["rank"] + 1, "matched_queries": askers, "matched": matched}
        parts.selected = [*parts.selected, passage]
    own_texts = spread_texts(selected, COUNTED_PASSAGES)
    parts.words = overrepresented(own_texts, corpus.store.sample())
    if "random" in run.recipe.evaluate.compare:
        drawn = run.folder / COMPARE / "random" / SELECTED
        parts.words_random = overrepresented(
            spread_texts(selected, COUNTED_PASSAGES), spread_texts(drawn, COUNTED_PASSAGES)
        )
