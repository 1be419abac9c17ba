"""The wide parts and the baselines of several tasks: those that each of them has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasklm.tasks.base import Label
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.baselines.wide_fitting import FittedWide
from tasklm.tasks.baselines.wide_parts import WideParts
from tasklm.tasks.examples import Example
from tasklm.tasks.members import Member, places_of

SIMPLEST, LINEAR = "simplest baseline of each task", "linear model of each task"


def fit_parts(
    members: Sequence[Member], train: Sequence[Example], dev: Sequence[Example]
) -> FittedWide | None:
    """Fits the wide part of each of the tasks that share a head.

    None if no task has any, or a tagger has none: an answer for each word cannot be left out.
    """
    fitted = {
        member.name: member.task.fit_wide(member.own(train), member.own(dev), member.metric)
        for member in members
    }
    bare = [member for member in members if fitted[member.name] is None]
    if len(bare) == len(members) or any(one.task.kind == "tag" for one in bare):
        return None
    columns = {member.name: (member.first, member.outputs) for member in members}
    parts = {name: None if one is None else one.wide for name, one in fitted.items()}
    wide = WideParts(parts, columns)
    outputs = {name: one.train for name, one in fitted.items() if one is not None}
    return FittedWide(wide, wide.laid_out(train, outputs))


def joint_baselines(
    members: Sequence[Member],
    train: Sequence[Example],
    held: Mapping[str, Sequence[Example]],
    wide: WideParts | None,
) -> dict[str, dict[str, list[Label]]]:
    """The simplest and the strongest baseline of each task."""
    labels: dict[str, dict[str, list[Label]]] = {
        name: {split: [None] * len(part) for split, part in held.items()}
        for name in (SIMPLEST, LINEAR)
    }
    for member in members:
        own = {split: member.own(part) for split, part in held.items() if member.own(part)}
        part = None if wide is None else wide.parts.get(member.name)
        if not member.shares:
            part = _own_part(member, train, own.get("dev", []))
        cheap = list(member.task.baselines(member.own(train), own, member.metric, part).values())
        for name, answers in ((SIMPLEST, cheap[0]), (LINEAR, cheap[-1])):
            for split in own:
                places = places_of(held[split], member.name)
                for place, label in zip(places, answers[split], strict=True):
                    labels[name][split][place] = (member.name, label)
    return labels


def _own_part(member: Member, train: Sequence[Example], dev: Sequence[Example]) -> Wide | None:
    """The linear model of a task with a head of its own: a baseline, but no part of the model."""
    fitted = member.task.fit_wide(member.own(train), dev, member.metric)
    return None if fitted is None else fitted.wide
