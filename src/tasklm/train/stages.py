"""Builds the two stages of a training with random weights."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, micro_batch_for, training_bytes
from tasklm.budget.rules import WRITING_BATCH, epochs_for, stage2_batch, writing_epochs
from tasklm.encoders.shapes import SHALLOW
from tasklm.errors import RecipeError
from tasklm.models.task_model import TaskModel, cost_of, kept_of, new_encoder
from tasklm.objectives.base import OBJECTIVES, AnnealedObjective
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.students.base import Classroom, student_class
from tasklm.tasks.base import Task, score
from tasklm.tasks.heads.layers import OutHead
from tasklm.tasks.heads.turns import head_with_wide
from tasklm.tasks.several import member_scores, members_of, turns_of
from tasklm.tasks.writing import greedy, writes
from tasklm.tokens.batches import PackedStream, packed_rows
from tasklm.tokens.example_streams import ExampleStream
from tasklm.tokens.examples import EncodedExamples, EncodedTurns
from tasklm.tokens.task_draws import TaskDraws, weight_of
from tasklm.tokens.turn_streams import AnyStream, TurnStream
from tasklm.train.context import TrainingContext
from tasklm.train.held_out import SEED, HeldOutText, Rows, rows_measured
from tasklm.train.init.first_weights import beginning_of, put_counts
from tasklm.train.init.neighbours import look_at_neighbours
from tasklm.train.shares import best_share
from tasklm.train.stage1 import JointModel, JointStage
from tasklm.train.stage2 import FinetuneStage, Judgement, TaskLosses, Teaching
from tasklm.train.start import starting_weights
from tasklm.train.steps import step_seed
from tasklm.train.unlabelled import Alternation, RawLosses, RawText, Studying

# a GPU sometimes waits for the launches of smaller steps: these are then recorded and replayed
GRAPH_FLOPS = 5e13
BEST_PART = 5  # the best of the selected text is a fifth of it (train.anneal)
# planned share of stage 2 before a decoder learns from its own texts: the first ones are too bad
UNLABELLED_AFTER = 0.5
SEEDS_OF_A_TRAINING = 100  # numbers that the fine-tunings of one stage 1 take for their draws


def joint_stage(context: TrainingContext, settings: Train, rho1: int, batch: int) -> JointStage:
    """Stage 1 with random weights."""
    # before the weights take memory: the prediction includes them
    accumulate = accumulation(context, settings, batch)
    torch.manual_seed(step_seed(settings.seed, 0))
    shape = dataclasses.replace(context.shape, dropout=settings.dropout)
    encoder = new_encoder(context.encoder, shape, context.vocabulary)
    objective = OBJECTIVES.get(settings.objective)(
        context.encoder, shape, context.vocabulary, settings
    )
    if settings.mask_rate_last is not None and not isinstance(objective, AnnealedObjective):
        problem = f"the rate of masks of {settings.objective} stays"
        raise RecipeError([f"train.mask_rate_last: {problem}; choose train.objective = mlm"])
    head: nn.Module = nn.Identity()  # a decoder learns in stage 2 alone
    if not writes(context.task):
        head = context.task.head(context.shape.width, settings.dropout, encoder.normed_heads)
    module = JointModel(encoder, objective, head, context.task).to(context.machine.device)
    external = best = None
    if context.external is not None and rho1:
        external = _text(context, batch, settings.seed, np.asarray(context.held_out, np.int64))
    if external is not None and settings.anneal:
        best = _text(context, batch, settings.seed, _all_but_best(context))
    cost = cost_of(context.encoder, context.shape)
    return JointStage(
        module=module,
        internal=_stage1_stream(context, batch, settings.seed),
        external=external,
        rho1=rho1,
        rho2=settings.rho2,
        seed=settings.seed,
        machine=context.machine,
        cost=cost,
        accumulate=accumulate,
        graphs=accumulate == 1 and _is_small(cost, batch, context.length),
        one_pass=settings.internal_pass == "one",
        best=best,
        anneal=settings.anneal,
    )


def _text(context: TrainingContext, batch: int, seed: int, left_out: np.ndarray) -> PackedStream:
    """The selected text in batches, without some passages."""
    assert context.external is not None
    length = context.external_rows
    return PackedStream(context.external, context.vocabulary, length, batch, seed, left_out)


def _all_but_best(context: TrainingContext) -> np.ndarray:
    """The passages that are not among the best of those that are read; selections have the best
    first.
    """
    assert context.external is not None
    passages = np.arange(len(context.external))
    read = np.setdiff1d(passages, np.asarray(context.held_out, np.int64))
    return np.setdiff1d(passages, read[: -(-len(read) // BEST_PART)])


def held_out_text(
    context: TrainingContext, stage: JointStage, steps: int, batch: int
) -> HeldOutText | None:
    """The text whose loss is measured in a training of so many steps and rows per step; None if
    none is held out.
    """
    if not len(context.held_out) or stage.external is None:
        return None
    assert context.external is not None
    passages, objective, machine = np.asarray(context.held_out), stage.objective, context.machine
    some, all_rows = rows_measured(steps, batch)
    length = context.external_rows
    plain = packed_rows(context.external, passages, context.vocabulary, length, all_rows)
    text = objective.held_out(plain, SEED)
    return HeldOutText(
        stage.module,
        machine,
        len(passages),
        Rows.of(text.first(some), objective, machine),
        Rows.of(text, objective, machine),
    )


def _stage1_stream(context: TrainingContext, batch: int, seed: int) -> AnyStream:
    """The batches of task examples of stage 1; texts alone can always share rows."""
    if not writes(context.task):
        return _stream(context, context.train, batch, seed)
    return ExampleStream(context.stage1_examples, batch, seed, context.machine.compiles)


def _stream(
    context: TrainingContext, examples: EncodedExamples, batch: int, seed: int
) -> AnyStream:
    machine, power = context.machine, context.task_power

    def stream(of: EncodedExamples, packs: bool) -> ExampleStream | None:
        if not len(of):
            return None
        draws = TaskDraws.of(of.group_examples, power)
        return ExampleStream(of, batch, seed, machine.compiles, packs, draws)

    if isinstance(examples, EncodedTurns):
        streams = [
            stream(part, turn.task.packs)
            for part, turn in zip(examples.parts, turns_of(context.task), strict=True)
        ]
        weights = [weight_of(part.group_examples, power) for part in examples.parts]
        return TurnStream(examples, streams, weights, seed)
    whole = stream(examples, context.task.packs)
    assert whole is not None
    return whole


def _is_small(cost: EncoderCost, batch: int, length: int) -> bool:
    """Whether a step is small enough for recorded launches to pay off."""
    return cost.training(batch * length, 0, length) < GRAPH_FLOPS


def accumulation(context: TrainingContext, settings: Train | Finetune, batch: int) -> int:
    """The number of micro-batches per process: from the recipe, or as many as memory requires."""
    if isinstance(settings, Train) and settings.accumulate is not None:
        return settings.accumulate or 1
    if (free := context.machine.free_bytes()) is None:
        return 1
    cost, machine, length = cost_of(context.encoder, context.shape), context.machine, context.length

    def bytes_of(rows: int) -> float:
        """The memory that training on some rows takes.

        An internal batch of stage 1 runs the encoder on the task, and on the same text as the
        objective shows it; in one pass, the last layer computes more states of that.
        """
        mode = {"bf16": machine.bf16, "compiled": machine.compiles, "dropout": settings.dropout > 0}

        def of_task(places: int) -> MemoryCost:
            tokens, optimiser = rows * length, settings.optimiser
            read = rows * places
            return training_bytes(cost, tokens, 0, length, wanted=read, optimiser=optimiser, **mode)

        memory = of_task(context.train.most_places)
        if isinstance(settings, Finetune):
            # a student's passes: of the whole text, and of views or halves of it
            students = int(settings.has_student and context.raw is not None)
            others = max(students, int(settings.rdrop > 0))  # steps of text have no second reading
            return memory.total + others * memory.activations
        objective = OBJECTIVES.get(settings.objective)
        of_text: float = objective.memory(cost, settings, rows * length, length, **mode).total
        if settings.internal_pass == "one":
            return of_text + memory.activations - of_task(0).activations
        return of_text + memory.activations

    return micro_batch_for(-(-batch // machine.ranks.count), bytes_of, free)


def begin(module: Any, context: TrainingContext, settings: Train) -> str:
    """Initialises the weights of stage 1 in a joint model; returns a description for the log."""
    if settings.start:
        return starting_weights(Path(settings.start)).put_into(module, settings.objective)
    beginning = beginning_of(settings, context.encoder, context.shape)
    notes = ["stage 1 starts from random weights"]
    if beginning.counts:
        put_counts(module.encoder, module.objective, context.counted)
        notes.append(str(context.counted))
    if beginning.neighbours:
        draw = torch.Generator().manual_seed(step_seed(settings.seed, 0))
        look_at_neighbours(module.encoder, draw)
        notes.append("attention starts on neighbouring tokens")
    return "; ".join(notes)


def batch_of(settings: Finetune, context: TrainingContext) -> int:
    """Rows per step of stage 2; an example of several units (as of a choice) takes as many."""
    if settings.batch:
        return settings.batch
    if writes(context.task):
        return WRITING_BATCH
    examples = stage2_batch(len(context.train), context.shape.layers <= SHALLOW)
    return context.task.together * examples


def usual_epochs(settings: Finetune, context: TrainingContext) -> int:
    """Passes over the examples where the recipe gives none; of several tasks, those that a task of
    their mean size would have by itself.
    """
    batch = max(1, batch_of(settings, context) // context.task.together)
    if writes(context.task):
        return writing_epochs(len(context.train), batch)
    return epochs_for(len(context.train) // max(1, len(members_of(context.task))), batch)


def finetune_stage(
    context: TrainingContext,
    settings: Finetune,
    seed: int,
    metric: str,
    best: Path | None,
    epochs: int = 1,
) -> FinetuneStage:
    """Stage 2 with random weights; `epochs` set how fast labels outweigh teachers."""
    batch = batch_of(settings, context)
    accumulate = accumulation(context, settings, batch)
    # the mean of heads that begin apart is no head (arXiv 2203.05482); the encoder's weights follow
    torch.manual_seed(step_seed((seed - 1) // SEEDS_OF_A_TRAINING if settings.soup else seed, 0))
    # features that stay as they are have no dropout but the head's
    dropout = 0.0 if settings.freeze else settings.dropout
    shape = dataclasses.replace(context.shape, dropout=dropout)
    encoder = new_encoder(context.encoder, shape, context.vocabulary)
    encoder.requires_grad_(not settings.freeze)
    head = context.task.head(context.shape.width, settings.dropout, encoder.normed_heads)
    if context.wide is not None:
        silenced(head)  # at first only the wide part counts
    model = TaskModel(encoder, head, context.wide is not None).to(context.machine.device)
    cost = cost_of(context.encoder, context.shape)
    stream = _stream(context, context.stage2_examples, batch, seed)
    teaching = None
    if context.taught:
        teaching = Teaching(epochs * len(stream), context.labels_weight)
    graphs = accumulate == 1 and _is_small(cost, batch, context.length)
    raw = _raw_text(context, settings, model, batch, seed)
    losses = TaskLosses(
        model, context.task, context.taught, graphs, settings.label_smoothing, settings.rdrop > 0
    )
    if raw is not None:
        losses.raw = raw.losses
    after = settings.unlabelled_after
    if after is None:
        after = UNLABELLED_AFTER if writes(context.task) else 0.0
    alone = None if raw is None else round(after * epochs * len(stream))
    return FinetuneStage(
        losses=losses,
        stream=stream,
        evaluate=functools.partial(_judgement_of, context=context, metric=metric),
        best_path=best,
        machine=context.machine,
        cost=cost,
        accumulate=accumulate,
        teaching=teaching,
        raw=raw,
        alternation=Alternation(alone),
        frozen=settings.freeze,
        rdrop=settings.rdrop,
        score_every=settings.score_every,
        score_on_train=_score_on_train(context, settings.scored_examples, metric),
    )


def _score_on_train(
    context: TrainingContext, count: int, metric: str
) -> Callable[[TaskModel], float] | None:
    """What scores a model on so many training examples, evenly spaced; None for no example."""
    if not count:
        return None
    examples = context.train.examples
    chosen = context.encoded(examples[:: -(-len(examples) // count)])

    def scored(model: TaskModel) -> float:
        predictions = kept_of([model], greedy(context.task), chosen, context.machine)
        return _judged(predictions, chosen, context.task, metric).score

    return scored


def _raw_text(
    context: TrainingContext, settings: Finetune, model: TaskModel, batch: int, seed: int
) -> RawText | None:
    """Text without labels and its student; None where stage 2 reads none."""
    if context.raw is None or not settings.has_student:
        return None
    machine, task = context.machine, context.task
    room = Classroom(task.consistency(), context.vocabulary, settings)
    encoder: Any = model.encoder
    student = student_class(settings.unlabelled, room.consistency)(room, encoder)
    dropout = settings.dropout_on_text(settings.dropout)
    losses = RawLosses(Studying(model, student).to(machine.device), dropout)
    stream = ExampleStream(context.raw, batch, seed, machine.compiles, task.packs)
    return RawText(losses, stream, machine, cost_of(context.encoder, context.shape), seed)


def _judgement_of(model: TaskModel, context: TrainingContext, metric: str) -> Judgement:
    """The score on dev, with thresholds tuned on it if the task has any, and the best shares."""
    task, dev = context.task, context.dev
    if model.wide_scale is None:
        predictions = kept_of([model], greedy(task), dev, context.machine)
        return _judged(predictions, dev, task, metric)
    outputs = kept_of([model], task, dev, context.machine, keep=np.copy)
    mixed = best_share(task, dev, outputs, float(model.wide_scale.detach()))
    judgement = _judged(mixed.predictions, dev, task, metric)
    return dataclasses.replace(judgement, shares=mixed.shares, gains=mixed.gains)


def _judged(predictions: Sequence[Any], of: EncodedExamples, task: Task, metric: str) -> Judgement:
    """The score of predictions, with thresholds tuned on these examples if the task has any, and
    that of each of several tasks.
    """
    tuned = task.tuned(of.examples, of.units, predictions)
    answers = tuned.answers(of.examples, of.units, predictions)
    labels = [tuned.label_of(answer) for answer in answers]
    gold = [example.label for example in of.examples]
    whole = score(tuned.metric(metric), gold, labels)
    return Judgement(whole, tasks=member_scores(tuned, gold, labels))


def silenced(head: nn.Module) -> nn.Module:
    """A head whose outputs are 0 until it is trained; of heads that take turns, the one that has a
    wide part.
    """
    own = head_with_wide(head)
    assert isinstance(own, OutHead)
    own.silence()
    return head
