"""Tokens per second of fine-tuning a tagger with tasklm's Bi-LSTM, beside a plain loop in PyTorch.

    python benchmarks/bilstm.py --widths 128,512 --batch 64
    python benchmarks/bilstm.py --widths 512 --device cuda --compile on

Both train the same shape on the same made-up sentences, whose lengths vary as those of news do
(about 25 pieces in the mean): embeddings and characters of pieces, two Bi-LSTM layers of which the
first projects, a map onto the width and a tag for each piece; forward, backward, clipping, AdamW.

The plain loop is what a tutorial has: batches in random order, padded to their longest sentence and
packed (pack_padded_sequence), nn.LSTM with proj_size, characters of every token, fp32. Ours is stage
2 as tasklm runs it on this machine: sentences of about one length together, the recurrence as one
operator (on a GPU cuDNN's kernel), each kind of token spelt once on a CPU, bf16 matrix products
where the machine has them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tasklm.device.machine import Machine, set_up
from tasklm.encoders.base import Shape
from tasklm.encoders.layers.characters import (
    CHARACTER,
    FEATURES,
    FILTERS,
    KINDS,
    WIDTHS,
    spellings,
)
from tasklm.encoders.shapes import shape_of
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Finetune, Model, Tokens
from tasklm.recipe.schema import Hardware
from tasklm.tasks.examples import Example
from tasklm.tasks.tag import Tag
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary
from tasklm.train.context import TrainingContext
from tasklm.train.optim.optimizers import Rule
from tasklm.train.stages import finetune_stage
from tasklm.train.timing import seconds_per_step

LENGTH, TYPES, TAGS = 128, 2000, ("B-X", "I-X", "O")
RATE, CLIP = 1e-3, 1.0


@dataclass(frozen=True)
class Sentences:
    """Made-up sentences as both sides read them."""

    task: Tag
    vocabulary: Vocabulary
    encoded: EncodedExamples

    @property
    def mean(self) -> float:
        """Tokens of a sentence."""
        return float(self.encoded.lengths.mean())


def made_up(count: int) -> Sentences:
    """Sentences of words in Zipf's distribution, of lengths like those of news."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(2.7, 0.6, count), 2, 60).astype(int)
    rows = [[f"w{number}" for number in draw.zipf(1.3, size) % TYPES] for size in lengths]
    vocabulary = train_vocabulary([[" ".join(row) for row in rows]], Tokens(), 4000)
    examples = []
    for row in rows:
        tags = [TAGS[number] for number in draw.integers(0, len(TAGS), len(row))]
        examples.append(Example((" ".join(row),), tags, words=tuple(row)))
    task = Tag.from_examples(examples, Kind())
    return Sentences(task, vocabulary, EncodedExamples.of(task, examples, vocabulary, LENGTH))


class Plain(nn.Module):
    """The same shape as a tutorial writes it."""

    spelling: Tensor

    def __init__(self, shape: Shape, sentences: Sentences) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.token_width)
        self.character = nn.Embedding(KINDS, CHARACTER)
        self.filters = nn.ModuleList(nn.Conv1d(CHARACTER, FILTERS, width) for width in WIDTHS)
        self.register_buffer("spelling", spellings(sentences.vocabulary, shape.vocabulary))
        self.norm = nn.LayerNorm(shape.token_width + FEATURES)
        both = {"batch_first": True, "bidirectional": True}
        inputs = shape.token_width + FEATURES
        self.first = nn.LSTM(inputs, shape.feedforward, proj_size=shape.width, **both)
        self.second = nn.LSTM(2 * shape.width, shape.width, **both)
        self.out = nn.Linear(4 * shape.width, shape.width)
        self.tags = nn.Linear(shape.width, len(sentences.task.labels))

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The scores of all tokens."""
        written = self.character(self.spelling[ids]).flatten(0, 1).transpose(1, 2)
        answers = [functional.relu(conv(written)).amax(2) for conv in self.filters]
        letters = torch.cat(answers, 1).view(*ids.shape, FEATURES)
        given = self.norm(torch.cat((self.token(ids), letters), -1))
        rows = pack_padded_sequence(given, lengths, batch_first=True, enforce_sorted=False)
        first, _ = self.first(rows)
        second, _ = self.second(first)
        states = [pad_packed_sequence(one, batch_first=True)[0] for one in (first, second)]
        scores: Tensor = self.tags(self.out(torch.cat(states, -1)))
        return scores


def batches_of(sentences: Sentences, batch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Endless batches in random order: tokens, lengths and the tags at their tokens."""
    units, draw = sentences.encoded.units, np.random.default_rng(1)
    while True:
        chosen = [units[number] for number in draw.integers(0, len(units), batch)]
        lengths = torch.tensor([len(unit.tokens) for unit in chosen])
        ids = torch.zeros(batch, int(lengths.max()), dtype=torch.long)
        tags = torch.full_like(ids, -100)
        for row, unit in enumerate(chosen):
            assert unit.targets is not None
            ids[row, : len(unit.tokens)] = torch.tensor(unit.tokens)
            tags[row, torch.tensor(unit.places)] = torch.from_numpy(unit.targets)
        yield ids, lengths, tags


def plain_seconds(
    shape: Shape, sentences: Sentences, batch: int, machine: Machine, seconds: float
) -> float:
    """The seconds of a step of the plain loop."""
    torch.manual_seed(0)
    model = Plain(shape, sentences).to(machine.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    batches = batches_of(sentences, batch)

    def step() -> None:
        ids, lengths, tags = next(batches)
        scores = model(ids.to(machine.device), lengths)
        wanted = tags.to(machine.device).flatten()
        loss = functional.cross_entropy(scores.flatten(0, 1), wanted, ignore_index=-100)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()

    for _ in range(2):
        step()
    machine.synchronize()
    started, done = time.perf_counter(), 0
    while done < 4 or time.perf_counter() - started < seconds:
        step()
        done += 1
    machine.synchronize()
    return (time.perf_counter() - started) / done


def our_seconds(
    shape: Shape, sentences: Sentences, batch: int, machine: Machine, seconds: float
) -> float:
    """The seconds of a step of stage 2."""
    encoded = sentences.encoded
    context = TrainingContext(
        "bilstm",
        shape,
        sentences.task,
        sentences.vocabulary,
        encoded,
        encoded,
        None,
        LENGTH,
        machine,
    )
    stage = finetune_stage(context, Finetune(batch=batch, dropout=0.0), 1, "accuracy", None)
    return seconds_per_step(stage, Rule("adamw", RATE, 0.0), machine, seconds)


def measured(width: int, options: argparse.Namespace, machine: Machine) -> tuple[float, float]:
    """Tokens per second, padding left out, of the plain loop and of ours."""
    sentences = made_up(options.sentences)
    model = Model(encoder="bilstm", width=width, embedding=options.embedding)
    shape = shape_of(model, "medium", len(sentences.vocabulary), LENGTH)
    tokens = sentences.mean * options.batch
    times = [
        min(side(shape, sentences, options.batch, machine, options.seconds) for _ in range(2))
        for side in (plain_seconds, our_seconds)
    ]
    return tokens / times[0], tokens / times[1]


def main() -> None:
    """Measures every width and prints a table."""
    options = options_of().parse_args()
    hardware = Hardware(device=options.device, threads=options.threads, compile=options.compile)
    machine = set_up(hardware)
    print(f"| width, batch {options.batch}, {machine.device} | plain, tokens/s | ours | ratio |")
    print("|---|---|---|---|")
    for width in map(int, options.widths.split(",")):
        plain, ours = measured(width, options, machine)
        print(f"| {width} | {plain:,.0f} | {ours:,.0f} | {ours / plain:.2f} |", flush=True)


def options_of() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--widths", default="128,512", help="states of a direction, joined by commas")
    add("--embedding", type=int, default=300)
    add("--batch", type=int, default=64)
    add("--sentences", type=int, default=2000)
    add("--seconds", type=float, default=8.0, help="that a measurement takes, at least")
    add("--device", default="auto")
    add("--threads", type=int, default=None)
    add("--compile", default="off", choices=("on", "off"))
    return parser


if __name__ == "__main__":
    main()
