"""From trained seeds to what people keep: predictions, scores.json and model/."""

from __future__ import annotations

import dataclasses
from itertools import chain
from pathlib import Path
from typing import Any

from tasklm.artifacts import Artefacts
from tasklm.evaluate.intervals import Predicted, Resampling
from tasklm.evaluate.scores import Kind, Row, Scores, make_row
from tasklm.models.task_model import TaskModel, cost_of, kept_of, new_encoder, save_models
from tasklm.models.weights import load_weights
from tasklm.pipeline.context import Run, TaskData
from tasklm.pipeline.linear_part import fitted_wide, keep_linear, wide_part
from tasklm.run_folder import Seed, best_seed, trainings_of
from tasklm.storage.files import digest, read_json, write_json
from tasklm.tasks.base import TASKS, Answer
from tasklm.train.stages import Ingredients

Predictions = dict[str, list[list[Answer]]]  # split → answers of every seed
TOGETHER = "ensemble-predictions"  # artefact of the answers of all seeds together


def predict_splits(run: Run, task: TaskData, parts: Ingredients, seeds: list[Seed]) -> Predictions:
    """The answers of every seed's best model on dev and test; this is the one time that test is
    read.
    """
    return _predicted(run, task, parts, "predictions", [[seed] for seed in seeds])


def predict_together(
    run: Run, task: TaskData, parts: Ingredients, seeds: list[Seed]
) -> Predictions:
    """The answers of all seeds together, as if of one seed: from their averaged outputs, with
    thresholds that dev gives these.
    """
    return _predicted(run, task, parts, TOGETHER, [seeds])


def _predicted(
    run: Run, task: TaskData, parts: Ingredients, name: str, groups: list[list[Seed]]
) -> Predictions:
    """The answers of each group of seeds on dev and test, kept as the artefact `name`; those of a
    group answer together.
    """
    splits = [split for split in ("dev", "test") if task.splits.named().get(split)]

    def build(folder: Path) -> None:
        with run.tracker.progress("predicting dev and test"):
            predict(folder)

    def predict(folder: Path) -> None:
        encoded = {split: parts.encoded(task.splits.named()[split]) for split in splits}
        for number, group in enumerate(groups, 1):
            models = [_model_of(parts, seed) for seed in group]
            kept = {
                split: kept_of(models, task.task, encoded[split], run.machine) for split in splits
            }
            tuned = task.task.tuned(encoded["dev"].examples, encoded["dev"].units, kept["dev"])
            write_json(folder / f"task-{number}.json", tuned.to_dict())
            for split, examples in encoded.items():
                write_json(
                    folder / f"{split}-{number}.json",
                    tuned.answers(examples.examples, examples.units, kept[split]),
                )

    seeds = list(chain.from_iterable(groups))
    folder = run.artefacts.build(
        name, _seeds_key(seeds), build, uses=[seed.folder for seed in seeds]
    )
    return {
        split: [
            read_json(folder / f"{split}-{number}.json") for number in range(1, len(groups) + 1)
        ]
        for split in splits
    }


def _seeds_key(seeds: list[Seed]) -> str:
    return digest([seed.key for seed in seeds])


def _model_of(parts: Ingredients, seed: Seed) -> TaskModel:
    encoder = new_encoder(parts.encoder, parts.shape)
    model = TaskModel(
        encoder,
        parts.task.head(parts.shape.width, 0.0, encoder.normed_heads),
        parts.wide is not None,
    )
    model.load_state_dict(load_weights(seed.weights))
    return model.to(parts.machine.device)


def labels_of(
    task: TaskData, predictions: Predictions, split: str, trainings: int = 1
) -> Predicted:
    """The gold labels of a split, and those that every seed predicts."""
    gold = [example.label for example in task.splits.named()[split]]
    seeds = [[task.task.label_of(answer) for answer in answers] for answers in predictions[split]]
    return Predicted(gold, seeds, trainings)


def model_row(
    run: Run,
    name: str,
    kind: Kind,
    task: TaskData,
    parts: Ingredients,
    seeds: list[Seed],
    predictions: Predictions,
    ours_test: Predicted | None = None,
) -> Row:
    """The score row of a trained model; an ensemble cost all trainings, a single model one of
    either stage, on average.
    """
    together = kind == "ensemble"
    spent, cost = _spent(run, seeds, together), cost_of(parts.encoder, parts.shape)
    each = 1 if together else trainings_of(seeds)
    return make_row(
        name,
        kind,
        task.task,
        task.metric,
        dev=labels_of(task, predictions, "dev", each),
        test=labels_of(task, predictions, "test", each) if "test" in predictions else None,
        ours_test=ours_test,
        resampling=_resampling(run),
        flops_6nd=cost.six_nd(int(spent["tokens"])),
        flops_exact=spent["flops"] + _influence_flops(run, parts),
        seconds=round(_before_seconds(run, parts) + spent["seconds"], 1),
        parameters=(len(seeds) if together else 1) * cost.parameters,
        selected_passages=len(parts.external) if parts.external is not None else 0,
        selected_tokens=int(parts.external.offsets[-1]) if parts.external is not None else 0,
    )


def _spent(run: Run, seeds: list[Seed], together: bool) -> dict[str, float]:
    """Returns tokens, FLOPs and seconds of both stages: of all trainings together, or of one of
    either stage, on average.
    """
    trainings = sorted({seed.training for seed in seeds})
    stage1 = [
        {**read_json(folder / "summary.json"), "seconds": seconds_of(run.artefacts, folder.name)}
        for folder in trainings
    ]
    stage2 = [seed.summary() for seed in seeds]
    whole = {
        what: [sum(float(one[what]) for one in stage) for stage in (stage1, stage2)]
        for what in ("tokens", "flops", "seconds")
    }
    if together:
        return {what: sum(both) for what, both in whole.items()}
    return {
        what: first / len(stage1) + second / len(stage2) for what, (first, second) in whole.items()
    }


def _resampling(run: Run) -> Resampling:
    return Resampling(run.recipe.evaluate.bootstrap, run.recipe.evaluate.confidence)


def seconds_of(artefacts: Artefacts, part: str) -> float:
    """The time that an artefact took: the clock of its training, where it has one, knows of
    processes that were killed.
    """
    summary = artefacts.path(part) / "summary.json"
    trained = float(read_json(summary).get("seconds", 0.0)) if summary.exists() else 0.0
    return max(artefacts.seconds(part), trained)


def baseline_rows(run: Run, task: TaskData, ours_test: Predicted | None) -> list[Row]:
    """The rows of the cheap predictions that the kind of task has, such as the majority class."""
    held = {name: part for name, part in task.splits.named().items() if name != "train"}

    def build(folder: Path) -> None:
        wide = fitted_wide(run, task).wide
        with run.tracker.progress("scoring the baselines"):
            write_json(
                folder / "baselines.json",
                task.task.baselines(task.splits.train, held, task.metric, wide),
            )

    found = read_json(
        run.artefacts.build("baselines", digest(["baselines 4", task.key, task.metric]), build)
        / "baselines.json"
    )
    rows = []
    for number, (name, labels) in enumerate(found.items()):
        scored = {
            split: Predicted([example.label for example in held[split]], [labels[split]])
            for split in held
        }
        rows.append(
            make_row(
                name,
                "baseline",
                task.task,
                task.metric,
                dev=scored.get("dev"),
                test=scored.get("test"),
                ours_test=ours_test,
                resampling=_resampling(run),
                seconds=_baseline_seconds(run)
                if number == len(found) - 1
                else 0.0,  # nearly all of it is the last one's
            )
        )
    return rows


def _before_seconds(run: Run, parts: Ingredients) -> float:
    """The time that all took before stage 1."""
    wide = [] if parts.wide is None else ["wide", "wide-text"]
    return sum(seconds_of(run.artefacts, part) for part in [*_before_stage1(run), *wide])


def _baseline_seconds(run: Run) -> float:
    return run.artefacts.seconds("baselines") + run.artefacts.seconds("wide")


def is_linear(parts: Ingredients, seeds: list[Seed]) -> bool:
    """Whether no seed is better on dev than the linear model that it began with, which then is the
    model.
    """
    return parts.wide is not None and best_seed(seeds).summary()["best_epoch"] == 0


def keep_best(
    run: Run, task: TaskData, parts: Ingredients, seeds: list[Seed], scores: Scores
) -> Path:
    """The folder model/: the seed that is best on dev, ready to predict."""
    best = best_seed(seeds)
    of = {"stage1": best.stage1, "seed": best.stage2, "test": _on_test(scores.ours)}
    if scores.linear:
        assert parts.wide is not None
        keep_linear(run, task, wide_part(run, task), of)
        return run.artefacts.path("model")
    about = {"metric": scores.metric, "dev": best.summary()["dev"], **of}
    tuned = run.artefacts.path("predictions") / f"task-{seeds.index(best) + 1}.json"
    return _keep(run, "model", task, parts, [best], tuned, about, seeds)


def keep_so_far(run: Run, task: TaskData, parts: Ingredients, done: list[Seed]) -> None:
    """Makes model/ of the best seed so far, so that a run that is stopped then has it; a finished
    run keeps what it has.
    """
    best = best_seed(done)
    if (run.folder / "scores.json").exists() or is_linear(parts, [best]):
        return

    def build(folder: Path) -> None:
        model = _model_of(parts, best)
        dev = parts.encoded(task.splits.dev)
        own = task.task.tuned(
            dev.examples, dev.units, kept_of([model], task.task, dev, run.machine)
        )
        about = {
            "metric": task.metric,
            "dev": best.summary()["dev"],
            "stage1": best.stage1,
            "seed": best.stage2,
        }
        save_models(
            folder,
            parts.encoder,
            parts.shape,
            [model],
            own,
            parts.vocabulary,
            parts.length,
            about,
            parts.wide,
        )

    run.artefacts.build("model", digest(["so far", best.key]), build, uses=[best.folder])


def keep_ensemble(
    run: Run, task: TaskData, parts: Ingredients, seeds: list[Seed], row: Row
) -> Path:
    """The folder ensemble/: the models of all seeds, whose averaged outputs gave the row, ready to
    predict.
    """
    assert row.dev is not None
    about = {"metric": task.metric, "dev": row.dev.mean, "seeds": len(seeds), "test": _on_test(row)}
    return _keep(
        run,
        "ensemble",
        task,
        parts,
        seeds,
        run.artefacts.path(TOGETHER) / "task-1.json",
        about,
        seeds,
    )


def _on_test(row: Row | None) -> dict[str, Any] | None:
    return dataclasses.asdict(row.test) if row is not None and row.test is not None else None


def _keep(
    run: Run,
    name: str,
    task: TaskData,
    parts: Ingredients,
    kept: list[Seed],
    tuned: Path,
    about: dict[str, Any],
    seeds: list[Seed],
) -> Path:
    """The artefact `name`: the models of the seeds that are kept, with the task as dev has tuned it
    for them.
    """

    def build(folder: Path) -> None:
        models = [_model_of(parts, seed) for seed in kept]
        own = TASKS.get(task.task.kind).from_dict(read_json(tuned))
        save_models(
            folder,
            parts.encoder,
            parts.shape,
            models,
            own,
            parts.vocabulary,
            parts.length,
            about,
            parts.wide,
        )

    return run.artefacts.build(
        name,
        digest([_seeds_key(seeds), about]),
        build,
        uses=[*(seed.folder for seed in kept), tuned.parent],
    )


def _before_stage1(run: Run) -> list[str]:
    """The artefacts that a model's trainings are made of, those of influence selection among them
    where it was asked for.
    """
    if not run.recipe.select.by_influence:
        return ["selected", "tokens"]
    chain_of_influence = ["candidates", "candidate-tokens", "scoring-model", "influence"]
    return [*chain_of_influence, "selected", "tokens"]


def _influence_flops(run: Run, parts: Ingredients) -> float:
    """Returns FLOPs of the scoring model and of the scores where influence chose the text of the
    model, else 0.
    """
    if not run.recipe.select.by_influence or parts.external is None:
        return 0.0
    return sum(
        float(read_json(run.artefacts.path(part) / "summary.json")["flops"])
        for part in ("scoring-model", "influence")
    )
