"""From trained seeds to what people keep: predictions, scores.json, model/ and report.html."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasklm.analyse.report import ReportParts
from tasklm.analyse.words import overrepresented
from tasklm.evaluate.confusion import confusion_matrix
from tasklm.evaluate.explaining import ExampleSide
from tasklm.evaluate.scores import Kind, Row, Scores, make_row
from tasklm.recipe_files import dump, without_password
from tasklm.runs import digest, read_json, write_json
from tasklm.select.base import asking_split
from tasklm.tasks.base import TASKS, Answer, Label, Task
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.checkpoints import load_weights
from tasklm.train.model import TaskModel, cost_of, kept_of, load_model, new_encoder, save_models
from tasklm.train.stages import Ingredients
from tasklm.workspace import CorpusData, Run, TaskData

Predictions = dict[str, list[list[Answer]]]  # split → answers of every seed
SHOWN = 10  # passages and mistakes shown in the report
TOGETHER = "ensemble-predictions"  # artefact of the answers of all seeds together
PUSHED_SHOWN, PUSHED_COMPARED = 3, 50  # training examples shown for a mistake, and those compared for it: with its rarest words


def predict_splits(run: Run, task: TaskData, parts: Ingredients, seeds: list[Path]) -> Predictions:
    """Returns the answers of every seed's best model on dev and test; this is the one time that test is read."""
    return _predicted(run, task, parts, "predictions", [[seed] for seed in seeds])


def predict_together(run: Run, task: TaskData, parts: Ingredients, seeds: list[Path]) -> Predictions:
    """Returns the answers of all seeds together, as if of one seed: from their averaged outputs, with thresholds that dev gives these."""
    return _predicted(run, task, parts, TOGETHER, [seeds])


def _predicted(run: Run, task: TaskData, parts: Ingredients, name: str, groups: list[list[Path]]) -> Predictions:
    """Returns the answers of each group of seeds on dev and test, kept as the artefact `name`; those of a group answer together."""
    splits = [split for split in ("dev", "test") if task.splits.named().get(split)]

    def build(folder: Path) -> None:
        encoded = {split: EncodedExamples.of(task.task, task.splits.named()[split], parts.vocabulary, parts.length) for split in splits}
        for number, group in enumerate(groups, 1):
            models = [_model_of(parts, seed) for seed in group]
            kept = {split: kept_of(models, task.task, encoded[split], run.machine) for split in splits}
            tuned = task.task.tuned(encoded["dev"].examples, encoded["dev"].units, kept["dev"])
            write_json(folder / f"task-{number}.json", tuned.to_dict())
            for split, examples in encoded.items():
                write_json(folder / f"{split}-{number}.json", tuned.answers(examples.examples, examples.units, kept[split]))

    folder = run.artefacts.build(name, _seeds_key([seed for group in groups for seed in group]), build)
    return {split: [read_json(folder / f"{split}-{number}.json") for number in range(1, len(groups) + 1)] for split in splits}


def _seeds_key(seeds: list[Path]) -> str:
    return digest([read_json(seed / "artefact.json")["key"] for seed in seeds])


def _model_of(parts: Ingredients, seed: Path) -> TaskModel:
    encoder = new_encoder(parts.encoder, parts.shape)
    model = TaskModel(encoder, parts.task.head(parts.shape.width, 0.0))
    model.load_state_dict(load_weights(seed / "best.safetensors"))
    return model.to(parts.machine.device)


def labels_of(task: TaskData, predictions: Predictions, split: str) -> tuple[list[Label], list[list[Label]]]:
    """Returns the gold labels of a split, and those that every seed predicts."""
    gold = [example.label for example in task.splits.named()[split]]
    return gold, [[task.task.label_of(answer) for answer in answers] for answers in predictions[split]]


def model_row(
    run: Run,
    name: str,
    kind: Kind,
    task: TaskData,
    parts: Ingredients,
    seeds: list[Path],
    predictions: Predictions,
    ours_test: list[list[Label]] | None = None,
) -> Row:
    """Returns the score row of a trained model; an ensemble cost stage 2 of all seeds, a single model that of one, on average."""
    stage1 = read_json(run.artefacts.path("stage1") / "summary.json")
    stage2 = [read_json(seed / "summary.json") for seed in seeds]
    models = len(seeds) if kind == "ensemble" else 1
    share = models / len(stage2)  # of the costs of stage 2
    cost = cost_of(parts.encoder, parts.shape)
    evaluate = run.recipe.evaluate
    return make_row(
        name,
        kind,
        task.task,
        task.metric,
        dev=labels_of(task, predictions, "dev"),
        test=labels_of(task, predictions, "test") if "test" in predictions else None,
        ours_test=ours_test,
        resamples=evaluate.bootstrap,
        confidence=evaluate.confidence,
        flops_6nd=cost.six_nd(int(stage1["tokens"] + share * sum(one["tokens"] for one in stage2))),
        flops_exact=stage1["flops"] + share * sum(one["flops"] for one in stage2) + _influence_flops(run, parts),
        seconds=round(
            sum(run.artefacts.seconds(part) for part in _before_stage2(run)) + sum(float(one["seconds"]) for one in stage2),
            1,
        ),
        parameters=models * cost.parameters,
        selected_passages=len(parts.external) if parts.external is not None else 0,
        selected_tokens=int(parts.external.offsets[-1]) if parts.external is not None else 0,
    )


def baseline_rows(run: Run, task: TaskData, ours_test: list[list[Label]] | None) -> list[Row]:
    """Returns the rows of the cheap predictions that the kind of task has, such as the majority class."""
    held = {name: part for name, part in task.splits.named().items() if name != "train"}

    def build(folder: Path) -> None:
        write_json(folder / "baselines.json", task.task.baselines(task.splits.train, held, task.metric))

    found = read_json(run.artefacts.build("baselines", digest(["baselines", task.key, task.metric]), build) / "baselines.json")
    evaluate, rows = run.recipe.evaluate, []
    for number, (name, labels) in enumerate(found.items()):
        scored = {split: ([example.label for example in held[split]], [labels[split]]) for split in held}
        rows.append(
            make_row(
                name,
                "baseline",
                task.task,
                task.metric,
                dev=scored.get("dev"),
                test=scored.get("test"),
                ours_test=ours_test,
                resamples=evaluate.bootstrap,
                confidence=evaluate.confidence,
                seconds=run.artefacts.seconds("baselines") if number == len(found) - 1 else 0.0,  # nearly all of it is the last one's
            )
        )
    return rows


def keep_best(run: Run, task: TaskData, parts: Ingredients, seeds: list[Path], scores: Scores) -> Path:
    """Returns the folder model/: the seed that is best on dev, ready to predict."""
    dev = [read_json(seed / "summary.json")["dev"] for seed in seeds]
    best = int(np.argmax(dev))
    about = {"metric": scores.metric, "dev": dev[best], "seed": best + 1, "test": _on_test(scores.ours)}
    return _keep(run, "model", task, parts, [seeds[best]], run.artefacts.path("predictions") / f"task-{best + 1}.json", about, seeds)


def keep_ensemble(run: Run, task: TaskData, parts: Ingredients, seeds: list[Path], row: Row) -> Path:
    """Returns the folder ensemble/: the models of all seeds, whose averaged outputs gave the row, ready to predict."""
    assert row.dev is not None
    about = {"metric": task.metric, "dev": row.dev.mean, "seeds": len(seeds), "test": _on_test(row)}
    return _keep(run, "ensemble", task, parts, seeds, run.artefacts.path(TOGETHER) / "task-1.json", about, seeds)


def _on_test(row: Row | None) -> dict[str, Any] | None:
    return dataclasses.asdict(row.test) if row is not None and row.test is not None else None


def _keep(
    run: Run, name: str, task: TaskData, parts: Ingredients, kept: list[Path], tuned: Path, about: dict[str, Any], seeds: list[Path]
) -> Path:
    """Returns the artefact `name`: the models of the seeds that are kept, with the task as dev has tuned it for them."""

    def build(folder: Path) -> None:
        models = [_model_of(parts, seed) for seed in kept]
        own = TASKS.get(task.task.kind).from_dict(read_json(tuned))
        save_models(folder, parts.encoder, parts.shape, models, own, parts.vocabulary, parts.length, about)

    return run.artefacts.build(name, digest([_seeds_key(seeds), about]), build)


def report_parts(
    run: Run,
    task: TaskData,
    corpus: CorpusData | None,
    selected: Path | None,
    seeds: list[Path],
    predictions: Predictions,
    scores: Scores,
    notes: list[str],
) -> ReportParts:
    """Returns what the report shows, collected from the run folder."""
    split = "test" if "test" in predictions else "dev"
    gold, predicted = labels_of(task, predictions, split)
    best = int(np.argmax([read_json(seed / "summary.json")["dev"] for seed in seeds]))
    findings = [dataclasses.asdict(f) for f in [*task.findings, *(corpus.findings if corpus else [])]]
    parts = ReportParts(
        title=f"tasklm: {run.folder.name}",
        scores=scores,
        findings=findings,
        curves=_curves(run, seeds),
        confusion=_confusion(task, gold, predicted[best]),
        mistakes=_mistakes(run, task, predictions[split][best], split),
        recipe_toml=dump(without_password(run.recipe)),
        command=f"tasklm run {run.folder / 'recipe.toml'} --out {run.folder}",
        notes=[*task.splits.notes, *notes],
        contamination=corpus.contamination.examples if corpus else [],
    )
    if selected is not None and corpus is not None:
        _describe_selection(parts, task, corpus, selected)
    return parts


def _curves(run: Run, seeds: list[Path]) -> list[dict[str, Any]]:
    """Returns the points of all learning curves, under names that a person reads."""
    stage1 = read_json(run.artefacts.path("stage1") / "curve.json")
    points = [{"stage": "stage 1", **_named(point)} for point in stage1]
    for number, seed in enumerate(seeds, start=1):
        points += [{"stage": "stage 2", "seed": number, **_named(point)} for point in read_json(seed / "curve.json")]
    return points


def _named(point: dict[str, float]) -> dict[str, float]:
    names = {"step": "step", "rate": "learning rate", "dev": "dev score"}
    return {names.get(name, f"loss: {name}"): value for name, value in point.items()}


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
    """Returns the mistakes the model was surest of, with the training examples that pushed most for each wrong label."""
    examples, kind = task.splits.named()[split], task.task
    wrong: list[dict[str, Any]] = []
    for number, (example, answer) in enumerate(zip(examples, answers, strict=True)):
        label = kind.label_of(answer)
        if label != example.label and kind.classes(label):
            sure = answer.get("probabilities", {}).get(answer.get("label"))
            shown = {"text": example.text, "gold": _shown(kind, example.label), "predicted": _shown(kind, label), "number": number}
            wrong.append({**shown, "probability": sure, "label": label})
    surest = sorted(wrong, key=lambda mistake: -(mistake["probability"] or 0.0))[:SHOWN]
    asked = [dataclasses.replace(examples[mistake["number"]], label=mistake.pop("label")) for mistake in surest]
    return [{**mistake, "pushed": found} for mistake, found in zip(surest, _pushed_for(run, task, asked), strict=True)]


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


def _before_stage2(run: Run) -> list[str]:
    """Returns the artefacts that a model is made of, those of influence selection among them where it was asked for."""
    chained = ["candidates", "candidate-tokens", "scoring-model", "influence"] if "," in run.recipe.select.method else []
    return [*chained, "selected", "tokens", "stage1"]


def _influence_flops(run: Run, parts: Ingredients) -> float:
    """Returns FLOPs of the scoring model and of the scores where influence chose the text of the model, else 0."""
    if "," not in run.recipe.select.method or parts.external is None:
        return 0.0
    return sum(float(read_json(run.artefacts.path(part) / "summary.json")["flops"]) for part in ("scoring-model", "influence"))


def _describe_selection(parts: ReportParts, task: TaskData, corpus: CorpusData, selected: Path) -> None:
    table = pq.read_table(selected, columns=["source", "score", "rank"])
    sources = table.column("source").value_counts().to_pylist()
    parts.selected_sources = {entry["values"]: entry["counts"] for entry in sources}
    parts.selected_scores = table.column("score").to_pylist()
    parts.selected_ranks = table.column("rank").to_pylist()
    texts = task.texts(asking_split(selected))
    first = next(pq.ParquetFile(selected).iter_batches(batch_size=2000)).to_pylist()
    parts.selected = [{**row, "asked_by": [texts[number] for number in row["asked_by"][:3]]} for row in first[:SHOWN]]
    parts.words = overrepresented((row["text"] for row in first), corpus.store.sample())
