"""The benchmark of the Bi-LSTM: both sides train the same shape."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import bilstm
from tasklm.encoders.bilstm import BiLstm
from tasklm.encoders.shapes import shape_of
from tasklm.recipe.model_sections import Model


def test_both_sides_have_the_same_shape_and_read_the_same_tokens() -> None:
    sentences = bilstm.made_up(40)
    model = Model(encoder="bilstm", width=8, embedding=12)
    shape = shape_of(model, "medium", len(sentences.vocabulary), 128)
    plain, ours = bilstm.Plain(shape, sentences), BiLstm(shape)
    sizes = [sum(p.numel() for p in one.parameters()) for one in (plain, ours)]
    tags = plain.tags.weight.numel() + plain.tags.bias.numel()
    second_biases = 2 * 4 * (shape.feedforward + shape.width)  # PyTorch's cells have two biases
    assert sizes[0] - tags - second_biases == sizes[1]
    ids, lengths, wanted = next(bilstm.batches_of(sentences, 4))
    assert plain(ids, lengths).shape == (*ids.shape, 3)
    assert ((wanted >= 0).sum(1) <= lengths).all() and ids.shape[1] == lengths.max()


def test_a_row_for_each_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "x --widths 8,16 --batch 4 --sentences 30 --seconds 0 --embedding 12 --device cpu"
    monkeypatch.setattr(sys, "argv", [*words.split(), "--threads", "1"])
    bilstm.main()
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows[2:]] == ["8", "16"]
    assert torch.get_num_threads() == 1
