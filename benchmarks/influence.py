"""Influence scores of passages: tasklm's pass beside the arithmetic of the public code of ISS
(arXiv 2305.12816), passages per second.

    python benchmarks/influence.py --work /tmp/bench --encoder base --passages 512

The public code (github.com/nitwtog/ISS, tracIn.py) pads passages to 128 tokens and takes them eight
at a time: logits at every token, a backward pass through the whole model in fp32 with dropout on,
and then the gradient of one matrix, the last layer's attention output, times the task's gradients,
as Python lists. Eight passages share a score. The same is done here with the same library. tasklm
scores every passage by itself, with all weights of the last layer (twelve times as many), or of all
layers by projection, in the arithmetic that it takes on the machine. Task batches are as many for
both; their gradients are made before the clock runs.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from task_batches import made_examples
from tasklm.device.machine import Machine, set_up
from tasklm.encoders.shapes import padded_vocabulary
from tasklm.influence.scores import Influence, Pieces, tokens_at_once
from tasklm.models.task_model import new_encoder
from tasklm.objectives.mlm import MaskedLanguageModel
from tasklm.recipe.data_sections import Select
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import Hardware
from tasklm.storage.files import write_json
from tasklm.tasks.classify import Classify
from tasklm.tokens.shards import Shards
from tasklm.train.stage1 import JointModel
from training_peers.cases import parse_case
from training_peers.ours import Numbers
from training_peers.plain import collator, new_model
from training_peers.timing import device_name, wait_for

LENGTH, VOCABULARY, PEER_BATCH = 128, 30_522, 8
TEXTS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "whole rows": lambda draw, count: np.full(count, LENGTH - 2),
    "16 to 126 tokens": lambda draw, count: draw.integers(16, LENGTH - 1, count),
}
OURS = {
    "last layer": ("last", 0),
    "last layer, projected to 64": ("last", 64),
    "all layers, projected to 64": ("all", 64),
    "embeddings": ("embeddings", 0),
}


def main() -> None:
    """Measures what the command line asks for and prints a table."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    machine = set_up(Hardware(device=options.device, threads=options.threads))
    found: list[dict[str, Any]] = []
    print("| text | engine | passages per second | times |\n|---|---|---|---|")
    for text, lengths_of in TEXTS.items():
        lengths = lengths_of(np.random.default_rng(1), options.passages)
        peer = _peer_rate(lengths[: options.peer_passages], options, machine)
        rates = {"as the public code of ISS: one matrix, 8 passages share a score": peer}
        rates |= {
            f"tasklm: {name}": _our_rate(lengths, *how, options, machine)
            for name, how in OURS.items()
        }
        for engine, rate in rates.items():
            row = {
                "device": device_name(machine.device),
                "threads": machine.threads,
                "encoder": options.encoder,
                "text": text,
            }
            row |= {
                "task_batches": options.task_batches,
                "engine": engine,
                "passages_per_second": rate,
                "times": rate / peer,
            }
            found.append(row)
            print(f"| {text} | {engine} | {rate:.3g} | {rate / peer:.1f} |", flush=True)
    write_json(options.work / "influence.json", found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for results")
    parser.add_argument("--encoder", default="base", help="a size's name or LAYERSxWIDTH")
    parser.add_argument("--passages", type=int, default=512, help="that tasklm scores")
    parser.add_argument(
        "--peer-passages", type=int, default=64, help="that the public code's arithmetic scores"
    )
    parser.add_argument("--task-batches", type=int, default=64, help="of 8 examples each")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def _texts(lengths: np.ndarray) -> list[list[int]]:
    draw = np.random.default_rng(2)
    return [draw.integers(5, VOCABULARY, size).tolist() for size in lengths]


def _peer_rate(lengths: np.ndarray, options: argparse.Namespace, machine: Machine) -> float:
    """Returns passages per second of the public code's arithmetic; its first batch is not timed."""
    torch.manual_seed(1)
    shape, device = parse_case(f"{options.encoder}:1x{LENGTH}", VOCABULARY).shape, machine.device
    model = new_model(shape, "sdpa", dropout=0.1).to(device).train()
    matrix = model.bert.encoder.layer[-1].attention.output.dense.weight
    task = torch.randn(
        options.task_batches, matrix.numel()
    ).tolist()  # lists, as there; which numbers they are does not change the time
    task_gradients, mask = torch.tensor(task, device=device), collator(VOCABULARY)
    rows = [[2, *text, 3] + [0] * (LENGTH - 2 - len(text)) for text in _texts(lengths)]
    scores, started, timed = [], 0.0, 0
    for start in range(0, len(rows), PEER_BATCH):
        ids = rows[start : start + PEER_BATCH]
        batch = mask(
            [
                {"input_ids": row, "attention_mask": [int(token != 0) for token in row]}
                for row in ids
            ]
        )
        if start == PEER_BATCH:
            wait_for(device)
            started = time.perf_counter()
        timed += len(ids) if start >= PEER_BATCH else 0
        model.zero_grad()
        model(**{name: value.to(device) for name, value in batch.items()}).loss.backward()
        assert matrix.grad is not None
        scores.append(torch.mm(matrix.grad.view(1, -1), task_gradients.T).cpu().numpy().tolist())
    return timed / (time.perf_counter() - started)


def _our_rate(
    lengths: np.ndarray, layers: str, projection: int, options: argparse.Namespace, machine: Machine
) -> float:
    """Returns passages per second of tasklm's pass, batches and masks included; the first passages
    are not timed.
    """
    torch.manual_seed(1)
    shape = parse_case(f"{options.encoder}:1x{LENGTH}", padded_vocabulary(VOCABULARY)).shape
    vocabulary: Any = Numbers(VOCABULARY)
    task, settings = Classify(["a", "b"]), Select(influence_layers=layers, influence_task_batch=8)
    objective = MaskedLanguageModel("bert", shape, vocabulary, Train())
    model = JointModel(
        new_encoder("bert", replace(shape, dropout=0.0)),
        objective,
        task.head(shape.width, 0.0),
        task,
    )
    texts = _texts(lengths)
    shards = Shards(
        np.concatenate([np.array(text) for text in texts]), np.cumsum([0, *map(len, texts)])
    )
    examples = made_examples(np.full(8 * options.task_batches, 32), VOCABULARY)
    pieces = Pieces(shards, vocabulary, LENGTH, 1, tokens_at_once(machine))
    scorer = Influence(model, pieces, examples, settings, projection, machine)
    first = len(pieces) // 8
    scorer.scores(0, first)
    started = time.perf_counter()
    scorer.scores(first, len(pieces))  # ends with a copy from the device
    return (len(pieces) - first) / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
