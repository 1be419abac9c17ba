"""The parts of the report about single answers: which classes are taken for which, how sure the
model is, and where it is wrong.
"""

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

MOST_CLASSES = (
    25  # a larger confusion matrix cannot be read; its picture and its most frequent confusions can
)
MOST_CONFUSIONS = 25
MOST_SCORED = 300  # classes with scores of their own
OPEN_MISTAKES = 10
MOST_SHARED = 8


def classes(
    confusion: tuple[Sequence[str], Any] | None,
    wrong: Sequence[str],
    scores: Sequence[tuple[str, ClassScore]] = (),
    of: str = "",
) -> Html:
    """The confusion matrix and precision, recall and F1 of each class, which follow from the matrix
    where they are not given.

    Its cells lead to their mistakes where those listed are of single classes: `wrong` are the right
    answers to them. `of` says whose answers these are.
    """
    made = [soft(of)] if of else []
    if confusion is not None and len(confusion[0]):
        names, matrix = [str(label) for label in confusion[0]], np.asarray(confusion[1])
        linked = bool(wrong) and set(wrong) <= set(names)
        made.append(
            _matrix(names, matrix, linked)
            if len(names) <= MOST_CLASSES
            else _confusions(names, matrix)
        )
        scores = scores or list(zip(names, per_class(matrix), strict=True))
    return joined([*made, el("h3", "By class"), _by_class(scores)]) if scores else Html("")


def _by_class(scores: Sequence[tuple[str, ClassScore]]) -> Html:
    """The table of classes, the most frequent ones where there are many, in the order given."""
    places = sorted(range(len(scores)), key=lambda place: -scores[place][1].gold)[:MOST_SCORED]
    scores, left_out = [scores[place] for place in sorted(places)], len(scores) - len(places)
    scored = table(
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
    rest = f" The {left_out:,} classes with the fewest examples are left out." if left_out else ""
    return joined(
        [
            scored,
            soft(f"Precision, recall and F1 × 100; examples are those that have the class.{rest}"),
        ]
    )


def _matrix(names: Sequence[str], matrix: Any, linked: bool) -> Html:
    head = el(
        "tr", el("th", "is ↓  taken for →"), *(el("th", word(name), scope="col") for name in names)
    )
    rows = []
    for gold, (name, counts) in enumerate(zip(names, matrix, strict=True)):
        shares = counts / max(1, counts.sum())
        cells = []
        for at, (count, share) in enumerate(zip(counts, shares, strict=True)):
            number: Any = f"{int(count):,}"
            if linked and count and at != gold:
                number = el(
                    "a",
                    number,
                    href="#mistakes",
                    data_gold=clipped(name, 60),
                    data_predicted=clipped(names[at], 60),
                )
            cells.append(
                el(
                    "td",
                    number,
                    class_="right" if gold == at else "wrong" if count else None,
                    title=(
                        f"{clipped(name, 60)} → {clipped(names[at], 60)}: "
                        f"{int(count):,} of {int(counts.sum()):,} ({share:.1%})"
                    ),
                    style=f"--share:{share:.3f}" if count else None,
                )
            )
        rows.append(el("tr", el("th", word(name), scope="row"), *cells))
    about = (
        "Rows are the right classes, columns what they "
        "were taken for; the colour is the share of the row."
    )
    more = " A number leads to those mistakes that are listed below." if linked else ""
    shown = scrolling(
        el("table", el("thead", head), el("tbody", *rows), class_="matrix"), "Confusion matrix"
    )
    return joined([shown, soft(about + more)])


def _confusions(names: Sequence[str], matrix: Any) -> Html:
    off = np.array(matrix)
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:MOST_CONFUSIONS]
    pairs = [(int(flat) // len(names), int(flat) % len(names)) for flat in order]
    found = [(gold, guess) for gold, guess in pairs if off[gold, guess]]
    rows = [
        [word(names[gold]), word(names[guess]), f"{int(off[gold, guess]):,}"]
        for gold, guess in found
    ]
    keys = [
        [clipped(names[gold], 60), clipped(names[guess], 60), int(off[gold, guess])]
        for gold, guess in found
    ]
    about = soft(f"The most frequent of all confusions between {len(names)} classes.")
    shares = matrix / np.maximum(1, matrix.sum(1, keepdims=True))
    picture = heat_map(
        (
            f"{len(names)} classes: right ones downwards, "
            f"what they were taken for across, in the order of the table"
        ),
        shares,
    )
    listed = table(
        ["is", "taken for", "examples"], rows, left=2, keys=keys, label="Most frequent confusions"
    )
    return el("div", picture, el("div", about, listed), class_="halves")


def calibration(found: Mapping[str, Any] | None, seed: str = "") -> Html:
    """The reliability diagrams before and after temperature scaling, or nothing; `seed` says whose
    answers these are.
    """
    if not found:
        return Html("")
    drawn, rows = [], []
    for name, title in (
        ("before", "before temperature scaling"),
        ("after", "after temperature scaling"),
    ):
        one = found.get(name)
        if not one:
            continue
        numbers = (
            f"expected calibration error {one['ece']:.4f}, negative log-likelihood {one['nll']:.4f}"
        )
        drawn.append(reliability(f"{title[0].upper()}{title[1:]}", one["bins"], numbers))
        rows += [
            [title, f"{bin_['confidence']:.3f}", f"{bin_['accuracy']:.3f}", f"{bin_['count']:,}"]
            for bin_ in one["bins"]
        ]
    if not any(drawn):
        return Html("")
    whose = f"the model of {seed}" if seed else "the model"
    same = ""
    if found["split"] == "dev":
        same = (
            " There is no test: the temperature is judged where it was "
            "chosen, and the second picture is better than on other texts."
        )
    about = (
        f"How often {whose} is right when it is so sure, "
        f"on {found['split']}. On the dashed line confidence and accuracy are equal; "
        "below it the model is surer than it should be. "
        "The larger a dot, the more examples. The temperature, "
        f"{found['temperature']:.3f}, divides the model's "
        f"outputs; it was chosen on dev, and changes no answer.{same}"
    )
    listed = folded(
        "The bins in numbers",
        table(["", "confidence", "accuracy", "examples"], rows, label="Calibration bins"),
    )
    return joined([el("p", about), el("div", *drawn, class_="charts"), listed])


def sure_of(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether mistakes come with how sure the model was of them; they are sorted by it then."""
    return bool(entries) and all(is_number(entry.get("probability")) for entry in entries)


def mistakes(entries: Sequence[Mapping[str, Any]], of: str = "") -> Html:
    """The texts that the model was wrong about, in the order given; `of` says whose answers these
    are.
    """
    if not entries:
        return Html("")
    shown = [_mistake(entry) for entry in entries]
    first, rest = shown[:OPEN_MISTAKES], shown[OPEN_MISTAKES:]
    more = (
        folded(f"{len(rest):,} more" + (", less and less sure" if sure_of(entries) else ""), *rest)
        if rest
        else ""
    )
    return joined(
        [soft(of) if of else "", el("div", *first, more, class_="filtered", data_what="mistakes")]
    )


def _mistake(entry: Mapping[str, Any]) -> Html:
    sure = (
        f" with probability {entry['probability']:.2f}"
        if is_number(entry.get("probability"))
        else ""
    )
    predicted, gold = (clipped(entry.get(name, ""), 60) for name in ("predicted", "gold"))
    head = joined(["predicted ", el("b", word(predicted)), f"{sure}, is ", el("b", word(gold))])
    text = passage(str(entry.get("text", "")), 800)
    return el(
        "div",
        el("div", head, class_="soft"),
        text,
        _pushed(entry),
        class_="card",
        data_gold=gold,
        data_predicted=predicted,
    )


def _pushed(mistake: Mapping[str, Any]) -> Html:
    """The training examples that pushed most for the wrong label of a mistake."""
    found = mistake.get("pushed") or ()
    if not found:
        return Html("")
    cards = [
        joined(
            [
                joined([el("b", word(push["label"])), " · "]) if push.get("label") else "",
                f"score {push['score']:.3f} · {clipped(push.get('where', ''), 200)}",
                passage(str(push.get("text", "")), 400),
                soft(
                    "words in common: ",
                    ", ".join(clipped(one, 60) for one in push["shared"][:MOST_SHARED]),
                )
                if push.get("shared")
                else "",
            ]
        )
        for push in found
    ]
    return folded(
        joined(["Training examples that pushed most for ", word(mistake.get("predicted", ""))]),
        items(cards),
    )
