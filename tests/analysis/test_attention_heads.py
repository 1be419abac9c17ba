"""Attention probabilities beside transformers', and the kinds of heads by brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tasklm.analysis import attention_heads as attention_module
from tasklm.analysis.attention_heads import (
    PICTURED,
    _described,
    _falls,
    _periods,
    attention_heads,
    has_visible_heads,
    watching,
)
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.checkpoints.hub_names import to_hugging_face
from tasklm.recipe.model_sections import Tokens
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary
from tests.conftest import sentences
from tests.encoders.samples import KINDS, rows_of, stir, texts
from tests.samples import encoded_texts

CPU = torch.device("cpu")


def maps_of(encoder: torch.nn.Module, batch: TokenBatch) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    with torch.inference_mode(), watching(encoder, found.__setitem__):
        encoder(batch)
    return [found[layer] for layer in range(len(found))]


@pytest.mark.parametrize("kind", ["bert", "electra", "roberta", "albert", "modern", "modernbert"])
def test_probabilities_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    """With texts longer than the window of local layers, and padding."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    name, shape = KINDS[kind]
    shape = replace(shape, positions=160, layers=4)
    encoder = ENCODERS.get(name)(shape).eval()
    stir(encoder)
    config, state = to_hugging_face(name, shape, encoder.state_dict())
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    theirs = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    batch = rows_of(texts(9, 150, 70))
    real = batch.pieces == 1
    with torch.inference_mode():
        wanted = theirs(batch.ids, attention_mask=real.long(), output_attentions=True).attentions
    ours = maps_of(encoder, batch)
    assert len(ours) == len(wanted) == 4
    for mine, their in zip(ours, wanted, strict=True):
        asks = real[:, None, :, None].expand_as(mine)
        torch.testing.assert_close(mine[asks], their[asks], atol=1e-5, rtol=1e-5)


def test_watching_changes_nothing_and_ends() -> None:
    torch.manual_seed(0)
    encoder = ENCODERS.get("bert")(KINDS["bert"][1]).eval()
    batch = rows_of(texts(9, 16))
    before = encoder(batch)
    seen: list[int] = []
    with watching(encoder, lambda layer, _: seen.append(layer)):
        assert torch.equal(encoder(batch), before)
    encoder(batch)
    assert seen == [0, 1, 2]
    assert has_visible_heads(encoder) and not has_visible_heads(torch.nn.Linear(2, 2))


def test_falls_by_brute_force() -> None:
    torch.manual_seed(0)
    batch = rows_of(texts(7, 4))
    found = torch.rand(2, 3, 7, 7).softmax(-1)
    marks = torch.tensor([int(batch.ids[0, 0]), int(batch.ids[1, 2])])
    near, on_mark = np.zeros(3), np.zeros(3)
    for row, length in enumerate((7, 4)):
        for head in range(3):
            for token in range(length):
                at = int(found[row, head, token].argmax())
                near[head] += at in (token - 1, token + 1)
                on_mark[head] += int(batch.ids[row, at]) in marks.tolist()
    assert _falls(found, batch, marks).tolist() == [near.tolist(), on_mark.tolist()]


def test_the_thresholds_are_the_papers() -> None:
    """At least 90 % are positional, more than 90 % are vertical."""
    shares = np.array([[[0.9, 0.899, 1.0, 0.0]], [[0.9, 0.901, 0.95, 0.0]]])
    found = _described(shares, [[[[1.0]]] * 4])
    assert [head["kind"] for head in found["heads"]] == ["positional", "vertical", "both", "other"]
    assert (found["positional"], found["vertical"], found["total"]) == (2, 2, 4)
    assert [(head["layer"], head["head"]) for head in found["heads"]] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 4),
    ]


def directed(vocabulary: Vocabulary, length: int) -> Any:
    """An encoder of one layer whose first head looks one place ahead, and whose second looks at
    [CLS] and [SEP].
    """
    half = length  # width of a head: one number for every position
    encoder = ENCODERS.get("bert")(Shape(len(vocabulary), 1, 2 * half, 2, 8, length)).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
        encoder.norm.weight.fill_(1.0)
        encoder.position.weight[:, :half] = torch.eye(length)
        for mark in (vocabulary.cls, vocabulary.sep):
            encoder.token.weight[mark, half] = 3.0
        query, key, _ = encoder.layers[0].query_key_value.weight.chunk(3)
        query[torch.arange(1, half), torch.arange(half - 1)] = (
            100.0  # the query of place i has its number at i + 1
        )
        key[:half, :half] = torch.eye(half)
        encoder.layers[0].query_key_value.bias[half] = (
            100.0  # all queries of the second head ask for the same …
        )
        key[half, half] = 1.0  # … which the marks have
    return encoder


def test_heads_that_are_made_to_look_somewhere_are_told(vocabulary: Vocabulary) -> None:
    rows = encoded_texts([[text] for text in sentences(30)], vocabulary, 24)
    found = attention_heads(directed(vocabulary, 24), rows, vocabulary, CPU)
    assert (found["positional"], found["vertical"], found["total"], found["texts"]) == (1, 1, 2, 30)
    first, second = found["heads"]
    tokens, texts_ = sum(len(unit.tokens) for unit in rows.units), len(rows.units)
    assert (first["kind"], second["kind"]) == ("positional", "vertical")
    assert first["positional"] == pytest.approx(
        1 - texts_ / tokens, abs=1e-4
    )  # the last token has none after it
    assert second["vertical"] == 1.0


def test_shares_and_pictures_equal_those_of_texts_alone(vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    encoder = ENCODERS.get("modern")(Shape(len(vocabulary), 2, 32, 4, 48, 40)).eval()
    stir(encoder)
    rows = encoded_texts(
        [
            [text, text[:9]] if number % 2 else [text[:20]]
            for number, text in enumerate(sentences(20))
        ],
        vocabulary,
        40,
    )
    found = attention_heads(encoder, rows, vocabulary, CPU)
    period = vocabulary.tokenizer.token_to_id(".")
    near, on_mark, tokens = np.zeros((2, 4)), np.zeros((2, 4)), 0
    for unit in rows.units:
        ids = torch.tensor(unit.tokens)
        tokens += len(ids)
        for layer, own in enumerate(maps_of(encoder, rows_of([ids]))):
            for token in range(len(ids)):
                at = own[0, :, token].argmax(-1)
                near[layer] += ((at - token).abs() == 1).numpy()
                on_mark[layer] += np.isin(ids[at].numpy(), [vocabulary.cls, vocabulary.sep, period])
    np.testing.assert_allclose(
        [head["positional"] for head in found["heads"]], near.flatten() / tokens, atol=1e-4
    )
    np.testing.assert_allclose(
        [head["vertical"] for head in found["heads"]], on_mark.flatten() / tokens, atol=1e-4
    )
    longest = max((unit.tokens for unit in rows.units if len(unit.tokens) <= PICTURED), key=len)
    assert found["shown"] == [vocabulary.tokenizer.id_to_token(token) for token in longest]
    alone = torch.cat(maps_of(encoder, rows_of([torch.tensor(longest)])))
    np.testing.assert_allclose(
        [head["picture"] for head in found["heads"]], alone.flatten(0, 1).numpy(), atol=6e-4
    )


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_full_stops_are_found_in_every_vocabulary(kind: str) -> None:
    some = [*sentences(200), *(f"深い{number}。 end{number}." for number in range(20))]
    vocabulary = train_vocabulary([some], Tokens(kind=kind), 500)
    found = set(_periods(vocabulary))
    asked = ["road .", "road.", "深い。"]
    assert all(vocabulary.encode([text])[0][-1] in found for text in asked)
    assert not found & set(vocabulary.encode(["the cat sees water"])[0])


def test_where_all_texts_are_long_the_picture_is_cut(vocabulary: Vocabulary) -> None:
    rows = encoded_texts([[" ".join(sentences(3, seed))] for seed in range(5)], vocabulary, 40)
    encoder = ENCODERS.get("albert")(Shape(len(vocabulary), 2, 32, 4, 48, 40)).eval()
    found = attention_heads(encoder, rows, vocabulary, CPU)
    assert len(found["heads"]) == 8 and found["tokens"] == len(found["shown"]) == PICTURED
    assert np.shape(found["heads"][0]["picture"]) == (PICTURED, PICTURED)


def test_weights_held_at_a_time_are_bounded(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long rows come alone, and those that are too long alone are left out."""
    rows = encoded_texts(
        [[" ".join(sentences(1 + seed % 3, seed))] for seed in range(12)], vocabulary, 40
    )
    encoder = ENCODERS.get("bert")(Shape(len(vocabulary), 1, 32, 4, 48, 40)).eval()
    whole = attention_heads(encoder, rows, vocabulary, CPU)
    sizes = sorted(4 * (-(-len(unit.tokens) // 8) * 8) ** 2 for unit in rows.units)
    held: list[int] = []
    plain = attention_module._probabilities

    def counted(*given: Any) -> Tensor:
        found = plain(*given)
        held.append(found.numel())
        return found

    monkeypatch.setattr(attention_module, "_probabilities", counted)
    for most, left in ((sizes[-1], 12), (sizes[-1] - 1, sum(size < sizes[-1] for size in sizes))):
        held.clear()
        monkeypatch.setattr(attention_module, "MOST_WEIGHTS", most)
        found = attention_heads(encoder, rows, vocabulary, CPU)
        assert whole is not None and found is not None
        assert found["texts"] == left < 13 and max(held) <= most
        assert left < 12 or found["heads"] == whole["heads"]
    monkeypatch.setattr(attention_module, "MOST_WEIGHTS", sizes[0] - 1)
    assert attention_heads(encoder, rows, vocabulary, CPU) is None
