from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tasklm.device.machine import Machine, set_up
from tasklm.encoders.base import Shape
from tasklm.errors import TrainingError
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import Hardware
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.context import TrainingContext
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.averages import WeightAverage
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.stage1 import JointBatch, JointStage
from tasklm.train.stages import joint_stage
from tasklm.train.steps import Record
from tests.conftest import labelled, sentences
from tests.train.counting import Counting

MACHINE = set_up(Hardware(device="cpu", precision="fp32", threads=1))


@pytest.fixture(scope="module")
def parts(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> TrainingContext:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, [sentences(60)], vocabulary)
    examples = [Example((str(row["text"]),), row["label"]) for row in labelled(40, 1)]
    task = Classify.from_examples(examples, Kind())
    encoded = EncodedExamples.of(task, examples, vocabulary, 32)
    shape = Shape(len(vocabulary), 1, 32, 2, 64, 32, dropout=0.0)
    return TrainingContext(
        "bert", shape, task, vocabulary, encoded, encoded, Shards.open(folder), 32, MACHINE
    )


def stage_of(parts: TrainingContext, **changes: object) -> JointStage:
    settings = Train(**{"rho2": 3.0, **changes})  # type: ignore[arg-type]
    return joint_stage(parts, settings, rho1=2, batch=8)


def loop_of(
    stage: JointStage,
    folder: Path | None,
    steps: int,
    average: WeightAverage | None = None,
    **changes: object,
) -> Loop:
    how = Settings(**{"clip": 1.0, "seed": 7, "checkpoint_seconds": 0.0, **changes})  # type: ignore[arg-type]
    optimiser = make_optimiser(stage.module, Rule("adamw", 1e-3, 0.01))
    checkpoints = None if folder is None else Checkpoints(folder)
    return Loop(
        stage, optimiser, Schedule("linear", steps, 0.1), how, checkpoints, MACHINE, average
    )


def run(
    stage: JointStage, folder: Path | None, steps: int, stop: int | None = None, **changes: object
) -> list[Record]:
    records = []
    loop = loop_of(stage, folder, steps, **changes).run()
    for record in loop:
        records.append(record)
        if record.step == stop:
            break
    loop.close()  # type: ignore[attr-defined]
    return records


def same_weights(first: JointStage, second: JointStage) -> bool:
    other = second.module.state_dict()
    return all(
        torch.equal(other[name], weight) for name, weight in first.module.state_dict().items()
    )


def spoil(stage: JointStage, steps: set[int]) -> None:
    """Makes the losses of some steps NaN, each once."""
    compute = stage._compute_external
    seen = {"calls": 0}

    def spoilt(batch: object) -> dict[str, torch.Tensor]:
        seen["calls"] += 1
        losses = compute(batch)  # type: ignore[arg-type]
        return {
            name: loss * float("nan") if seen["calls"] in steps else loss
            for name, loss in losses.items()
        }

    stage._compute_external = spoilt  # type: ignore[method-assign,assignment]


def test_internal_and_external_batches_interleave(parts: TrainingContext) -> None:
    records = run(stage_of(parts), None, 7)
    internal = {"task", "lm on task"}
    assert [set(record.losses) for record in records] == [
        internal,
        {"lm"},
        {"lm"},
        internal,
        {"lm"},
        {"lm"},
        internal,
    ]


def test_internal_loss_is_the_papers_formula(parts: TrainingContext) -> None:
    stage = stage_of(parts, rho2=3.0)
    batch = copy.deepcopy(stage.internal).next()
    step = stage.prepare(0)
    sums = step.compute(step.batch)
    total = sum(step.weights[name] * sums[name] / step.targets[name] for name in step.targets)
    logits = stage.module.head(stage.module.encoder(batch)[:, 0])
    task = torch.nn.functional.cross_entropy(logits, batch.targets.flatten())
    language = sums["lm on task"] / step.targets["lm on task"]
    torch.testing.assert_close(total, (3.0 * language + task) / (3.0 + 1.0))


def test_accumulation_changes_no_weight(parts: TrainingContext) -> None:
    whole, split = stage_of(parts), stage_of(parts)
    run(whole, None, 6)
    run(split, None, 6, accumulate=3)
    for name, weight in whole.module.state_dict().items():
        torch.testing.assert_close(
            split.module.state_dict()[name], weight, atol=2e-5, rtol=1e-4, msg=name
        )


@pytest.mark.parametrize("stop", [1, 4, 9])
def test_resume_gives_identical_weights(parts: TrainingContext, tmp_path: Path, stop: int) -> None:
    straight = stage_of(parts)
    run(straight, None, 12)
    run(stage_of(parts), tmp_path / "cut", 12, stop=stop)
    resumed = stage_of(parts)
    assert len(run(resumed, tmp_path / "cut", 12)) == 12 - (
        stop - 1
    )  # the generator stops before it saves step `stop`
    assert same_weights(straight, resumed)


def test_resume_with_an_average_gives_the_same_average(
    parts: TrainingContext, tmp_path: Path
) -> None:
    averages = []
    for name, stops in (("straight", [None]), ("cut", [5, None])):
        for stop in stops:
            stage = stage_of(parts)
            average = WeightAverage(stage.module, 0.9)
            run(stage, tmp_path / name, 9, stop=stop, average=average)
        averages.append({key: value.clone() for key, value in average.tensors().items()})
    assert all(torch.equal(averages[1][name], value) for name, value in averages[0].items())
    weight = stage.module.encoder.token.weight
    assert not torch.equal(averages[0]["encoder.token.weight/average"], weight)


def test_the_last_checkpoints_are_kept(parts: TrainingContext, tmp_path: Path) -> None:
    run(stage_of(parts), tmp_path, 8)
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [
        "checkpoint-000000006",
        "checkpoint-000000007",
    ]


def test_a_step_that_is_not_finite_is_skipped_and_said(parts: TrainingContext) -> None:
    stage, untouched = stage_of(parts), stage_of(parts)
    spoil(stage, {1})
    records = run(stage, None, 2)  # an internal step, then the spoilt external one
    run(untouched, None, 2, stop=1)
    assert same_weights(stage, untouched)
    assert not bool(records[1].losses["lm"].isfinite())
    spoil(again := stage_of(parts), {1})
    records = run(again, None, 6)
    said = [message for record in records for message in record.messages]
    assert said == [
        ("a loss or gradient was not finite at or before step 2: that step was skipped (1 so far)")
    ]
    assert all(bool(weight.isfinite().all()) for weight in again.module.state_dict().values())


def test_too_many_skipped_steps_stop_the_training(parts: TrainingContext) -> None:
    stage = stage_of(parts)
    spoil(stage, {number for number in range(1, 100) if number % 4})
    with pytest.raises(TrainingError, match=r"for the 11th time.*learning rate"):
        run(stage, None, 40)


def test_a_kind_of_step_that_always_fails_stops_the_training_however_many_others_succeed(
    parts: TrainingContext,
) -> None:
    stage = stage_of(parts)
    stage._compute_internal = lambda batch: {  # type: ignore[method-assign]
        name: loss * float("nan")
        for name, loss in JointStage._compute_internal(stage, batch).items()
    }
    records = []
    with pytest.raises(
        TrainingError, match=r"all of the last 5 steps on task \+ lm on task.*learning rate"
    ):
        for record in loop_of(stage, None, 3000).run():
            records.append(record)
    assert len(records) == 13  # task steps are the 1st, 4th, 7th, 10th and 13th


def test_a_loss_that_is_not_finite_stops_before_the_step_where_asked(
    parts: TrainingContext, tmp_path: Path
) -> None:
    stage, untouched = stage_of(parts), stage_of(parts)
    spoil(stage, {1})
    with pytest.raises(TrainingError, match=r"not finite at or before step 2.*learning rate"):
        run(stage, tmp_path, 3, non_finite="stop")
    run(untouched, None, 3, stop=1)
    assert same_weights(stage, untouched)


def test_going_back_restores_the_checkpoint_and_halves_the_rate(
    parts: TrainingContext, tmp_path: Path
) -> None:
    stage = stage_of(parts)
    spoil(stage, {2})
    records = run(stage, tmp_path, 6, non_finite="back")
    assert [record.step for record in records] == [1, 2, 3, 3, 4, 5, 6]
    shares = Schedule("linear", 6, 0.1)
    assert records[2].share == pytest.approx(shares.share(2)) and records[3].share == pytest.approx(
        shares.share(2) / 2
    )
    assert "back to step 2, with half the learning rate" in records[3].messages[0]


def test_going_back_has_somewhere_to_go_from_the_first_step(
    parts: TrainingContext, tmp_path: Path
) -> None:
    stage = stage_of(parts)
    spoil(stage, {1})
    records = run(stage, tmp_path, 3, non_finite="back", checkpoint_seconds=1e9)
    assert [record.step for record in records] == [1, 2, 1, 2, 3]


def test_full_memory_halves_the_micro_batches_and_changes_nothing(parts: TrainingContext) -> None:
    stage, whole = stage_of(parts), stage_of(parts)
    compute = stage._compute_external

    def hungry(batch: JointBatch) -> dict[str, torch.Tensor]:
        if len(batch) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return compute(batch)

    stage._compute_external = hungry  # type: ignore[method-assign]
    records = run(stage, None, 4)
    run(whole, None, 4)
    for name, weight in whole.module.state_dict().items():
        torch.testing.assert_close(
            stage.module.state_dict()[name], weight, atol=2e-5, rtol=1e-4, msg=name
        )
    assert (
        len(
            [
                message
                for record in records
                for message in record.messages
                if "out of memory" in message
            ]
        )
        == 2
    )


def test_memory_that_is_full_while_a_graph_is_recorded_counts_as_full(
    parts: TrainingContext,
) -> None:
    stage = stage_of(parts)
    compute = stage._compute_external

    def hungry(batch: JointBatch) -> dict[str, torch.Tensor]:
        if len(batch) > 4:
            raise torch.AcceleratorError(
                "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' …"
            )
        return compute(batch)

    stage._compute_external = hungry  # type: ignore[method-assign]
    records = run(stage, None, 4)
    assert (
        len(
            [
                message
                for record in records
                for message in record.messages
                if "out of memory" in message
            ]
        )
        == 1
    )


def test_launches_are_not_recorded_again_once_memory_was_full(
    parts: TrainingContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, recorded = stage_of(parts), list[bool]()
    stage.graphs = True

    def compiled(machine: Machine, function: Any, graphs: bool) -> Any:
        recorded.append(graphs)
        return function

    monkeypatch.setattr(Machine, "compiled", compiled)
    compute = stage._compute_external

    def hungry(batch: JointBatch) -> dict[str, torch.Tensor]:
        losses = compute(batch)
        if len(batch) > 4:
            raise torch.OutOfMemoryError("out of memory")
        return losses

    stage._compute_external = hungry  # type: ignore[method-assign]
    run(stage, None, 4)
    assert recorded == [True, True, False, False]  # task and text, before and after


def test_other_errors_of_the_device_are_not_taken_for_full_memory(parts: TrainingContext) -> None:
    stage = stage_of(parts)

    def broken(batch: JointBatch) -> dict[str, torch.Tensor]:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    stage._compute_external = broken  # type: ignore[method-assign]
    with pytest.raises(torch.AcceleratorError, match="launch failure"):
        run(stage, None, 4)


def test_memory_that_does_not_hold_one_row_is_an_error(parts: TrainingContext) -> None:
    stage = stage_of(parts)

    def hungry(batch: JointBatch) -> dict[str, torch.Tensor]:
        raise torch.OutOfMemoryError("out of memory")

    stage._compute_external = hungry  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match=r"one sequence.*model.size"):
        run(stage, None, 4)


def test_training_ends_on_time_when_the_machine_is_slow(parts: TrainingContext) -> None:
    stage = stage_of(parts)
    loop = loop_of(stage, None, 200, seconds_allowed=0.001)
    records = list(loop.run())
    assert records[-1].step < 200 and records[-1].step == loop.schedule.steps


def test_training_goes_on_when_the_machine_is_fast(parts: TrainingContext) -> None:
    stage = stage_of(parts)
    records = list(loop_of(stage, None, 20, seconds_allowed=1e6).run())
    assert records[-1].step == 30  # half as many again, no more
    assert [record.step for record in records] == list(range(1, 31))


def test_an_error_in_preparing_a_batch_is_raised(parts: TrainingContext) -> None:
    stage = stage_of(parts)

    def broken(step: int) -> None:
        raise ValueError("the disk is gone")

    stage.prepare = broken  # type: ignore[method-assign,assignment]
    with pytest.raises(ValueError, match="the disk is gone"):
        run(stage, None, 3)


def test_static_shapes_compile_once_per_kind_of_step(parts: TrainingContext) -> None:
    class Plain(Machine):
        def compiled(self, function: Any, graphs: bool) -> Any:
            return function

    torch._dynamo.reset()
    Counting.graphs.clear()
    losses = []
    for kind in (Counting, Plain):
        machine = kind(MACHINE.device, False, 1, compiles=True)
        stage = joint_stage(
            dataclasses.replace(parts, machine=machine), Train(rho2=3.0), rho1=2, batch=8
        )
        optimiser = make_optimiser(stage.module, Rule("adamw", 1e-3, 0.0))
        loop = Loop(
            stage, optimiser, Schedule("linear", 24, 0.1), Settings(1.0, 7, 1e9), None, machine
        )
        losses.append([loss for record in loop.run() for loss in record.losses.values()])
    assert (
        len(Counting.graphs) == 2
    )  # internal and external steps, over more than one epoch of either
    torch.testing.assert_close(losses[0], losses[1], atol=1e-4, rtol=1e-4)
