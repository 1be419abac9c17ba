from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForPreTraining

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.checkpoints.hub_names import from_hugging_face, head_from_hugging_face
from tasklm.errors import RecipeError
from tasklm.models.task_model import cost_of
from tasklm.objectives.base import Corrupted
from tasklm.objectives.mlm import MaskedLanguageModel
from tasklm.pipeline.opening import check_names
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import Recipe
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary

ASKED = Train(next_sentence=True)


def rows(vocabulary: Vocabulary, count: int, sizes: tuple[int, ...]) -> TokenBatch:
    """Rows of pieces of these sizes, [CLS] and [SEP] among them."""
    ids = torch.randint(5, len(vocabulary), (count, sum(sizes)))
    pieces, positions = torch.zeros_like(ids), torch.zeros_like(ids)
    for number, size in enumerate(sizes, 1):
        first = sum(sizes[: number - 1])
        ids[:, first], ids[:, first + size - 1] = vocabulary.cls, vocabulary.sep
        pieces[:, first : first + size], positions[:, first : first + size] = (
            number,
            torch.arange(size),
        )
    return TokenBatch(ids, pieces, positions)


def of_transformers(vocabulary: Vocabulary) -> tuple[Any, Any, MaskedLanguageModel]:
    """Returns BertForPreTraining, and our encoder and objective with its weights."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=vocabulary.pad,
        initializer_range=0.2,
    )
    theirs = BertForPreTraining(config).eval()
    state = theirs.state_dict()
    name, shape, weights = from_hugging_face(config.to_dict(), state)
    encoder = ENCODERS.get(name)(shape)
    encoder.load_state_dict(weights)
    objective = MaskedLanguageModel(name, shape, vocabulary, ASKED)
    own = {
        "next_sentence.dense": "bert.pooler.dense",
        "next_sentence.out": "cls.seq_relationship",
    }
    objective.load_state_dict(
        {
            **head_from_hugging_face(config.to_dict(), state),
            **{
                f"{ours}.{kind}": state[f"{name}.{kind}"]
                for ours, name in own.items()
                for kind in ("weight", "bias")
            },
        }
    )
    return theirs, encoder.eval(), objective.eval()


def test_both_losses_are_those_of_transformers(vocabulary: Vocabulary) -> None:
    theirs, encoder, objective = of_transformers(vocabulary)
    corrupted = objective.corrupt(rows(vocabulary, 12, (40,)), 5)
    assert corrupted.follows is not None and set(corrupted.follows[:, 0].tolist()) == {0, 1}
    labels = torch.full_like(corrupted.batch.ids, NONE)
    row, place = (corrupted.answers != NONE).nonzero(as_tuple=True)
    labels[row, corrupted.picked[row, place]] = corrupted.answers[row, place]
    with torch.no_grad():
        ours = objective(encoder, corrupted)
        shown = {"input_ids": corrupted.batch.ids, "token_type_ids": corrupted.batch.segments}
        wanted = theirs(**shown, labels=labels, next_sentence_label=corrupted.follows[:, 0]).loss
    targets = objective.targets(corrupted)
    assert targets["next"] == 12
    mean = sum(ours[name] / targets[name] for name in ("lm", "next"))
    assert abs(float(mean) - float(wanted)) < 1e-5


def test_pieces_of_packed_rows_are_told_as_if_alone(vocabulary: Vocabulary) -> None:
    _, encoder, objective = of_transformers(vocabulary)
    corrupted = objective.corrupt(rows(vocabulary, 6, (24, 40)), 5)
    assert objective.targets(corrupted)["next"] == 12
    assert (
        corrupted.follows is not None
        and corrupted.firsts is not None
        and corrupted.firsts[0, :2].tolist() == [0, 24]
    )
    with torch.no_grad():
        together, alone = objective(encoder, corrupted)["next"], 0.0
        for number, cut in enumerate((slice(0, 24), slice(24, 64))):
            batch = corrupted.batch
            assert batch.segments is not None
            part = TokenBatch(
                batch.ids[:, cut],
                batch.pieces[:, cut],
                batch.positions[:, cut],
                segments=batch.segments[:, cut],
            )
            asked = corrupted.follows[:, number : number + 1]
            alone += float(
                objective(
                    encoder, Corrupted(part, asked * 0, asked, firsts=asked * 0, follows=asked)
                )["next"]
            )
    assert abs(float(together) - alone) < 1e-4


def test_micro_batches_add_up_and_examples_of_a_task_stay_whole(vocabulary: Vocabulary) -> None:
    _, encoder, objective = of_transformers(vocabulary)
    batch = rows(vocabulary, 6, (24, 40))
    corrupted = objective.corrupt(batch, 5)
    with torch.no_grad():
        whole = objective(encoder, corrupted)
        parts = [objective(encoder, corrupted.part(number, 2)) for number in range(2)]
    for name in ("lm", "next"):
        assert abs(float(whole[name]) - sum(float(part[name]) for part in parts)) < 1e-4
    example = replace(batch, places=torch.zeros(6, 1, dtype=torch.long))
    of_task = objective.corrupt(example, 5)
    assert of_task.follows is None and of_task.batch.segments is None
    assert set(objective.targets(of_task)) == {"lm"} == set(objective(encoder, of_task))


def test_one_compiled_graph_serves_batches_of_other_pieces(vocabulary: Vocabulary) -> None:
    _, encoder, objective = of_transformers(vocabulary)
    graphs: list[object] = []

    def counting(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph

    compiled = torch.compile(objective, backend=counting, fullgraph=True, dynamic=False)
    for sizes in ((24, 40), (64,)):
        corrupted = objective.corrupt(rows(vocabulary, 6, sizes), 5)
        torch.testing.assert_close(compiled(encoder, corrupted), objective(encoder, corrupted))
    assert len(graphs) == 1  # though the second batch has half as many pieces


def test_the_heads_flops_are_those_that_pytorch_counts(vocabulary: Vocabulary) -> None:
    _, _, objective = of_transformers(vocabulary)
    corrupted = objective.corrupt(rows(vocabulary, 6, (24, 40)), 5)
    cost = cost_of("bert", Shape(len(vocabulary), 2, 32, 4, 64, 64))
    assert objective.next_sentence is not None and corrupted.pairs() == 12
    with FlopCounterMode(display=False) as counter:
        objective.next_sentence(torch.randn(12, 32, requires_grad=True)).sum().backward()
    without = cost.training(6 * 64, corrupted.targets(), 64, wanted=corrupted.targets() + 12)
    assert counter.get_total_flops() == objective.flops(cost, corrupted) - without


def test_it_is_learnt(vocabulary: Vocabulary) -> None:
    """One batch by heart: the encoder's and the head's gradients lead there."""
    torch.manual_seed(0)
    shape = Shape(len(vocabulary) + 12, 2, 32, 4, 64, 64)
    encoder = ENCODERS.get("bert")(shape)
    objective = MaskedLanguageModel("bert", shape, vocabulary, ASKED)
    optimiser = torch.optim.AdamW([*encoder.parameters(), *objective.parameters()], lr=3e-3)
    corrupted, losses = objective.corrupt(rows(vocabulary, 32, (24,)), 0), []
    for _ in range(80):
        loss = objective(encoder, corrupted)["next"] / corrupted.pairs()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert abs(losses[0] - np.log(2)) < 0.1 and losses[-1] < 0.2


def test_another_objective_is_refused() -> None:
    recipe = Recipe().changed(train={"objective": "electra", "next_sentence": True})
    with pytest.raises(
        RecipeError,
        match=r"train\.next_sentence requires train\.objective = 'mlm', not 'electra'",
    ):
        check_names(recipe)
    check_names(Recipe().changed(train={"next_sentence": True}))
