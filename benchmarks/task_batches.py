"""Task batches of real lengths in tasklm's own loop, beside batches of whole rows: real tokens per
second.

    python benchmarks/lengths.py TASKS --out lengths.json python benchmarks/task_batches.py --work
    /tmp/bench --lengths lengths.json --tasks chemprot,acl_arc --encoders base,12x256

Fine-tuning steps (forward, backward, clipping, AdamW) with the examples laid out as this machine
does it: packed rows of one shape where it compiles, padded rows sorted by length elsewhere. "Whole
rows" is the same loop on examples that all fill their row, the best that any packing could do; both
read about as many tokens a step.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasklm.device.machine import Machine, set_up
from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.schema import Hardware
from tasklm.storage.files import read_json, write_json
from tasklm.tasks.base import Unit
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.context import TrainingContext
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.stages import finetune_stage
from training_peers.cases import parse_case
from training_peers.ours import Numbers
from training_peers.timing import StepTimer, device_name

LENGTH = 128
EXAMPLES = 4096


def main() -> None:
    """Measures what the command line asks for and prints a table."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    machine = set_up(Hardware(device=options.device, threads=options.threads))
    lengths: dict[str, list[int]] = read_json(options.lengths)
    found: list[dict[str, Any]] = []
    for encoder in options.encoders.split(","):
        whole = _rate(encoder, np.full(EXAMPLES, LENGTH), options, machine)
        for task in options.tasks.split(",") if options.tasks else lengths:
            drawn = np.random.default_rng(1).choice(np.clip(lengths[task], 3, LENGTH), EXAMPLES)
            real = _rate(encoder, drawn, options, machine)
            row = {
                "device": device_name(machine.device),
                "encoder": encoder,
                "task": task,
                "mean_tokens": round(float(drawn.mean()), 1),
            }
            row |= {
                "whole_rows": round(whole["rate"]),
                "real_lengths": round(real["rate"]),
                "ratio": round(real["rate"] / whole["rate"], 3),
            }
            row |= {
                "padding": round(real["padding"], 3),
                "loss": [round(real["first_loss"], 3), round(real["last_loss"], 3)],
            }
            found.append(row)
            print(row, flush=True)
            write_json(options.work / "task_batches.json", found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for results")
    parser.add_argument(
        "--lengths", type=Path, required=True, help="file that benchmarks/lengths.py wrote"
    )
    parser.add_argument("--tasks", help="names in --lengths, joined by commas; default: all")
    parser.add_argument(
        "--encoders", default="base,12x256", help="sizes' names or LAYERSxWIDTH, joined by commas"
    )
    parser.add_argument("--tokens", type=int, default=32_768, help="tokens of a step, about")
    parser.add_argument("--steps", type=int, default=30, help="timed steps")
    parser.add_argument("--warmup", type=int, default=8, help="steps before the clock runs")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def made_examples(lengths: np.ndarray, types: int) -> EncodedExamples:
    """Returns examples of given lengths; which tokens they hold does not change the time."""
    draw = np.random.default_rng(2)
    units = [
        Unit(
            [2, *draw.integers(5, types, size - 2).tolist(), 3],
            [0],
            draw.integers(0, 2, 1),
            example=number,
        )
        for number, size in enumerate(lengths)
    ]
    vocabulary: Any = Numbers(types)
    return EncodedExamples([Example(("",), "a")] * len(units), units, vocabulary, LENGTH)


def _rate(
    encoder: str, lengths: np.ndarray, options: argparse.Namespace, machine: Machine
) -> dict[str, float]:
    """Returns real tokens per second of the loop on examples of these lengths, and the share of
    padding.
    """
    torch._dynamo.reset()
    shape = replace(
        parse_case(f"{encoder}:1x{LENGTH}", 30_522).shape, vocabulary=30_528, dropout=0.0
    )
    examples = made_examples(lengths, 30_522)
    batch = max(1, round(options.tokens / float(lengths.mean())))
    parts = TrainingContext(
        "bert",
        shape,
        Classify(["a", "b"]),
        examples.vocabulary,
        examples,
        examples,
        None,
        LENGTH,
        machine,
    )
    stage = finetune_stage(parts, Finetune(batch=batch, dropout=0.0), 1, "accuracy", None)
    stage.is_scored = lambda step, steps: False  # type: ignore[method-assign]
    optimiser = make_optimiser(stage.module, Rule("adamw", 1e-4, 0.0))
    timer = StepTimer(options.warmup, options.steps, machine.device)
    real = computed = 0
    losses = []
    prepare = stage.prepare

    def counted(step: int) -> Any:
        nonlocal real, computed
        work = prepare(step)
        if step >= options.warmup:
            real += int((work.batch.task.pieces != 0).sum())
            computed += work.tokens
        return work

    stage.prepare = counted  # type: ignore[method-assign]
    steps = options.warmup + options.steps
    for record in Loop(
        stage, optimiser, Schedule("linear", steps, 0.1), Settings(1.0, 1, 1e9), None, machine
    ).run():
        losses.append(record.losses["task"])
        timer.step()
    found = {"rate": real / timer.seconds, "padding": 1 - real / computed}
    return {**found, "first_loss": float(losses[0]), "last_loss": float(losses[-1])}


if __name__ == "__main__":
    main()
