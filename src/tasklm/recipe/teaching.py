"""The section of a recipe about teachers: [distill]."""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.recipe.parsing import key


@dataclass(frozen=True)
class Distill:
    teachers: tuple[str, ...] = key(
        (),
        (
            "run folders whose models (the ensemble, where a run has one) teach stage 2 "
            "beside the labels; several are averaged"
        ),
    )
    labels: float | None = key(
        None,
        (
            "weight of the labels, the teachers have the rest; "
            "auto: rises from 0 to 1 as training goes on (teacher annealing)"
        ),
        low=0.0,
        high=1.0,
    )
    passages: int = key(
        0,
        (
            "pieces of the selected passages, best first, that stage 2 also learns from, with the "
            "labels that the teachers give them"
        ),
        low=0,
    )
