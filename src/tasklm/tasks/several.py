"""Several tasks for one model: each example belongs to one of them, by its name.

The kinds whose answers follow from single places share batches and one head. Every task has its own
columns of the head's outputs, and the columns of other tasks are masked (BAM, arXiv 1907.04829).
Other tasks take turns with them: each has batches and a head of its own, on the same encoder. A
label of such a task is a pair: the name of the task, and the label there.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import TASKS, Answer, Floats, Label, Metric, Task, Tokeniser, Unit, score
from tasklm.tasks.baselines.joint import fit_parts, joint_baselines
from tasklm.tasks.baselines.wide_fitting import FittedWide
from tasklm.tasks.baselines.wide_parts import AnyWide, WideParts
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tasks.mean_metric import MeanMetric
from tasklm.tasks.members import Member, numbered, parts_of, places_of
from tasklm.tasks.rivals import Unranked
from tasklm.tasks.saved import number_in, text_in
from tasklm.tasks.turns import Turn, lesson_width

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasklm.tasks.consistency.base import Consistency

KIND = "several"
SHARING = ("classify", "multilabel", "regress", "tag")  # kinds that can share a head
MEAN = "mean"  # the metric: that of the tasks' own metrics
MOST = 1000  # tasks
ALL = "all"  # stands for every task, where a name is asked for
_NAME = re.compile(r"[\w.-]{1,80}")


def members_of(task: Task) -> list[Member]:
    """The tasks that a task is made of; none where it is one task."""
    return task.members if isinstance(task, Several) else []


def member_of(task: Task, name: str) -> Member:
    """The named one of several tasks; raises RecipeError, with the way out, if there is none."""
    if not isinstance(task, Several):
        problem = f"the model has one task, of kind {task.kind}"
        raise RecipeError([f"task {name!r}: {problem}; leave the name out"])
    return task.member(name)


def is_name(name: str) -> bool:
    """Whether a task can have this name, which becomes part of addresses and of folders."""
    return _NAME.fullmatch(name) is not None and name != ALL and bool(name.strip("."))


@TASKS.register(KIND)
class Several(Unranked):
    """Tasks with one encoder and one head; with a head for each turn where some take turns."""

    kind: ClassVar[str] = KIND
    classifies, reads_vectors, packs, together = False, False, True, 1
    metrics: tuple[str, ...] = (MEAN,)
    elsewhere = sets = None
    setless = "each of its tasks has sets of its own; name one with --task"
    unranked = "each of several tasks has its own texts; name one with --task"

    def __init__(
        self,
        tasks: Mapping[str, Task],
        metrics: Mapping[str, str],
        places: Mapping[str, float] | None = None,
    ) -> None:
        self.labels: list[str] = []
        self.members: list[Member] = []
        first = 0
        for name, task in tasks.items():
            count, own = _outputs(task), (places or {}).get(name, 1.0)
            column = first * bool(count)  # the first of its own head, where it takes turns
            self.members.append(Member(name, task, metrics[name], column, count, own))
            first += count
        self.outputs = first
        self.turns = _turns(self.members)
        self.pairs = any(member.task.pairs for member in self.members)
        self.cased = any(member.task.cased for member in self.members)
        self._numbers = {member.name: number for number, member in enumerate(self.members)}

    @property
    def wide_width(self) -> int:
        """Those of the head that tasks share."""
        return self.outputs

    def member(self, name: str) -> Member:
        """The named task; raises RecipeError, which lists the names, for another."""
        if name not in self._numbers:
            names = ", ".join(self._numbers)
            problem = f"there is no task {name!r}" if name else "the model has several tasks"
            raise RecipeError([f"{problem}; name one of: {names}"])
        return self.members[self._numbers[name]]

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """Refused: files are of one task."""
        raise DataError(
            "a file is of one task, but the model has several",
            file=path,
            remedy="Name the task: --task NAME.",
        )

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Several:
        """Refused: examples alone do not tell the kinds of their tasks."""
        raise DataError(
            "several tasks do not come from one file", remedy="Name them in several.tasks."
        )

    def example_of(self, text: str) -> Example:
        """Refused: the text may be of any of the tasks."""
        names = ", ".join(self._numbers)
        raise DataError("the model has several tasks", remedy=f"Name one with --task: {names}.")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Several:
        """The tasks that `to_dict` described."""
        listed = values["tasks"]
        if not isinstance(listed, list) or not 0 < len(listed) <= MOST:
            raise ValueError("tasks of the model is not a list of tasks")
        tasks: dict[str, Task] = {}
        metrics, places = {}, {}
        for one in listed:
            name, kind = text_in(one, "name"), text_in(one["task"], "kind")
            if name in tasks or kind == KIND or not is_name(name):
                problem = "occurs twice, is of several tasks, or cannot have this name"
                raise ValueError(f"the task {name!r} {problem}")
            tasks[name] = TASKS.get(kind).from_dict(one["task"])
            metrics[name], places[name] = text_in(one, "metric"), number_in(one, "places")
            if places[name] <= 0 or metrics[name] not in tasks[name].metrics:
                raise ValueError(f"the task {name!r} has no places, or an unknown metric")
        return cls(tasks, metrics, places)

    def to_dict(self) -> dict[str, Any]:
        """The tasks with their names and metrics."""
        return {
            "kind": self.kind,
            "tasks": [
                {
                    "name": member.name,
                    "metric": member.metric,
                    "places": member.places,
                    "task": member.task.to_dict(),
                }
                for member in self.members
            ],
        }

    def audit(self, splits: Splits) -> list[Finding]:
        """What each task finds in its own examples."""
        findings = []
        for member in self.members:
            own = Splits(member.own(splits.train), member.own(splits.dev), member.own(splits.test))
            for one in member.task.audit(own):
                brief = f"{member.name}: {one.brief}" if one.brief else ""
                check = f"{member.name}: {one.check}"
                findings.append(dataclasses.replace(one, check=check, brief=brief))
        return findings

    def classes(self, label: Label) -> list[str]:
        """None: classes of different tasks are not compared."""
        return []

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """The units of each task; targets begin with the number of the task.

        Where tasks take turns, those of each turn as it encodes them, one turn after the other.
        """
        if self.turns:
            turns = [turn.encode(examples, tokeniser, length) for turn in self.turns]
            return list(chain.from_iterable(turns))
        units: list[list[Unit]] = [[] for _ in examples]
        numbers = max(member.numbers for member in self.members)
        for number, member in enumerate(self.members):
            where = places_of(examples, member.name)
            for unit in member.task.encode(member.own(examples), tokeniser, length):
                unit.example = where[unit.example]
                if unit.targets is not None:
                    unit.targets = numbered(unit.targets, number, numbers)
                units[unit.example].append(unit)
        return [unit for own in units for unit in own]

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A fresh head with the outputs of all tasks, or one for each turn."""
        from tasklm.tasks.heads.layers import TokenHead
        from tasklm.tasks.heads.turns import TurnsHead

        if self.turns:
            return TurnsHead(turn.task.head(width, dropout, normed) for turn in self.turns)
        return TokenHead(width, self.outputs, dropout, normed)

    @property
    def unsmoothed(self) -> str:
        """The first task whose labels cannot be smoothed, and why; "" where all can."""
        reasons = [f"{one.name}: {one.task.unsmoothed}" for one in self.members]
        return next((reason for reason in reasons if not reason.endswith(": ")), "")

    @property
    def incomparable(self) -> str:
        """The first task whose outputs have no divergence, and why; "" where all have."""
        reasons = [f"{one.name}: {one.task.incomparable}" for one in self.members]
        return next((reason for reason in reasons if not reason.endswith(": ")), "")

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The losses of all tasks; one that is summed over words is divided by the usual number.

        Where tasks take turns, losses, counts and what is kept are those of `turn_of` a batch.
        """
        import torch

        assert not self.turns
        losses = []
        for number, member in enumerate(self.members):
            own = member.targets(targets, number)
            loss = member.task.loss(outputs[..., member.columns], own)
            losses.append(member.weight * loss / member.places)
        return torch.stack(losses).sum()

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """The losses of all tasks against their teachers."""
        import torch

        losses = []
        for number, member in enumerate(self.members):
            own, columns = member.targets(targets, number), member.columns
            loss = member.task.taught_loss(outputs[..., columns], taught[..., columns], own)
            losses.append(member.weight * loss / member.places)
        return torch.stack(losses).sum()

    def lesson(self, outputs: Floats) -> Floats:
        """The logits themselves."""
        return np.copy(outputs)

    def count(self, targets: Tensor) -> int:
        """The number of examples, of which words are a share."""
        counts = [
            member.task.count(member.targets(targets, number)) / member.places
            for number, member in enumerate(self.members)
        ]
        return max(round(sum(counts)), int(any(counts)))

    def consistency(self) -> Consistency:
        """That of all tasks that have one; tasks of words and of texts cannot share a text."""
        from tasklm.tasks.consistency.together import JointConsistency

        if own := [turn.names[0] for turn in self.turns if not turn.mixed]:
            problem = f"{', '.join(own)}: a task with a head of its own cannot share a text"
            raise RecipeError(
                [f"finetune.unlabelled: {problem} with other tasks; train them apart"]
            )
        learning = [one for one in self.members if not hasattr(one.task, "labels_alone")]
        members = {one.name: one.task.consistency() for one in learning}
        if len({member.of_words for member in members.values()}) != 1:
            problem = "tasks of words and tasks of texts read other places of a text"
            raise RecipeError([f"finetune.unlabelled: {problem}; train them apart"])
        return JointConsistency(members, {one.name: one.columns for one in learning})

    def keep(self, outputs: Floats) -> Floats:
        """All outputs: which task a unit belongs to is known later."""
        return np.copy(outputs)

    def tuned(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> Several:
        """The tasks, each tuned on its own examples."""
        tasks, metrics, places = {}, {}, {}
        for member in self.members:
            own = parts_of(member, examples, units, predictions)
            tasks[member.name] = member.task.tuned(*own) if own[0] else member.task
            metrics[member.name], places[member.name] = member.metric, member.places
        return Several(tasks, metrics, places)

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """The answers of each task, with its name."""
        answers: list[Answer] = [{} for _ in examples]
        for member in self.members:
            own = member.task.answers(*parts_of(member, examples, units, predictions))
            for place, answer in zip(places_of(examples, member.name), own, strict=True):
                answers[place] = {"task": member.name, **answer}
        return answers

    def label_of(self, answer: Answer) -> Label:
        """The name of the task and the label there."""
        return answer["task"], self.member(answer["task"]).task.label_of(answer)

    def metric(self, name: str) -> Metric:
        """The mean of the tasks' own metrics."""
        if name != MEAN:
            raise RecipeError([f"evaluate.metric = {name!r}: several tasks have the metric mean"])
        own = {member.name: member.task.metric(member.metric) for member in self.members}
        return MeanMetric(MEAN, own)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: WideParts | None = None,
    ) -> dict[str, dict[str, list[Label]]]:
        """The simplest and the strongest baseline of each task."""
        return joint_baselines(self.members, train, held, wide)

    def fit_wide(
        self, train: Sequence[Example], dev: Sequence[Example], metric: str, vectors: Any = None
    ) -> FittedWide | None:
        """Fits the wide part of each task that shares a head; None if a tagger has none, or no task
        has any.
        """
        return fit_parts([member for member in self.members if member.shares], train, dev)


def turns_of(task: Task) -> tuple[Turn, ...]:
    """The turns that tasks take; none where all share batches, or there is one task."""
    return task.turns if isinstance(task, Several) else ()


def turn_of(task: Task, number: int) -> Task:
    """The task of a turn, by its number: what computes the losses of its batches."""
    turns = turns_of(task)
    return turns[number].task if turns else task


def taught_width(task: Task) -> int:
    """The columns of what teachers say of several tasks; a turn uses the first of them."""
    assert isinstance(task, Several)
    return max((turn.outputs for turn in task.turns), default=task.outputs)


def _outputs(task: Task) -> int:
    """The columns of a task in a head that tasks share; 0 for one that cannot share it.

    It must answer from single places that may stand in any row: no CRF, and no head that reads
    marks.
    """
    if task.kind not in SHARING or not task.packs or bool(getattr(task, "marks", False)):
        return 0
    return task.wide_width


def _turns(members: Sequence[Member]) -> tuple[Turn, ...]:
    """One turn for those that share a head, if any, and one for each other; none if all share."""
    sharing = [member for member in members if member.shares]
    if len(sharing) == len(members):
        return ()
    turns = []
    if sharing:
        tasks = {member.name: member.task for member in sharing}
        metrics = {member.name: member.metric for member in sharing}
        places = {member.name: member.places for member in sharing}
        mixed = Several(tasks, metrics, places)
        turns.append(Turn(tuple(tasks), mixed, mixed.outputs, True))
    for member in members:
        if not member.shares:
            turns.append(Turn((member.name,), member.task, lesson_width(member.task), False))
    return tuple(turns)


def require_columns(wide: AnyWide | None, task: Task) -> None:
    """Raises ValueError if a wide part is not that of a task, or of all that share a head."""
    sharing = [member for member in members_of(task) if member.shares]
    own = {member.name: (member.first, member.outputs) for member in sharing}
    if wide is not None and own != (wide.columns if isinstance(wide, WideParts) else {}):
        raise ValueError("the wide part does not have the tasks of the model")


def output_shares(task: Task, shares: Sequence[float]) -> list[float]:
    """The shares of tasks as those of the outputs of the head that they share."""
    if not members_of(task):
        return list(shares)
    both = zip(members_of(task), shares, strict=True)
    return list(chain.from_iterable([share] * member.outputs for member, share in both))


def member_scores(
    task: Task, gold: Sequence[Label], predicted: Sequence[Label]
) -> dict[str, float]:
    """The score of each of several tasks by its own metric; empty for one task."""
    scores = {}
    for member in members_of(task):
        pairs = zip(gold, predicted, strict=True)
        own = [(one[1], other[1]) for one, other in pairs if one[0] == member.name]
        if own:
            scores[member.name] = score(member.task.metric(member.metric), *zip(*own, strict=True))
    return scores
