"""The benchmark of padded and packed batches: the same examples in every way, and a small run of
it.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.tokens.batches import TokenBatch
from tests.conftest import sentences

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def pieces_of(batch: TokenBatch) -> list[tuple[int, ...]]:
    """The tokens of every piece of a batch, read off piece numbers and positions."""
    found = []
    for ids, pieces, positions in zip(batch.ids, batch.pieces, batch.positions, strict=True):
        for piece in range(1, int(pieces.max()) + 1):
            inside = pieces == piece
            assert positions[inside].tolist() == list(range(int(inside.sum())))
            found.append(tuple(ids[inside].tolist()))
    return found


def test_every_way_holds_the_same_examples(module: Any) -> None:
    batching = module("training_peers.batching")
    examples = batching.Examples.draw(
        [3, 5, 9, 20, 100], longest=30, count=100, vocabulary=50, seed=3
    )
    assert set(examples.lengths) == {3, 5, 9, 20, 30}
    expected = sorted(tuple(row.tolist()) for row in examples.rows)
    filled = {}
    for way in batching.WAYS:
        made = batching.batches(examples, way, 8, seed=1)
        assert sorted(piece for batch in made for piece in pieces_of(batch)) == expected
        assert [len(pieces_of(batch)) for batch in made] == [8] * 12 + [4]
        filled[way] = examples.tokens / sum(batch.ids.numel() for batch in made)
    assert {
        batch.ids.shape[1]
        for batch in batching.batches(examples, "padded to the longest of all", 8, seed=1)
    } == {32}
    assert (
        filled["padded to the longest of all"]
        < filled["padded per batch"]
        < filled["padded, sorted by length"]
        < 1
    )
    assert filled["packed rows"] > filled["padded per batch"] and filled["variable-length"] == 1


def test_bounds_are_where_examples_begin(module: Any) -> None:
    batching = module("training_peers.batching")
    examples = batching.Examples.draw([4, 6, 11], longest=30, count=20, vocabulary=50, seed=3)
    for batch in batching.batches(examples, "variable-length", 5, seed=1):
        assert batch.bounds.dtype == torch.int32 and batch.longest == 11
        starts = [*(batch.positions[0] == 0).nonzero().flatten().tolist(), batch.ids.shape[1]]
        assert batch.bounds.tolist() == starts


def test_an_example_has_the_same_hidden_states_padded_and_packed(module: Any) -> None:
    batching = module("training_peers.batching")
    torch.manual_seed(0)
    model = Bert(Shape(vocabulary=50, layers=2, width=64, heads=1, feedforward=128, positions=32))
    examples = batching.Examples.draw([3, 5, 9, 20], longest=30, count=12, vocabulary=50, seed=3)

    def states(way: str) -> dict[tuple[int, ...], np.ndarray]:
        found = {}
        for batch in batching.batches(examples, way, 6, seed=1):
            hidden = model(batch).detach()
            for row in range(len(batch.ids)):
                for piece in range(1, int(batch.pieces[row].max()) + 1):
                    inside = batch.pieces[row] == piece
                    found[tuple(batch.ids[row][inside].tolist())] = hidden[row][inside].numpy()
        return found

    padded, packed = states("padded per batch"), states("packed rows")
    assert padded.keys() == packed.keys()
    for example, expected in padded.items():
        np.testing.assert_allclose(packed[example], expected, atol=2e-5)


def test_lengths_count_marks_and_both_texts(module: Any, tmp_path: Path) -> None:
    lengths = module("lengths")
    rows = [
        {"text_a": first, "text_b": second}
        for first, second in zip(sentences(60, 1), sentences(60, 2), strict=True)
    ]
    for name, written in {"pairs": rows, "tags": [{"tokens": ["a"]}]}.items():
        (tmp_path / name).mkdir()
        with gzip.open(tmp_path / name / "train.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in written)
    assert lengths.read_texts(tmp_path / "tags" / "train.jsonl.gz", 50) == []
    texts = lengths.read_texts(tmp_path / "pairs" / "train.jsonl.gz", 50)
    assert texts == [[row["text_a"], row["text_b"]] for row in rows[:50]]
    counts = lengths.count_tokens(
        [["a b", "a"], ["b a b a", ""], ["b", "b"]]
    )  # every word is a token
    assert counts == [6, 7, 5]


def test_a_quick_run_compares_the_ways(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "lengths.json").write_text(
        json.dumps({"short": [4, 5, 6, 7], "long": [10, 40, 300]}), encoding="utf-8"
    )
    where = [
        "--work",
        str(tmp_path),
        "--device",
        "cpu",
        "--lengths",
        str(tmp_path / "lengths.json"),
        "--tasks",
        "long",
    ]
    monkeypatch.setattr(sys, "argv", ["attention.py", "--quick", *where])
    module("attention").main()
    (cases,) = json.loads((tmp_path / "attention.json").read_text(encoding="utf-8"))[
        "devices"
    ].values()
    assert list(cases) == ["long, 1x64"] and cases["long, 1x64"]["about"]["longest"] == 64
    ways = cases["long, 1x64"]["ways"]
    assert len(ways) == 4 and all(way["tokens_per_second"] > 0 for way in ways.values())
    assert "| padded per batch |" in capsys.readouterr().out
