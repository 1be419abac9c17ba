"""From trained seeds to what people keep: predictions, scores.json, model/ and report.html."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from tasklm.analyse.report import ReportParts
from tasklm.analyse.words import overrepresented
from tasklm.evaluate.baselines import majority, tfidf_linear
from tasklm.evaluate.confusion import confusion_matrix
from tasklm.evaluate.explaining import ExampleSide
from tasklm.evaluate.scores import Kind, Row, Scores, make_row
from tasklm.recipe_files import dump, without_password
from tasklm.runs import digest, read_json, write_json
from tasklm.select.base import asking_split
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.checkpoints import load_weights
from tasklm.train.model import TaskModel, cost_of, load_model, new_encoder, outputs_of, save_model
from tasklm.train.stages import Ingredients
from tasklm.workspace import CorpusData, Run, TaskData

Predictions = dict[str, np.ndarray]  # split → outputs (seeds, examples, …)
SHOWN = 10  # passages and mistakes shown in the report
PUSHED_SHOWN, PUSHED_COMPARED = 3, 50  # training examples shown for a mistake, and those compared for it: with its rarest words


def predict_splits(run: Run, task: TaskData, parts: Ingredients, seeds: list[Path]) -> Predictions:
    """Returns the outputs of every seed's best model on dev and test; this is the one time that test is read."""
    splits = [name for name in ("dev", "test") if task.splits.named().get(name)]

    def build(folder: Path) -> None:
        collected: dict[str, list[np.ndarray]] = {name: [] for name in splits}
        for seed in seeds:
            model = _model_of(parts, seed)
            for name in splits:
                examples = task.splits.named()[name]
                encoded = EncodedExamples([e.texts for e in examples], parts.vocabulary, parts.length, None)
                collected[name].append(outputs_of(model, encoded, run.machine).numpy())
        for name, outputs in collected.items():
            np.save(folder / f"{name}.npy", np.stack(outputs))

    folder = run.artefacts.build("predictions", _seeds_key(seeds), build)
    return {name: np.load(folder / f"{name}.npy") for name in splits}


def _seeds_key(seeds: list[Path]) -> str:
    return digest([read_json(seed / "artefact.json")["key"] for seed in seeds])


def _model_of(parts: Ingredients, seed: Path) -> TaskModel:
    encoder = new_encoder(parts.encoder, parts.shape)
    model = TaskModel(encoder, parts.task.head(parts.shape.width, 0.0))
    model.load_state_dict(load_weights(seed / "best.safetensors"))
    return model.to(parts.machine.device)


def decoded(task: TaskData, predictions: Predictions, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns gold and predicted targets (seeds, examples) of a split."""
    gold = task.task.targets(task.splits.named()[split]).numpy()
    return gold, np.stack([task.task.decode(torch.from_numpy(outputs)) for outputs in predictions[split]])


def model_row(
    run: Run,
    name: str,
    kind: Kind,
    task: TaskData,
    parts: Ingredients,
    seeds: list[Path],
    predictions: Predictions,
    ours_test: np.ndarray | None = None,
) -> Row:
    """Returns the score row of a trained model."""
    stage1 = read_json(run.artefacts.path("stage1") / "summary.json")
    stage2 = [read_json(seed / "summary.json") for seed in seeds]
    tuned = sum(one["tokens"] for one in stage2) / len(stage2)
    cost = cost_of(parts.encoder, parts.shape)
    evaluate = run.recipe.evaluate
    return make_row(
        name,
        kind,
        evaluate.metric,
        len(task.task.labels),
        dev=decoded(task, predictions, "dev"),
        test=decoded(task, predictions, "test") if "test" in predictions else None,
        ours_test=ours_test,
        resamples=evaluate.bootstrap,
        confidence=evaluate.confidence,
        flops_6nd=cost.six_nd(int(stage1["tokens"] + tuned)),
        flops_exact=stage1["flops"] + sum(one["flops"] for one in stage2) / len(stage2),
        seconds=round(
            sum(run.artefacts.seconds(part) for part in _before_stage2(run)) + sum(float(one["seconds"]) for one in stage2),
            1,
        ),
        parameters=cost.parameters,
        selected_passages=len(parts.external) if parts.external is not None else 0,
        selected_tokens=int(parts.external.offsets[-1]) if parts.external is not None else 0,
    )


def baseline_rows(run: Run, task: TaskData, ours_test: np.ndarray | None) -> list[Row]:
    """Returns the rows of the majority class and of TF-IDF + logistic regression."""
    splits, metric = task.splits, run.recipe.evaluate.metric

    def build(folder: Path) -> None:
        linear = tfidf_linear(splits.train, splits.dev, splits.test, metric)
        found = {
            "majority": {"dev": majority(splits.train, splits.dev), "test": majority(splits.train, splits.test)},
            "TF-IDF + linear": {"dev": linear.dev, "test": linear.test, "parameters": linear.parameters},
        }
        write_json(folder / "baselines.json", found)

    key = digest(["baselines", task.key, metric])
    found = read_json(run.artefacts.build("baselines", key, build) / "baselines.json")
    rows = []
    for name, labels in found.items():
        parts = {split: _numbers(task, split, labels[split]) for split in ("dev", "test") if task.splits.named().get(split)}
        seconds = run.artefacts.seconds("baselines") if name != "majority" else 0.0
        evaluate = run.recipe.evaluate
        rows.append(
            make_row(
                name,
                "baseline",
                metric,
                len(task.task.labels),
                dev=parts.get("dev"),
                test=parts.get("test"),
                ours_test=ours_test,
                resamples=evaluate.bootstrap,
                confidence=evaluate.confidence,
                seconds=seconds,
                parameters=labels.get("parameters", 0),
            )
        )
    return rows


def _numbers(task: TaskData, split: str, labels: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    examples = task.splits.named()[split]
    given = [dataclasses.replace(example, label=label) for example, label in zip(examples, labels, strict=True)]
    return task.task.targets(examples).numpy(), task.task.targets(given).numpy()[None]


def keep_best(run: Run, task: TaskData, parts: Ingredients, seeds: list[Path], scores: Scores) -> Path:
    """Returns the folder model/: the seed that is best on dev, ready to predict."""
    dev = [read_json(seed / "summary.json")["dev"] for seed in seeds]
    best = int(np.argmax(dev))
    ours = scores.ours
    about = {
        "metric": scores.metric,
        "dev": dev[best],
        "seed": best + 1,
        "test": dataclasses.asdict(ours.test) if ours is not None and ours.test is not None else None,
    }

    def build(folder: Path) -> None:
        model = _model_of(parts, seeds[best])
        encoder: Any = model.encoder
        save_model(folder, parts.encoder, encoder, model, task.task, parts.vocabulary, parts.length, about)

    return run.artefacts.build("model", digest([_seeds_key(seeds), about]), build)


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
    gold, predicted = decoded(task, predictions, split)
    best = int(np.argmax([read_json(seed / "summary.json")["dev"] for seed in seeds]))
    findings = [dataclasses.asdict(f) for f in [*task.findings, *(corpus.findings if corpus else [])]]
    parts = ReportParts(
        title=f"tasklm: {run.folder.name}",
        scores=scores,
        findings=findings,
        curves=_curves(run, seeds),
        confusion=(task.task.labels, confusion_matrix(gold, predicted[best], len(task.task.labels))),
        mistakes=_mistakes(run, task, predictions[split][best], gold, split),
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


def _mistakes(run: Run, task: TaskData, outputs: np.ndarray, gold: np.ndarray, split: str) -> list[dict[str, Any]]:
    """Returns the mistakes the model was surest of, with the training examples that pushed most for each wrong label."""
    answers = task.task.answers(torch.from_numpy(outputs))
    examples = task.splits.named()[split]
    wrong = [
        {
            "text": examples[i].text,
            "gold": task.task.labels[gold[i]],
            "predicted": answer["label"],
            "probability": answer["probabilities"][answer["label"]],
            "number": i,
        }
        for i, answer in enumerate(answers)
        if answer["label"] != task.task.labels[gold[i]]
    ]
    shown = sorted(wrong, key=lambda mistake: -mistake["probability"])[:SHOWN]
    asked = [dataclasses.replace(examples[mistake["number"]], label=mistake["predicted"]) for mistake in shown]
    return [{**mistake, "pushed": found} for mistake, found in zip(shown, _pushed_for(run, task, asked), strict=True)]


def _pushed_for(run: Run, task: TaskData, asked: list[Example]) -> list[list[dict[str, Any]]]:
    """Returns for each of some examples the training examples that pushed the model most for its label."""
    if not asked:
        return []
    model, own, vocabulary, config = load_model(run.artefacts.path("model"), run.machine.device)
    length = int(config["length"])
    side = ExampleSide(model, own, vocabulary, length, run.machine, task.splits.train)
    encoded = EncodedExamples([example.texts for example in asked], vocabulary, length, own.targets(asked))
    found = side.pushes([example.text for example in asked], encoded, PUSHED_SHOWN, PUSHED_COMPARED)
    return [[dataclasses.asdict(push) for push in one.pushed_for] for one in found]


def _before_stage2(run: Run) -> list[str]:
    """Returns the artefacts that a model is made of, those of influence selection among them where it was asked for."""
    chained = ["candidates", "candidate-tokens", "scoring-model", "influence"] if "," in run.recipe.select.method else []
    return [*chained, "selected", "tokens", "stage1"]


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
