"""Sets of labels, options or scores in place of one: what is in them at a threshold.

A candidate of an answer has a number, its *strangeness*: small where the model finds it likely. The
set at a threshold has all candidates that are no stranger. `coverage/` chooses the threshold.

For classes and options the number is 1 − probability (LAC: Sadinle, Lei and Wasserman, "Least
Ambiguous Set-Valued Classifiers with Bounded Error Levels", arXiv 1609.00451). The sets of APS and
RAPS, which add up the probabilities of all likelier classes, were larger on nearly every task
(docs/benchmarks/coverage.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tasklm.tasks.base import Answer, Label

POOLED = ""  # the group of labels without classes
NOWHERE = 2.0  # of a label that the model does not know: no probability is as low
# why kinds have none, and the way out
SETLESS_WORDS = (
    "each word has an answer of its own, and sets of words would promise nothing of a sentence. "
    "Leave --coverage out, or make a task that classifies whole texts"
)
SETLESS_SPANS = (
    "the answer is any part of a text, and a set would be a long list of overlapping parts. "
    "Leave --coverage out, or offer the possible answers as options (kind choice)"
)


class AnswerSets(Protocol):
    """What the sets of a kind of task are made of."""

    one: ClassVar[str]  # what a set has, for people: "label"
    several: ClassVar[str]
    grouped: ClassVar[bool]  # whether classes may have thresholds of their own

    def group(self, label: Label) -> str:
        """The class that a right answer counts for; POOLED where there are none."""
        ...

    def strangeness(self, answer: Answer, label: Label) -> float:
        """That of the right answer."""
        ...

    def within(self, answer: Answer, thresholds: Mapping[str, float]) -> dict[str, Any]:
        """The set, ready for JSON; thresholds by group, of which POOLED is for all others."""
        ...

    def size(self, chosen: Mapping[str, Any]) -> float:
        """How many candidates are in a set; the width of an interval."""
        ...


@dataclass(frozen=True)
class ClassSets:
    """Classes by their probabilities."""

    one: ClassVar[str] = "label"
    several: ClassVar[str] = "labels"
    grouped: ClassVar[bool] = True

    def group(self, label: Label) -> str:
        """The class."""
        return str(label)

    def strangeness(self, answer: Answer, label: Label) -> float:
        """1 − its probability; NOWHERE for a class that the model does not know."""
        probability = answer["probabilities"].get(str(label))
        return NOWHERE if probability is None else 1.0 - float(probability)

    def within(self, answer: Answer, thresholds: Mapping[str, float]) -> dict[str, Any]:
        """{"labels": probability of each, the likeliest first}."""
        chosen = {
            label: value
            for label, value in answer["probabilities"].items()
            if 1.0 - value <= thresholds.get(label, thresholds[POOLED])
        }
        return {"labels": dict(sorted(chosen.items(), key=lambda pair: -pair[1]))}

    def size(self, chosen: Mapping[str, Any]) -> float:
        """The number of classes."""
        return len(chosen["labels"])


@dataclass(frozen=True)
class LabelSets(ClassSets):
    """Labels of which an example has any number: the set shall have all of them."""

    grouped: ClassVar[bool] = False

    def group(self, label: Label) -> str:
        """POOLED: an example has several labels, or none."""
        return POOLED

    def strangeness(self, answer: Answer, label: Label) -> float:
        """That of the least likely label; 0 where there is none."""
        return max((super(LabelSets, self).strangeness(answer, one) for one in label), default=0.0)


@dataclass(frozen=True)
class OptionSets:
    """Options of a choice by their probabilities."""

    one: ClassVar[str] = "option"
    several: ClassVar[str] = "options"
    grouped: ClassVar[bool] = False

    def group(self, label: Label) -> str:
        """POOLED: options differ from example to example."""
        return POOLED

    def strangeness(self, answer: Answer, label: Label) -> float:
        """1 − the probability of the right option."""
        values = answer["probabilities"]
        return 1.0 - float(values[label]) if 0 <= label < len(values) else NOWHERE

    def within(self, answer: Answer, thresholds: Mapping[str, float]) -> dict[str, Any]:
        """{"options": [{"number", "probability"}], the likeliest first}."""
        most = thresholds[POOLED]
        chosen = [
            {"number": number, "probability": value}
            for number, value in enumerate(answer["probabilities"])
            if 1.0 - value <= most
        ]
        return {"options": sorted(chosen, key=lambda one: -one["probability"])}

    def size(self, chosen: Mapping[str, Any]) -> float:
        """The number of options."""
        return len(chosen["options"])


@dataclass(frozen=True)
class Intervals:
    """Scores around the predicted one, by their distance from it."""

    one: ClassVar[str] = "score"
    several: ClassVar[str] = "scores"
    grouped: ClassVar[bool] = False

    def group(self, label: Label) -> str:
        """POOLED: scores have no classes."""
        return POOLED

    def strangeness(self, answer: Answer, label: Label) -> float:
        """The distance of the right score from the predicted one."""
        return abs(float(label) - float(answer["score"]))

    def within(self, answer: Answer, thresholds: Mapping[str, float]) -> dict[str, Any]:
        """{"score": the predicted one, "interval": [lowest, highest]}."""
        score, far = float(answer["score"]), thresholds[POOLED]
        return {"score": score, "interval": [score - far, score + far]}

    def size(self, chosen: Mapping[str, Any]) -> float:
        """The width."""
        low, high = chosen["interval"]
        return float(high - low)
