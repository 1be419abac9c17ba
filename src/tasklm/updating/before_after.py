"""The model before and after an update on the same examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasklm.evaluate.intervals import Predicted, Resampling, paired_difference, statistics_of
from tasklm.evaluate.scores import Costs, Row, RowInputs, Scores, make_row
from tasklm.storage.files import read_json, write_text
from tasklm.storage.json_lines import json_line
from tasklm.tasks.base import Answer, Label, Task, score
from tasklm.tasks.examples import Example
from tasklm.updating.reading import Grounds
from tasklm.updating.record import Group

BEFORE, AFTER = "before", "after"
SPLITS = ("dev", "test")
ALL = "all"
FEWEST = 2  # examples of a group that is scored by itself
ROWS = {BEFORE: "before the update", AFTER: "after the update"}


@dataclass(frozen=True)
class Answers:
    """What the models before and after an update answer on dev and test."""

    folder: Path
    grounds: Grounds
    _read: dict[str, list[Answer]] = field(default_factory=dict, compare=False, repr=False)

    def of(self, when: str, split: str) -> list[Answer]:
        """The answers of one of them on a split."""
        name = f"{when}-{split}.json"
        if name not in self._read:
            self._read[name] = read_json(self.folder / name)
        return self._read[name]

    def labels(self, when: str, split: str) -> list[Label]:
        """The labels of these."""
        return [self.grounds.task.label_of(answer) for answer in self.of(when, split)]

    def examples(self, split: str) -> list[Example]:
        """The examples of a split."""
        return self.grounds.splits.named().get(split, [])

    @property
    def split(self) -> str:
        """The split that is reported: test, or dev where there is none."""
        return "test" if self.examples("test") else "dev"

    def score(self, when: str, split: str) -> float:
        """The score of one of them on a split."""
        gold = [example.label for example in self.examples(split)]
        metric = self.grounds.task.metric(self.grounds.metric)
        return score(metric, gold, self.labels(when, split))


def groups_of(answers: Answers, resampling: Resampling) -> list[Group]:
    """The scores before and after, of all examples and of those of old and of new classes."""
    grounds, split = answers.grounds, answers.split
    examples = answers.examples(split)
    new = set(grounds.new_classes)
    is_new = [bool(new.intersection(grounds.task.classes(one.label))) for one in examples]
    places = {ALL: list(range(len(examples)))}
    if new:
        places["old classes"] = [place for place, own in enumerate(is_new) if not own]
        places["new classes"] = [place for place, own in enumerate(is_new) if own]
    labels = {when: answers.labels(when, split) for when in ROWS}
    return [
        _group(name, grounds, [examples[one] for one in own], _some(labels, own), resampling)
        for name, own in places.items()
        if len(own) >= FEWEST
    ]


def _some(labels: dict[str, list[Label]], places: Sequence[int]) -> dict[str, list[Label]]:
    return {when: [own[place] for place in places] for when, own in labels.items()}


def _group(
    name: str,
    grounds: Grounds,
    examples: Sequence[Example],
    labels: dict[str, list[Label]],
    resampling: Resampling,
) -> Group:
    # of the examples of some classes alone, only the share that is right says something
    used = grounds.metric if name == ALL else "accuracy"
    metric = grounds.task.metric(used)
    gold = [example.label for example in examples]
    before, after = (
        statistics_of(metric, Predicted(gold, [labels[when]])) for when in (BEFORE, AFTER)
    )
    scored = [float(metric.value(one.sum((0, 1, 2)))) for one in (before, after)]
    difference = paired_difference(metric, after, before, resampling)
    return Group(name, len(examples), used, scored[0], scored[1], difference)


def changed_predictions(answers: Answers) -> list[dict[str, Any]]:
    """The examples whose label is another one now: text, before, after and truth."""
    split = answers.split
    before, after = (answers.labels(when, split) for when in (BEFORE, AFTER))
    return [
        {
            "text": "\n".join(one.texts),
            "before": _plain(old),
            "after": _plain(new),
            "truth": _plain(one.label),
            "file": one.file,
            "line": one.line,
        }
        for one, old, new in zip(answers.examples(split), before, after, strict=True)
        if _plain(old) != _plain(new)
    ]


def _plain(label: Label) -> Any:
    """A label as JSON has it; a score to three places, so that rounding is no change."""
    if isinstance(label, float):
        return round(label, 3)
    if isinstance(label, tuple | list | set | frozenset):
        return [str(one) for one in label]
    return label


def write_changed(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the changed predictions, one a line."""
    write_text(path, "".join(json_line(row) + "\n" for row in rows))


def score_rows(answers: Answers, resampling: Resampling, costs: Costs) -> list[Row]:
    """The rows of a score table: the model after the update, and that of before."""
    task: Task = answers.grounds.task
    predicted = {
        when: {
            split: Predicted(
                [one.label for one in answers.examples(split)], [answers.labels(when, split)]
            )
            for split in SPLITS
            if answers.examples(split)
        }
        for when in ROWS
    }
    ours = predicted[AFTER].get("test")
    rows = []
    for when, kind in ((BEFORE, "baseline"), (AFTER, "ours")):
        inputs = RowInputs(
            ROWS[when],
            "ours" if kind == "ours" else "baseline",
            task,
            answers.grounds.metric,
            dev=predicted[when].get("dev"),
            test=predicted[when].get("test"),
            ours_test=ours,
            resampling=resampling,
            costs=costs if kind == "ours" else Costs(),
        )
        rows.append(make_row(inputs))
    return rows


def table_of(answers: Answers, rows: list[Row], recipe: str, linear: bool) -> Scores:
    """The score table of an update, as that of a run."""
    grounds = answers.grounds
    data = {split: len(examples) for split, examples in grounds.splits.named().items()}
    verdict = "The model was updated with further examples; see before and after the update."
    return Scores(
        grounds.metric,
        grounds.task.labels,
        rows,
        data,
        verdict=verdict,
        recipe=recipe,
        linear=linear,
    )
