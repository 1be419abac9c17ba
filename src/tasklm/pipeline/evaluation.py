"""From trained seeds to the results: predictions, scores.json and model/."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tasklm.artifacts import Artefacts
from tasklm.evaluate.intervals import Predicted, Resampling
from tasklm.evaluate.scores import Costs, Kind, Row, RowInputs, Scores, make_row
from tasklm.models.task_model import (
    ModelDescription,
    TaskModel,
    cost_of,
    kept_of,
    new_encoder,
    save_models,
)
from tasklm.models.weights import load_weights, mean_weights
from tasklm.pipeline.context import Predictions, Run, TaskData, Trained
from tasklm.pipeline.linear_part import fitted_wide, keep_linear, wide_part
from tasklm.pipeline.teachers import predicted
from tasklm.pipeline.written_examples import dev_of_best
from tasklm.run_folder import ENSEMBLE, MODEL, SCORES, SUMMARY, Seed, best_seed, by_training
from tasklm.storage.files import digest, read_json, write_json
from tasklm.tasks.base import TASKS, Task
from tasklm.train.context import TrainingContext

TOGETHER = "ensemble-predictions"  # artefact of the ensemble's answers
SOUPS = "soup-predictions"  # artefact of the answers of models with averaged weights
Members = Sequence[Seed]  # a seed, or several whose weights are averaged


def predict_splits(
    run: Run, task: TaskData, parts: TrainingContext, seeds: list[Seed]
) -> Predictions:
    """The answers of every seed's best model on dev and test, the only time that test is read."""
    return _predicted(run, task, parts, "predictions", [[[seed]] for seed in seeds])


def predict_together(
    run: Run, task: TaskData, parts: TrainingContext, seeds: list[Seed]
) -> Predictions:
    """The answers of the ensemble of all seeds, from their averaged outputs."""
    return _predicted(run, task, parts, TOGETHER, [[[seed] for seed in seeds]])


def predict_soups(
    run: Run, task: TaskData, parts: TrainingContext, seeds: list[Seed]
) -> Predictions:
    """The answers of a model for each training of stage 1: with the mean weights of its seeds."""
    return _predicted(run, task, parts, SOUPS, [[members] for members in by_training(seeds)])


def _predicted(
    run: Run, task: TaskData, parts: TrainingContext, name: str, groups: list[list[Members]]
) -> Predictions:
    """The answers of each group of models, whose outputs are averaged, as the artefact `name`."""
    splits = [split for split in ("dev", "test") if task.splits.named().get(split)]

    def build(folder: Path) -> None:
        with run.tracker.progress("predicting dev and test"):
            predict(folder)

    def predict(folder: Path) -> None:
        encoded = {"dev": parts.dev}
        if "test" in splits:
            encoded["test"] = parts.encoded(task.splits.test)
        for number, group in enumerate(groups, 1):
            models = [_model_of(parts, members) for members in group]
            outputs = {
                split: kept_of(models, task.task, encoded[split], run.machine) for split in splits
            }
            tuned = task.task.tuned(encoded["dev"].examples, encoded["dev"].units, outputs["dev"])
            write_json(folder / f"task-{number}.json", tuned.to_dict())
            for split, part in encoded.items():
                answers = tuned.answers(part.examples, part.units, outputs[split])
                write_json(folder / f"{split}-{number}.json", answers)

    seeds = list(chain.from_iterable(chain.from_iterable(groups)))
    folder = run.artefacts.build(
        name, _seeds_key(seeds), build, uses=[seed.folder for seed in seeds]
    )
    numbers = range(1, len(groups) + 1)
    return {
        split: [read_json(folder / f"{split}-{number}.json") for number in numbers]
        for split in splits
    }


def _seeds_key(seeds: list[Seed]) -> str:
    return digest([seed.key for seed in seeds])


def _model_of(parts: TrainingContext, members: Members) -> TaskModel:
    """The model of a seed, or with the mean weights of several."""
    encoder = new_encoder(parts.encoder, parts.shape, parts.vocabulary)
    model = TaskModel(
        encoder,
        parts.task.head(parts.shape.width, 0.0, encoder.normed_heads),
        parts.wide is not None,
    )
    model.load_state_dict(mean_weights([load_weights(seed.weights) for seed in members]))
    return model.to(parts.machine.device)


def labels_of(
    task: TaskData, predictions: Predictions, split: str, trainings: int = 1
) -> Predicted:
    """The gold labels of a split, and those that every seed predicts."""
    gold = [example.label for example in task.splits.named()[split]]
    seeds = [[task.task.label_of(answer) for answer in answers] for answers in predictions[split]]
    return Predicted(gold, seeds, trainings)


def model_row(
    trained: Trained,
    name: str,
    kind: Kind,
    predictions: Predictions | None = None,
    ours_test: Predicted | None = None,
) -> Row:
    """The score row of a trained model, or of its seeds together with their own predictions.

    An ensemble costs all trainings, a single model one training of each stage, on average, and a
    soup one of the first with all of its second.
    """
    run, task, parts, seeds = trained.run, trained.task, trained.parts, trained.seeds
    predictions = trained.predictions if predictions is None else predictions
    together = kind == "ensemble"
    spent, cost = _spent(run, seeds, kind), cost_of(parts.encoder, parts.shape)
    trainings = 1 if together else trained.trainings
    test, passages, tokens = None, 0, 0
    if "test" in predictions:
        test = labels_of(task, predictions, "test", trainings)
    if parts.external is not None:
        passages, tokens = len(parts.external), int(parts.external.offsets[-1])
    costs = Costs(
        flops_6nd=cost.six_nd(int(spent["tokens"])),
        flops_exact=spent["flops"] + _influence_flops(run, parts),
        seconds=round(_before_seconds(run, parts) + spent["seconds"], 1),
        parameters=(len(seeds) if together else 1) * parts.parameters,
        selected_passages=passages,
        selected_tokens=tokens,
    )
    inputs = RowInputs(
        name,
        kind,
        task.task,
        task.metric,
        dev=labels_of(task, predictions, "dev", trainings),
        test=test,
        ours_test=ours_test,
        resampling=resampling(run),
        costs=costs,
    )
    return make_row(inputs)


def _spent(run: Run, seeds: list[Seed], kind: Kind) -> dict[str, float]:
    """Tokens, FLOPs and seconds of both stages, of the trainings that a row of this kind takes."""
    trainings = sorted({seed.training for seed in seeds})
    stage1 = [
        {**read_json(folder / SUMMARY), "seconds": seconds_of(run.artefacts, folder.name)}
        for folder in trainings
    ]
    stage2 = [seed.summary() for seed in seeds]
    whole = {
        what: [sum(float(one[what]) for one in stage) for stage in (stage1, stage2)]
        for what in ("tokens", "flops", "seconds")
    }
    models = {"ensemble": (1, 1), "soup": (len(stage1), len(stage1))}
    by = models.get(kind, (len(stage1), len(stage2)))
    return {what: first / by[0] + second / by[1] for what, (first, second) in whole.items()}


def held_out_text(seeds: Sequence[Seed]) -> dict[str, Any]:
    """The loss of selected text that stage 1 never read, the mean of all trainings, and what it is
    of; nothing if none was held out.
    """
    summaries = [read_json(folder / SUMMARY) for folder in sorted({one.training for one in seeds})]
    measured = [summary["held_out"] for summary in summaries if "held_out" in summary]
    if not measured:
        return {}
    losses = [one["loss"] for one in measured]
    return {"held_out_text": {**measured[0], "loss": sum(losses) / len(losses)}}


def training_seconds(trained: Trained, models: int = 1) -> float:
    """How long models take, each with the stage 1 of a trained one and all with its stage 2."""
    folders = {seed.training for seed in trained.seeds}
    stage1 = sum(seconds_of(trained.run.artefacts, folder.name) for folder in folders)
    stage2 = sum(float(seed.summary()["seconds"]) for seed in trained.seeds)
    return models * stage1 + stage2


def resampling(run: Run) -> Resampling:
    """The resampling that the recipe asks for."""
    return Resampling(run.recipe.evaluate.bootstrap, run.recipe.evaluate.confidence)


def seconds_of(artefacts: Artefacts, part: str) -> float:
    """The time that an artefact took; the clock of a training includes killed processes."""
    summary = artefacts.path(part) / SUMMARY
    if not summary.exists():
        return artefacts.seconds(part)
    return max(artefacts.seconds(part), float(read_json(summary).get("seconds", 0.0)))


def baseline_rows(run: Run, task: TaskData, ours_test: Predicted | None) -> list[Row]:
    """The rows of the kind's cheap baselines, such as the majority class."""
    held_out = task.held_out

    def build(folder: Path) -> None:
        wide = fitted_wide(run, task).wide
        with run.tracker.progress("scoring the baselines"):
            labels = task.task.baselines(task.splits.train, held_out, task.metric, wide)
            write_json(folder / "baselines.json", labels)

    key = digest(["baselines 4", task.key, task.metric])
    baselines = read_json(run.artefacts.build("baselines", key, build) / "baselines.json")
    rows = []
    for name, labels in baselines.items():
        splits = {
            split: Predicted([example.label for example in examples], [labels[split]])
            for split, examples in held_out.items()
        }
        inputs = given_labels(run, task, splits, ours_test)
        rows.append(make_row(dataclasses.replace(inputs, name=name)))
    if rows:  # the last one takes nearly all of the time
        rows[-1] = dataclasses.replace(rows[-1], seconds=_baseline_seconds(run))
    return rows


def teacher_rows(run: Run, task: TaskData, ours_test: Predicted | None) -> list[Row]:
    """The rows of the teachers, whose cost is that of their own runs."""
    rows = []
    for teacher in predicted(run, task):
        inputs = given_labels(run, task, teacher.labels, ours_test)
        costs = Costs(parameters=teacher.parameters)
        row = dataclasses.replace(inputs, name=teacher.title, kind="teacher", costs=costs)
        rows.append(make_row(row))
    return rows


def given_labels(
    run: Run, task: TaskData, splits: dict[str, Predicted], ours_test: Predicted | None
) -> RowInputs:
    """The inputs of a row of labels for dev and test that are not those of this run's model."""
    return RowInputs(
        "",
        "baseline",
        task.task,
        task.metric,
        dev=splits.get("dev"),
        test=splits.get("test"),
        ours_test=ours_test,
        resampling=resampling(run),
    )


def _before_seconds(run: Run, parts: TrainingContext) -> float:
    """The time spent before stage 1."""
    wide = [] if parts.wide is None else ["wide", "wide-text"]
    return sum(seconds_of(run.artefacts, part) for part in [*_before_stage1(run), *wide])


def _baseline_seconds(run: Run) -> float:
    return run.artefacts.seconds("baselines") + run.artefacts.seconds("wide")


def is_linear(parts: TrainingContext, seeds: list[Seed]) -> bool:
    """Whether the linear model that the seeds started with is the final one: none is
    better on dev.
    """
    return parts.wide is not None and best_seed(seeds).summary()["best_epoch"] == 0


def keep_best(trained: Trained, scores: Scores) -> Path:
    """The folder model/: the seed that is best on dev, ready to predict."""
    run, best = trained.run, trained.best
    of = {"stage1": best.stage1, "seed": best.stage2, "test": _on_test(scores.ours)}
    if scores.linear:
        assert trained.parts.wide is not None
        keep_linear(run, trained.task, wide_part(run, trained.task), of)
        return run.artefacts.path(MODEL)
    if scores.averaged:
        return _keep_soup(trained, scores)
    about = {"metric": scores.metric, "dev": dev_of_best(trained, scores), **of}
    tuned = run.artefacts.path("predictions") / f"task-{trained.best_place + 1}.json"
    return _keep(trained, MODEL, [[best]], tuned, about)


def _keep_soup(trained: Trained, scores: Scores) -> Path:
    """The folder model/ with the mean weights of the seeds of the training whose soup is best on
    dev.
    """
    row = next(row for row in scores.rows if row.kind == "soup")
    assert row.dev is not None
    place = row.dev.values.index(max(row.dev.values))
    members = by_training(trained.seeds)[place]
    about = {
        "metric": scores.metric,
        "dev": row.dev.values[place],
        "stage1": members[0].stage1,
        "averaged": [seed.stage2 for seed in members],
        "test": _on_test(row),
    }
    tuned = trained.run.artefacts.path(SOUPS) / f"task-{place + 1}.json"
    return _keep(trained, MODEL, [members], tuned, about)


def keep_so_far(run: Run, task: TaskData, parts: TrainingContext, done: list[Seed]) -> None:
    """Builds model/ from the best seed so far, in case the run is stopped; a finished run keeps its
    own.
    """
    best = best_seed(done)
    if (run.folder / SCORES).exists() or is_linear(parts, [best]):
        return

    def build(folder: Path) -> None:
        model, dev = _model_of(parts, [best]), parts.dev
        outputs = kept_of([model], task.task, dev, run.machine)
        tuned = task.task.tuned(dev.examples, dev.units, outputs)
        about = {
            "metric": task.metric,
            "dev": best.summary()["dev"],
            "stage1": best.stage1,
            "seed": best.stage2,
        }
        _save(folder, parts, [model], tuned, about)

    run.artefacts.build(MODEL, digest(["so far", best.key]), build, uses=[best.folder])


def keep_ensemble(trained: Trained, row: Row) -> Path:
    """The folder ensemble/: the models of all seeds, whose averaged outputs gave the row."""
    assert row.dev is not None
    about = {
        "metric": trained.task.metric,
        "dev": row.dev.mean,
        "seeds": len(trained.seeds),
        "test": _on_test(row),
    }
    tuned = trained.run.artefacts.path(TOGETHER) / "task-1.json"
    return _keep(trained, ENSEMBLE, [[seed] for seed in trained.seeds], tuned, about)


def _on_test(row: Row | None) -> dict[str, Any] | None:
    return dataclasses.asdict(row.test) if row is not None and row.test is not None else None


def _keep(
    trained: Trained, name: str, group: Sequence[Members], tuned: Path, about: dict[str, Any]
) -> Path:
    """The artefact `name`: some models, with the task as tuned on dev for them."""
    run, parts = trained.run, trained.parts

    def build(folder: Path) -> None:
        models = [_model_of(parts, members) for members in group]
        task = TASKS.get(trained.task.task.kind).from_dict(read_json(tuned))
        _save(folder, parts, models, task, about)

    return run.artefacts.build(
        name,
        digest([_seeds_key(trained.seeds), about]),
        build,
        uses=[*(seed.folder for seed in chain.from_iterable(group)), tuned.parent],
    )


def _save(
    folder: Path, parts: TrainingContext, models: list[TaskModel], task: Task, about: dict[str, Any]
) -> None:
    description = ModelDescription(parts.encoder, parts.shape, task, parts.vocabulary, parts.length)
    save_models(folder, description, models, about, parts.wide)


def _before_stage1(run: Run) -> list[str]:
    """The artefacts of a model's trainings."""
    if not run.recipe.select.by_influence:
        return ["selected", "tokens"]
    chain_of_influence = ["candidates", "candidate-tokens", "scoring-model", "influence"]
    return [*chain_of_influence, "selected", "tokens"]


def _influence_flops(run: Run, parts: TrainingContext) -> float:
    """The FLOPs of the scoring model and its scores, if influence selected the text; else 0."""
    if not run.recipe.select.by_influence or parts.external is None:
        return 0.0
    return sum(
        float(read_json(run.artefacts.path(part) / SUMMARY)["flops"])
        for part in ("scoring-model", "influence")
    )
