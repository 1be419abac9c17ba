"""Restricted views: what stands on the other side of a token changes nothing in its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tasklm.encoders.layers.directed import has_views, layers_below, without_views
from tasklm.errors import RecipeError
from tasklm.tokens.batches import TokenBatch
from tests.encoders.samples import SHAPE, rows_of, stirred, texts

WITH_VIEWS = ["bert", "electra", "modern", "modern, narrow", "albert", "albert, one width"]
LAYERS = 6  # two of them below the views


def packed() -> TokenBatch:
    """Two rows: two texts and padding, and three texts that fill the row."""
    pieces = torch.tensor([[1] * 5 + [2] * 6 + [0] * 3, [1] * 4 + [2] * 3 + [3] * 7])
    positions = torch.zeros_like(pieces)
    for row in range(2):
        for piece in (1, 2, 3):
            inside = pieces[row] == piece
            positions[row, inside] = torch.arange(int(inside.sum()))
    torch.manual_seed(3)
    ids = torch.randint(1, 64, pieces.shape) * (pieces > 0)
    return TokenBatch(ids, pieces, positions)


BATCHES = {"padded": rows_of(texts(9, 7, 4)), "packed": packed()}


def all_views(encoder: Any, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
    everywhere = torch.arange(batch.ids.numel())
    with torch.no_grad():
        forward, backward = encoder.views(batch, everywhere, everywhere)
    return forward, backward


@pytest.mark.parametrize("name", list(BATCHES))
@pytest.mark.parametrize("kind", WITH_VIEWS)
def test_a_view_reads_one_side_of_its_own_text_alone(kind: str, name: str) -> None:
    encoder, batch = stirred(kind, layers=LAYERS), BATCHES[name]
    forward, backward = all_views(encoder, batch)
    rows, length = batch.ids.shape
    pieces = batch.pieces.flatten()
    for token in range(rows * length):
        if not pieces[token]:
            continue
        ids = batch.ids.clone()
        ids.view(-1)[token] = 1 + ids.view(-1)[token] % 60
        changed = all_views(encoder, replace(batch, ids=ids))
        row = torch.arange(rows * length) // length
        same_text = (row == token // length) & (pieces == pieces[token])
        order = torch.arange(rows * length) - token
        for before, after, reads in (
            (forward, changed[0], order >= 0),
            (backward, changed[1], order <= 0),
        ):
            differs = (before != after).any(1)
            assert torch.equal(differs, same_text & reads)


@pytest.mark.parametrize("kind", WITH_VIEWS)
def test_wanted_states_are_those_of_all(kind: str) -> None:
    encoder, batch = stirred(kind, layers=LAYERS), BATCHES["packed"]
    forward, backward = all_views(encoder, batch)
    ends, begins = torch.tensor([3, 17, 20]), torch.tensor([1, 0])
    one, other = encoder.views(batch, ends, begins)
    assert one.shape == (3, encoder.view_width) and other.shape == (2, encoder.view_width)
    torch.testing.assert_close(one, forward[ends])
    torch.testing.assert_close(other, backward[begins])


@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
def test_the_first_token_seen_forwards_is_the_same_as_alone(kind: str) -> None:
    """The forward state of the last token is that of a text which ends with it."""
    encoder, (text,) = stirred(kind, layers=LAYERS), texts(8)
    whole, cut = rows_of([text]), rows_of([text[:5]])
    five = torch.tensor([4])
    forward, _ = encoder.views(whole, five, five)
    alone, _ = encoder.views(cut, five, five)
    torch.testing.assert_close(forward, alone)


@pytest.mark.parametrize("kind", WITH_VIEWS)
def test_embeddings_and_lowest_layers_learn_from_views_and_no_others(kind: str) -> None:
    encoder, batch = stirred(kind, layers=LAYERS), BATCHES["padded"]
    forward, backward = encoder.views(batch, torch.tensor([3]), torch.tensor([3]))
    (forward.square().sum() + backward.pow(3).sum()).backward()
    assert float(encoder.token.weight.grad.abs().sum()) > 0
    if not kind.startswith("albert"):
        moved = [
            any(weight.grad is not None for weight in layer.parameters())
            for layer in encoder.layers
        ]
        assert moved == [True] * 2 + [False] * (LAYERS - 2)


def test_a_third_of_the_layers_is_below() -> None:
    assert [layers_below(count) for count in (1, 2, 3, 4, 6, 8, 12)] == [1, 1, 1, 1, 2, 3, 4]


def test_an_encoder_without_views_is_refused_by_name() -> None:
    assert not has_views("modernbert", SHAPE) and has_views("bert", SHAPE)
    everywhere = torch.tensor([0])
    with pytest.raises(RecipeError, match=r"modernbert has no restricted views.*albert, bert"):
        stirred("modernbert").views(BATCHES["padded"], everywhere, everywhere)
    assert "modernbert" not in str(without_views("x")).partition("that has")[2]
