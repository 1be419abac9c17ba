from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasklm.errors import RunError
from tasklm.tokens import batches
from tasklm.tokens.batches import PackedStream
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
