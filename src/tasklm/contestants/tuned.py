"""A downloaded encoder, fine-tuned with a linear layer on top; dev picks the rate and the epoch."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tasklm.contestants.base import CONTESTANTS, Job, Learned, bytes_in
from tasklm.contestants.frozen import Downloaded
from tasklm.contestants.parts.encoded import Encoded, Outputs, tuned_score, width_of
from tasklm.contestants.parts.saved_task import read_task, write_task
from tasklm.contestants.parts.sentence_model import (
    BATCH,
    CONFIG,
    SentenceModel,
    files_of,
    rows_by_length,
)
from tasklm.storage.files import read_json, remove, write_json
from tasklm.tasks.base import NONE, Label, Task, Unit
from tasklm.tasks.examples import Example

RATES, EPOCHS, WARM_UP = (3e-5, 1e-4), 4, 0.1
SOME, FEWEST = 1000, 50  # examples of dev that choose, at most and at least
DEV_SHARE = 0.02  # of the time of a rate, for each reading of dev
ENCODER, HEAD, RATES_DONE = "encoder", "head.safetensors", "rates"


class Classifier(nn.Module):
    """A sentence model with a linear layer."""

    def __init__(self, model: SentenceModel, outputs: int) -> None:
        super().__init__()
        self.model = model
        device = next(model.parameters()).device
        self.head = nn.Linear(model.width, outputs, device=device)

    def forward(self, units: Sequence[Unit]) -> Tensor:
        """The outputs (rows, places, outputs) of units."""
        outputs: Tensor = self.head(self.model(units))
        return outputs

    @torch.inference_mode()
    def outputs(self, units: Sequence[Unit], together: int) -> Outputs:
        """The outputs of all places of units."""
        self.eval()
        parts: list[Outputs] = [np.zeros((0, 0), np.float32)] * len(units)
        for batch in rows_by_length(units, together):
            own = self([units[number] for number in batch]).cpu().numpy()
            for row, number in enumerate(batch):
                parts[number] = own[row, : len(units[number].places)]
        return np.concatenate(parts)

    def save(self, folder: Path, source: Path) -> None:
        """Writes the layer, the weights of the encoder, and the files that reading them needs."""
        save_file(self.head.state_dict(), folder / HEAD)
        self.model.encoder.save_pretrained(folder / ENCODER)
        for file in files_of(source):
            if not file.name.endswith(".safetensors") and file.name != CONFIG:
                shutil.copyfile(file, folder / ENCODER / file.name)


@dataclass(frozen=True)
class Best:
    """The best epoch of a fine-tuning, in a folder of its own."""

    folder: Path
    dev: float
    setting: str
    seconds: float
    tokens: int  # read in training


@CONTESTANTS.register("tuned")
class Tuned(Downloaded):
    """All weights of a downloaded model are trained."""

    def learn(self, job: Job) -> Learned:
        """Fine-tunes with each rate; one that was finished before a stop is not trained again."""
        done = [_tuned(job, rate) for rate in RATES]
        best = max(done, key=lambda one: one.dev)
        model = _load(job, best.folder)
        assert job.source is not None
        model.save(job.folder, job.source)
        write_task(job.folder, read_task(best.folder))
        remove(job.folder / RATES_DONE)
        return Learned(
            best.setting,
            bytes_in(job.folder),
            flops=6.0 * sum(one.tokens for one in done) * model.model.parameters_per_token,
            parameters=sum(one.numel() for one in model.parameters()),
            outside_weights=True,
            seconds=sum(one.seconds for one in done),
        )

    def load(self, job: Job) -> TunedModel:
        """The encoder and the layer as they were fine-tuned."""
        task = read_task(job.folder)
        encoder = SentenceModel(job.folder / ENCODER, job.machine.device)
        model = Classifier(encoder, width_of(task))
        model.head.load_state_dict(load_file(job.folder / HEAD))
        return TunedModel(task, model)


@dataclass(frozen=True)
class TunedModel:
    """A fine-tuned model with its task."""

    task: Task
    model: Classifier

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        """A label for each example."""
        own = _encoded(self.task, examples, self.model)
        return own.labels(self.task, self.model.outputs(own.units, self.task.together))


def _encoded(task: Task, examples: Sequence[Example], model: Classifier) -> Encoded:
    return Encoded.of(task, examples, model.model.tokeniser, model.model.longest)


def _new(job: Job) -> Classifier:
    assert job.source is not None
    torch.manual_seed(1)
    return Classifier(SentenceModel(job.source, job.machine.device), width_of(job.task))


def _load(job: Job, folder: Path) -> Classifier:
    """The model of the best epoch of a fine-tuning."""
    model = _new(job)
    model.load_state_dict(load_file(folder / "best.safetensors"))
    return model


def _tuned(job: Job, rate: float) -> Best:
    """One fine-tuning, kept until all have ended."""
    folder = job.folder / RATES_DONE / f"{rate:g}"
    summary = folder / "summary.json"
    if not summary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(summary, _fine_tune(job, rate, folder))
    values = read_json(summary)
    return Best(folder, **values)


def _fine_tune(job: Job, rate: float, folder: Path) -> dict[str, float | str]:
    """Trains until the epochs or the seconds end, whichever is first: the rate falls to 0 then."""
    started, seconds = time.monotonic(), job.seconds / len(RATES)
    model, task = _new(job), job.task
    train = _encoded(task, job.train, model)
    dev = _encoded(task, _some_of_dev(job, model, seconds), model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    groups = [
        train.units[first : first + task.together]
        for first in range(0, len(train.units), task.together)
    ]
    size = max(1, BATCH // task.together)
    of_epoch = -(-len(groups) // size)
    best: dict[str, float | str] = {"dev": -math.inf, "setting": ""}
    tokens, note = 0, ""
    with job.tracker.progress(f"fine-tuning, rate {rate:g}", 1.0) as bar:
        for step, chosen in enumerate(_batches(len(groups), size), 1):
            units = list(chain.from_iterable(groups[number] for number in chosen))
            spent = (time.monotonic() - started) / seconds
            done = max(step / (EPOCHS * of_epoch), spent)
            _step(model, task, units, optimiser, rate * _slope(done))
            tokens += sum(len(unit.tokens) for unit in units)
            if done >= 1 or step % of_epoch == 0:
                outputs = model.outputs(dev.units, task.together)
                score, tuned = tuned_score(task, job.metric, dev, outputs)
                if score > float(best["dev"]):
                    best = {"dev": score, "setting": f"rate {rate:g}, {step:,} steps"}
                    save_file(model.state_dict(), folder / "best.safetensors")
                    write_task(folder, tuned)
                    note = f"dev {100 * score:.1f}"
            bar.at(min(1.0, done), note)
            if done >= 1:
                break
    return {**best, "seconds": time.monotonic() - started, "tokens": tokens}


def _some_of_dev(job: Job, model: Classifier, seconds: float) -> list[Example]:
    """Evenly spread examples of dev, as many as may be read after each epoch."""
    first = _encoded(job.task, job.dev[:BATCH], model)
    started = time.monotonic()
    model.outputs(first.units, job.task.together)
    rate = len(first.examples) / max(1e-3, time.monotonic() - started)
    count = max(FEWEST, min(SOME, int(DEV_SHARE * seconds * rate)))
    wanted = min(count, len(job.dev))
    return [job.dev[place * len(job.dev) // wanted] for place in range(wanted)]


def _slope(done: float) -> float:
    """The share of the rate: it rises during the warm-up, and falls to 0."""
    return max(0.0, min(done / WARM_UP, (1 - done) / (1 - WARM_UP)))


def _step(
    model: Classifier,
    task: Task,
    units: Sequence[Unit],
    optimiser: torch.optim.Optimizer,
    rate: float,
) -> None:
    """One step on some units."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    model.train()
    outputs = model(units)
    targets = _targets(units).to(outputs.device)
    loss = task.loss(outputs, targets) / max(1, task.count(targets))
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def _targets(units: Sequence[Unit]) -> Tensor:
    """The targets (rows, places, …); NONE where a unit has fewer places."""
    arrays = [unit.targets for unit in units if unit.targets is not None]
    shape = (len(arrays), max(map(len, arrays)), *arrays[0].shape[1:])
    targets = np.full(shape, NONE, arrays[0].dtype)
    for row, array in enumerate(arrays):
        targets[row, : len(array)] = array
    return torch.from_numpy(targets)


def _batches(count: int, size: int) -> Iterator[list[int]]:
    """Numbers of random groups, epoch after epoch, without end."""
    while True:
        yield from (rows.tolist() for rows in torch.split(torch.randperm(count), size))
