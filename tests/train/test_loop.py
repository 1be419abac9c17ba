from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tasklm.encoders.base import Shape
from tasklm.errors import TrainingError
from tasklm.objectives.mlm import MaskedLanguageModel
from tasklm.recipe import Hardware, Train
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.hardware import set_up
from tasklm.train.joint import JointStage
from tasklm.train.loop import Settings, train
from tasklm.train.optimisers import adamw
from tasklm.train.schedules import WarmupLinear
from tasklm.train.stages import Ingredients, joint_stage
from tests.conftest import labelled, sentences

MACHINE = set_up(Hardware(device="cpu", precision="fp32", threads=1))


@pytest.fixture(scope="module")
def parts(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Ingredients:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, [sentences(60)], vocabulary)
    examples = [Example((str(row["text"]),), row["label"]) for row in labelled(40, 1)]
    task = Classify.from_examples(examples)
    encoded = EncodedExamples([e.texts for e in examples], vocabulary, 32, task.targets(examples))
    shape = Shape(len(vocabulary), 1, 32, 2, 64, 32, dropout=0.0)
    return Ingredients("bert", shape, task, vocabulary, encoded, encoded, Shards.open(folder), 32, MACHINE)


def stage_of(parts: Ingredients, **changes: object) -> JointStage:
    settings = Train(**{"rho2": 3.0, **changes})  # type: ignore[arg-type]
    return joint_stage(parts, settings, rho1=2, batch=8)


def run(stage: JointStage, folder: Path, steps: int, stop: int | None = None, checkpoint_seconds: float = 0.0) -> list[dict[str, float]]:
    optimiser = adamw(stage.module, 1e-3, 0.01)
    how = Settings(1e-3, 1.0, 7, checkpoint_seconds)
    losses = []
    for record in train(stage, optimiser, WarmupLinear(steps, 0.1), how, Checkpoints(folder), MACHINE):
        losses.append({name: float(value) for name, value in record.losses.items()})
        if record.step == stop:
            break
    return losses


def test_internal_and_external_batches_interleave(parts: Ingredients, tmp_path: Path) -> None:
    losses = run(stage_of(parts), tmp_path, 7)
    internal = {"task", "lm on task"}
    assert [set(names) for names in losses] == [internal, {"lm"}, {"lm"}, internal, {"lm"}, {"lm"}, internal]


def test_internal_loss_is_the_papers_formula(parts: Ingredients) -> None:
    stage = stage_of(parts, rho2=3.0)
    batch = copy.deepcopy(stage.internal).next()
    works = stage.work(0)
    sums = {name: value for work in works for name, value in work.compute().items()}
    counts = {name: count for work in works for name, count in work.targets.items()}
    total = sum(work.weights[name] * sums[name] / counts[name] for work in works for name in work.targets)
    logits = stage.module.head(stage.module.encoder(batch))
    task = torch.nn.functional.cross_entropy(logits, batch.targets)
    language = sums["lm on task"] / counts["lm on task"]
    torch.testing.assert_close(total, (3.0 * language + task) / (3.0 + 1.0))


def test_accumulation_changes_no_weight(parts: Ingredients, tmp_path: Path) -> None:
    whole, split = stage_of(parts), stage_of(parts, accumulate=3)
    run(whole, tmp_path / "a", 6)
    run(split, tmp_path / "b", 6)
    for name, weight in whole.module.state_dict().items():
        torch.testing.assert_close(split.module.state_dict()[name], weight, atol=2e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("stop", [1, 4, 9])
def test_resume_gives_identical_weights(parts: Ingredients, tmp_path: Path, stop: int) -> None:
    straight = stage_of(parts)
    run(straight, tmp_path / "straight", 12)
    run(stage_of(parts), tmp_path / "cut", 12, stop=stop)
    resumed = stage_of(parts)
    assert len(run(resumed, tmp_path / "cut", 12)) == 12 - (stop - 1)  # the generator stops before it saves step `stop`
    for name, weight in straight.module.state_dict().items():
        assert torch.equal(resumed.module.state_dict()[name], weight), name


def test_a_loss_that_is_not_finite_stops_before_the_step(parts: Ingredients, tmp_path: Path) -> None:
    stage = stage_of(parts)
    with torch.no_grad():
        stage.module.head.out.bias.fill_(float("nan"))  # type: ignore[union-attr]
    before = {name: weight.clone() for name, weight in stage.module.state_dict().items()}
    with pytest.raises(TrainingError, match=r"not a finite number at step 1.*learning rate"):
        run(stage, tmp_path, 3)
    assert all(torch.equal(stage.module.state_dict()[name], weight) for name, weight in before.items() if "head" not in name)


def test_the_schedule_rises_falls_and_can_be_shortened_without_a_jump() -> None:
    schedule = WarmupLinear(100, 0.1)
    assert schedule.share(0) == pytest.approx(0.1) and schedule.share(9) == pytest.approx(1.0)
    assert schedule.share(55) == pytest.approx(0.5) and schedule.share(99) == pytest.approx(1 / 90)
    before = schedule.share(40)
    schedule.shorten(40, 60)
    assert schedule.share(40) == pytest.approx(before) and schedule.share(50) == pytest.approx(before / 2)
    assert schedule.share(60) == 0.0


def test_a_schedule_shortened_in_its_rise_still_reaches_the_peak() -> None:
    schedule = WarmupLinear(1000, 0.1)
    schedule.shorten(20, 500)
    shares = [schedule.share(step) for step in range(500)]
    assert max(shares) == 1.0 and shares[20] == pytest.approx(0.21) and shares[499] < 0.01
    assert max(abs(a - b) for a, b in pairwise(shares)) < 0.02
    schedule = WarmupLinear(1000, 0.5)
    schedule.shorten(20, 100)
    assert max(schedule.share(step) for step in range(100)) == 1.0


def test_training_ends_on_time_when_the_machine_is_slow(parts: Ingredients, tmp_path: Path) -> None:
    stage = stage_of(parts)
    how = Settings(1e-3, 1.0, 7, 1e9, seconds_allowed=0.001)
    schedule = WarmupLinear(200, 0.1)
    records = list(train(stage, adamw(stage.module, 1e-3, 0.0), schedule, how, Checkpoints(tmp_path), MACHINE))
    assert records[-1].step < 200 and records[-1].step == schedule.steps


def test_decay_spares_biases_and_norms(parts: Ingredients) -> None:
    stage = stage_of(parts)
    optimiser = adamw(stage.module, 1e-3, 0.01)
    undecayed = {id(p) for group in optimiser.param_groups if group["weight_decay"] == 0 for p in group["params"]}
    for name, parameter in stage.module.named_parameters():
        assert (id(parameter) in undecayed) == (parameter.ndim < 2), name
    assert isinstance(stage.module.objective, MaskedLanguageModel)
