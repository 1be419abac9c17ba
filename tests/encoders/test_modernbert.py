from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.modernbert import WINDOW, ModernBert
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.tokens.tokenizer import Vocabulary
from tests.encoders.samples import packed, rows_of, stir, texts


def encoder(layers: int = 4) -> ModernBert:
    torch.manual_seed(0)
    made = ModernBert(
        Shape(vocabulary=64, layers=layers, width=32, heads=4, feedforward=48, positions=256)
    ).eval()
    stir(made)
    return made


def test_texts_in_one_row_are_as_alone() -> None:
    some = texts(20, 150, 66, 65, 100)
    row = packed(some, 11)
    row.bounds = None
    together, start = encoder()(row)[0], 0
    for text in some:
        alone = encoder()(rows_of([text]))[0]
        torch.testing.assert_close(together[start : start + len(text)], alone, atol=1e-5, rtol=1e-5)
        start += len(text)


class Nothing(nn.Module):
    """In the place of the first layer, which is global."""

    def forward(self, hidden: Tensor, *_: object) -> Tensor:
        return hidden


def test_a_local_layer_sees_as_far_as_its_window() -> None:
    model = encoder(layers=2)
    model.layers[0] = Nothing()
    text = texts(150)[0]
    other = text.clone()
    other[0] = 5 if text[0] != 5 else 6
    changed = (model(rows_of([text]))[0] != model(rows_of([other]))[0]).any(-1)
    assert changed.nonzero().flatten().tolist() == list(range(WINDOW + 1))


def test_one_direction_is_kept_in_local_layers() -> None:
    batch = rows_of(texts(120))
    batch.direction = 1
    before = encoder()(batch)
    batch.ids[0, 100:] = 7
    torch.testing.assert_close(encoder()(batch)[0, :100], before[0, :100])
    assert not torch.equal(encoder()(batch)[0, 100:], before[0, 100:])


def test_permutations_are_refused(vocabulary: Vocabulary) -> None:
    shape = Shape(
        vocabulary=len(vocabulary), layers=2, width=32, heads=4, feedforward=48, positions=64
    )
    objective = OBJECTIVES.get("permutation")(
        "modernbert", shape, vocabulary, Train(objective="permutation")
    )
    batch = rows_of(texts(20, 30))
    with pytest.raises(RecipeError, match="not computed with local attention"):
        objective(ENCODERS.get("modernbert")(shape), objective.corrupt(batch, 1))
