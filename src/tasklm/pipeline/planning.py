"""The plan of a run, decided once from its budget and the measured speed of this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.budget import rules
from tasklm.budget.scope import LINEAR, TEXT
from tasklm.corpus.words import count_words
from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.encoders.shapes import SIZES, encoder_of, layers_and_width, shape_of
from tasklm.errors import RecipeError
from tasklm.models.task_model import cost_of
from tasklm.pipeline.context import CorpusData, Run, TaskData, sections
from tasklm.pipeline.scope import scope_after_reading, time_left
from tasklm.pipeline.summaries import counted
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.recipe.schema import Recipe
from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import digest, read_json, write_json
from tasklm.tasks.writing import writes
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import train_vocabulary, writing_vocabulary
from tasklm.train.context import TrainingContext
from tasklm.train.init.first_weights import beginning_of, wished
from tasklm.train.optim.optimizers import Rule
from tasklm.train.stages import joint_stage
from tasklm.train.start import starting_weights, title_of
from tasklm.train.timing import matmul_ceiling, seconds_per_step

SPEED_TRIES, TRY_SECONDS, SPEED_ROWS = 3, 0.5, 16  # for each size
SHORT = 300.0  # seconds of a budget for which one try is enough
BATCH = 64  # sequences per step if neither the recipe nor a budget sets it
USUAL_TYPES = 8000  # of a vocabulary, for planning before there is one
MEASURING = "measuring the speed of this machine"  # shown in the meantime


def make_plan(run: Run, task: TaskData, corpus: CorpusData | None) -> rules.Plan:
    """Size, K, passages and batch, decided once per run and kept."""
    settings = sections(run.recipe, "select", "tokens", "model", "train", "budget")
    reach = [] if run.scope.reach == TEXT else [run.scope.reach]
    key = digest([task.key, *settings, *reach])

    def decide(folder: Path) -> None:
        with run.tracker.progress(MEASURING):
            write_json(folder / "plan.json", _plan(run, task, corpus).to_dict())

    path = run.artefacts.build("plan", key, decide) / "plan.json"
    with damage_is_clear(path):
        return rules.Plan.from_dict(read_json(path))


def _plan(run: Run, task: TaskData, corpus: CorpusData | None) -> rules.Plan:
    recipe, sizes, scope = run.recipe, _Sizes(run, task), run.scope
    size, tokens, reasons = sizes.smallest, 0.0, []
    if scope.reach != LINEAR:
        size, tokens, why = sizes.chosen()
        reasons = [
            _shape_reason(recipe, size, why),
            f"stage 1 will read about {counted(round(float(f'{tokens:.2g}')))} tokens",
        ]
    if corpus is not None:
        scope = scope_after_reading(run, task)
    passages = recipe.select.passages
    if passages is None and corpus is not None and scope.reach == TEXT:
        passages, reason = _passages(recipe, corpus, tokens)
        reasons.append(reason)
    return rules.Plan(
        size=size,
        k=recipe.select.k or rules.default_k(len(task.splits.train)),
        passages=passages,
        batch=recipe.train.batch or sizes.usual_batch(tokens),
        seconds=sizes.seconds,
        flops=recipe.budget.flops,
        reasons=(*reasons, scope.reason) if scope.reason else tuple(reasons),
        reach=scope.reach,
    )


class _Sizes:
    """How much text encoders of each size can read within the budget of a run."""

    def __init__(self, run: Run, task: TaskData) -> None:
        self.run, self.task, self.recipe = run, task, run.recipe
        self.seconds = _budget_seconds(run.recipe)
        self.stage1_seconds: float | None = None
        if self.seconds is not None:
            left = max(1.0, time_left(run, self.seconds))
            self.stage1_seconds = rules.STAGE1_SHARE * left / run.recipe.train.seeds

    @property
    def smallest(self) -> str:
        """The size as given, or the smallest: for a run that trains no network."""
        size = self.recipe.model.size
        return next(iter(SIZES)) if size == "auto" else size

    def shaped(self, size: str) -> tuple[str, Shape]:
        """The encoder of a size, and its shape."""
        model, length = self.recipe.model, self.recipe.tokens.rows
        return encoder_of(model, size), shape_of(model, size, USUAL_TYPES, length)

    def tokens_read(self, size: str) -> float:
        """How many tokens stage 1 reads at a size."""
        steps, length = self.recipe.train.steps, self.recipe.tokens.external_rows
        if steps is not None:
            return float(steps * (self.recipe.train.batch or BATCH) * length)
        if self.stage1_seconds is None:
            assert self.recipe.budget.flops is not None
            per_token = cost_of(*self.shaped(size)).training(1, 0, length)
            return self.recipe.budget.flops / per_token
        short = self.seconds is not None and self.seconds < SHORT
        tries = 1 if short else SPEED_TRIES
        return self.stage1_seconds * _tokens_per_second(self.run, size, self.task, tries)

    def per_weight(self, size: str) -> int:
        """How many tokens a weight of the layers should see at a size."""
        encoder, shape = self.shaped(size)
        train = self.recipe.train
        counts = train.objective == "mlm" and wished(train, encoder, shape).counts  # as measured
        return rules.tokens_per_parameter(counts)

    def enough(self, size: str) -> float:
        """How many tokens an encoder of a size should read."""
        encoder, shape = self.shaped(size)
        return self.per_weight(size) * cost_of(encoder, shape).hidden_parameters

    def chosen(self) -> tuple[str, float, str]:
        """The size, as given or by the budget; the tokens that it reads; and why this one."""
        size, tokens, why = self.recipe.model.size, 0.0, "as given"
        if size == "auto":
            size, tokens = rules.choose_size(list(SIZES), self.enough, self.tokens_read)
            wanted = f"{self.per_weight(size)} tokens per weight of its layers"
            why = f"the largest that reads {wanted}"
            if tokens < self.enough(size):
                why = f"the smallest, although it reads fewer than {wanted}"
        beginning_of(self.recipe.train, *self.shaped(size))  # refuses impossible settings early
        return size, tokens or self.tokens_read(size), why

    def usual_batch(self, tokens: float) -> int:
        """The sequences per step if the recipe does not set them."""
        if self.recipe.train.steps is not None:
            return BATCH
        return rules.batch_for(tokens, self.recipe.tokens.rows)


def _budget_seconds(recipe: Recipe) -> float | None:
    """The seconds of a run; None if steps or FLOPs are given instead."""
    if recipe.train.steps is not None:
        return None
    if recipe.budget.minutes is not None:
        return recipe.budget.minutes * 60
    return rules.DEFAULT_MINUTES * 60 if recipe.budget.flops is None else None


def _passages(recipe: Recipe, corpus: CorpusData, tokens: float) -> tuple[int, str]:
    """How many passages stage 1 can read, and why."""
    counts = corpus.store.counts
    passages = rules.passages_for(tokens, counts["words"] / max(1, counts["passages"]))
    then = f"read about {rules.EPOCHS_OVER_SELECTION} times"
    if recipe.select.by_influence:
        share = recipe.select.influence_share
        # so that the selected part is read as often as without influence
        passages = round(passages / share)
        then = f"of which influence selects {share:.0%}, {then}"
    return passages, f"at most {passages:,} passages, {then}"


def _shape_reason(recipe: Recipe, size: str, why: str) -> str:
    """Which parts of the encoder's shape were given, and which the size decided."""
    model = recipe.model
    if recipe.train.start:
        return f"layers and width from {title_of(Path(recipe.train.start))}"
    numbers = {"layers": model.layers, "width": model.width}
    given = [f"{name} {value}" for name, value in numbers.items() if value is not None]
    if not given:
        return f"size {size}: {why}"
    layers, width = layers_and_width(dataclasses.replace(model, layers=None, width=None), size)
    left = {"layers": f"{layers} layers", "width": f"width {width}"}
    decided = [words for name, words in left.items() if numbers[name] is None]
    rest = "".join(f"; {words}: of size {size}, {why}" for words in decided)
    return f"{' and '.join(given)}: as given{rest}"


def _tokens_per_second(run: Run, size: str, task: TaskData, tries: int) -> float:
    """The training speed at a size on made-up text: the best of a few tries, as the first are slow.

    If training is compiled, which takes longer than the measurement, it is estimated from the speed
    of a matrix product: at BERT-base's width training reaches more than half of that, and narrower
    models a share that falls with the width.
    """
    recipe, length = run.recipe, run.recipe.tokens.rows
    encoder = encoder_of(recipe.model, size)
    shape = shape_of(recipe.model, size, USUAL_TYPES, length)
    if run.machine.compiles:
        share = rules.CEILING_SHARE * min(1.0, shape.width / rules.CEILING_WIDTH)
        speed = share * matmul_ceiling(run.machine) * run.machine.ranks.total
        return speed / cost_of(encoder, shape).training(100, 15, length, wanted=15) * 100
    draw = np.random.default_rng(0)
    words = [" ".join(f"w{n}" for n in draw.zipf(1.3, length) % 2000) for _ in range(64)]
    made_up = dataclasses.replace(recipe.tokens, kind="wordpiece")
    vocabulary = train_vocabulary([words], made_up, 4000)
    encoded = vocabulary.encode(words * 8)
    tokens = np.concatenate([np.array(row) for row in encoded])
    shards = Shards(tokens, np.cumsum([0, *map(len, encoded)]))
    examples = EncodedExamples.of(task.task, task.splits.train[:1], vocabulary, length)
    parts = TrainingContext(
        encoder,
        shape,
        task.task,
        vocabulary,
        examples,
        examples,
        shards,
        length,
        run.machine,
    )

    def tried() -> float:
        stage = joint_stage(parts, recipe.train, rho1=1_000_000, batch=SPEED_ROWS)
        return seconds_per_step(stage, rule_of(recipe.train), run.machine, TRY_SECONDS, least=2)

    return SPEED_ROWS * length / min(tried() for _ in range(tries))


def rule_of(of_stage: Train | Finetune) -> Rule:
    """The optimiser of a stage, whose own time is part of a step's."""
    return Rule(of_stage.optimiser, 1e-5, 0.0)


def settled(recipe: Recipe, task: TaskData, machine: Machine) -> Recipe:
    """The recipe with the row length that the texts need, and the casing that the kind needs."""
    tokens = recipe.tokens
    most = rules.LONGEST_ON_CPU if machine.device.type == "cpu" else rules.LONGEST_ON_GPU
    if recipe.train.start and not (start := starting_weights(Path(recipe.train.start))).any_length:
        most = min(most, start.shape.positions)
    length = tokens.length or _longest_rows(task, most)
    if (tokens.external_length or 0) > length:
        problem = f"tokens.external_length = {tokens.external_length} is more than tokens.length"
        raise RecipeError([f"{problem} ({length}), the positions of the encoder: lower it"])
    lowercase = tokens.lowercase
    if lowercase is None:
        lowercase = not task.task.cased
    changed: dict[str, Any] = {"length": length, "lowercase": lowercase}
    if writes(task.task):
        changed["kind"] = writing_vocabulary(tokens.kind)
    return recipe.changed(tokens=changed)


def _longest_rows(task: TaskData, most: int) -> int:
    """The row length that the texts need; of several tasks, that of the one with the longest."""
    words: dict[str, list[int]] = {}
    for example in task.splits.train:
        parts = example.texts if writes(task.task) else [example.text]
        words.setdefault(example.task, []).append(max(map(count_words, parts)))
    return max(rules.row_length(own, most) for own in words.values())
