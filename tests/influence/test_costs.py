"""FLOPs of influence scores, against PyTorch's counter and against a case by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.base import Shape
from tasklm.influence.costs import GradientCost, scoring_flops
from tasklm.influence.embeddings import TokenSums
from tasklm.influence.gradients import ProjectedGradients, Watch, chosen_layers
from tasklm.models.task_model import cost_of, new_encoder
from tasklm.tokens.tokenizer import Vocabulary
from tests.encoders.samples import KINDS
from tests.influence.test_gradients import examples_of, joint, scorer, texts_of


class Counter(TorchDispatchMode):
    """PyTorch's own counts of every operation; FlopCounterMode also follows modules, which fails
    where the graph begins at a norm.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if func._overloadpacket in flop_registry:
            self.flops += int(flop_registry[func._overloadpacket](*args, **kwargs, out_val=found))
        return found


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("bert", {"layers": "last"}),
        ("bert", {"layers": "1,3", "draws": 2, "batch": 3}),
        ("bert", {"layers": "2", "projection": 8, "task_batch": 2}),
        ("bert", {"layers": "all", "projection": 24}),
        ("modern", {"layers": "last"}),
        ("modern", {"layers": "all", "projection": 8}),
        ("albert", {"layers": "last", "projection": 8}),
    ],
)
def test_flops_are_those_that_pytorch_counts(
    kind: str, keys: dict[str, Any], vocabulary: Vocabulary
) -> None:
    model, texts, examples = joint(kind, vocabulary), texts_of(23), examples_of(31, vocabulary)
    with Counter() as counter, sdpa_kernel(SDPBackend.MATH):  # the counter knows this kernel
        made = scorer(model, vocabulary, texts, examples, **keys)
        for start in range(0, len(made.pieces), 5):
            made.scores(start, min(start + 5, len(made.pieces)))
    encoder: Any = model.encoder
    assert scoring_flops(made, cost_of(KINDS[kind][0], encoder.shape), 5) == counter.flops


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("bert", {"layers": "embeddings"}),
        ("bert", {"layers": "embeddings,3", "draws": 2, "task_batch": 3}),
        ("modern", {"layers": "embeddings"}),
        ("albert", {"layers": "embeddings"}),
        ("electra", {"layers": "embeddings"}),
    ],
)
def test_flops_of_embeddings_but_for_products_of_tokens_that_both_have(
    kind: str, keys: dict[str, Any], vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TokenSums, "spans", lambda self: {})
    test_flops_are_those_that_pytorch_counts(kind, keys, vocabulary)


def test_shapes_are_those_of_the_batches(vocabulary: Vocabulary) -> None:
    model, texts, examples = joint("bert", vocabulary), texts_of(23), examples_of(4, vocabulary)
    pieces = scorer(model, vocabulary, texts, examples, batch=2).pieces
    found = [
        tuple(rows.batch.ids.shape)
        for start in range(0, len(pieces), 5)
        for rows in pieces.batches(start, min(start + 5, len(pieces)))
    ]
    assert list(pieces.shapes(5)) == found and len(set(found)) > 2


class OneLayer(nn.Module):
    """The matrices of a layer of BERT, of width 2 and inner width 8."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value, self.attention_out = nn.Linear(2, 6), nn.Linear(2, 2)
        self.up, self.down = nn.Linear(2, 8), nn.Linear(8, 2)


def test_one_layer_by_hand() -> None:
    encoder: Any = nn.Module()
    encoder.layers = nn.ModuleList([OneLayer()])
    cost = EncoderCost(layers=1, width=2, feedforward=8, vocabulary=10, positions=4)
    made = GradientCost(
        encoder,
        list(encoder.layers),
        ProjectedGradients(Watch(list(encoder.layers)).parts, 0, 0),
        cost,
    )
    # two rows of 3 tokens, one of which is read: QKV 2·2·6 = 24 and attention 2·(2·3·2) = 24 for
    # all, out 8 and feed-forward 64 for one
    forward = 2 * (3 * (24 + 24) + 8 + 64 + 100)
    backward = 2 * (3 * 2 * 24 + 8 + 64 + 100)  # attention twice; what QKV is given has no gradient
    assert made.passes(2, 3, 1, 100.0) == forward + backward
    # gradients, the bias in: QKV 6·3 numbers of 3 tokens, out 2·3, up 8·3 and down 2·9 of one;
    # times four task batches
    assert made.gradients(2, 3, 1) == 2 * 2 * (3 * 18 + 6 + 24 + 18)
    assert (
        made.gradients(2, 3, 1, others=4) - made.gradients(2, 3, 1)
        == 2 * 2 * (18 + 6 + 24 + 18) * 4
    )


def test_more_layers_cost_more_and_a_projection_less(vocabulary: Vocabulary) -> None:
    encoder: Any = joint("bert", vocabulary).encoder
    cost = cost_of("bert", dataclasses.replace(encoder.shape))
    found = []
    for layers in (slice(2, 3), slice(1, 2), slice(0, 3)):
        chosen = list(encoder.layers[layers])
        made = GradientCost(encoder, chosen, ProjectedGradients(Watch(chosen).parts, 0, 0), cost)
        found.append(made.passes(4, 16, 2, 0.0))
    assert np.all(np.diff(found) > 0)


def test_the_shares_on_the_page_are_those_of_bert_base() -> None:
    shape = Shape(
        layers=12, width=768, heads=12, feedforward=3072, vocabulary=30_522, positions=512
    )
    with torch.device("meta"):
        encoder = new_encoder("bert", shape)
    cost = cost_of("bert", shape)
    epoch = cost.training(
        128, 19, 128, wanted=19
    )  # a row of 128 tokens, of which 15 % are predicted

    def share(layers: str, projection: int, batches: int) -> float:
        chosen = chosen_layers(encoder, layers)
        made = GradientCost(
            encoder, chosen, ProjectedGradients(Watch(chosen).parts, projection, 0), cost
        )
        return (
            made.passes(1, 128, 19, cost.forward_per_target())
            + made.gradients(1, 128, 19, others=batches)
        ) / epoch

    assert 1 / 3 < share("last", 64, 500) < share("last", 0, 500) < 1 / 2
    assert 1 / 3 < share("last", 0, 16) < share("last", 0, 500)
    assert share("all", 64, 500) == pytest.approx(0.7, abs=0.05)
