from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tasklm.encoders.base import Shape
from tasklm.encoders.layers.characters import character_flops
from tasklm.errors import RecipeError
from tasklm.models.language_model import describe_language_model, load_language_model
from tasklm.models.task_model import cost_of, new_encoder
from tasklm.models.weights import save_weights
from tasklm.objectives.bilm import BiLanguageModel, Neighbours
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.context import TrainingContext
from tasklm.train.stages import begin, joint_stage
from tests.encoders.samples import packed, rows_of, stir
from tests.train.test_loop import parts, run, same_weights, stage_of  # noqa: F401
from tests.train.test_recurrent import recurrent  # noqa: F401


def shape_of(vocabulary: Vocabulary) -> Shape:
    return Shape(len(vocabulary), 2, 12, 1, 20, 32, embedding=10)


def both(vocabulary: Vocabulary) -> tuple[object, BiLanguageModel]:
    torch.manual_seed(0)
    shape = shape_of(vocabulary)
    encoder = new_encoder("bilstm", shape, vocabulary).eval()
    objective = BiLanguageModel("bilstm", shape, vocabulary, Train())
    stir(encoder, 0.3)
    stir(objective, 0.3)
    return encoder, objective


def texts(*lengths: int) -> list[Tensor]:
    return [torch.randint(5, 200, (length,)) for length in lengths]


def test_neighbours_are_those_inside_a_piece(vocabulary: Vocabulary) -> None:
    _, objective = both(vocabulary)
    both_texts = packed([torch.tensor([2, 7, 8, 3]), torch.tensor([2, 9, 3])], padding=2)
    batch = replace(both_texts, bounds=None)
    found = objective.corrupt(batch, 1)
    assert torch.equal(found.batch.ids, batch.ids)
    assert found.answers.tolist() == [[7, 8, 3, NONE, 9, 3, NONE, NONE, NONE]]
    assert found.before.tolist() == [[NONE, 2, 7, 8, NONE, 2, 9, NONE, NONE]]
    assert objective.targets(found) == {"forward": 5, "backward": 5}
    half = found.part(0, 1)
    assert isinstance(half, Neighbours) and torch.equal(half.before, found.before)


def test_the_losses_are_those_computed_one_by_one(vocabulary: Vocabulary) -> None:
    """Each token is predicted from a text that ends, or begins, beside it."""
    encoder, objective = both(vocabulary)
    text = torch.cat((texts(6)[0], torch.tensor([vocabulary.sep])))
    losses = objective(encoder, objective.corrupt(rows_of([text]), 1))
    forward = backward = 0.0
    end = torch.tensor([vocabulary.sep])
    for place in range(len(text) - 1):
        seen = rows_of([torch.cat((text[: place + 1], end))])
        state = encoder(replace(seen, direction=1))[0, place]  # type: ignore[operator]
        logits = objective.logits(state[None], encoder.token)  # type: ignore[attr-defined]
        forward += float(functional.cross_entropy(logits, text[place + 1][None]))
        rest = rows_of([text[place + 1 :]])
        state = encoder(replace(rest, direction=-1))[0, 0]  # type: ignore[operator]
        logits = objective.logits(state[None], encoder.token)  # type: ignore[attr-defined]
        backward += float(functional.cross_entropy(logits, text[place][None]))
    assert float(losses["forward"]) == pytest.approx(forward, rel=1e-5)
    assert float(losses["backward"]) == pytest.approx(backward, rel=1e-5)


@pytest.mark.parametrize("share_a_row", [False, True])
def test_nothing_leaks(vocabulary: Vocabulary, share_a_row: bool) -> None:
    encoder, _ = both(vocabulary)
    some = texts(8, 6)
    batch = rows_of(some)
    if share_a_row:
        batch = packed(some, padding=2)
    right, left = encoder.directed(batch)  # type: ignore[attr-defined]
    flat = right.flatten(0, 1), left.flatten(0, 1)
    for place in (2, 5, 10):
        ids = batch.ids.flatten().clone()
        ids[place] = 5 + (ids[place] + 3) % 100
        changed = replace(batch, ids=ids.view_as(batch.ids))
        others = encoder.directed(changed)  # type: ignore[attr-defined]
        new_right, new_left = (states.flatten(0, 1) for states in others)
        assert torch.equal(flat[0][:place], new_right[:place])
        assert torch.equal(flat[1][place + 1 :], new_left[place + 1 :])
        assert not torch.equal(flat[0][place], new_right[place])


def test_directed_states_are_those_of_one_direction(vocabulary: Vocabulary) -> None:
    encoder, _ = both(vocabulary)
    batch = packed(texts(8, 6), padding=2)
    for states, direction in zip(encoder.directed(batch), (1, -1), strict=True):  # type: ignore[attr-defined]
        one = encoder(replace(batch, direction=direction))  # type: ignore[operator]
        torch.testing.assert_close(states, one, atol=1e-6, rtol=1e-5)


def test_transformers_are_refused(vocabulary: Vocabulary) -> None:
    shape = Shape(len(vocabulary), 1, 32, 2, 64, 32)
    with pytest.raises(RecipeError, match=r"read both; set model.encoder = 'bilstm'"):
        BiLanguageModel("bert", shape, vocabulary, Train())


def products(inputs, unwalled, recurrent, projection, out_shape=None, **_: object) -> int:  # type: ignore[no-untyped-def]
    """FLOPs of the recurrence, of both its directions; shapes are given."""
    steps, directions, rows, gates = inputs
    each = recurrent[1] * gates
    if projection is not None:
        each += gates // 4 * recurrent[1]
    return int(2 * steps * directions * rows * each)


def test_its_flops_are_torchs(recurrent: TrainingContext) -> None:
    stage = stage_of(recurrent, objective="bilm")
    assert stage.external is not None
    batch: TokenBatch = stage.external.next()
    batch.ids[:] = torch.arange(batch.ids.numel()).view_as(batch.ids) % 60
    text = stage.objective.corrupt(batch, 1)
    mapping = {torch.ops.tasklm.recurrence: products}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        stage.module.language_losses(text)
    # a CPU spells each kind of token once
    spelt = (batch.ids.numel() - 60) * character_flops()
    forward = stage.objective.flops(stage.cost, text) / 3
    assert counter.get_total_flops() == forward - spelt


def test_it_learns_resumes_and_loads(
    recurrent: TrainingContext,
    tmp_path: Path,
) -> None:
    straight, resumed = (stage_of(recurrent, objective="bilm") for _ in range(2))
    begin(straight.module, recurrent, Train(objective="bilm"))
    resumed.module.load_state_dict(straight.module.state_dict())
    cut = stage_of(recurrent, objective="bilm")
    cut.module.load_state_dict(straight.module.state_dict())
    records = run(straight, None, 30)
    first, last = (float(record.losses["forward"]) for record in (records[1], records[-2]))
    assert last < first
    run(cut, tmp_path / "cut", 30, stop=8)
    run(resumed, tmp_path / "cut", 30)
    assert same_weights(straight, resumed)
    save_weights(tmp_path / "model.safetensors", straight.module.state_dict())
    settings = Train(objective="bilm")
    describe_language_model(
        tmp_path, "bilstm", recurrent.shape, recurrent.vocabulary, settings, recurrent.length
    )
    loaded = load_language_model(tmp_path, torch.device("cpu"))
    assert torch.equal(loaded.encoder.out.weight, straight.module.encoder.out.weight)


def test_counts_are_where_embeddings_begin(recurrent: TrainingContext) -> None:
    module = joint_stage(recurrent, Train(objective="bilm"), 1, 8).module
    assert "co-occurrence counts" in begin(module, recurrent, Train(objective="bilm"))


def test_its_memory_grows_with_the_tokens(vocabulary: Vocabulary) -> None:
    cost = cost_of("bilstm", shape_of(vocabulary))
    few, many = (BiLanguageModel.memory(cost, Train(), size, 32).total for size in (320, 640))
    assert 16 * cost.parameters < few < many
