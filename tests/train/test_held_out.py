"""Text that stage 1 never reads, and its loss on it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from tasklm.device.ranks import Ranks
from tasklm.errors import RunError
from tasklm.models.weights import load_weights
from tasklm.objectives.base import OBJECTIVES, HeldOutObjective
from tasklm.recipe.model_sections import Train
from tasklm.recipe.parsing import values_for_key
from tasklm.storage.files import read_json
from tasklm.tokens.batches import PackedStream
from tasklm.tokens.held_out import held_out_count, held_out_passages
from tasklm.tokens.masking import NONE
from tasklm.tokens.shards import Shards
from tasklm.tracking import SILENT
from tasklm.train import held_out as measuring
from tasklm.train.context import TrainingContext
from tasklm.train.held_out import HELD_OUT, HeldOutText, Rows, rows_measured
from tasklm.train.stage1 import JointStage
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tasklm.train.stages import held_out_text, joint_stage
from tests.train.arms import assert_a_cut_changes_nothing
from tests.train.test_loop import parts  # noqa: F401

STEPS = 25


@pytest.fixture
def holding(parts: TrainingContext) -> TrainingContext:
    assert parts.external is not None
    return dataclasses.replace(parts, held_out=held_out_passages(parts.external, 9))


def stage_of(context: TrainingContext, rows: int = 7, **changes: object) -> JointStage:
    stage = joint_stage(context, Train(**changes), rho1=2, batch=8)  # type: ignore[arg-type]
    stage.held_out = held_out_text(context, stage, 75 * rows, 1)
    return stage


def text_of(stage: JointStage) -> HeldOutText:
    assert stage.held_out is not None
    return stage.held_out


def test_how_many_passages_are_held_out() -> None:
    assert held_out_count(None, 9_999) == 0  # small selections keep all of their text
    assert held_out_count(None, 15_000) == 300
    assert held_out_count(None, 1_000_000) == 500
    assert held_out_count(0, 1_000_000) == 0
    assert held_out_count(2_000, 1_000_000) == 2_000
    assert held_out_count(100, 1_000) == 20


def test_measurements_read_a_small_share_of_the_text_and_a_row_at_least() -> None:
    assert rows_measured(3000, 256) == (512, 10_240)
    assert rows_measured(2950, 256)[0] == 256 and rows_measured(3050, 256)[0] == 512
    assert rows_measured(10, 8) == (1, 1)


def hash_by_hand(tokens: list[int]) -> int:
    golden, whole = 0x9E3779B97F4A7C15, 2**64
    state = golden
    for token in tokens:
        state = (state + golden * (token + 1)) % whole
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % whole
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % whole
        state ^= state >> 31
    return state


def test_passages_are_chosen_by_the_hashes_of_their_tokens() -> None:
    draw = np.random.default_rng(0)
    passages = [draw.integers(0, 65_536, size).tolist() for size in draw.integers(0, 30, 40)]
    passages[17] = passages[3]
    tokens = np.concatenate([np.array(one, np.uint16) for one in passages])
    shards = Shards(tokens, np.cumsum([0, *map(len, passages)]))
    hashes = [hash_by_hand(one) for one in passages]
    wanted = sorted(range(40), key=lambda number: (hashes[number], number))
    for count in (1, 12, 40):
        assert held_out_passages(shards, count).tolist() == wanted[:count]
    assert abs(wanted.index(3) - wanted.index(17)) == 1


def test_training_reads_every_passage_but_these(holding: TrainingContext) -> None:
    shards, vocabulary = holding.external, holding.vocabulary
    assert shards is not None
    stream = PackedStream(shards, vocabulary, 32, 1, 3, holding.held_out)
    read: Counter[int] = Counter()
    while stream.epoch == 0:
        read.update(stream.next().ids.flatten().tolist())
    wanted: Counter[int] = Counter()
    for number in set(range(len(shards))) - set(map(int, holding.held_out)):
        wanted.update(shards.tokens[shards.offsets[number] : shards.offsets[number + 1]].tolist())
    special = set(vocabulary.specials)
    assert {token: count for token, count in read.items() if token not in special} == wanted


def test_a_position_of_another_text_is_refused(holding: TrainingContext) -> None:
    assert holding.external is not None
    given = (holding.external, holding.vocabulary, 32, 1, 3)
    held, plain = PackedStream(*given, holding.held_out), PackedStream(*given)
    held.restore(held.state())
    with pytest.raises(RunError, match="9 passages held out, not 0"):
        plain.restore(held.state())
    with pytest.raises(RunError, match="0 passages held out, not 9"):
        held.restore(plain.state())


def test_first_embeddings_do_not_know_it(holding: TrainingContext) -> None:
    counted = dataclasses.replace(holding).counted
    wanted = np.zeros(len(holding.vocabulary))
    rows = [unit.tokens for unit in holding.train.units]
    assert holding.external is not None
    shards, apart = holding.external, set(map(int, holding.held_out))
    rows += [
        shards.tokens[shards.offsets[number] : shards.offsets[number + 1]]
        for number in range(len(shards))
        if number not in apart
    ]
    for row in rows:
        wanted += np.bincount(row, minlength=len(wanted))
    wanted[holding.vocabulary.specials] = 0
    assert counted.frequencies.tolist() == wanted.tolist()


def test_the_loss_is_the_mean_cross_entropy_of_hidden_tokens_row_by_row(
    holding: TrainingContext,
) -> None:
    stage = stage_of(holding, dropout=0.5, mask_rate=0.4, whole_words=True, next_sentence=True)
    text, module = text_of(stage), stage.module
    assert holding.external is not None
    loss = text.loss(text.whole)
    assert module.training and loss == text.loss(text.whole)  # without dropout
    module.eval()
    losses, hidden, tokens = [], 0, 0
    mask = holding.vocabulary.mask
    for batch in text.whole.batches:
        states = module.encoder(batch.batch)
        logits = module.objective.logits(states, module.encoder.token)
        for row, columns in enumerate(batch.picked):
            for column, answer in zip(columns, batch.answers[row], strict=True):
                if answer != NONE:
                    losses.append(functional.cross_entropy(logits[row, column], answer).item())
                    assert batch.batch.ids[row, column] == mask
        hidden += int((batch.batch.ids == mask).sum())
        tokens += int((batch.batch.pieces != 0).sum())
    assert loss == pytest.approx(float(np.mean(losses)), abs=1e-5)
    assert len(losses) == hidden == text.summary()["targets"]
    assert hidden / tokens == pytest.approx(0.15, abs=0.03)  # whatever train.mask_rate is


def test_rows_of_selected_text_have_a_length_of_their_own(holding: TrainingContext) -> None:
    shorter = dataclasses.replace(holding, external_length=holding.length // 2)
    stage = stage_of(shorter)
    assert stage.external is not None
    longest = max(stage.external.next().ids.shape[1] for _ in range(5))
    assert longest == holding.length // 2
    assert {batch.batch.ids.shape[1] for batch in text_of(stage).whole.batches} == {longest}
    several = np.arange(4)
    internal = [one.internal.text_batch(several, 1).ids for one in (stage, stage_of(holding))]
    assert internal[0].equal(internal[1])


def test_the_text_is_the_same_for_all_seeds_and_settings(holding: TrainingContext) -> None:
    one = text_of(stage_of(holding, seed=1))
    other = text_of(stage_of(holding, seed=5, mask_rate=0.3, hide="mask", accumulate=4))
    for mine, theirs in zip(one.whole.batches, other.whole.batches, strict=True):
        assert torch.equal(mine.batch.ids, theirs.batch.ids)
        assert torch.equal(mine.answers, theirs.answers)


def test_the_loss_is_the_same_for_any_split(
    holding: TrainingContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = text_of(stage_of(holding))
    wanted = whole.loss(whole.whole)
    monkeypatch.setattr(measuring, "AT_ONCE", 64)
    pieces = text_of(stage_of(holding))
    assert len(pieces.whole.batches) > len(whole.whole.batches) == 1
    assert pieces.loss(pieces.whole) == pytest.approx(wanted, abs=1e-6)


def test_processes_share_the_rows(holding: TrainingContext) -> None:
    stage = stage_of(holding, rows=3)
    (text,) = text_of(stage).whole.batches
    rows = []
    for rank in range(4):  # the last has none
        machine = dataclasses.replace(holding.machine, ranks=Ranks(rank, 4))
        own = Rows.of(text, stage.objective, machine)
        rows += [batch.batch.ids for batch in own.batches]
        assert own.targets == text_of(stage).whole.targets  # of all processes
    assert len(rows) == 3 and torch.equal(torch.cat(rows), text.batch.ids)
    assert not own.batches and text_of(stage).loss(own) == 0.0


def test_the_curve_is_of_the_first_rows(holding: TrainingContext) -> None:
    stage = joint_stage(holding, Train(), rho1=2, batch=8)
    text = held_out_text(holding, stage, 1500 * 5, 1)
    assert text is not None
    (some,), (whole,) = text.some.batches, text.whole.batches
    assert torch.equal(some.batch.ids, whole.batch.ids[:4]) and len(some.answers) == 4
    assert torch.equal(some.batch.pieces, whole.batch.pieces[:4])
    assert text.some.targets["lm"] < text.whole.targets["lm"] and text.some.tokens == 4 * 32


def test_it_is_measured_twenty_times_and_at_the_end(holding: TrainingContext) -> None:
    text = text_of(stage_of(holding))
    for steps in (20, 21, 399, 1000):
        due = [step for step in range(1, steps + 1) if text.due(step, steps)]
        assert len(due) == 20 and due[-1] == steps
        assert max(np.diff([0, *due])) <= -(-steps // 20)
    assert [step for step in range(1, 4) if text.due(step, 3)] == [1, 2, 3]


def trained(folder: Path, context: TrainingContext, **changes: object) -> None:
    folder.mkdir(exist_ok=True)
    given = {"checkpoint_seconds": 0.0, "keep": 1, "learning_rate": 3e-3, "average": 0.5}
    settings = Train(**{**given, **changes})  # type: ignore[arg-type]
    run_stage1(folder, context, settings, Stage1Plan(STEPS, 2, 8, None), SILENT)


def test_a_training_that_is_cut_off_measures_the_same(
    holding: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_a_cut_changes_nothing(lambda folder: trained(folder, holding), tmp_path, monkeypatch, 13)
    summaries = [read_json(tmp_path / name / "summary.json") for name in ("cut", "straight")]
    assert summaries[0]["held_out"] == summaries[1]["held_out"]
    curve = read_json(tmp_path / "cut" / "curve.json")
    losses = [point[HELD_OUT] for point in curve if HELD_OUT in point]
    assert len(losses) == 20 and losses[-1] < losses[0]
    stage = joint_stage(holding, Train(), rho1=2, batch=8)
    stage.module.load_state_dict(load_weights(tmp_path / "cut" / "model.safetensors"))
    text = held_out_text(holding, stage, STEPS, 8)
    assert text is not None  # the averaged weights are measured, which are the saved ones
    assert text.summary() == summaries[0]["held_out"]
    assert round(text.loss(text.some), 5) == losses[-1]
    assert summaries[0]["held_out"]["passages"] == 9


def test_measuring_does_not_change_the_training(
    holding: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "measured", holding, dropout=0.3)
    monkeypatch.setattr(HeldOutText, "due", lambda self, step, steps: False)
    trained(tmp_path / "not", holding, dropout=0.3)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("measured", "not")]
    assert weights[0] == weights[1]
    curve = read_json(tmp_path / "not" / "curve.json")
    assert not any(HELD_OUT in point for point in curve)


@pytest.mark.parametrize("objective", ["permutation", "bilm", "two-tower"])
def test_other_objectives_have_their_own_loss(holding: TrainingContext, objective: str) -> None:
    if objective == "bilm":
        shape = dataclasses.replace(holding.shape, layers=2)
        holding = dataclasses.replace(holding, encoder="bilstm", shape=shape)
    text = text_of(stage_of(holding, objective=objective))
    # of an untrained model: that of an even guess
    assert text.loss(text.whole) == pytest.approx(np.log(len(holding.vocabulary)), rel=0.1)


def test_objectives_with_samples_have_none() -> None:
    able = {
        name for name in OBJECTIVES.names() if issubclass(OBJECTIVES.get(name), HeldOutObjective)
    }
    assert able == {"mlm", "permutation", "bilm", "two-tower"}


def test_the_default_changes_no_key() -> None:
    assert "held_out" not in values_for_key(Train())
    assert values_for_key(Train(held_out=0))["held_out"] == 0
