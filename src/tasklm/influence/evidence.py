"""What an explanation says: the texts that support a prediction and that speak against it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attribution:
    """A text that the model was trained on, and its attribution."""

    # cosine of the gradients, −1 … 1: above 0 it supports the label, below 0 it speaks against it
    score: float
    product: float  # of the gradients, not normalised
    label: str | None  # of a training example
    text: str
    shared: list[str]  # shared words, the rarest first
    where: str  # file and line of an example, source of a passage
    id: str | None = None  # of a passage


@dataclass(frozen=True)
class Attributions:
    """The texts that support a label and that speak against it, strongest first."""

    supporting: list[Attribution]
    opposing: list[Attribution]
    compared: int  # texts whose gradients were computed …
    in_all: int  # … of so many


@dataclass(frozen=True)
class Explanation:
    """A prediction with the texts that support it and speak against it."""

    text: str
    label: str
    probability: float | None  # if the kind has one
    examples: Attributions
    passages: Attributions | None  # None if the model was trained without selected text
