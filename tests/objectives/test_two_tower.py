from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tasklm.encoders.base import Shape
from tasklm.errors import RecipeError
from tasklm.models.task_model import cost_of, new_encoder
from tasklm.objectives.two_tower import TwoTower
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary
from tests.encoders.samples import packed, stir


def shape_of(vocabulary: Vocabulary) -> Shape:
    return Shape(len(vocabulary), 2, 32, 2, 64, 32, embedding=16)


def both(
    vocabulary: Vocabulary, towers: str, kind: str = "bert"
) -> tuple[torch.nn.Module, TwoTower]:
    torch.manual_seed(0)
    shape = shape_of(vocabulary)
    encoder = new_encoder(kind, shape, vocabulary).eval()
    objective = TwoTower(kind, shape, vocabulary, Train(towers=towers)).eval()
    stir(encoder, 0.1)
    stir(objective, 0.1)
    return encoder, objective


def pieces_of(vocabulary: Vocabulary, *lengths: int) -> TokenBatch:
    """Pieces in one row, each between [CLS] and [SEP]."""
    torch.manual_seed(1)
    texts = [torch.randint(5, len(vocabulary), (length,)) for length in lengths]
    ends = torch.tensor([vocabulary.cls]), torch.tensor([vocabulary.sep])
    whole = packed([torch.cat((ends[0], text, ends[1])) for text in texts], padding=2)
    return replace(whole, bounds=None)


@pytest.mark.parametrize("towers", ["shared", "own"])
@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
def test_a_token_is_predicted_from_its_piece_without_itself(
    vocabulary: Vocabulary, kind: str, towers: str
) -> None:
    encoder, objective = both(vocabulary, towers, kind)
    batch = pieces_of(vocabulary, 6, 4)  # columns 0 to 7, and 8 to 13

    def states(ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return objective.states(encoder, replace(batch, ids=ids))

    def changed(column: int) -> list[int]:
        other = batch.ids.clone()
        other[0, column] = 5 + (other[0, column] - 4) % (len(vocabulary) - 5)
        assert other[0, column] != batch.ids[0, column]
        far = (states(other) - states(batch.ids)).abs().amax(-1) > 1e-6
        return [place for place in (*range(1, 7), *range(9, 13)) if far[place]]

    for column in range(1, 7):  # all others of its piece, and never the token itself
        assert changed(column) == [place for place in range(1, 7) if place != column]
    assert changed(10) == [9, 11, 12]


def test_all_ordinary_tokens_are_targets(vocabulary: Vocabulary) -> None:
    _, objective = both(vocabulary, "shared")
    batch = pieces_of(vocabulary, 3, 2)
    batch.ids[0, 2] = vocabulary.mask
    corrupted = objective.corrupt(batch, 1)
    wanted = [NONE, batch.ids[0, 1], NONE, batch.ids[0, 3], NONE]
    wanted += [NONE, *batch.ids[0, 6:8], NONE, NONE, NONE]
    assert corrupted.answers[0].tolist() == [int(one) for one in wanted]
    assert torch.equal(corrupted.batch.ids, batch.ids)  # nothing is hidden
    assert objective.targets(corrupted) == {"cloze": 4}


@pytest.mark.parametrize("towers", ["shared", "own"])
def test_the_loss_is_the_sum_of_log_probabilities(vocabulary: Vocabulary, towers: str) -> None:
    encoder, objective = both(vocabulary, towers)
    batch = pieces_of(vocabulary, 6, 4)
    corrupted = objective.corrupt(batch, 1)
    with torch.no_grad():
        log_p = objective.log_probabilities(encoder, batch)[corrupted.answers != NONE]
        loss = objective(encoder, corrupted)["cloze"]
        logits = objective.logits(objective.states(encoder, batch), encoder.token)
    torch.testing.assert_close(loss, -log_p.sum())
    by_hand = functional.cross_entropy(logits, batch.ids.flatten(), reduction="none")
    torch.testing.assert_close(-log_p, by_hand[(corrupted.answers != NONE).flatten()])


@pytest.mark.parametrize("towers", ["shared", "own"])
def test_what_learns_from_text(vocabulary: Vocabulary, towers: str) -> None:
    encoder, objective = both(vocabulary, towers)
    corrupted = objective.corrupt(pieces_of(vocabulary, 6, 4), 1)
    objective(encoder, corrupted)["cloze"].backward()
    learns = {
        name.split(".")[0] for name, weight in encoder.named_parameters() if weight.grad is not None
    }
    assert "token" in learns
    layers = any("layer" in name for name in learns)
    assert layers == (towers == "shared")  # networks of their own share the embeddings alone
    assert all(weight.grad is not None for weight in objective.parameters())


@pytest.mark.parametrize("towers", ["shared", "own"])
def test_its_flops_are_torchs_and_its_memory_has_the_towers(
    vocabulary: Vocabulary, towers: str
) -> None:
    encoder, objective = both(vocabulary, towers)
    whole = replace(pieces_of(vocabulary, 9), pieces=torch.ones(1, 13, dtype=torch.int64))
    corrupted, cost = objective.corrupt(whole, 1), cost_of("bert", shape_of(vocabulary))
    with (
        FlopCounterMode(display=False) as counter,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        objective(encoder, corrupted)["cloze"].backward()
    assert counter.get_total_flops() == objective.flops(cost, corrupted)
    mode = {"bf16": True, "compiled": True, "dropout": False}
    need = TwoTower.memory(cost, Train(towers=towers), 320, 32, **mode)
    own = sum(weight.numel() for part in (encoder, objective) for weight in part.parameters())
    assert need.weights + need.optimiser + need.gradients > 12 * own


def test_a_recurrent_encoder_has_two_language_models_instead(vocabulary: Vocabulary) -> None:
    with pytest.raises(RecipeError, match="choose bilm with it"):
        TwoTower("bilstm", shape_of(vocabulary), vocabulary, Train())
