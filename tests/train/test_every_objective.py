"""Every objective in stage 1, beside the task."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tasklm.models.task_model import cost_of
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.train.context import TrainingContext
from tasklm.train.steps import Record
from tests.train.test_loop import parts, run, same_weights, stage_of  # noqa: F401  (parts is a fixture)

# with a Transformer; bilm, which needs another encoder, has tests of its own
NAMES = [name for name in OBJECTIVES.names() if name != "bilm"]


def mean_loss(weights: dict[str, float], records: list[Record]) -> float:
    """The weighted loss of some records."""
    return sum(
        weights[name] * float(loss) for record in records for name, loss in record.losses.items()
    ) / len(records)


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_beside_the_task(parts: TrainingContext, name: str) -> None:
    stage = stage_of(parts, objective=name)
    records = run(stage, None, 60)
    assert all(bool(loss.isfinite()) for record in records for loss in record.losses.values())
    internal, external = (
        [record for record in records if ("task" in record.losses) == inside]
        for inside in (True, False)
    )
    kinds = [
        (set(key), list(same))
        for key, same in itertools.groupby(external, lambda record: list(record.losses))
    ]
    assert len(kinds) == 1 + stage.halves and set[str]().union(
        *(names for names, _ in kinds)
    ) == set(stage.objective.weights)
    for names, same in kinds:
        assert {"task", *(f"{one} on task" for one in names)} in [
            set(record.losses) for record in internal
        ]
        if name != "electra-adversarial":  # whose generator raises what the discriminator lowers
            assert mean_loss(stage.objective.weights, same[-8:]) < mean_loss(
                stage.objective.weights, same[:8]
            )
    task = [float(record.losses["task"]) for record in records if "task" in record.losses]
    assert sum(task[-4:]) < sum(task[:4])


@pytest.mark.parametrize("name", NAMES)
def test_micro_batches_change_no_weight(parts: TrainingContext, name: str) -> None:
    whole, split = stage_of(parts, objective=name), stage_of(parts, objective=name)
    run(whole, None, 4)
    run(split, None, 4, accumulate=3)
    for key, weight in whole.module.state_dict().items():
        torch.testing.assert_close(
            split.module.state_dict()[key], weight, atol=5e-5, rtol=1e-3, msg=key
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_training_ends_in_the_same_weights(
    parts: TrainingContext, tmp_path: Path, name: str
) -> None:
    straight, resumed = stage_of(parts, objective=name), stage_of(parts, objective=name)
    run(straight, None, 6)
    run(stage_of(parts, objective=name), tmp_path / "cut", 6, stop=3)
    run(resumed, tmp_path / "cut", 6)
    assert same_weights(straight, resumed)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_one_graph_for_all_batches(parts: TrainingContext, name: str) -> None:
    stage, graphs = stage_of(parts, objective=name), list[object]()

    def counting(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(
        stage.module.language_losses, backend=counting, fullgraph=True, dynamic=False
    )
    assert stage.external is not None
    for seed in range(3):
        text = stage.objective.corrupt(stage.external.next(), seed)
        wanted = stage.module.language_losses(text)
        torch.testing.assert_close(compiled(text), wanted, atol=1e-4, rtol=1e-4)
    assert len(graphs) == 1


@pytest.mark.parametrize("name", NAMES)
def test_its_flops_are_torchs(parts: TrainingContext, name: str) -> None:
    stage = stage_of(parts, objective=name)
    assert stage.external is not None
    text = stage.objective.corrupt(stage.external.next(), 1)
    text.batch.pieces[:] = 1  # whole rows: no mask, so that the counter knows the kernel
    with (
        FlopCounterMode(display=False) as counter,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        sum(stage.module.language_losses(text).values()).backward()  # type: ignore[union-attr]
    small = {"electra-adversarial": 0.01}.get(
        name, 0.0
    )  # its baseline, one product with a vector, is not counted
    assert counter.get_total_flops() == pytest.approx(
        stage.objective.flops(stage.cost, text), rel=small
    )


@pytest.mark.parametrize("name", NAMES)
def test_its_memory_grows_with_the_rows_and_holds_the_encoders(
    parts: TrainingContext, name: str
) -> None:
    cost = cost_of("bert", dataclasses.replace(parts.shape, width=64, layers=3))
    kind = OBJECTIVES.get(name)
    few, many = (
        kind.memory(cost, Train(), tokens, 32, bf16=True, compiled=True, dropout=False).total
        for tokens in (320, 640)
    )
    assert 0 < few < many and few > 16 * cost.parameters  # weights, gradients and the two moments
