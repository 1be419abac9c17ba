from __future__ import annotations

import numpy as np
import torch

from tasklm.tokens.examples import EncodedExamples, ExampleStream
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences


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
    batch = examples.padded(np.array([0, 1]))
    assert torch.equal(batch.pieces == 0, batch.ids == vocabulary.pad)
    assert batch.ids.shape[1] % 8 == 0
