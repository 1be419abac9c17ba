from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from tasklm.encoders.modern import ROTARY_BASE, Modern, rotary_angles, rotate
from tasklm.errors import RecipeError
from tests.encoders.samples import SHAPE, rows_of, stirred, texts


def test_rotation_is_a_complex_product() -> None:
    torch.manual_seed(0)
    states, positions = torch.randn(2, 5, 2, 3, 8, dtype=torch.float32), torch.randint(100, (2, 5))
    turned = rotate(states, rotary_angles(positions, 8))
    for pair in range(4):
        numbers = torch.complex(states[..., pair], states[..., pair + 4])
        angle = positions * ROTARY_BASE ** (-2 * pair / 8)
        wanted = numbers * torch.polar(torch.ones_like(angle), angle)[:, :, None, None]
        torch.testing.assert_close(
            torch.complex(turned[..., pair], turned[..., pair + 4]), wanted, atol=1e-5, rtol=1e-5
        )


def test_only_distances_between_tokens_count() -> None:
    encoder, batch = stirred("modern"), rows_of(texts(9, 9))
    shifted = dataclasses.replace(batch, positions=batch.positions + 7)
    torch.testing.assert_close(encoder(shifted), encoder(batch), atol=1e-5, rtol=1e-5)
    spread = dataclasses.replace(batch, positions=batch.positions * 2)
    assert bool(((encoder(spread) - encoder(batch)).abs() > 0.01).any())


def test_branches_start_small_and_nothing_has_a_bias() -> None:
    torch.manual_seed(0)
    encoder = Modern(dataclasses.replace(SHAPE, width=192, heads=3, feedforward=512, layers=8))
    for layer in encoder.layers:
        assert float(layer.up.weight.detach().std()) == pytest.approx(0.04, rel=0.05)
        for part in (layer.attention_out, layer.down):
            assert float(part.weight.detach().std()) == pytest.approx(
                0.04 / math.sqrt(16), rel=0.05
            )
    assert not any(name.endswith("bias") for name, _ in encoder.named_parameters())


def test_odd_heads_are_refused() -> None:
    with pytest.raises(RecipeError, match="is odd"):
        Modern(dataclasses.replace(SHAPE, width=20, heads=4))
