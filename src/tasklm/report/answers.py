"""The parts of the report about single predictions: confusions, confidence, and mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasklm.evaluate.confusion import ClassScore, per_class
from tasklm.report.charts import heat_map, reliability
from tasklm.report.page import (
    Html,
    clipped,
    el,
    folded,
    items,
    joined,
    passage,
    scrolling,
    soft,
    table,
    word,
)
from tasklm.report.sections import is_number

# a larger confusion matrix is unreadable; a picture and its most frequent confusions are not
MOST_CLASSES = 25
MOST_CONFUSIONS = 25
MOST_SCORED = 300  # classes with their own scores
OPEN_MISTAKES = 10
MOST_SHARED = 8


def classes(
    confusion: tuple[Sequence[str], Any] | None,
    wrong: Sequence[str],
    scores: Sequence[tuple[str, ClassScore]] = (),
    of: str = "",
) -> Html:
    """The confusion matrix and the scores of each class, by default taken from it.

    Its cells link to their mistakes if those have single classes: `wrong` are the gold labels of
    the listed mistakes. `of` names the model and the split.
    """
    parts = []
    if of:
        parts.append(soft(of))
    if confusion is not None and len(confusion[0]):
        names, matrix = [str(label) for label in confusion[0]], np.asarray(confusion[1])
        if len(names) <= MOST_CLASSES:
            parts.append(_matrix(names, matrix, linked=bool(wrong) and set(wrong) <= set(names)))
        else:
            parts.append(_confusions(names, matrix))
        scores = scores or list(zip(names, per_class(matrix), strict=True))
    if not scores:
        return Html("")
    return joined([*parts, el("h3", "By class"), _by_class(scores)])


def _by_class(scores: Sequence[tuple[str, ClassScore]]) -> Html:
    """The table of classes, the most frequent if there are many, in the order given."""
    by_frequency = sorted(range(len(scores)), key=lambda number: -scores[number][1].gold)
    left_out = len(by_frequency[MOST_SCORED:])
    scores = [scores[number] for number in sorted(by_frequency[:MOST_SCORED])]
    listed = table(
        ["class", "precision", "recall", "F1", "examples", "predicted"],
        [
            [
                word(name),
                *(f"{100 * value:.1f}" for value in (one.precision, one.recall, one.f1)),
                f"{one.gold:,}",
                f"{one.predicted:,}",
            ]
            for name, one in scores
        ],
        keys=[
            [clipped(name, 60), one.precision, one.recall, one.f1, one.gold, one.predicted]
            for name, one in scores
        ],
        label="Scores by class",
    )
    about = "Precision, recall and F1 × 100; the number of examples of the class."
    if left_out:
        about += f" The {left_out:,} classes with the fewest examples are left out."
    return joined([listed, soft(about)])


def _matrix(names: Sequence[str], matrix: Any, linked: bool) -> Html:
    titles = joined(el("th", word(name), scope="col") for name in names)
    head = el("tr", el("th", "true ↓  predicted →"), titles)
    rows = []
    for gold, counts in enumerate(matrix):
        cells = [_matrix_cell(names, counts, gold, at, linked) for at in range(len(names))]
        rows.append(el("tr", el("th", word(names[gold]), scope="row"), joined(cells)))
    about = (
        "Rows are the true classes, columns the predicted ones; the colour is the share of the row."
    )
    if linked:
        about += " A number links to its mistakes listed below."
    matrix_table = el("table", el("thead", head), el("tbody", joined(rows)), class_="matrix")
    return joined([scrolling(matrix_table, "Confusion matrix"), soft(about)])


def _matrix_cell(names: Sequence[str], counts: Any, gold: int, at: int, linked: bool) -> Html:
    """One cell of the matrix: how many examples of class `gold` were predicted as class `at`."""
    count, total = int(counts[at]), int(counts.sum())
    share = counts[at] / max(1, total)
    is_name, taken_for = clipped(names[gold], 60), clipped(names[at], 60)
    number: Any = f"{count:,}"
    title = f"{is_name} → {taken_for}: {number} of {total:,} ({share:.1%})"
    style = f"--share:{share:.3f}" if count else None
    if at == gold:
        return el("td", number, class_="right", title=title, style=style)
    if not count:
        return el("td", number, title=title)
    if linked:
        number = el("a", number, href="#mistakes", data_gold=is_name, data_predicted=taken_for)
    return el("td", number, class_="wrong", title=title, style=style)


def _confusions(names: Sequence[str], matrix: Any) -> Html:
    off = np.array(matrix)
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:MOST_CONFUSIONS]
    rows, keys = [], []
    for flat in order:
        gold, guess = divmod(int(flat), len(names))
        if count := int(off[gold, guess]):
            rows.append([word(names[gold]), word(names[guess]), f"{count:,}"])
            keys.append([clipped(names[gold], 60), clipped(names[guess], 60), count])
    about = soft(f"The most frequent confusions between {len(names)} classes.")
    shares = matrix / np.maximum(1, matrix.sum(1, keepdims=True))
    title = (
        f"{len(names)} classes: true ones downwards, "
        "predicted ones across, in the order of the table"
    )
    picture = heat_map(title, shares)
    listed = table(
        ["true", "predicted", "examples"], rows, left=2, keys=keys, label="Most frequent confusions"
    )
    return el("div", picture, el("div", about, listed), class_="halves")


def calibration(measured: Mapping[str, Any] | None, seed: str = "") -> Html:
    """The reliability diagrams before and after temperature scaling of the model of `seed`."""
    if not measured:
        return Html("")
    drawn, rows = [], []
    for time in ("before", "after"):
        one = measured.get(time)
        if not one:
            continue
        error, likelihood = f"{one['ece']:.4f}", f"{one['nll']:.4f}"
        numbers = f"expected calibration error {error}, negative log-likelihood {likelihood}"
        title = f"{time} temperature scaling"
        drawn.append(reliability(title.capitalize(), one["bins"], numbers))
        rows += [
            [title, f"{bin_['confidence']:.3f}", f"{bin_['accuracy']:.3f}", f"{bin_['count']:,}"]
            for bin_ in one["bins"]
        ]
    if not any(drawn):
        return Html("")
    whose = f"the model of {seed}" if seed else "the model"
    about = (
        f"How often {whose} is right at each level of confidence, on {measured['split']}. "
        "On the dashed line confidence and accuracy are equal; "
        "below it the model is overconfident. "
        "Larger dots stand for more examples. "
        f"The temperature, {measured['temperature']:.3f}, divides the model's outputs; "
        "it was chosen on dev and changes no prediction."
    )
    if measured["split"] == "dev":
        about += (
            " Without a test set the temperature is judged on the data it was chosen on, so the "
            "second picture is optimistic."
        )
    listed = folded(
        "The bins as numbers",
        table(["", "confidence", "accuracy", "examples"], rows, label="Calibration bins"),
    )
    return joined([el("p", about), el("div", joined(drawn), class_="charts"), listed])


def sure_of(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether mistakes come with the model's confidence; they are then sorted by it."""
    return bool(entries) and all(is_number(entry.get("probability")) for entry in entries)


def mistakes(entries: Sequence[Mapping[str, Any]], of: str = "") -> Html:
    """The texts that the model got wrong, in the order given; `of` names model and split."""
    if not entries:
        return Html("")
    cards = [_mistake(entry) for entry in entries]
    if rest := cards[OPEN_MISTAKES:]:
        summary = f"{len(rest):,} more"
        if sure_of(entries):
            summary += ", in order of falling confidence"
        cards[OPEN_MISTAKES:] = [folded(summary, joined(rest))]
    listed = el("div", joined(cards), class_="filtered", data_what="mistakes")
    return joined([soft(of), listed]) if of else listed


def _mistake(entry: Mapping[str, Any]) -> Html:
    sure = ""
    if is_number(entry.get("probability")):
        sure = f" with probability {entry['probability']:.2f}"
    predicted, gold = (clipped(entry.get(name, ""), 60) for name in ("predicted", "gold"))
    head = joined(["predicted ", el("b", word(predicted)), f"{sure}, is ", el("b", word(gold))])
    text = passage(str(entry.get("text", "")), 800)
    return el(
        "div",
        el("div", head, class_="soft"),
        text,
        _supporting(entry),
        class_="card",
        data_gold=gold,
        data_predicted=predicted,
    )


def _supporting(mistake: Mapping[str, Any]) -> Html:
    """The training examples that support the wrong label of a mistake most."""
    attributions = mistake.get("supporting")
    if not attributions:
        return Html("")
    predicted = word(mistake.get("predicted", ""))
    title = joined(["Training examples that most support ", predicted])
    return folded(title, items(map(_attribution, attributions)))


def _attribution(attribution: Mapping[str, Any]) -> Html:
    """A training example and its attribution score."""
    parts: list[Any] = []
    if attribution.get("label"):
        parts += [el("b", word(attribution["label"])), " · "]
    where = clipped(attribution.get("where", ""), 200)
    parts.append(f"score {attribution['score']:.3f} · {where}")
    parts.append(passage(str(attribution.get("text", "")), 400))
    if attribution.get("shared"):
        shared = [clipped(one, 60) for one in attribution["shared"][:MOST_SHARED]]
        parts.append(soft("shared words: ", ", ".join(shared)))
    return joined(parts)
