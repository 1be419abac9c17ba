"""The cells of the matrix: which are run, and what must hold of each."""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from soundness_runs.data import ROWS, training_context
from tasklm.device.machine import Machine, set_up
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.recipe.schema import Hardware
from tasklm.train.context import TrainingContext
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.stages import finetune_stage, joint_stage
from tasklm.train.steps import Record

ENCODERS, LENGTHS = ("bert", "modern", "albert"), (64, 128, 192, 256, 384, 512)
ONE_SIDED = "bilm"  # needs the Bi-LSTM, which has tests of its own
STAGE_2 = "stage 2"  # beside the objectives of stage 1
STEPS, BATCH, RHO1, RATE = 30, 16, 1, 2e-3
TOLERANCE = {
    "fp32": 0.01,
    "bf16": 0.05,
}  # of the first losses, relative where above 1; fp32 products are in TF32 on a GPU
SIGNED = (
    "electra-adversarial",
)  # objectives whose loss weighs drawn tokens by signed rewards: a few other draws move it
MARGIN = 4  # times the tolerance, for these
TRIED = 60  # random cells, of which that with the most new combinations is taken


@dataclass(frozen=True)
class Cell:
    """One way to train."""

    encoder: str
    objective: str
    kind: str
    length: int
    precision: str
    compiled: bool

    @property
    def layers(self) -> int:
        """As many as differ from one another; those of bert and albert are compiled alike, which
        takes most of the time.
        """
        return 1 if self.compiled and self.encoder != "modern" else 2

    def __str__(self) -> str:
        how = "compiled" if self.compiled else "not compiled"
        return (
            f"{self.encoder}, {self.objective}, {self.kind}, {self.length}, {self.precision}, {how}"
        )


@dataclass(frozen=True)
class Outcome:
    """What training a cell showed; nothing wrong where `problems` is empty."""

    cell: Cell
    problems: tuple[str, ...]
    seconds: float
    apart: float = 0.0  # of the first losses from those in fp32 on a CPU, relative, at most
    first: float = 0.0
    last: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outcome:
        """The outcome that `to_dict` wrote."""
        return cls(
            **{**values, "cell": Cell(**values["cell"]), "problems": tuple(values["problems"])}
        )


def covering(precisions: Sequence[str], compiled: bool, strength: int, seed: int = 0) -> list[Cell]:
    """Cells that together hold every combination of values of any `strength` of the factors."""
    factors: tuple[Sequence[Any], ...] = (
        ENCODERS,
        (*(name for name in OBJECTIVES.names() if name != ONE_SIDED), STAGE_2),
        tuple(ROWS),
        LENGTHS,
        tuple(precisions),
    )
    draw = random.Random(seed)
    missing = {
        combination
        for places in itertools.combinations(range(len(factors)), strength)
        for combination in itertools.product(
            *([(place, value) for value in factors[place]] for place in places)
        )
    }
    cells = []
    while missing:
        wanted = dict(min(missing, key=str))
        tried = [
            tuple(wanted.get(place, draw.choice(values)) for place, values in enumerate(factors))
            for _ in range(TRIED)
        ]
        best = max(tried, key=lambda values: len(missing & set(_combinations(values, strength))))
        missing -= set(_combinations(best, strength))
        cells.append(Cell(*best, compiled))
    return cells


def _combinations(values: tuple[Any, ...], strength: int) -> Iterator[tuple[Any, ...]]:
    return itertools.combinations(tuple(enumerate(values)), strength)


def run_cell(cell: Cell, folder: Path, device: str) -> Outcome:
    """Trains a cell and, for its first steps, the same in fp32 on a CPU without a compiler."""
    started = time.monotonic()
    try:
        problems, figures = _train(cell, folder, device)
    except RecipeError as error:
        problems, figures = [f"refused: {error}"], {}
    except Exception as error:  # whatever it is, it is what this program looks for
        problems = [f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"]
        figures = {}
    torch.compiler.reset()
    return Outcome(cell, tuple(problems), round(time.monotonic() - started, 1), **figures)


def _train(cell: Cell, folder: Path, device: str) -> tuple[list[str], dict[str, float]]:
    compile_ = "on" if cell.compiled else "off"
    machine = set_up(Hardware(device=device, precision=cell.precision, compile=compile_, threads=1))
    parts = training_context(folder, cell.kind, cell.encoder, cell.length, machine, cell.layers)
    torch.compiler.reset()
    before = _graphs()
    stage, records, skipped = _records(cell, parts, STEPS, machine)
    problems = [f"{skipped} steps skipped"] if skipped else []
    streams = getattr(stage, "internal", None) or stage.stream
    allowed = (max(1, len(streams.lengths)) + (cell.objective != STAGE_2)) * (
        1 + getattr(stage, "halves", False)
    )
    if cell.compiled and _graphs() - before > allowed:
        problems.append(f"{_graphs() - before} graphs compiled, {allowed} expected")
    first, last = _level(records[:8]), _level(records[-8:])
    if (
        not last < first and cell.objective != "electra-adversarial"
    ):  # whose generator raises what the discriminator lowers
        problems.append(f"the loss does not fall: {first:.3f}, then {last:.3f}")
    apart = _apart(records, _reference(cell, parts))
    if not apart <= TOLERANCE[cell.precision] * (MARGIN if cell.objective in SIGNED else 1):
        problems.append(f"the first losses are {apart:.1%} off those of fp32 on a CPU")
    return problems, {"apart": apart, "first": first, "last": last}


def _records(
    cell: Cell, parts: TrainingContext, steps: int, machine: Machine, schedule: int = STEPS
) -> tuple[Any, list[Record], int]:
    """Trains the first `steps` steps on a machine, with the batches of the machine of `parts`."""
    stage: Any
    batch = BATCH * parts.task.together  # rows
    if cell.objective == STAGE_2:
        stage = finetune_stage(
            parts, Finetune(dropout=0.0, batch=batch), 1, parts.task.metrics[0], None
        )
    else:
        stage = joint_stage(
            parts, Train(objective=cell.objective, dropout=0.0, rho2=5.0), RHO1, batch
        )
    stage.machine = machine
    stage.module.to(machine.device)
    settings = Settings(clip=1.0, seed=1, checkpoint_seconds=1e9, accumulate=stage.accumulate)
    loop = Loop(
        stage,
        make_optimiser(stage.module, Rule("adamw", RATE, 0.01)),
        Schedule("linear", schedule, 0.1),
        settings,
        None,
        machine,
    )
    records = list(itertools.islice(loop.run(), steps))
    return stage, records, loop.skipped.total()


def _reference(cell: Cell, parts: TrainingContext) -> list[Record]:
    """The first steps in fp32 on a CPU, not compiled, on the same batches."""
    cpu = Machine(torch.device("cpu"), bf16=False, threads=1)
    own = dataclasses.replace(
        parts, machine=dataclasses.replace(cpu, compiles=parts.machine.compiles)
    )
    return _records(cell, own, 1 + (cell.objective != STAGE_2), cpu)[1]


def _level(records: Sequence[Record]) -> float:
    return sum(float(loss) for record in records for loss in record.losses.values()) / len(records)


def _apart(records: Sequence[Record], reference: Sequence[Record]) -> float:
    differences = [0.0]
    for ours, exact in zip(records, reference, strict=False):
        for name, loss in exact.losses.items():
            differences.append(
                abs(float(ours.losses[name]) - float(loss)) / max(1.0, abs(float(loss)))
            )
    return max(differences)


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
