from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tasklm.errors import RunError
from tasklm.tokens import batches
from tasklm.tokens.batches import EncodedExamples, ExampleStream, PackedStream
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences


def shards_in(folder: Path, vocabulary: Vocabulary, count: int = 50) -> Shards:
    texts = sentences(count)
    write_shards(folder, [texts[:20], texts[20:]], vocabulary)
    return Shards.open(folder)


def test_shards_hold_what_the_vocabulary_encodes(tmp_path: Path, vocabulary: Vocabulary) -> None:
    shards = shards_in(tmp_path, vocabulary)
    for number, wanted in enumerate(vocabulary.encode(sentences(50))):
        assert shards.tokens[shards.offsets[number] : shards.offsets[number + 1]].tolist() == wanted


def test_damaged_shards_are_refused(tmp_path: Path, vocabulary: Vocabulary) -> None:
    shards_in(tmp_path, vocabulary)
    path = tmp_path / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="damaged"):
        Shards.open(tmp_path)


def test_packed_stream_continues_where_it_was(tmp_path: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "WINDOW", 16)  # several windows per epoch
    shards = shards_in(tmp_path, vocabulary)
    stream = PackedStream(shards, vocabulary, 32, 5, seed=3)
    for _ in range(7):
        stream.next()
    state = stream.state()
    wanted = [stream.next().ids for _ in range(20)]
    assert stream.epoch > state["epoch"]  # the comparison crosses an epoch
    again = PackedStream(shards, vocabulary, 32, 5, seed=3)
    again.restore(state)
    assert all(torch.equal(again.next().ids, ids) for ids in wanted)


def test_example_stream_gives_each_example_once_per_epoch(vocabulary: Vocabulary) -> None:
    texts = [(text,) for text in sentences(23)]
    examples = EncodedExamples(texts, vocabulary, 32, torch.arange(23))
    stream = ExampleStream(examples, 4, seed=1)
    first = torch.cat([stream.next().targets for _ in range(len(stream))])  # type: ignore[misc]
    second = torch.cat([stream.next().targets for _ in range(len(stream))])  # type: ignore[misc]
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(23))
    assert first.tolist() != second.tolist()


def test_pairs_are_joined_and_the_longer_part_is_cut(vocabulary: Vocabulary) -> None:
    short, long = "the cat", " ".join(["cold water"] * 40)
    row = EncodedExamples([(short, long)], vocabulary, 24, None).rows[0]
    kept = vocabulary.encode([short])[0]
    assert len(row) == 24 and row[0] == vocabulary.cls
    assert row[1 : 1 + len(kept)] == kept and row[1 + len(kept)] == vocabulary.sep and row[-1] == vocabulary.sep


def test_padding_is_marked(vocabulary: Vocabulary) -> None:
    examples = EncodedExamples([("the cat",), ("the cat likes the red ball",)], vocabulary, 64, None)
    batch = examples.batch(np.array([0, 1]))
    assert torch.equal(batch.pieces == 0, batch.ids == vocabulary.pad)
    assert batch.ids.shape[1] % 8 == 0
