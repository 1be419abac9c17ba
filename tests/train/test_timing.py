from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from tasklm.device.machine import set_up
from tasklm.device.ranks import Ranks
from tasklm.encoders.base import Shape
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import Hardware
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train import timing
from tasklm.train.context import TrainingContext
from tasklm.train.optim.optimizers import Rule
from tasklm.train.stage1 import JointStage
from tasklm.train.stages import joint_stage
from tasklm.train.timing import WARM, matmul_ceiling, seconds_per_step
from tests.conftest import labelled, sentences

MACHINE = set_up(Hardware(device="cpu", precision="fp32", threads=1))


@pytest.fixture
def stage(vocabulary: Vocabulary, tmp_path: Path) -> JointStage:
    write_shards(tmp_path, [sentences(40)], vocabulary)
    examples = [Example((str(row["text"]),), row["label"]) for row in labelled(20, 1)]
    task = Classify.from_examples(examples, Kind())
    encoded = EncodedExamples.of(task, examples, vocabulary, 32)
    shape = Shape(len(vocabulary), 1, 32, 2, 64, 32)
    parts = TrainingContext(
        "bert", shape, task, vocabulary, encoded, encoded, Shards.open(tmp_path), 32, MACHINE
    )
    return joint_stage(parts, Train(), rho1=2, batch=4)


def test_the_ceiling_is_a_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SQUARE", 128)
    assert matmul_ceiling(MACHINE, blocks=1) > 0


def test_timing_does_the_steps_asked_for_and_leaves_no_thread_behind(stage: JointStage) -> None:
    before, done = threading.active_count(), []
    stage.is_scored = lambda step, _: done.append(step) is not None  # type: ignore[method-assign,func-returns-value]
    assert seconds_per_step(stage, Rule("adamw", 1e-5, 0.0), MACHINE, 0.0, least=5) > 0
    assert done == list(range(1, WARM + 5 + 1))
    assert threading.active_count() == before


def test_one_of_several_processes_times_its_steps_without_the_others(stage: JointStage) -> None:
    machine = dataclasses.replace(
        MACHINE, ranks=Ranks(1, 2)
    )  # no connection was made: asking the other would fail
    assert seconds_per_step(stage, Rule("adamw", 1e-5, 0.0), machine, 0.0) > 0


def test_the_ceiling_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SQUARE", 128)
    first = matmul_ceiling(MACHINE, seconds=0.001, blocks=2)
    monkeypatch.setattr(timing.torch, "mm", None)
    assert matmul_ceiling(MACHINE, seconds=0.001, blocks=2) == first
