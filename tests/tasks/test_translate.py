"""Kind translate: files, vocabularies that write any text, what is cut, and a task that is
learnt.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import write_jsonl

from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.errors import DataError, RecipeError
from tasklm.models.task_model import TaskModel, kept_of, new_encoder
from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.model_sections import Tokens
from tasklm.tasks.audit import audit_splits
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.formats import recognise
from tasklm.tasks.translate import Translate
from tasklm.tasks.writing import with_search
from tasklm.tokens.both_texts import both_texts
from tasklm.tokens.example_streams import ExampleStream
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary, writing_vocabulary

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
CPU = Machine(torch.device("cpu"), False, 1)


def pairs(count: int, seed: int) -> list[Example]:
    """Numbers, and their names in German, the first of them last."""
    german = dict(
        zip(
            NUMBERS,
            ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"],
            strict=True,
        )
    )
    draw, examples = random.Random(seed), []
    for _ in range(count):
        words = draw.choices(NUMBERS, k=draw.randint(1, 2))
        target = ", ".join(german[word] for word in [*words[1:], words[0]]).capitalize() + "!"
        examples.append(Example((" ".join(words), target), (target,)))
    return examples


def vocabulary_of(examples: list[Example], lowercase: bool = False) -> Vocabulary:
    settings = Tokens(kind="bpe", lowercase=lowercase)
    return train_vocabulary([[one.text for one in examples]], settings, 400, exact=True)


def test_a_task_is_learnt_and_written_as_ordinary_text() -> None:
    torch.manual_seed(0)
    train, test = pairs(400, 0), pairs(60, 1)
    task = Translate.from_examples(train, Kind(decoder_layers=1, beam=2))
    vocabulary = vocabulary_of(train)
    encoded = EncodedExamples.of(task, train, vocabulary, 24)
    unlabelled = [Example(one.texts[:1], None) for one in test]
    asked = EncodedExamples.of(task, unlabelled, vocabulary, 24)
    shape = Shape(-(-len(vocabulary) // 64) * 64, 1, 64, 2, 128, 24)
    model = TaskModel(new_encoder("bert", shape), task.head(64, 0.0))
    stream = ExampleStream(encoded, 32, 0, packs=task.packs)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(1, 211):
        batch = stream.next()
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1.0, step / 40)
        assert batch.targets is not None
        optimiser.zero_grad()
        loss = task.loss(model(batch), batch.targets) / task.count(batch.targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < 0.2 * np.mean(losses[:10])

    outputs = kept_of([model], task, asked, CPU, finite=True)
    answers = json.loads(json.dumps(task.answers(asked.examples, asked.units, outputs)))
    right = [answer["target"] == one.label[0] for answer, one in zip(answers, test, strict=True)]
    assert np.mean(right) > 0.9
    twice = kept_of([model, model], task, asked, CPU, finite=True)
    again = task.answers(asked.examples, asked.units, twice)
    assert [one["target"] for one in again] == [one["target"] for one in answers]
    three = with_search(task, beam=None, best=3)
    many = three.answers(asked.examples, asked.units, kept_of([model], three, asked, CPU))
    for answer, listed in zip(answers, many, strict=True):
        texts = [one["text"] for one in listed["candidates"]]
        scores = [one["score"] for one in listed["candidates"] if "unfinished" not in one]
        assert 1 <= len(texts) == len(set(texts)) <= 3 and listed["target"] == texts[0]
        assert scores == sorted(scores, reverse=True) and answer["score"] <= scores[0] + 1e-4


def test_batches_of_few_shapes_have_the_loss_of_padded_ones() -> None:
    train = pairs(21, 3)
    task = Translate.from_examples(train, Kind(decoder_layers=1))
    vocabulary = vocabulary_of(train)
    encoded = EncodedExamples.of(task, train, vocabulary, 40)
    model = TaskModel(new_encoder("bert", Shape(512, 1, 16, 2, 32, 40)), task.head(16, 0.0)).eval()
    totals, shapes = [], []
    for one_shape in (False, True):
        stream = ExampleStream(encoded, 4, 1, one_shape=one_shape, packs=task.packs)
        loss, count, own = 0.0, 0, set()
        for _ in range(len(stream)):
            batch = stream.next()
            assert batch.targets is not None
            own.add((*batch.ids.shape, *batch.targets.shape))
            with torch.no_grad():
                loss += float(task.loss(model(batch), batch.targets))
            count += task.count(batch.targets)
        totals.append((pytest.approx(loss, rel=1e-4), count))
        shapes.append(own)
    assert totals[0] == totals[1] and len(shapes[1]) <= 3


@pytest.mark.parametrize(
    "text",
    [
        'An ordinary sentence, isn\'t it? — "Yes" (3.5 %)!',
        "two  spaces\tand\na new line",
        "日本語のテキスト。空白なし",
        "emoji 🦊 and ẞ, never seen before",
        "ångström naïve İstanbul",
    ],
)
def test_any_text_can_be_written_with_the_vocabulary_of_the_kind(text: str) -> None:
    vocabulary = vocabulary_of(pairs(50, 0))
    (tokens,) = vocabulary.encode([text])
    assert vocabulary.unk not in tokens
    assert vocabulary.decode(tokens).strip() == text
    (folded,) = vocabulary_of(pairs(50, 0), lowercase=True).encode([text.upper()])
    assert folded


def test_a_written_text_is_a_target_like_a_right_one() -> None:
    """As `explain` has it, which asks what made the model write it. It may be empty."""
    right = [*pairs(5, 0), Example(("one", ""), ("",))]
    written = [replace(one, label=one.label[0]) for one in right]
    task, vocabulary = Translate.from_examples(right, Kind()), vocabulary_of(right)
    ours, theirs = (
        [unit.targets for unit in EncodedExamples.of(task, some, vocabulary, 24).units]
        for some in (written, right)
    )
    assert len(ours[0]) > 2  # all of the text, not its first letter
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_subwords_that_cannot_write_are_replaced_or_refused() -> None:
    assert writing_vocabulary("wordpiece") == writing_vocabulary("bpe") == "bpe"
    assert writing_vocabulary("file") == "file"
    with pytest.raises(RecipeError, match=r"tokens.kind = 'unigram'.*set it to bpe"):
        writing_vocabulary("unigram")


def test_what_does_not_fit_is_cut_and_counted() -> None:
    long = " ".join(NUMBERS * 5)
    examples = [Example((long, long), (long,)), Example(("one", "eins"), ("eins",))]
    task, vocabulary = Translate.from_examples(pairs(9, 0), Kind()), vocabulary_of(pairs(50, 0))
    first, second = task.encode(examples, vocabulary, 16)
    assert len(first.tokens) == 16 and first.tokens[-1] == vocabulary.sep
    assert first.targets is not None and len(first.targets) == 16
    assert vocabulary.sep not in first.targets  # a text that is cut has no end to learn
    assert second.targets is not None and second.targets[-1] == vocabulary.sep
    nothing = np.full((5, 4), -1.0)
    nothing[:, 0], nothing[:, 1] = -1e9, 0
    nothing[0] = [-0.5, 0.0, 9.0, 9.0]
    cut, whole = task.answers(examples, [first, second], [nothing, nothing])
    assert cut["unread"] == len(vocabulary.encode([long])[0]) - 14 and cut["unfinished"] is True
    assert "unread" not in whole


def test_both_texts_are_rows_of_the_language_model() -> None:
    train = pairs(7, 0)
    task, vocabulary = Translate.from_examples(train, Kind()), vocabulary_of(train)
    rows = both_texts(EncodedExamples.of(task, train, vocabulary, 24))
    assert len(rows) == 14 and all(unit.targets is None for unit in rows.units)
    texts = [vocabulary.decode(unit.tokens[1:-1]).strip() for unit in rows.units]
    assert texts == [*(one.texts[0] for one in train), *(one.texts[1] for one in train)]


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"source": f"One man number {i} sleeps.", "target": f"Ein Mann mit Nummer {i} schläft."}
        for i in range(count)
    ]


def test_files_are_known_by_names_or_as_two_columns_of_texts(tmp_path: Path) -> None:
    found = recognise(write_jsonl(tmp_path / "a.jsonl", rows(30)))
    assert (found.kind, found.columns) == ("translate", {"text": "source", "label": "target"})
    assert recognise(write_jsonl(tmp_path / "few.jsonl", rows(2))).kind == "translate"
    table = tmp_path / "b.tsv"
    lines = [f"{row['source']}\t{row['target']}\n" for row in rows(30)]
    table.write_text("en\tde\n" + "".join(lines), encoding="utf-8")
    found = recognise(table)
    assert (found.kind, found.columns) == ("translate", {"text": "en", "label": "de"})
    examples, (note,) = Translate.read(table, Data())
    assert examples[1].texts == tuple(rows(2)[1].values()) and examples[1].line == 3
    assert note == "text to read: column 'en', text to write: column 'de'"
    classes = [{"source": row["source"], "target": "ab"[i % 2]} for i, row in enumerate(rows(30))]
    assert recognise(write_jsonl(tmp_path / "c.jsonl", classes)).kind == "classify"


def test_several_right_texts_count(tmp_path: Path) -> None:
    given = [
        {**row, "references": [row["target"], f"Noch einer {i}."]} for i, row in enumerate(rows(3))
    ]
    examples, _ = Translate.read(write_jsonl(tmp_path / "a.jsonl", given), Data())
    assert examples[2].label == ("Ein Mann mit Nummer 2 schläft.", "Noch einer 2.")
    given[1]["references"] = "none"
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: 'references' is not a list of texts"):
        Translate.read(write_jsonl(tmp_path / "a.jsonl", given), Data())


def test_columns_that_cannot_be_told_are_asked_for(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"a": "x", "b": "y", "c": "z"}] * 3)
    with pytest.raises(DataError, match=r"line 1: no column is known .*--text-column"):
        Translate.read(path, Data())
    with pytest.raises(DataError, match="'d'"):
        Translate.read(path, Data(text_column="d"))
    examples, _ = Translate.read(path, Data(text_column="c", label_column="a"))
    assert examples[0].texts == ("z", "x")
    unlabelled, _ = Translate.read(path, Data(text_column="b"), labelled=False)
    assert unlabelled[0].texts == ("y",) and unlabelled[0].label is None
    (tmp_path / "a.txt").write_text("eins\nzwei\n", encoding="utf-8")
    lines, _ = Translate.read(tmp_path / "a.txt", Data(), labelled=False)
    assert [one.texts for one in lines] == [("eins",), ("zwei",)]


def test_the_audit_sees_odd_pairs_seen_sources_and_copies() -> None:
    train = pairs(30, 0)
    odd = [replace(one, texts=(one.texts[0], one.texts[1] * 9)) for one in train[:3]]
    task = Translate.from_examples(train, Kind())
    findings = {one.check: one for one in task.audit(Splits([*odd, *train[3:]], [], train[:5]))}
    assert findings["lengths"].level == "warning" and len(findings["lengths"].examples) == 3
    assert findings["sources"].level == "warning" and findings["copies"].level == "ok"


def test_a_saved_task_is_read_again_and_checked() -> None:
    task = Translate.from_examples(pairs(9, 0), Kind(decoder="lstm", beam=3, length_penalty=0.5))
    values = json.loads(json.dumps(task.to_dict()))
    assert Translate.from_dict(values).to_dict() == values and values["decoder_layers"] == 1
    for key, wrong in (("decoder", "x"), ("beam", 0), ("stretch", -1.0), ("written_tokens", "9")):
        with pytest.raises(ValueError):
            Translate.from_dict({**values, key: wrong})


def test_baselines_write_something_for_every_source() -> None:
    train, test = pairs(80, 0), pairs(20, 1)
    task = Translate.from_examples(train, Kind())
    texts = task.baselines(train, {"dev": test}, "bleu")
    assert list(texts) == ["source as it is", "text of the nearest source", "word for word"]
    assert texts["source as it is"]["dev"] == [one.texts[0] for one in test]
    known = {one.texts[0]: one.texts[1] for one in train}
    assert set(texts["text of the nearest source"]["dev"]) <= set(known.values())
    (word,) = task.baselines(train, {"dev": [Example(("four", ""), ("",))]}, "bleu")[
        "word for word"
    ]["dev"]
    assert word.lower().strip(",!") == "vier"


def test_pairs_that_differ_in_case_repeat_and_do_not_conflict() -> None:
    one, other = (Example(("Good day", text), (text,)) for text in ("Guten Tag", "guten tag"))
    findings = {found.check: found for found in audit_splits(Splits([one, other], []), Data())}
    assert "conflicting labels" not in findings
    assert findings["duplicates"].level == "warning"
    assert "1 of 2 examples" in findings["duplicates"].message
    classes = [replace(one, texts=("Good day",), label=label) for label in ("a", "b")]
    found = {found.check for found in audit_splits(Splits(classes, []), Data())}
    assert "conflicting labels" in found
