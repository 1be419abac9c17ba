"""The report of a run on images: scores, curve, confusions, mistakes as pictures, and cells."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tasklm
from tasklm.evaluate.confusion import confusion_matrix
from tasklm.evaluate.scores import Scores
from tasklm.images.data_set import Pictures
from tasklm.images.evaluation import Scored
from tasklm.images.model import answers_from
from tasklm.images.pictures import data_address, png_of
from tasklm.images.probes import CellReport, cell_report
from tasklm.images.settings import own_text
from tasklm.images.training import Course, model_of
from tasklm.pipeline.context import Run
from tasklm.pipeline.timeline import up_to_report
from tasklm.recipe.toml import absolute, dump
from tasklm.report.answers import classes
from tasklm.report.costs import time_bars
from tasklm.report.page import Html, document, el, folded, joined, scrolling, soft, word
from tasklm.report.score_tables import score_table
from tasklm.report.sections import data as data_section
from tasklm.report.sections import heading, learning_curves
from tasklm.run_folder import CURVE, MANIFEST, REPORT, Seed
from tasklm.storage.checksums import load_array
from tasklm.storage.files import digest, read_json, write_text

MOST_MISTAKES = 60
SIDE = 96  # of a thumbnail on the page


def write_image_report(
    run: Run, course: Course, scored: Scored, best: Seed, scores: Scores
) -> None:
    """Writes report.html."""
    seeds, logits = scored
    images = course.data
    split = "test" if "test" in logits else "dev"
    parts: list[tuple[str, str, Html]] = [("scores", "Scores", score_table(scores))]
    parts.append(("learning", "Learning curves", learning_curves(_curves(seeds))))
    if split in logits:
        own = logits[split][seeds.index(best)]
        held = images.held_out[split]
        wrong = _mistakes(images.classes, held, own)
        matrix = confusion_matrix(held.labels, own.argmax(1), len(images.classes))
        of = f"On {split}, with the model of seed {best.stage2}."
        gold = [entry["gold"] for entry in wrong]
        parts.append(("classes", "Classes", classes((images.classes, matrix), gold, (), of)))
        parts.append(("mistakes", "Most confident mistakes", _mistake_cards(wrong, of)))
        parts.append(("cells", "What the cells see", _cells(run, course, best, held)))
    findings = [dataclasses.asdict(finding) for finding in images.findings]
    parts.append(("data", "The data", data_section(scores, findings, (), images.notes)))
    parts.append(("time", "Where the time went", time_bars(up_to_report(run.timeline()))))
    parts.append(("reproduce", "Recipe and reproduction", _reproduce(run, course)))
    title = f"tasklm: {run.folder.name}"
    write_text(run.folder / REPORT, document(title, heading(title, scores), parts))


def _curves(seeds: list[Seed]) -> list[dict[str, Any]]:
    """The points of all learning curves, under readable names."""
    names = {"step": "step", "rate": "learning rate", "dev": "dev score"}
    points = []
    for seed in seeds:
        for point in read_json(seed.folder / CURVE):
            named = {names.get(name, f"loss: {name}"): value for name, value in point.items()}
            points.append({"stage": "training", "seed": str(seed.stage2), **named})
    return points


def _mistakes(
    labels: list[str], held: Pictures, logits: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """The images that were taken for another class, the surest first."""
    answers, entries = answers_from(logits, labels), []
    for number, answer in enumerate(answers):
        gold, guess = labels[held.labels[number]], answer["label"]
        if gold != guess:
            sure = answer["probabilities"][guess]
            entries.append({"number": number, "gold": gold, "predicted": guess, "sure": sure})
    entries.sort(key=lambda entry: -entry["sure"])
    for entry in entries[:MOST_MISTAKES]:
        entry["picture"] = png_of(held.pixels[entry["number"]])
        entry["name"] = held.names[entry["number"]].rpartition("/")[2]
    return entries[:MOST_MISTAKES]


def _mistake_cards(entries: list[dict[str, Any]], of: str) -> Html:
    if not entries:
        return soft(f"{of} There is none.")
    cards = []
    for entry in entries:
        head = [
            *("predicted ", el("b", word(entry["predicted"]))),
            *(f" with probability {entry['sure']:.2f}, is ", el("b", word(entry["gold"]))),
        ]
        picture = el(
            "img",
            src=data_address(entry["picture"]),
            alt=f"{entry['name']}: a {entry['gold']}",
            width=SIDE,
            height=SIDE,
            class_="pixels",
        )
        about = el("div", joined(head), " · ", word(entry["name"]), class_="soft")
        cards.append(
            el(
                "div",
                picture,
                about,
                class_="card",
                data_gold=entry["gold"],
                data_predicted=entry["predicted"],
            )
        )
    listed = el("div", joined(cards), class_="filtered charts", data_what="mistakes")
    return joined([soft(of), listed])


def _cells(run: Run, course: Course, best: Seed, held: Pictures) -> Html:
    """The accuracy of each cell by itself, and how active it is."""

    def build(folder: Any) -> None:
        model = model_of(course, best.weights)
        known = cell_report(model, course.data.train, held, course.machine)
        np.save(folder / "activation.npy", known.activation)
        np.save(folder / "accuracy.npy", known.accuracy)

    folder = run.artefacts.build("cells", digest(["cells 1", best.key]), build, uses=[best.folder])
    numbers = [
        load_array(folder / f"{name}.npy", np.float64, dimensions=2)
        for name in ("activation", "accuracy")
    ]
    report = CellReport(*numbers)
    about = (
        "A softmax layer for each cell of the last feature map, trained on the labelled images "
        "while the network stays as it is: the accuracy of what that part of the image says by "
        "itself. Below, the mean activation of each cell as a share of the largest."
    )
    accuracy = _grid(report.accuracy, "Accuracy × 100 of each cell", report.accuracy)
    share = report.activation / max(float(report.activation.max()), 1e-9)
    return joined([soft(about), accuracy, _grid(share, "Activation of each cell × 100", share)])


def _grid(values: NDArray[np.float64], title: str, shares: NDArray[np.float64]) -> Html:
    rows = []
    for line, tints in zip(values, shares, strict=True):
        cells = [
            el("td", f"{100 * value:.0f}", style=f"--share:{tint:.3f}")
            for value, tint in zip(line, tints, strict=True)
        ]
        rows.append(el("tr", joined(cells)))
    grid = el("table", el("tbody", joined(rows)), class_="matrix")
    return el("figure", el("figcaption", title), scrolling(grid, title))


def _reproduce(run: Run, course: Course) -> Html:
    plan = course.plan
    decided = run.recipe.changed(
        image={
            "size": course.data.size,
            "width": plan.width,
            "steps": plan.steps,
            "unlabelled_batch": plan.unlabelled_batch or None,
            "noise_norm": plan.noise_norm,
        },
        finetune={"batch": plan.batch},
        budget={"minutes": None},
    )
    manifest = read_json(run.folder / MANIFEST)
    command = f"tasklm run recipe.toml --out {shlex.quote(run.folder.name + '-again')}"
    versions = f"tasklm {tasklm.__version__}, torch {manifest['torch']}"
    made_with = f"This run: {versions}, Python {manifest['python']}, on {manifest['device']}."
    recipe = el("pre", own_text(dump(absolute(decided))), tabindex="0")
    title = "The recipe with all automatic values filled in, and without the budget"
    about = "Save the recipe below as recipe.toml to train the same model again."
    return joined(
        [
            el("p", about),
            el("pre", command, tabindex="0"),
            soft(made_with),
            folded(title, recipe),
        ]
    )
