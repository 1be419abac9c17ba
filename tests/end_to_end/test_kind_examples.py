"""Examples of kinds: their batches, and layouts that other programs write."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import TASKS
from tasklm.tasks.readers.formats import recognise
from tasklm.tasks.readers.splits import resolved
from tasklm.tasks.readers.texts import PAIR_NAMES
from tasklm.tokens.example_streams import LENGTHS, ExampleStream
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.kind_data import CASES


@pytest.mark.parametrize(
    ("kind", "crf"), [("choice", False), ("span", False), ("parse", False), ("tag", True)]
)
def test_batches_of_few_shapes_have_the_loss_of_padded_ones(
    kind: str, crf: bool, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    (case,) = [case for case in CASES if case.kind == kind]
    path = case.write(tmp_path / f"train{case.suffix}", case.rows(21, 1))
    read = TASKS.get(kind)
    examples, _ = read.read(path, Data())
    task = read.from_examples(examples, Kind(crf=crf, stride=4))
    assert task.packs == (kind == "choice")
    torch.manual_seed(0)
    table = torch.nn.Embedding(
        len(vocabulary), 16
    )  # in place of an encoder: padding must not matter to the head and the loss
    head = task.head(16, 0.0)
    encoded = EncodedExamples.of(task, examples, vocabulary, 24)

    def epoch(one_shape: bool) -> tuple[set[tuple[int, ...]], float, int]:
        stream = ExampleStream(
            encoded, 4 * task.together, seed=1, one_shape=one_shape, packs=task.packs
        )
        shapes, loss, count = set(), 0.0, 0
        for _ in range(len(stream)):
            batch = stream.next()
            assert batch.places is not None and batch.targets is not None
            shapes.add((*batch.ids.shape, *batch.places.shape, *batch.targets.shape))
            states = table(batch.ids).gather(1, batch.places.unsqueeze(-1).expand(-1, -1, 16))
            loss += task.loss(head(states), batch.targets).item()
            count += task.count(batch.targets)
        return shapes, loss, count

    (padded_shapes, padded, padded_count), (shapes, loss, count) = epoch(False), epoch(True)
    assert len(shapes) <= (1 if task.packs else LENGTHS) and len(padded_shapes) > 1
    assert loss == pytest.approx(padded, rel=1e-5) and count == padded_count > 0


@pytest.mark.parametrize("pair", PAIR_NAMES, ids=",".join)
def test_pairs_that_are_recognised_are_read_as_pairs_when_they_are_to_be_predicted(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    rows = [
        {pair[0]: one, pair[1]: "other", "label": "ab"[place % 2]}
        for place, one in enumerate(sentences(8))
    ]
    path = write_jsonl(tmp_path / "train.jsonl", rows)
    found = recognise(path)
    assert (found.kind, found.columns) == ("classify", {"text": ",".join(pair), "label": "label"})
    examples, _ = TASKS.get("classify").read(path, Data(), labelled=False)
    assert [example.texts for example in examples] == [(row[pair[0]], "other") for row in rows]


def test_options_with_names_as_ai2_writes_them(tmp_path: Path) -> None:
    choices = [
        {"text": ["a road", "a ball"], "label": ["A", "B"]},
        {"text": ["1", "2", "3"], "label": ["1", "2", "3"]},
    ]
    rows = [
        {"question": "which ?", "choices": cell, "answerKey": key}
        for cell, key in zip(choices, ("B", "3"), strict=True)
    ]
    path = write_jsonl(tmp_path / "train.jsonl", rows)
    data = resolved(Data(train=str(path)))
    assert data.kind == "choice"
    examples, _ = TASKS.get("choice").read(path, data)
    assert [(example.options, example.label) for example in examples] == [
        (("a road", "a ball"), 1),
        (("1", "2", "3"), 2),
    ]
    unlabelled, _ = TASKS.get("choice").read(path, Data(), labelled=False)
    assert [(example.options, example.label) for example in unlabelled] == [
        (("a road", "a ball"), None),
        (("1", "2", "3"), None),
    ]
