"""From trained seeds to predictions, scores and the folder model/."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.evaluate.intervals import Predicted, Resampling
from tasklm.evaluate.scores import Costs, Kind, Row, RowInputs, Scores, make_row
from tasklm.evaluate.verdict import with_verdict
from tasklm.images.baselines import baseline_labels
from tasklm.images.data_set import ImageData, Numbers
from tasklm.images.model import save_model
from tasklm.images.network import ImageNet
from tasklm.images.training import Course, logits_of, model_of
from tasklm.pipeline.context import Run
from tasklm.recipe.toml import recipe_key
from tasklm.run_folder import MODEL, RECIPE, Seed
from tasklm.storage.checksums import load_array
from tasklm.storage.files import digest, read_json, write_json
from tasklm.tasks.image_classes import ImageClasses

NAME = "convolutional network"
_STAGES = re.compile(r" of stages? [12](?: and 2)?| \d+ of stage [12]")
_OPTION = re.compile(r"--train\.seeds")

Logits = dict[str, list[NDArray[np.float64]]]  # split → those of every seed
Scored = tuple[list[Seed], Logits]


def predicted(run: Run, course: Course, seeds: Sequence[Seed], name: str) -> Logits:
    """The logits of every seed on dev and test, the only time that test is read."""
    held = course.data.held_out

    def build(folder: Path) -> None:
        with run.tracker.progress("predicting dev and test"):
            for number, seed in enumerate(seeds, 1):
                model = model_of(course, seed.weights)
                for split, part in held.items():
                    np.save(
                        folder / f"{split}-{number}.npy", logits_of(model, part, course.machine)
                    )

    keys = digest([[seed.key for seed in seeds], sorted(held)])
    folder = run.artefacts.build(name, keys, build, uses=[seed.folder for seed in seeds])
    return {
        split: [
            load_array(folder / f"{split}-{number}.npy", np.float64, dimensions=2)
            for number in range(1, len(seeds) + 1)
        ]
        for split in held
    }


def best_place(seeds: Sequence[Seed]) -> int:
    """The position of the seed that is best on dev; the first one without a dev set."""
    scores = [seed.summary()["dev"] for seed in seeds]
    known = [-1.0 if score is None else float(score) for score in scores]
    return known.index(max(known))


def labels_of(data: ImageData, logits: Logits, split: str) -> Predicted | None:
    """The gold labels of a split, and those that every seed predicts."""
    if split not in logits:
        return None
    gold = _names(data, data.held_out[split].labels)
    seeds = [_names(data, own.argmax(1)) for own in logits[split]]
    return Predicted(gold, seeds, len(seeds))


def _names(data: ImageData, numbers: Sequence[int] | Numbers) -> list[str]:
    return [data.classes[int(number)] for number in numbers]


def scores_of(run: Run, course: Course, ours: Scored, others: Scored | None) -> Scores:
    """The rows of the baselines, of the model without images that have no labels, and of ours."""
    from tasklm.images.flow import metric_of

    data, evaluate = course.data, run.recipe.evaluate
    name, test = metric_of(run.recipe), labels_of(data, ours[1], "test")
    students = run.recipe.finetune.unlabelled
    title = NAME if students == "none" else f"{NAME}, {students} on images without labels"
    inputs = RowInputs(
        title,
        "ours",
        ImageClasses(data.classes),
        name,
        ours_test=test,
        resampling=Resampling(evaluate.bootstrap, evaluate.confidence),
    )
    rows = _baseline_rows(run, data, inputs) if evaluate.baselines else []
    if others is not None:
        rows.append(_row(course, inputs, others, f"{NAME}, labels alone", "ablation"))
    rows.append(_row(course, inputs, ours, title, "ours"))
    counts = {name: len(part) for name, part in data.held_out.items()}
    counts |= {"train": len(data.labelled), "unlabelled": len(data.studied)}
    scores = Scores(
        name,
        data.classes,
        [_plain_row(row) for row in rows],
        counts,
        seeds=len(ours[0]),
        confidence=evaluate.confidence,
        recipe=recipe_key(run.folder / RECIPE),
        staged=False,
    )
    scores = with_verdict(scores)
    verdict = _OPTION.sub("--finetune.seeds", _STAGES.sub("", scores.verdict))
    return dataclasses.replace(scores, verdict=verdict)


def _plain_row(row: Row) -> Row:
    """A row without the stages of text in its words."""
    against = row.against
    if against is not None:
        against = dataclasses.replace(against, resampled=_STAGES.sub("", against.resampled))
    return dataclasses.replace(row, against=against, resampled=_STAGES.sub("", row.resampled))


def _row(course: Course, inputs: RowInputs, scored: Scored, name: str, kind: Kind) -> Row:
    seeds, logits = scored
    summaries = [seed.summary() for seed in seeds]
    costs = Costs(
        flops_exact=float(np.mean([one["flops"] for one in summaries])),
        seconds=round(float(np.mean([one["seconds"] for one in summaries])), 1),
        parameters=ImageNet(course.shape).parameters_in_all,
    )
    row = dataclasses.replace(
        inputs,
        name=name,
        kind=kind,
        dev=labels_of(course.data, logits, "dev"),
        test=labels_of(course.data, logits, "test"),
        costs=costs,
    )
    return make_row(row)


def _baseline_rows(run: Run, data: ImageData, inputs: RowInputs) -> list[Row]:
    """The rows of the majority class and of a linear model."""

    def build(folder: Path) -> None:
        with run.tracker.progress("scoring the baselines"):
            write_json(folder / "baselines.json", baseline_labels(data))

    folder = run.artefacts.build("baselines", digest(["image baselines 1", data.key]), build)
    baselines: dict[str, Any] = read_json(folder / "baselines.json")
    rows = []
    for name, labels in baselines.items():
        splits = {
            split: Predicted(_names(data, part.labels), [_names(data, labels[split])])
            for split, part in data.held_out.items()
        }
        row = dataclasses.replace(
            inputs, name=name, kind="baseline", dev=splits.get("dev"), test=splits.get("test")
        )
        rows.append(make_row(row))
    if rows:
        rows[-1] = dataclasses.replace(rows[-1], seconds=run.artefacts.seconds("baselines"))
    return rows


def keep_model(run: Run, course: Course, seeds: Sequence[Seed], scores: Scores) -> Seed:
    """Builds the folder model/ with the best seed, and returns that seed."""
    best = seeds[best_place(seeds)]
    ours = scores.ours
    test = None if ours is None or ours.test is None else dataclasses.asdict(ours.test)
    about = {"metric": scores.metric, "dev": best.summary()["dev"], "seed": best.stage2}
    about |= {"test": test, "students": course.recipe.finetune.unlabelled}

    def build(folder: Path) -> None:
        save_model(folder, model_of(course, best.weights).cpu(), course.data.classes, about)

    run.artefacts.build(MODEL, digest([best.key, about]), build, uses=[best.folder])
    return best
