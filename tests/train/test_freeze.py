"""finetune.freeze: the head alone learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.parsing import values_for_key
from tasklm.run_folder import Seed
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.stage2 import FinetuneStage
from tasklm.train.stage_runs import BEST, Stage2Plan, run_stage2
from tasklm.train.stages import finetune_stage
from tests.train.test_loop import parts  # noqa: F401
from tests.train.test_recurrent import recurrent  # noqa: F401
from tests.train.test_resumed import cut_off, files_of, stage1


def tuned(folder: Path, context: TrainingContext, **changes: object) -> None:
    folder.mkdir(exist_ok=True)
    usual = {"batch": 8, "learning_rate": 3e-2, "freeze": True, "average": 0.5}
    settings = Finetune(**{**usual, **changes})  # type: ignore[arg-type]
    plan = Stage2Plan(4, "accuracy", 0.0, None)
    run_stage2(folder, context, settings, plan, Seed(folder.parent, 1, 1), SILENT)


@pytest.mark.parametrize("name", ["parts", "recurrent"])
def test_the_encoder_stays_as_it_was_and_the_head_learns(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    context: TrainingContext = request.getfixturevalue(name)
    stage1(tmp_path / "stage1", context)
    before = load_weights(tmp_path / "stage1" / "model.safetensors")
    tuned(tmp_path / "frozen", context)
    after = load_weights(tmp_path / "frozen" / BEST)
    encoder = [key for key in after if key.startswith("encoder.")]
    assert encoder and all(torch.equal(after[key], before[key]) for key in encoder)
    tuned(tmp_path / "free", context, freeze=False)
    free = load_weights(tmp_path / "free" / BEST)
    assert free.keys() == after.keys()
    assert not all(torch.equal(free[key], before[key]) for key in encoder)


def test_features_have_dropout_and_the_encoder_none(parts: TrainingContext) -> None:
    stage = finetune_stage(parts, Finetune(freeze=True, dropout=0.4), 1, "accuracy", None)
    assert stage.module.encoder.shape.dropout == 0.0
    rates = {module.p for module in stage.module.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {0.0, 0.4} and stage.module.head.dropout.p == 0.4  # type: ignore[union-attr]
    names = make_optimiser(stage.module, Rule("adamw", 1e-3, 0.0, 0.8)).tensors()
    assert names and all(name.startswith("head.") for name in names)


def test_a_resumed_training_ends_the_same(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage1(tmp_path / "stage1", parts)
    tuned(tmp_path / "straight", parts)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_off(patch, FinetuneStage, 12)
        tuned(tmp_path / "cut", parts)
    tuned(tmp_path / "cut", parts)
    names = (BEST, "curve.json")
    assert files_of(tmp_path / "cut", names) == files_of(tmp_path / "straight", names)


def test_the_flops_have_no_backward_pass_of_the_encoder(parts: TrainingContext) -> None:
    stage = finetune_stage(parts, Finetune(freeze=True, batch=8), 1, "accuracy", None)
    batch = stage.stream.next()
    batch.pieces[:] = 1  # whole rows: no mask, so that the counter knows the kernel
    with (
        FlopCounterMode(display=False) as counter,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        sum(stage.losses._sums(batch).values()).backward()  # type: ignore[union-attr]
    head = stage.module.head.flops(8, 1)  # type: ignore[operator]
    # no gradient of the features themselves
    features = 2.0 * 8 * stage.module.head.dense.weight.numel()  # type: ignore[union-attr]
    assert counter.get_total_flops() == pytest.approx(stage._flops(batch) - features)
    assert stage._flops(batch) > 3 * head


def test_the_default_changes_no_key() -> None:
    assert "freeze" not in values_for_key(Finetune())
