"""From a finished run to what its report shows: curves, mistakes, the selection, and what the analyses found."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasklm.analyse.report import ReportParts
from tasklm.analyse.run_files import curves_of
from tasklm.analyse.words import overrepresented
from tasklm.evaluate.confusion import confusion_matrix
from tasklm.evaluate.explaining import ExampleSide
from tasklm.evaluate.scores import Scores
from tasklm.insights import SELECTED, matched_words, spread_texts
from tasklm.recipe_files import dump, without_password
from tasklm.results import Predictions, labels_of
from tasklm.runs import read_json
from tasklm.select.base import asking_split
from tasklm.tasks.base import Answer, Label, Task
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.model import load_model
from tasklm.workspace import CorpusData, Run, TaskData

SHOWN = 10  # passages of the selection, and mistakes with what pushed them
MISTAKES = 200  # listed, with and without
PUSHED_SHOWN, PUSHED_COMPARED = 3, 50  # training examples shown for a mistake, and those compared for it: with its rarest words


def report_parts(
    run: Run,
    task: TaskData,
    corpus: CorpusData | None,
    selected: Path | None,
    seeds: list[Path],
    predictions: Predictions,
    scores: Scores,
    notes: list[str],
    found: dict[str, Any],
) -> ReportParts:
    """Returns what the report shows, collected from the run folder; `found` is what the analyses found (`insights.insights`)."""
    split = "test" if "test" in predictions else "dev"
    gold, predicted = labels_of(task, predictions, split)
    best = int(np.argmax([read_json(seed / "summary.json")["dev"] for seed in seeds]))
    findings = [dataclasses.asdict(f) for f in [*task.findings, *(corpus.findings if corpus else [])]]
    parts = ReportParts(
        title=f"tasklm: {run.folder.name}",
        scores=scores,
        findings=findings,
        curves=curves_of(run.artefacts.path("stage1"), seeds),
        confusion=_confusion(task, gold, predicted[best]),
        mistakes=_mistakes(run, task, predictions[split][best], split),
        recipe_toml=dump(without_password(run.recipe)),
        command=f"tasklm run {run.folder / 'recipe.toml'} --out {run.folder}",
        notes=[*task.splits.notes, *notes],
        contamination=corpus.contamination.examples if corpus else [],
        **found,
    )
    if selected is not None and corpus is not None:
        _describe_selection(parts, run, task, corpus, selected)
    return parts


def _confusion(task: TaskData, gold: list[Label], predicted: list[Label]) -> tuple[list[str], np.ndarray] | None:
    """Returns the classes and which of them are taken for which, or None where the kind has no classes to compare one by one."""
    pairs = [(task.task.classes(right), task.task.classes(found)) for right, found in zip(gold, predicted, strict=True)]
    if not task.task.labels or not any(right for right, _ in pairs) or any(len(right) != len(found) for right, found in pairs):
        return None
    labels = sorted({*task.task.labels, *(name for pair in pairs for side in pair for name in side)})
    number = {label: i for i, label in enumerate(labels)}
    rows, columns = (np.array([number[name] for pair in pairs for name in pair[side]], np.int64) for side in (0, 1))
    return labels, confusion_matrix(rows, columns, len(number))


def _mistakes(run: Run, task: TaskData, answers: list[Answer], split: str) -> list[dict[str, Any]]:
    """Returns the mistakes the model was surest of; the surest come with the training examples that pushed most for the wrong label."""
    examples, kind = task.splits.named()[split], task.task
    wrong: list[dict[str, Any]] = []
    for number, (example, answer) in enumerate(zip(examples, answers, strict=True)):
        label = kind.label_of(answer)
        if label != example.label and kind.classes(label):
            sure = answer.get("probabilities", {}).get(answer.get("label"))
            shown = {"text": example.text, "gold": _shown(kind, example.label), "predicted": _shown(kind, label), "number": number}
            wrong.append({**shown, "probability": sure, "label": label})
    surest = sorted(wrong, key=lambda mistake: -(mistake["probability"] or 0.0))[:MISTAKES]
    asked = [dataclasses.replace(examples[mistake["number"]], label=mistake.pop("label")) for mistake in surest]
    pushed = [*_pushed_for(run, task, asked[:SHOWN]), *([] for _ in asked[SHOWN:])]
    return [{**mistake, "pushed": found} for mistake, found in zip(surest, pushed, strict=True)]


def _shown(task: Task, label: Label) -> str:
    return " ".join(task.classes(label))


def _pushed_for(run: Run, task: TaskData, asked: list[Example]) -> list[list[dict[str, Any]]]:
    """Returns for each of some examples the training examples that pushed the model most for its label; none for one of several rows."""
    if not asked:
        return []
    model, own, vocabulary, config = load_model(run.artefacts.path("model"), run.machine.device)
    length = int(config["length"])
    side = ExampleSide(model, own, vocabulary, length, run.machine, task.splits.train)
    short = side.fit_into_a_row(asked)
    compared = [example for example, fits in zip(asked, short, strict=True) if fits]
    if not compared:
        return [[] for _ in asked]
    encoded = EncodedExamples.of(own, compared, vocabulary, length)
    found = iter(side.pushes([example.text for example in compared], encoded, PUSHED_SHOWN, PUSHED_COMPARED))
    return [[dataclasses.asdict(push) for push in next(found).pushed_for] if fits else [] for fits in short]


def _describe_selection(parts: ReportParts, run: Run, task: TaskData, corpus: CorpusData, selected: Path) -> None:
    table = pq.read_table(selected, columns=["source", "score", "rank"])
    sources = table.column("source").value_counts().to_pylist()
    parts.selected_sources = {entry["values"]: entry["counts"] for entry in sources}
    parts.selected_scores = table.column("score").to_pylist()
    parts.selected_ranks = [rank + 1 for rank in table.column("rank").to_pylist()]  # people count from 1
    texts = task.texts(asking_split(selected))
    shown = next(pq.ParquetFile(selected).iter_batches(batch_size=SHOWN)).to_pylist()
    for row, matched in zip(shown, matched_words(run, task, corpus, selected, shown), strict=True):
        asked = [texts[number] for number in row["asked_by"]]
        parts.selected = [*parts.selected, {**row, "rank": row["rank"] + 1, "asked_by": asked, "matched": matched}]
    parts.words = overrepresented(spread_texts(selected, SELECTED), corpus.store.sample())
