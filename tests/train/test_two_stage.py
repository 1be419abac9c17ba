"""ELECTRA in two stages, in training: when the second half begins, and that interruptions change
nothing.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Train
from tasklm.tracking import SILENT
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.context import TrainingContext
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.averages import WeightAverage
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.stage1 import JointStage
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tasklm.train.stages import joint_stage
from tasklm.train.steps import Record
from tests.train.counting import Counting
from tests.train.test_loop import MACHINE, loop_of, parts, run, same_weights, spoil  # noqa: F401  (parts is a fixture)

NAME = "electra-two-stage"


def stage_of(parts: TrainingContext, **changes: Any) -> JointStage:
    return joint_stage(parts, Train(rho2=3.0, objective=NAME, **changes), rho1=2, batch=8)


def copied(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) for name, value in one.items()
    )


def in_second_half(record: Record) -> bool:
    return any(name.startswith("discriminator") for name in record.losses)


@pytest.mark.parametrize(("steps", "switch"), [(12, 6), (7, 4), (2, 1), (1, None)])
def test_the_second_half_begins_after_half_of_the_steps(
    parts: TrainingContext, steps: int, switch: int | None
) -> None:
    stage = stage_of(parts)
    records = run(stage, None, steps)
    assert [in_second_half(record) for record in records] == [
        switch is not None and record.step > switch for record in records
    ]
    assert stage.switched == switch and stage.objective.second_half == (switch is not None)
    said = [(record.step, message) for record in records for message in record.messages]
    assert [step for step, _ in said] == ([] if switch is None else [switch + 1])


def test_the_generator_is_the_encoder_at_the_switch_and_stays_as_it_is(
    parts: TrainingContext,
) -> None:
    stage = stage_of(parts)
    generator, seen = stage.objective.generator, {}
    for record in loop_of(stage, None, 12).run():
        seen[record.step] = {
            "encoder": copied(stage.module.encoder),
            "head": copied(stage.objective.prediction),
        } | {
            "network": copied(generator.network),
            "prediction": copied(generator.prediction),
        }
    assert equal(seen[1]["network"], seen[6]["network"]) and not equal(
        seen[6]["network"], seen[6]["encoder"]
    )  # not yet
    assert equal(seen[7]["network"], seen[6]["encoder"]) and equal(
        seen[7]["prediction"], seen[6]["head"]
    )
    assert equal(seen[12]["network"], seen[7]["network"]) and equal(
        seen[12]["prediction"], seen[7]["prediction"]
    )
    assert not equal(seen[12]["encoder"], seen[7]["encoder"]) and equal(
        seen[12]["head"], seen[7]["head"]
    )


def test_the_frozen_generator_has_neither_moments_nor_an_average(parts: TrainingContext) -> None:
    stage = stage_of(parts)
    names = [
        *make_optimiser(stage.module, Rule("adamw", 1e-3, 0.0)).tensors(),
        *WeightAverage(stage.module, 0.9).tensors(),
    ]
    assert not [name for name in names if ".generator." in name] and [
        name for name in names if ".prediction." in name
    ]


@pytest.mark.parametrize("optimiser", ["lamb", "muon"])
def test_the_other_optimisers_train_both_halves(parts: TrainingContext, optimiser: str) -> None:
    stage = stage_of(parts)
    loop = Loop(
        stage,
        make_optimiser(stage.module, Rule(optimiser, 1e-3, 0.01)),
        Schedule("linear", 6, 0.1),
        Settings(1.0, 7, 1e9),
        None,
        MACHINE,
    )
    assert (
        all(bool(loss.isfinite()) for record in loop.run() for loss in record.losses.values())
        and stage.switched == 3
    )


@pytest.mark.parametrize("stop", [3, 6, 7, 8, 11])  # the last checkpoint is of the step before
def test_killed_in_either_half_or_at_the_switch_it_ends_in_the_same_weights(
    parts: TrainingContext, tmp_path: Path, stop: int
) -> None:
    straight, resumed = stage_of(parts), stage_of(parts)
    run(straight, None, 12)
    run(stage_of(parts), tmp_path / "cut", 12, stop=stop)
    checkpoint = Checkpoints(tmp_path / "cut").last()
    assert checkpoint is not None
    state = checkpoint.state
    assert state["progress"]["step"] == stop - 1 and state["stage"] == {
        "switched": 6 if stop - 1 > 6 else None
    }
    assert len(run(resumed, tmp_path / "cut", 12)) == 12 - (stop - 1)
    assert same_weights(straight, resumed) and resumed.switched == 6


def test_going_back_to_the_first_half_begins_it_again(
    parts: TrainingContext, tmp_path: Path
) -> None:
    stage = stage_of(parts)
    spoil(stage, {6})  # the second external step of the second half
    records = run(stage, tmp_path, 12, non_finite="back", checkpoint_seconds=1e9)
    assert [record.step for record in records] == [*range(1, 10), *range(1, 13)]
    again = records[9:]
    assert [in_second_half(record) for record in again] == [
        record.step > 6 for record in again
    ] and stage.switched == 6


def test_a_replanned_training_switches_at_half_of_what_is_planned_then(
    parts: TrainingContext,
) -> None:
    longer = stage_of(parts)
    loop = loop_of(longer, None, 20, seconds_allowed=1e6)
    records = list(loop.run())
    assert records[-1].step == 30 and longer.switched == 15
    assert loop.at.mark is not None and loop.at.mark[0] == 16  # the pace is that of the second half
    assert [in_second_half(record) for record in records] == [
        record.step > 15 for record in records
    ]
    shorter = stage_of(parts)
    records = list(loop_of(shorter, None, 200, seconds_allowed=0.001).run())
    assert (
        records[-1].step < 10
        and shorter.switched is not None
        and shorter.switched < records[-1].step
    )


def test_a_half_that_is_cut_short_loses_no_batch(parts: TrainingContext) -> None:
    """Steps prepared beyond a switch that comes early are prepared again from where the training
    is.
    """
    cut, plain = stage_of(parts), stage_of(parts)
    loop = loop_of(cut, None, 30)
    read: list[tuple[int, dict[str, Any]]] = []
    prepare = cut.prepare

    def noting(step: int) -> Any:
        prepared = prepare(step)
        read.append((step, prepared.position))
        return prepared

    cut.prepare = noting  # type: ignore[method-assign]
    for record in loop.run():
        if record.step == 3:
            loop.schedule.replan(3, 8)
    assert cut.switched == 4 and record.step == 8
    assert [dict(read)[step] for step in range(8)] == [
        plain.prepare(step).position for step in range(8)
    ]


def test_it_is_one_graph_for_each_kind_of_step_and_half(parts: TrainingContext) -> None:
    torch._dynamo.reset()
    Counting.graphs.clear()
    machine = Counting(MACHINE.device, False, 1, compiles=True)
    stage = joint_stage(
        dataclasses.replace(parts, machine=machine),
        Train(rho2=3.0, objective=NAME),
        rho1=2,
        batch=8,
    )
    optimiser, made = make_optimiser(stage.module, Rule("adamw", 1e-3, 0.0)), {}
    for record in Loop(
        stage, optimiser, Schedule("linear", 36, 0.1), Settings(1.0, 7, 1e9), None, machine
    ).run():
        made[record.step] = len(Counting.graphs)
    assert (made[2], made[18], made[19], made[21], made[36]) == (2, 2, 3, 4, 4)


@pytest.mark.parametrize("second", [False, True])
def test_the_flops_of_both_halves_are_torchs(parts: TrainingContext, second: bool) -> None:
    stage = stage_of(parts)
    if second:
        stage.begin_phase(0, 0)
    assert stage.external is not None and stage.objective.second_half == second
    text = stage.objective.corrupt(stage.external.next(), 1)
    text.batch.pieces[:] = 1  # whole rows: no mask, so that the counter knows the kernel
    with (
        FlopCounterMode(display=False) as counter,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        sum(stage.module.language_losses(text).values()).backward()  # type: ignore[union-attr]
    assert counter.get_total_flops() == stage.objective.flops(stage.cost, text)


def test_stage_1_says_when_it_switched(parts: TrainingContext, tmp_path: Path) -> None:
    run_stage1(
        tmp_path, parts, Train(objective=NAME, average=0.5), Stage1Plan(5, 1, 8, None), SILENT
    )
    assert json.loads((tmp_path / "summary.json").read_text())["switched"] == 3
    weights = load_weights(tmp_path / "model.safetensors")
    assert not torch.equal(
        weights["objective.generator.network.token.weight"], weights["encoder.token.weight"]
    )
