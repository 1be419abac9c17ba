"""How much every passage would help the task, by gradients of a scoring model (arXiv 2305.12816).

The influence of a passage on a batch of task examples is ∇ l_lm(passage) · ∇ l_task(batch), to
first order the fall of the task's loss when the scoring model takes a step on the passage. The
gradients of the task are computed once and kept; those of the passages exist only for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.errors import RecipeError
from tasklm.influence.embeddings import TableSide, has_table
from tasklm.influence.gradients import (
    TABLE,
    Call,
    ProjectedGradients,
    Recorded,
    Watch,
    chosen_layers,
    parameters_of,
    wide,
)
from tasklm.models.task_model import new_encoder
from tasklm.models.weights import load_weights
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.recipe.data_sections import Select
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch, padded_rows
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.masking import NONE, mask_rows
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.context import TrainingContext
from tasklm.train.stage1 import JointModel
from tasklm.train.steps import step_seed

MULTIPLE = 8  # of tokens, that rows are padded to
PROJECTED = 64  # dimensions of a projection that the recipe leaves open
TOKENS = {"cuda": 16_384}  # read at a time …
TOKENS_ELSEWHERE = 4_096  # … on other devices


def projection_for(settings: Select, encoder: str, shape: Shape, batches: int, memory: int) -> int:
    """The size of the projection, set by the recipe or by what fits into memory; 0: exact products.

    Raises if a layer is unknown, or if the recipe's setting does not fit.
    """
    with shapes_alone():
        layers = chosen_layers(new_encoder(encoder, shape), settings.influence_layers)
    if has_table(settings.influence_layers):
        examples = batches * settings.influence_task_batch
        _require_room(4 * examples * shape.positions * shape.token_width, settings, memory)
    exact = 4 * batches * parameters_of(layers)
    size = settings.influence_projection
    if size is None:
        size = PROJECTED if settings.influence_layers == "all" or exact > memory else 0
    needed, fewer = exact, "set select.influence_projection to auto, or"
    if size:
        needed = 4 * batches * ProjectedGradients(Watch(layers).parts, size, 0).total
        fewer = "lower select.influence_projection,"
    if needed > memory:
        raise RecipeError(
            [
                f"the gradients of {batches:,} task batches take {needed / 1e9:.1f} GB, more than "
                f"select.memory = {settings.memory}; {fewer} raise select.influence_task_batch or "
                "select.memory"
            ]
        )
    return size


def _require_room(table: int, settings: Select, memory: int) -> None:
    """Refuses embeddings whose gradients, a vector for each token of an example, may not fit."""
    if table > memory:
        raise RecipeError(
            [
                f"the task's gradients of the embeddings may take {table / 1e9:.1f} GB, more than "
                f"select.memory = {settings.memory}; choose another layer "
                "(select.influence_layers), or raise select.memory"
            ]
        )


def tokens_at_once(machine: Machine) -> int:
    """How many tokens, padding included, a forward pass on this machine reads."""
    return TOKENS.get(machine.device.type, TOKENS_ELSEWHERE)


def scoring_model(folder: Path, context: TrainingContext, settings: Train) -> JointModel:
    """The trained scoring model of a folder, on the CPU."""
    shape, task = context.shape, context.task
    objective = OBJECTIVES.get("mlm")(context.encoder, shape, context.vocabulary, settings)
    encoder = new_encoder(context.encoder, shape, context.vocabulary)
    head = task.head(shape.width, 0.0, encoder.normed_heads)
    model = JointModel(encoder, objective, head, task)
    model.load_state_dict(load_weights(folder / "model.safetensors"))
    return model


@dataclass
class PieceBatch:
    """Passages as padded rows, one or more for each."""

    batch: TokenBatch
    units: np.ndarray  # (rows,) which of the requested units a row belongs to
    passages: np.ndarray  # (rows,) which passage, counted inside the batch
    sharing: np.ndarray  # (rows,) how many passages share the gradient of the row's unit
    first: int  # number of its first row among all rows, by which masks are drawn


class Pieces:
    """Passages split into rows that the encoder can read, in units that share one gradient.

    Units come in the order of their lengths.
    """

    def __init__(
        self, shards: Shards, vocabulary: Vocabulary, length: int, together: int, tokens: int
    ) -> None:
        self.shards = shards
        self.vocabulary = vocabulary
        self.together = together
        self.tokens = tokens
        lengths = shards.lengths
        self.counts = np.maximum(1, -(-lengths // (length - 2)))  # rows of each passage
        starts = np.arange(0, len(shards), together)
        self.rows = np.add.reduceat(self.counts, starts)  # of each unit
        self.longest = np.maximum.reduceat(-(-lengths // self.counts) + 2, starts)  # of these rows
        self.order = np.lexsort((self.rows, self.longest))  # of the units
        # rows before, and tokens at, each position of this order
        self.firsts = np.concatenate([[0], np.cumsum(self.rows[self.order])])
        self.sizes = np.add.reduceat(lengths + 2 * self.counts, starts)[self.order]

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, start: int, stop: int) -> Iterator[PieceBatch]:
        """Yields all rows of the units at the places start … stop − 1.

        No unit is split; a batch has at most `tokens` tokens if possible.
        """
        for first, last in self._groups(start, stop):
            yield self._batch(first, last, start)

    def shapes(self, block: int) -> Iterator[tuple[int, int]]:
        """Yields rows and padded length of every batch of all units, `block` of them at a time."""
        for start in range(0, len(self), block):
            for first, last in self._groups(start, min(start + block, len(self))):
                rows = int(self.firsts[last] - self.firsts[first])
                yield rows, self._padded_length(last - 1)  # in order of lengths

    def _padded_length(self, place: int) -> int:
        return -(-int(self.longest[self.order[place]]) // MULTIPLE) * MULTIPLE

    def _groups(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yields the places of the units that are read together."""
        first = start
        while first < stop:
            last, rows = first, 0
            while last < stop:
                rows += int(self.rows[self.order[last]])
                if last > first and rows * self._padded_length(last) > self.tokens:
                    break
                last += 1
            yield first, last
            first = last

    def _batch(self, first: int, last: int, start: int) -> PieceBatch:
        cut: list[np.ndarray] = []
        of_unit: list[int] = []
        of_passage: list[int] = []
        sharing: list[int] = []
        offsets, number = self.shards.offsets, 0
        for place in range(first, last):
            unit = int(self.order[place])
            members = range(unit * self.together, min((unit + 1) * self.together, len(self.shards)))
            for passage in members:
                tokens = self.shards.tokens[offsets[passage] : offsets[passage + 1]]
                pieces = np.array_split(tokens, int(self.counts[passage]))
                of_passage += [number] * len(pieces)
                number += 1
                of_unit += [place - start] * len(pieces)
                sharing += [len(members)] * len(pieces)
                cut += pieces
        rows = [self.vocabulary.around(piece) for piece in cut]
        return PieceBatch(
            batch=padded_rows(rows, self.vocabulary.pad, MULTIPLE),
            units=np.array(of_unit),
            passages=np.array(of_passage),
            sharing=np.array(sharing),
            first=int(self.firsts[first]),
        )


def row_weights(answers: np.ndarray, passages: np.ndarray, sharing: np.ndarray) -> np.ndarray:
    """The weight of each row's summed loss.

    A passage's loss is then the mean over its targets, and a unit's the mean over its passages.
    """
    targets = np.bincount(passages, (answers != NONE).sum(1))
    return np.asarray(1.0 / (np.maximum(targets, 1)[passages] * sharing))


class Influence:
    """Scores passages by the products of their gradients with those of the task.

    Weights are frozen, and there is no dropout.
    """

    def __init__(
        self,
        model: JointModel,
        pieces: Pieces,
        examples: EncodedExamples,
        settings: Select,
        projection: int,
        machine: Machine,
    ) -> None:
        self.pieces = pieces
        self.machine = machine
        self.draws = settings.influence_draws
        self.seed = settings.seed
        self.model = model.to(machine.device).eval().requires_grad_(False)
        if machine.bf16 and machine.device.type == "cuda":
            # without autocast: its GPU kernels bypass the watched modules
            self.model = self.model.bfloat16()
        self.layers = chosen_layers(model.encoder, settings.influence_layers)
        table: Any = None
        scorer: Any = self.model
        if has_table(settings.influence_layers):
            table = scorer.encoder.token
        self.watch = Watch(self.layers, table)
        self.projected = ProjectedGradients(self.watch.parts, projection, settings.seed)
        # the number of task batches on which passages are scored
        self.task_batches = -(-len(examples.examples) // settings.influence_task_batch)
        self.table: TableSide | None = None
        if table is not None:
            self.table = TableSide(self.task_batches)
            scorer.objective.norm.register_forward_hook(self._keep_states)
        self.task = self._task_side(examples, settings.influence_task_batch)

    def _arithmetic(self) -> AbstractContextManager[None]:
        if self.machine.device.type == "cuda":
            return nullcontext()
        return self.machine.arithmetic()

    def _task_side(self, examples: EncodedExamples, together: int) -> dict[str, Tensor]:
        """The gradients (batches, count) of the mean task loss of batches of examples, by part."""
        count, device = len(examples.examples), self.machine.device
        side: dict[str, Tensor] = {}
        # rows, padded length and places of the batches of the task's gradients
        self.task_shapes: list[tuple[int, int, int]] = []
        at_once = self.pieces.tokens // examples.length
        for groups, rows in examples.in_order(at_once):
            assert rows.places is not None
            recorded = self._recorded(rows.to(device))
            height, length = rows.ids.shape
            self.task_shapes.append((height, length, rows.places.shape[1]))
            units = [examples.units[number] for number in examples.numbers_of(groups)]
            numbers = np.array([unit.example for unit in units]) // together
            belongs = torch.from_numpy(numbers).to(device)
            sizes = torch.from_numpy(np.minimum(count - numbers * together, together)).to(device)
            for call in recorded.pop(TABLE, ()):
                assert self.table is not None
                self.table.add(call, belongs, sizes)
            for name, calls in recorded.items():
                means = [
                    Call(call.given, wide(call.errors) / sizes[:, None, None]) for call in calls
                ]
                for some, gradients in self.projected.chunks(name, means):
                    if name not in side:
                        side[name] = gradients.new_zeros(self.task_batches, gradients.shape[1])
                    side[name].index_add_(0, belongs[some], gradients)
        return side

    def _recorded(self, given: TokenBatch | Corrupted, weights: Tensor | None = None) -> Recorded:
        """The calls of both passes of the task's loss, or of the language model's with weights."""
        with torch.enable_grad(), self.watch.watching(), self._arithmetic():
            if isinstance(given, TokenBatch):
                return self.watch.recorded(self.model.task_loss(given), len(given.ids))
            assert weights is not None
            logits, rows = language_logits(self.model, given), len(given.batch.ids)
            errors = language_errors(logits, given.answers, weights)
            recorded = self.watch.recorded(logits, rows, errors)
            if self.table is not None:  # which is the output matrix, too
                states = wide(self.states).view(rows, -1, self.states.shape[-1])
                recorded[TABLE].append(Call(states, errors.view(rows, -1, errors.shape[-1])))
            return recorded

    def _keep_states(self, norm: Any, given: Any, states: Tensor) -> None:
        """Keeps the states that the language model multiplies with the table."""
        self.states = states.detach()

    def _products(self, recorded: Recorded) -> Tensor:
        """The products (rows, task batches) of the rows' gradients with those of the task."""
        calls = recorded.pop(TABLE, [])
        if self.table is None:
            return self.projected.products(recorded, self.task)
        products = self.table.products(*calls)
        if self.task:
            products += self.projected.products(recorded, self.task)
        return products

    def scores(self, start: int, stop: int) -> np.ndarray:
        """The influence (units, task batches) of the units at the places start … stop − 1."""
        device, objective = self.machine.device, self.model.objective
        kind = torch.promote_types(next(self.model.parameters()).dtype, torch.float32)
        scores = torch.zeros(stop - start, self.task_batches, dtype=kind, device=device)
        for rows in self.pieces.batches(start, stop):
            units = torch.from_numpy(rows.units).to(device)
            for draw in range(self.draws):
                text = masked(objective, rows.batch, step_seed(self.seed, draw), rows.first)
                shares = row_weights(text.answers.numpy(), rows.passages, rows.sharing)
                weights = torch.from_numpy(shares / self.draws)
                weights = weights.to(device, torch.float32, non_blocking=True)
                recorded = self._recorded(text.to(device), weights)
                scores.index_add_(0, units, self._products(recorded))
        return np.asarray(scores.float().cpu().numpy())


def masked(objective: Any, batch: TokenBatch, seed: int, first: int) -> Corrupted:
    """The batch with the objective's masks, drawn by the numbers of its rows from `first`."""
    ids, picked, answers = mask_rows(batch.ids.numpy(), objective.masks.rule, seed, first)
    hidden = replace(batch, ids=torch.from_numpy(ids))
    return Corrupted(hidden, torch.from_numpy(picked), torch.from_numpy(answers))


def language_logits(model: Any, text: Corrupted) -> Tensor:
    """The logits (rows · places, vocabulary), of targets and of positions without one."""
    rows, length = text.batch.ids.shape
    starts = torch.arange(0, rows * length, length, device=text.picked.device)
    states = model.encoder(text.batch, (text.picked + starts[:, None]).flatten())
    logits: Tensor = model.objective.logits(states, model.encoder.token)
    return logits


def language_errors(logits: Tensor, answers: Tensor, weights: Tensor) -> Tensor:
    """The gradient at the logits of each row's summed cross-entropy, times the row's weight.

    Computed by hand, it is one pass over the largest array of all; positions without a target have
    no gradient.
    """
    errors = logits.detach().softmax(-1)
    flat = answers.flatten()
    errors[torch.arange(len(flat), device=flat.device), flat.clamp(min=0)] -= 1.0
    counts = torch.where(answers != NONE, weights[:, None], 0.0).flatten()
    return errors.mul_(counts.to(errors)[:, None])
