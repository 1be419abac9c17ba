"""Attention that begins with neighbouring tokens."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.tokens.batches import TokenBatch
from tasklm.train.init.neighbours import look_at_neighbours, obstacle

SHAPE = Shape(vocabulary=256, layers=3, width=192, heads=3, feedforward=256, positions=64)


def begun(shape: Shape = SHAPE) -> torch.nn.Module:
    torch.manual_seed(0)
    encoder: torch.nn.Module = ENCODERS.get("bert")(shape)
    look_at_neighbours(encoder, torch.Generator().manual_seed(1))
    return encoder


def attention(layer: torch.nn.Module, states: torch.Tensor, heads: int) -> torch.Tensor:
    """The probabilities (heads, from, to) of one row, by the formula."""
    length, width = states.shape
    query, key, _ = (
        layer.query_key_value(states).view(length, 3, heads, width // heads).permute(1, 2, 0, 3)
    )
    return (query @ key.mT / (width // heads) ** 0.5).softmax(-1)


@pytest.mark.parametrize(
    "shape", [SHAPE, Shape(256, 2, 128, 2, 128, 64), Shape(256, 4, 256, 4, 128, 64)]
)
def test_two_heads_of_the_first_layer_look_left_and_right(shape: Shape) -> None:
    encoder, places = begun(shape), torch.arange(64)
    ids = torch.randint(0, 256, (1, 64), generator=torch.Generator().manual_seed(2))
    batch = TokenBatch(ids, torch.ones_like(ids), places[None])
    with torch.no_grad():
        shares = attention(encoder.layers[0], encoder.embed(batch)[0], shape.heads)
    left, right = (
        shares[0].diagonal(-1),
        shares[1].diagonal(1),
    )  # from a place to the one before it, and to the one after it
    assert left.mean() > 0.6 and right.mean() > 0.6
    assert (shares[2:] < 0.5).all()


def test_two_heads_of_the_second_layer_look_two_places_away() -> None:
    encoder = begun(dataclasses.replace(SHAPE, positions=512))
    with torch.no_grad():
        positions = encoder.position.weight / encoder.position.weight.std()
        shares = attention(encoder.layers[1], positions, SHAPE.heads)
    assert (
        shares.shape[1] == 512
        and shares[0].diagonal(-2).mean() > 0.9
        and shares[1].diagonal(2).mean() > 0.9
    )


def test_what_is_found_is_added_as_a_projection() -> None:
    encoder, wide = begun(), SHAPE.width // SHAPE.heads
    for layer in encoder.layers[:2]:
        values = layer.query_key_value.weight.view(3, SHAPE.heads, wide, SHAPE.width)[2]
        outputs = layer.attention_out.weight.view(SHAPE.width, SHAPE.heads, wide)
        for head in range(SHAPE.heads):
            through = outputs[:, head] @ values[head]
            torch.testing.assert_close(through @ through, through, atol=1e-5, rtol=1e-5)
            assert float(through.detach().trace()) == pytest.approx(wide, rel=1e-4)


def test_all_else_is_as_drawn() -> None:
    torch.manual_seed(0)
    drawn, encoder = ENCODERS.get("bert")(SHAPE).state_dict(), begun().state_dict()
    changed = {name for name, weight in drawn.items() if not torch.equal(weight, encoder[name])}
    layers = {
        f"layers.{number}.{part}.weight"
        for number in (0, 1)
        for part in ("query_key_value", "attention_out")
    }
    assert changed == {"position.weight", *layers}
    spread = float(encoder["position.weight"].std())
    assert spread == pytest.approx(float(drawn["position.weight"].std()), rel=0.05)


def test_obstacles_are_named() -> None:
    assert obstacle("bert", SHAPE) == ""
    assert "bert" in obstacle("modern", SHAPE) and "bert" in obstacle("albert", SHAPE)
    assert "equal widths" in obstacle("bert", Shape(256, 2, 128, 2, 128, 64, embedding=64))
    assert "two heads" in obstacle("bert", Shape(256, 2, 64, 1, 128, 64)) and "even" in obstacle(
        "bert", Shape(256, 2, 6, 2, 128, 64)
    )
