"""A small model that others pretrained: its sentence vectors, and the model fine-tuned."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laptop_runs.data import spread
from laptop_runs.goals import Chosen, Goal, loss_of
from laptop_runs.vectors import linear_on, of_pair
from tasklm.errors import RunError
from tasklm.tasks.examples import Example, Splits

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTH, BATCH = 256, 16
RATES, EPOCHS, WARM_UP = (3e-5, 1e-4), 4, 0.1
SOME = 1000  # examples of dev that choose rate and epoch
LEAST = 200  # training examples that are read even where the time does not allow for them


class SentenceModel(nn.Module):
    """The encoder of a folder as transformers reads it, and the mean of its last states."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModel, AutoTokenizer

        super().__init__()
        weights = sorted(folder.rglob("model.safetensors"))
        if not weights:
            raise RunError(f"{folder} has no model.safetensors. Unpack the model there.")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(weights[0].parent)
        self.encoder: Any = AutoModel.from_pretrained(weights[0].parent, dtype=torch.float32)
        self.to(DEVICE)

    def forward(self, rows: Sequence[tuple[str, ...]]) -> Tensor:
        """The mean states of some texts, or of pairs that are read as one."""
        columns = [[row[place] for row in rows] for place in range(len(rows[0]))]
        options = {"truncation": True, "max_length": LENGTH, "padding": True}
        read = self.tokenizer(*columns, return_tensors="pt", **options).to(DEVICE)
        states = self.encoder(**read).last_hidden_state
        mask = read["attention_mask"][:, :, None]
        return (states * mask).sum(1) / mask.sum(1)


def frozen(folder: Path, splits: Splits, goal: Goal, seconds: float) -> Chosen:
    """Scores of a linear model of sentence vectors.

    Dev and test are read first; so much of train, evenly spread, as is read in the seconds left.
    """
    model, started = SentenceModel(folder).eval(), time.monotonic()
    vectors = {name: _vectors(model, splits.named()[name]) for name in ("dev", "test")}
    spent = time.monotonic() - started
    rate = (len(splits.dev) + len(splits.test)) / max(spent, 1e-3)
    wanted = max(LEAST, int(rate * (seconds - spent)))
    some = [splits.train[place] for place in spread(len(splits.train), wanted)]
    if len({example.label for example in some}) < len(goal.classes):
        some = splits.train
    vectors["train"] = _vectors(model, some)
    best = linear_on(vectors, Splits(some, splits.dev, splits.test), goal)
    return Chosen(best.dev, best.test, f"{best.setting}, {len(some):,} examples")


@torch.no_grad()
def _vectors(model: SentenceModel, examples: Sequence[Example]) -> np.ndarray:
    """The vectors of all examples, those of equal length together."""
    parts = []
    for place in range(len(examples[0].texts)):
        texts = [example.texts[place] for example in examples]
        order = np.argsort([len(text) for text in texts])
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        rows = [model([(texts[row],) for row in batch]) for batch in batches]
        part = np.empty((len(texts), rows[0].shape[1]))
        part[order] = torch.cat(rows).cpu().numpy()
        parts.append(part)
    return of_pair(parts)


def tuned(folder: Path, splits: Splits, goal: Goal, seconds: float) -> Chosen:
    """Scores of the model fine-tuned, with the rate and epoch best on dev, in so many seconds.

    At most SOME of dev choose; dev and test are scored once, by what was chosen.
    """
    some = [splits.dev[place] for place in spread(len(splits.dev), SOME)]
    runs = [_tuned(folder, splits.train, some, goal, rate, seconds / len(RATES)) for rate in RATES]
    _, weights, setting = max(runs, key=lambda run: run[0])
    model = Classifier(SentenceModel(folder), goal.outputs)
    model.load_state_dict(weights)
    return Chosen(_score(model, splits.dev, goal), _score(model, splits.test, goal), setting)


class Classifier(nn.Module):
    """A sentence model with a linear head."""

    def __init__(self, model: SentenceModel, outputs: int) -> None:
        super().__init__()
        self.model = model
        self.head = nn.Linear(model.encoder.config.hidden_size, outputs, device=DEVICE)

    def forward(self, examples: Sequence[Example]) -> Tensor:
        """The outputs for examples."""
        return self.head(self.model([example.texts for example in examples]))


def _tuned(
    folder: Path,
    train: Sequence[Example],
    dev: Sequence[Example],
    goal: Goal,
    rate: float,
    seconds: float,
) -> tuple[float, dict[str, Tensor], str]:
    """Dev, weights and name of the best epoch of one fine-tuning.

    Its rate falls to nothing with the epochs or the seconds, whichever end first.
    """
    torch.manual_seed(1)
    model = Classifier(SentenceModel(folder), goal.outputs)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    targets = torch.from_numpy(goal.targets(train)).to(DEVICE)
    of_epoch = -(-len(targets) // BATCH)
    started, best = time.monotonic(), (-np.inf, model.state_dict(), "")
    for step, rows in enumerate(_batches(len(targets)), 1):
        done = max(step / (EPOCHS * of_epoch), (time.monotonic() - started) / seconds)
        for group in optimiser.param_groups:
            group["lr"] = rate * max(0.0, min(done / WARM_UP, (1 - done) / (1 - WARM_UP)))
        optimiser.zero_grad()
        model.train()
        loss_of(model([train[row] for row in rows]), targets[rows]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if done >= 1 or step % of_epoch == 0:
            score = _score(model, dev, goal)
            if score > best[0]:
                best = (score, copy.deepcopy(model.state_dict()), f"rate {rate:g}, {step} steps")
        if done >= 1:
            break
    return best


def _batches(examples: int) -> Iterator[list[int]]:
    """Rows of random examples, epoch after epoch, without end."""
    while True:
        yield from (rows.tolist() for rows in torch.randperm(examples).split(BATCH))


@torch.no_grad()
def _score(model: Classifier, examples: Sequence[Example], goal: Goal) -> float:
    model.eval()
    starts = range(0, len(examples), BATCH)
    outputs = [model(examples[start : start + BATCH]) for start in starts]
    return goal.score(torch.cat(outputs).cpu().numpy(), examples)
