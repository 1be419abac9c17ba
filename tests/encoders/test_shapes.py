from __future__ import annotations

import pytest
import torch

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.initial_weights import initial_spread
from tasklm.encoders.shapes import SIZES, encoder_of, padded_vocabulary, shape_of
from tasklm.errors import RecipeError
from tasklm.recipe.model_sections import Model


def parameters(name: str, shape: Shape, part: str = "") -> int:
    with torch.device("meta"):  # no memory, no drawing
        encoder = ENCODERS.get(name)(shape)
    return sum(
        parameter.numel() for key, parameter in encoder.named_parameters() if key.startswith(part)
    )


def test_published_shapes_have_the_published_numbers_of_weights() -> None:
    base = shape_of(Model(encoder="bert"), "base", 30_522, 512)
    assert (base.layers, base.width, base.heads, base.feedforward, base.embedding) == (
        12,
        768,
        12,
        3072,
        0,
    )
    pooler = 768 * 769  # of the published models, not of ours
    filled = (base.vocabulary - 30_522) * 768
    assert parameters("bert", base) - filled + pooler == 109_482_240
    albert = shape_of(Model(encoder="albert"), "base", 30_000, 512)
    assert albert.embedding == 128
    assert (
        parameters("albert", albert) - (albert.vocabulary - 30_000) * 128 + pooler == 11_683_584
    )  # "12M"
    modern = shape_of(
        Model(encoder="modern", layers=22, width=768, feedforward=1152), "base", 50_368, 8192
    )
    assert parameters("modern", modern) == 149_014_272  # "149M"


@pytest.mark.parametrize("size", SIZES)
def test_a_gate_costs_no_weights(size: str) -> None:
    bert, modern = (shape_of(Model(encoder=name), size, 1000, 128) for name in ("bert", "modern"))
    assert modern.feedforward % 64 == 0 and modern.width // modern.heads == 64
    ratio = parameters("modern", modern, "layers") / parameters("bert", bert, "layers")
    assert 0.94 < ratio < 1.03


def test_albert_shares_its_layers() -> None:
    few, many = (
        shape_of(Model(encoder="albert", layers=layers), "small", 1000, 128) for layers in (2, 20)
    )
    assert parameters("albert", few) == parameters("albert", many)


def test_the_recipes_numbers_come_first() -> None:
    settings = Model(width=96, heads=3, layers=5, feedforward=100, embedding=24)
    assert shape_of(settings, "tiny", 130, 64) == Shape(192, 5, 96, 3, 100, 64, embedding=24)
    assert shape_of(Model(encoder="albert"), "tiny", 128, 64).embedding == 0  # 128 is its width
    with pytest.raises(RecipeError, match="not a multiple"):
        shape_of(Model(width=100, heads=3), "tiny", 100, 64)
    with pytest.raises(RecipeError, match="did you mean 'small'"):
        shape_of(Model(), "smal", 100, 64)


def test_vocabularies_fill_whole_blocks() -> None:
    assert [padded_vocabulary(types) for types in (1, 64, 65, 30_522)] == [64, 64, 128, 30_528]


@pytest.mark.parametrize("name", ["bert", "albert", "modern"])
def test_weights_start_with_the_spread_of_their_width(name: str) -> None:
    torch.manual_seed(0)
    encoder = ENCODERS.get(name)(Shape(2000, 2, 192, 3, 256, 128, embedding=48))
    assert (
        initial_spread(768) == 0.02 and initial_spread(192) == 0.04 and initial_spread(48) == 0.08
    )
    layer = encoder.shared if name == "albert" else encoder.layers[1]
    spreads = [
        float(module.weight.detach().std())
        for module in (encoder.token, encoder.projection, layer.query_key_value, layer.up)
    ]
    assert spreads == pytest.approx([0.08, 0.08, 0.04, 0.04], rel=0.05)


def test_the_automatic_encoder_goes_by_the_number_of_layers_and_its_shape_with_it() -> None:
    assert [encoder_of(Model(), size) for size in SIZES] == ["bert"] * 3 + ["modern"] * 3
    assert (
        encoder_of(Model(layers=5), "tiny") == "modern"
        and encoder_of(Model(layers=4), "base") == "bert"
    )
    assert (
        encoder_of(Model(encoder="bert"), "base") == "bert"
        and encoder_of(Model(encoder="modern"), "tiny") == "modern"
    )
    for layers, name in ((2, "bert"), (6, "modern")):
        assert shape_of(Model(layers=layers), "small", 100, 64) == shape_of(
            Model(layers=layers, encoder=name), "small", 100, 64
        )


def test_an_unknown_size_is_refused_wherever_it_is_read() -> None:
    settings = Model(size="smallst")
    with pytest.raises(RecipeError, match="did you mean 'small'"):
        encoder_of(settings, "smallst")
    with pytest.raises(RecipeError, match="did you mean 'small'"):
        shape_of(settings, "smallst", 100, 16)
