"""How far each encoder gets in the same number of steps: loss of masked language modelling on the
tokens of a run.

    tasklm tokenize runs/x          # or any run that is further
    python benchmarks/encoders.py runs/x --size mini --steps 350 --encoders bert:2e-3,modern:2e-3,modern:2e-3:muon

Joint training as in stage 1 (its task batches among the others), AdamW unless a third word names
another optimiser. Prints the mean loss of the last tenth of the external steps, tokens per second
and seconds. Losses say how fast a language model is learnt, not which encoder is best for a task.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tasklm.device.machine import Machine, set_up
from tasklm.encoders.shapes import shape_of
from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.model_sections import Model, Train
from tasklm.recipe.schema import Hardware
from tasklm.recipe.toml import load
from tasklm.tasks.base import TASKS
from tasklm.tasks.readers.splits import read_splits
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.context import TrainingContext
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.stages import joint_stage


def main() -> None:
    """Trains each encoder in turn and prints a line for it."""
    options = _options()
    machine = set_up(Hardware(device=options.device))
    recipe = load(options.run / "recipe.toml", {})
    for spec in options.encoders.split(","):
        encoder, rate, *optimiser = spec.split(":")
        rule = Rule(optimiser[0] if optimiser else "adamw", float(rate), 0.01)
        shape_settings = Model(encoder=encoder)
        parts = _ingredients(
            options.run, recipe.data, recipe.tokens.length, shape_settings, options.size, machine
        )
        started = time.perf_counter()
        loss, tokens = _train(parts, rule, options)
        seconds = time.perf_counter() - started
        print(
            f"{spec:24} loss {loss:.3f}  {tokens / seconds:,.0f} tokens/s  {seconds:.0f} s",
            flush=True,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run folder with tokens/")
    parser.add_argument(
        "--encoders",
        default="bert:2e-3,modern:2e-3,albert:2e-3",
        help="NAME:RATE[:OPTIMISER], joined by commas",
    )
    parser.add_argument("--size", default="mini")
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rho1", type=int, default=24, help="external batches per internal one")
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def _ingredients(
    run: Path, data: Data, length: int, model: Model, size: str, machine: Machine
) -> TrainingContext:
    vocabulary = Vocabulary.load(run / "tokens" / "tokenizer.json")
    shards = Shards.open(run / "tokens")
    splits = read_splits(data)
    task = TASKS.get(data.kind).from_examples(splits.train, Kind())
    train = EncodedExamples.of(task, splits.train, vocabulary, length)
    shape = shape_of(model, size, len(vocabulary), length)
    return TrainingContext(
        model.encoder, shape, task, vocabulary, train, train, shards, length, machine
    )


def _train(parts: TrainingContext, rule: Rule, options: argparse.Namespace) -> tuple[float, int]:
    """The mean loss of the last tenth of the external steps, and how many tokens were read."""
    stage = joint_stage(parts, Train(), options.rho1, options.batch)
    loop = Loop(
        stage,
        make_optimiser(stage.module, rule),
        Schedule("linear", options.steps, 0.06),
        Settings(1.0, 1, 1e9),
        None,
        parts.machine,
    )
    losses = [float(record.losses["lm"]) for record in loop.run() if "lm" in record.losses]
    last = losses[-max(1, len(losses) // 10) :]
    return sum(last) / len(last), loop.at.tokens


if __name__ == "__main__":
    main()
