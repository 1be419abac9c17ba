"""Stage 2: the task loss, with a new head, and by turns the losses of a student of raw text, where
there is one; the best epoch on dev is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.device.machine import Machine
from tasklm.models.task_model import TaskModel
from tasklm.models.weights import save_weights
from tasklm.run_folder import DEV_OF, ON_TRAIN
from tasklm.tasks.base import Task
from tasklm.tasks.several import members_of, output_shares, turn_of
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.turn_streams import AnyStream
from tasklm.train.stage1 import JointBatch, task_flops
from tasklm.train.steps import Step
from tasklm.train.unlabelled import LABELS_ALONE, Alternation, RawLosses, RawText

RDROP = "rdrop"  # the name of the loss between two readings


@dataclass(frozen=True)
class Judgement:
    """The evaluation of a model on dev."""

    score: float
    # of the network's output added to the wide part: of each of several tasks, or of the one
    shares: tuple[float, ...] = (1.0,)
    gains: bool = True  # whether its loss is significantly below that of the wide part alone
    tasks: Mapping[str, float] = field(default_factory=dict)  # the score of each of several


@dataclass(frozen=True)
class Teaching:
    """What labels and teachers weigh in a loss (BAM, arXiv 1907.04829)."""

    steps: int  # of the whole fine-tuning
    labels: float | None  # weight of the labels; None: rises from 0 to 1 (teacher annealing)

    def weights(self, step: int) -> dict[str, float]:
        """The weights of the two losses at a step, counted from 1."""
        labels = self.labels
        if labels is None:
            labels = min(1.0, step / self.steps)
        return {"task": labels, "teacher": 1.0 - labels}


@dataclass(eq=False)
class TaskLosses:
    """The losses of a model on batches of its task. A compiled pass belongs to one module, so that
    seeds that follow one another take turns with it instead of compiling it again.
    """

    module: TaskModel
    task: Task
    taught: bool  # whether teachers add a loss
    graphs: bool  # whether launches are recorded and replayed
    smoothing: float = 0.0  # share of each label that is spread over all classes
    twice: bool = False  # whether each batch is read twice, with other dropout, and compared
    raw: RawLosses | None = None  # on text without labels, where it is read

    _compiled: Callable[[TokenBatch], dict[str, Tensor]] | None = field(default=None, init=False)

    def on(self, machine: Machine) -> Callable[[TokenBatch], dict[str, Tensor]]:
        """What computes the losses on a machine, always the same."""
        if self._compiled is None:
            self._compiled = machine.compiled(self._sums, self.graphs)
        return self._compiled

    def stop_recording(self) -> None:
        """Launches are no longer recorded and replayed."""
        self.graphs, self._compiled = False, None

    def _sums(self, batch: TokenBatch) -> dict[str, Tensor]:
        outputs, task = self.module(batch), turn_of(self.task, batch.turn)
        losses = self._of_outputs(task, outputs, batch)
        if not self.twice:
            return losses
        again = self.module(batch)
        others = self._of_outputs(task, again, batch)
        means = {name: (loss + others[name]) / 2.0 for name, loss in losses.items()}
        assert batch.targets is not None
        return {**means, RDROP: divergence(task, outputs, again, batch.targets)}

    def _of_outputs(self, task: Task, outputs: Tensor, batch: TokenBatch) -> dict[str, Tensor]:
        assert batch.targets is not None
        losses = {"task": self._label_loss(task, outputs, batch.targets)}
        if self.taught:
            assert batch.taught is not None
            losses["teacher"] = task.taught_loss(outputs, batch.taught, batch.targets)
        return losses

    @property
    def trained(self) -> nn.Module:
        """All that is trained: the model, and modules that only training needs."""
        return self.module if self.raw is None else self.raw.module

    def _label_loss(self, task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss against the labels. Smoothed ones are labels beside a teacher who holds all
        classes for equally likely (arXiv 1512.00567, section 7).
        """
        loss = task.loss(outputs, targets)
        if not self.smoothing:
            return loss
        even = task.taught_loss(outputs, torch.zeros_like(outputs), targets)
        return (1.0 - self.smoothing) * loss + self.smoothing * even

    def fits(self, other: TaskLosses) -> bool:
        """Whether the same compiled pass computes both."""
        if self.raw is None or other.raw is None:
            same_student = self.raw is other.raw
        else:
            same_student = self.raw.fits(other.raw)
        return (
            same_student
            and self.task is other.task
            and (self.taught, self.graphs) == (other.taught, other.graphs)
            and (self.smoothing, self.twice) == (other.smoothing, other.twice)
            and self.module.encoder.shape == other.module.encoder.shape
            and (self.module.wide_scale is None) == (other.module.wide_scale is None)
        )


def divergence(task: Task, one: Tensor, other: Tensor, targets: Tensor) -> Tensor:
    """The mean of both Kullback-Leibler divergences between two outputs, summed over what the
    task's loss is (R-Drop, arXiv 2106.14448): cross-entropies less entropies.
    """
    apart = task.taught_loss(one, other, targets) + task.taught_loss(other, one, targets)
    alone = task.taught_loss(one, one, targets) + task.taught_loss(other, other, targets)
    return (apart - alone) / 2.0


@dataclass(eq=False)
class FinetuneStage:
    """Trains on the task's batches and scores dev after every epoch."""

    losses: TaskLosses
    stream: AnyStream
    evaluate: Callable[[TaskModel], Judgement]
    best_path: Path | None  # where the best weights are kept
    machine: Machine
    cost: EncoderCost
    accumulate: int = 1
    teaching: Teaching | None = None  # None: labels alone
    raw: RawText | None = None  # text without labels …
    alternation: Alternation = LABELS_ALONE  # … and when it is read
    frozen: bool = False  # whether the head alone learns
    rdrop: float = 0.0  # weight of the divergence between two readings of a batch; 0: one reading
    # the score on some training examples, for the learning curve
    score_on_train: Callable[[TaskModel], float] | None = None
    score_every: int = 1  # epochs between two scores on dev
    best_score: float = float("-inf")
    best_step: int = 0
    best_shares: tuple[float, ...] = (1.0,)

    @property
    def module(self) -> nn.Module:
        """All that is trained."""
        return self.losses.trained

    @property
    def model(self) -> TaskModel:
        """The model, which predicts."""
        return self.losses.module

    @property
    def readings(self) -> int:
        """How many times a labelled batch is read."""
        return 2 if self.rdrop else 1

    def steps_of(self, epochs: float) -> int:
        """The steps of so many passes over the labelled examples."""
        return self.alternation.steps(int(epochs * len(self.stream)))

    def epochs_of(self, step: int) -> int:
        """The passes over the labelled examples that have begun at a step."""
        return -(-self.alternation.labelled(step) // len(self.stream))

    def go_on_with(self, earlier: TaskLosses | None) -> TaskLosses:
        """Puts the weights into the module of an earlier seed if a pass was compiled for it; the
        losses to hand on to the next seed.
        """
        if earlier is not None and self.machine.compiles and earlier.fits(self.losses):
            earlier.trained.load_state_dict(self.module.state_dict())
            earlier.trained.zero_grad()
            self.losses = earlier
            if self.raw is not None and earlier.raw is not None:
                self.raw.losses = earlier.raw
        return self.losses

    def prepare(self, step: int) -> Step:
        """The one batch of a step: labelled examples and text without labels by turns."""
        if self.raw is not None and self.alternation.is_text(step):
            work = self.raw.prepare(step)
            work.position = self.position()
            return work
        batch = self.stream.next()
        assert batch.targets is not None
        weights = {"task": 1.0}
        if self.teaching is not None:
            weights = self.teaching.weights(self.alternation.labelled(step))
        if self.rdrop:
            weights = {**weights, RDROP: self.rdrop}
        return Step(
            batch=JointBatch(None, batch, self.machine.counts_pieces(batch)),
            compute=self._compute,
            targets=dict.fromkeys(weights, self._count(batch)),
            weights=weights,
            tokens=self.readings * batch.ids.numel(),
            flops=self.readings * self._flops(batch),
            position=self.position(),
        )

    def _flops(self, batch: TokenBatch) -> float:
        """Those of a reading; a frozen encoder has no backward pass."""
        flops = task_flops(self.cost, self.model.head, batch)
        if not self.frozen:
            return flops
        assert batch.places is not None
        tokens, wanted = batch.ids.numel(), batch.places.numel()
        return flops - self.cost.training(tokens, 0, batch.ids.shape[1], wanted=wanted) * 2.0 / 3.0

    def _count(self, batch: TokenBatch) -> int:
        """What the losses of a batch are summed over."""
        assert batch.targets is not None
        return turn_of(self.losses.task, batch.turn).count(batch.targets)

    def _compute(self, batch: JointBatch) -> dict[str, Tensor]:
        assert batch.task is not None
        return self.losses.on(self.machine)(batch.task)

    def stop_recording(self) -> None:
        """Launches are no longer recorded and replayed, from the next step on."""
        self.losses.stop_recording()

    def phase_end(self, steps: int) -> int:
        """The last step: there is only one phase."""
        return steps

    def begin_phase(self, step: int, steps: int) -> str:
        """Does nothing."""
        return ""

    def is_scored(self, step: int, steps: int) -> bool:
        """Whether an epoch ends after which dev is scored."""
        labelled = self.alternation.labelled(step)
        is_end = step == self.alternation.steps(labelled)
        return is_end and labelled % (self.score_every * len(self.stream)) == 0

    def after_step(self, step: int) -> dict[str, float]:
        """The dev score, of several tasks also that of each, and that on some of train where it is
        wanted. The best weights so far are kept on disk.
        """
        scores = self.judge(step)
        if self.score_on_train is not None and self.machine.ranks.first:
            scores[ON_TRAIN] = self.score_on_train(self.model)
        return scores

    def judge(self, step: int) -> dict[str, float]:
        """The score on dev; the weights are saved if it is the best so far. If a model has a wide
        part, which is evaluated at step 0, its loss must be significantly lower than then: a higher
        score alone may be luck.
        """
        ranks, tasks = self.machine.ranks, max(1, len(members_of(self.losses.task)))
        # in the other processes: the sum is that of the first
        judgement = Judgement(0.0, (0.0,), False)
        if ranks.first:
            judgement = self.evaluate(self.model)
        shares = judgement.shares * (tasks // len(judgement.shares))
        numbers = [judgement.score, float(judgement.gains), *shares]
        on_device = torch.tensor(numbers, device=self.machine.device, dtype=torch.float64)
        score, gains, *summed = ranks.sum(on_device).tolist()
        if score > self.best_score and (gains or not step):
            self.best_score, self.best_step, self.best_shares = score, step, tuple(summed)
            if self.best_path is not None and ranks.first:
                of_outputs = output_shares(self.losses.task, summed)
                save_weights(self.best_path, self.model.shared(of_outputs))
        of_tasks = {f"{DEV_OF}{name}": own for name, own in judgement.tasks.items()}
        return {"dev": float(score), **of_tasks}

    def position(self) -> dict[str, Any]:
        """The position in the data."""
        position = self.stream.state()
        if self.raw is not None:
            position["raw"] = self.raw.stream.state()
        return position

    def go_to(self, position: dict[str, Any]) -> None:
        """Goes to the position of a checkpoint."""
        self.stream.restore(position)
        if self.raw is not None:
            self.raw.stream.restore(position["raw"])

    def state(self) -> dict[str, Any]:
        """The best so far."""
        return {
            "best_score": self.best_score,
            "best_step": self.best_step,
            "best_shares": list(self.best_shares),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        self.best_score = state["best_score"]
        self.best_step = state["best_step"]
        self.best_shares = tuple(state["best_shares"])
