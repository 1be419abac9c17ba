"""The section of a recipe about teachers: [distill]."""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.recipe.parsing import key


@dataclass(frozen=True)
class Distill:
    teachers: tuple[str, ...] = key(
        (),
        "run folders whose models (the ensemble, if a run has one) teach stage 2 along with the "
        "labels; several are averaged",
    )
    labels: float | None = key(
        None,
        "weight of the labels relative to the teachers; auto: rises from 0 to 1 during training "
        "(teacher annealing)",
        low=0.0,
        high=1.0,
    )
    passages: int = key(
        0,
        "pieces of the selected passages, best first, that the teachers label for stage 2 to "
        "learn from",
        low=0,
    )
