"""Cross-view training (Clark et al., "Semi-Supervised Sequence Modeling with Cross-View Training",
arXiv 1809.08370): auxiliary modules that see a part of the text learn to agree with the primary.

What they teach the encoder below them helps the primary module too. They are dropped in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.base import Encoder
from tasklm.encoders.layers.directed import layers_below, without_views
from tasklm.errors import RecipeError
from tasklm.models.task_model import TaskModel
from tasklm.recipe.raw_text import CROSS_VIEW
from tasklm.students.base import STUDENTS, Classroom, RawBatch, Student, pass_flops, text_holds
from tasklm.tasks.consistency.base import (
    BACKWARD,
    FIRST_HALF,
    FORWARD,
    FUTURE,
    PAST,
    SECOND_HALF,
    WHOLE,
    Auxiliary,
    task_and_module,
)
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.halves import halves_of


@STUDENTS.register(CROSS_VIEW)
class CrossView(Student):
    """The auxiliary modules of a task; each has a loss of its own."""

    def __init__(self, room: Classroom, encoder: Encoder) -> None:
        super().__init__(room, encoder)
        if room.consistency.of_words and not getattr(encoder, "view_width", 0):
            raise without_views(type(encoder).__name__.lower())
        modules = room.consistency.auxiliaries(
            encoder.shape.width,
            getattr(encoder, "view_width", 0),
            room.settings.dropout_on_text(room.settings.dropout),
        )
        chosen = chosen_modules(modules, room.settings.views)
        self.names = list(chosen)
        self.auxiliaries = nn.ModuleList(chosen.values())
        self.tasks = _turns(self.names, room.settings.unlabelled_tasks)
        self.read = frozenset(chain.from_iterable(module.reads for module in chosen.values()))

    def prepare(self, batch: TokenBatch, seed: int) -> RawBatch:
        """The batch with its halves, or with the words that have neighbours."""
        holds = text_holds(self.consistency, batch)
        others: tuple[TokenBatch, ...] = ()
        if self.consistency.of_words:
            there = _neighbours(batch, holds)
        else:
            first, second, both = halves_of(batch, self.room.vocabulary.pad, holds)
            there, others = {FIRST_HALF: both, SECOND_HALF: both}, (first, second)
        masks = {}
        silent = self._silent_tasks(seed)
        for name, module in self.modules_by_name().items():
            if task_and_module(name)[0] in silent:
                masks[loss_of(name)] = torch.zeros_like(holds)
                continue
            masks[loss_of(name)] = holds
            for state in module.reads:
                masks[loss_of(name)] = masks[loss_of(name)] & there.get(state, holds)
        return RawBatch(batch, holds, masks, others)

    def _silent_tasks(self, seed: int) -> set[str]:
        """The tasks whose modules do not learn from a batch: all but the one drawn, or none."""
        if not self.tasks:
            return set()
        return set(self.tasks) - {str(np.random.default_rng(seed).choice(self.tasks))}

    def modules_by_name(self) -> dict[str, Auxiliary]:
        """The modules that learn, by their names."""
        modules: Any = self.auxiliaries
        return dict(zip(self.names, modules, strict=True))

    def forward(
        self, model: TaskModel, raw: RawBatch, targets: Tensor, noise: Tensor | None
    ) -> dict[str, Tensor]:
        """The divergence of each module from the primary's answers."""
        states = self._states(model, raw)
        losses = {}
        for name, module in self.modules_by_name().items():
            outputs = module(*[states[state] for state in module.reads])
            mask = raw.masks[loss_of(name)]
            losses[loss_of(name)] = self.consistency.auxiliary_divergence(
                name, outputs, targets, mask
            )
        return losses

    def _states(self, model: TaskModel, raw: RawBatch) -> Mapping[str, Tensor]:
        """What the modules read, (rows, places, width) each: passes that none of them reads are
        left out, and what the others have in common is computed once.
        """
        encoder: Any = model.encoder
        batch = raw.text
        assert batch.places is not None and batch.lasts is not None
        rows, places = batch.places.shape
        wanted = batch.flat_places()
        states: dict[str, Tensor] = {}
        if not self._has_views:
            texts = zip((WHOLE, FIRST_HALF, SECOND_HALF), (batch, *raw.others), strict=False)
            for name, text in texts:
                if name in self.read:
                    states[name] = encoder(text, wanted).view(rows, places, -1)
            return states
        ends = replace(batch, places=batch.lasts.clamp(min=0)).flat_places()
        if WHOLE in self.read:
            whole, *sides = encoder.whole_and_views(batch, wanted, ends, wanted)
            states[WHOLE] = whole.view(rows, places, -1)
        else:
            sides = encoder.views(batch, ends, wanted)
        forward, backward = (side.view(rows, places, -1) for side in sides)
        return {
            **states,
            FORWARD: forward,
            BACKWARD: backward,
            FUTURE: torch.cat([forward[:, :1], forward[:, :-1]], 1),
            PAST: torch.cat([backward[:, 1:], backward[:, -1:]], 1),
        }

    @property
    def _has_views(self) -> bool:
        """Whether a module reads one side of a word."""
        return self.consistency.of_words and self.read != {WHOLE}

    def flops(self, cost: EncoderCost, head: Any, raw: RawBatch) -> float:
        """A pass of the primary, and those passes of the whole text and of views or halves that
        modules read.
        """
        batch = raw.text
        assert batch.places is not None
        rows, places = batch.places.shape
        primary = pass_flops(cost, head.flops(rows, places), batch, batch.places)
        heads = sum(module.flops(rows, places) for module in self.modules_by_name().values())
        once = pass_flops(cost, 0.0, batch, batch.places)
        if not self._has_views:
            return primary + 3 * (heads + len(self.read) * once)
        tokens, length = batch.ids.numel(), batch.ids.shape[1]
        below, beside = layers_below(cost.layers), WHOLE in self.read
        seen = cost.views(tokens, length, below, rows * places, beside=beside)
        return primary + 3 * (heads + beside * once + seen)


def chosen_modules(modules: Mapping[str, Auxiliary], views: Sequence[str]) -> dict[str, Auxiliary]:
    """The modules of the named views, of every task; all of them where none is named."""
    there = list(dict.fromkeys(task_and_module(name)[1] for name in modules))
    if unknown := [view for view in views if view not in there]:
        lacking = f"the task has no view {', '.join(map(repr, unknown))}"
        raise RecipeError([f"finetune.views: {lacking}; its views are {', '.join(there)}"])
    wanted = views or there
    return {name: one for name, one in modules.items() if task_and_module(name)[1] in wanted}


def _turns(names: Sequence[str], learning: str) -> list[str]:
    """The tasks that take turns in learning from text; none where all learn from all of it."""
    if learning == "all":
        return []
    tasks = list(dict.fromkeys(task_and_module(name)[0] for name in names))
    if len(tasks) < 2:
        problem = "there is one task that learns from text without labels; leave it out"
        raise RecipeError([f"finetune.unlabelled_tasks = {learning}: {problem}"])
    return tasks


def loss_of(name: str) -> str:
    """The name of a module's loss."""
    return f"{name} view"


def _neighbours(batch: TokenBatch, holds: Tensor) -> dict[str, Tensor]:
    """Which words have a word before them in their text, and which one after them."""
    assert batch.places is not None
    pieces = batch.pieces.gather(1, batch.places)
    beside = holds[:, 1:] & holds[:, :-1] & (pieces[:, 1:] == pieces[:, :-1])
    none = torch.zeros_like(holds[:, :1])
    return {FUTURE: torch.cat([none, beside], 1), PAST: torch.cat([beside, none], 1)}
