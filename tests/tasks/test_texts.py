"""Columns of one text or a pair, and their tokens, against a cut of one token at a time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.conftest import write_jsonl

from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.texts import (
    cut,
    encode_examples,
    encode_texts,
    find_columns,
    label_name,
    read_text_examples,
    read_texts,
)
from tasklm.tokens.tokenizer import Vocabulary


@pytest.mark.parametrize(
    "names",
    [
        ("text_a", "text_b"),
        ("sentence1", "Sentence2"),
        ("premise", "hypothesis"),
        ("question", "sentence"),
        ("question1", "question2"),
    ],
)
def test_pairs_are_found_by_their_names(tmp_path: Path, names: tuple[str, str]) -> None:
    path = write_jsonl(
        tmp_path / "a.jsonl",
        [{"label": i, names[1]: f"second {i}", names[0]: f"first {i}"} for i in range(3)],
    )
    assert find_columns(path, Data()).texts == names
    assert list(read_texts(path, Data()))[1:] == [
        (("first 1", "second 1"), 1, 2),
        (("first 2", "second 2"), 2, 3),
    ]
    assert next(read_texts(path, Data(), labelled=False)) == (("first 0", "second 0"), None, 1)


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "a.jsonl", [{"a": "one", "b": "two", "c,d": "three", "text": "four", "label": 1}]
    )
    assert next(read_texts(path, Data(text_column="b, a")))[0] == ("two", "one")
    assert next(read_texts(path, Data(text_column="c,d")))[0] == ("three",)
    assert next(read_texts(path, Data(label_column="a")))[:2] == (("four",), "one")
    with pytest.raises(DataError, match=r"line 1: there is no column 'x'"):
        find_columns(path, Data(text_column="a,x"))
    for given in ("a,b,text", "a,a"):
        with pytest.raises(DataError, match="one column, or two different ones"):
            find_columns(path, Data(text_column=given))
    with pytest.raises(DataError, match="both text and label"):
        find_columns(path, Data(text_column="a,b", label_column="b"))


def test_other_columns_are_found_by_their_shape(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"n{i}",
            "what": f"a rather long statement number {i}",
            "verdict": "no" if i % 3 else "yes",
        }
        for i in range(30)
    ]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    found = find_columns(path, Data())
    assert (found.texts, found.label) == (("what",), "verdict")
    assert found.note() == "text column 'what', label column 'verdict'"


def test_rows_without_any_text_are_left_out_unless_answers_are_wanted(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"text_a": "a", "text_b": "", "label": 0},
        {"text_a": " ", "text_b": None, "label": 1},
    ]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    examples, notes = read_text_examples(path, Data(), True, label_name)
    assert examples == [Example(("a", ""), "0", str(path), 1)]
    assert notes == [
        "text columns 'text_a' and 'text_b', label column 'label'",
        "1 row without text left out (line 2)",
    ]
    assert [
        example.texts for example in read_text_examples(path, Data(), False, label_name)[0]
    ] == [("a", ""), (" ", "")]
    with pytest.raises(DataError, match="no row has a text"):
        read_text_examples(write_jsonl(tmp_path / "b.jsonl", rows[1:]), Data(), True, label_name)


def test_plain_lines_have_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n\ntwo\n", encoding="utf-8")
    assert list(read_texts(path, Data(), labelled=False)) == [
        (("one",), None, 1),
        (("",), None, 2),
        (("two",), None, 3),
    ]
    with pytest.raises(DataError, match="a plain text file has no labels"):
        list(read_texts(path, Data()))


def cut_by_hand(parts: list[list[int]], budget: int) -> list[list[int]]:
    parts = [list(part) for part in parts]
    while sum(map(len, parts)) > budget:
        longest = max(map(len, parts))
        next(part for part in reversed(parts) if len(part) == longest).pop()
    return parts


@pytest.mark.parametrize("seed", range(40))
def test_the_longest_part_is_cut_first(seed: int) -> None:
    draw = random.Random(seed)
    parts = [list(range(draw.randrange(12))) for _ in range(draw.randrange(1, 4))]
    budget = draw.randrange(30)
    assert cut(parts, budget) == cut_by_hand(parts, budget)


def test_tokens_of_a_pair(vocabulary: Vocabulary) -> None:
    texts = ("the cat likes music", "a dog")
    one, other = vocabulary.encode(texts)
    unit = encode_texts(texts, vocabulary, 100)
    assert unit.tokens == [vocabulary.cls, *one, vocabulary.sep, *other, vocabulary.sep]
    assert (unit.places, unit.targets, unit.tokens[unit.second : unit.second + len(other)]) == (
        [0],
        None,
        other,
    )
    single = encode_texts(texts[:1], vocabulary, 5)
    assert (single.tokens, single.second) == ([vocabulary.cls, *one[:3], vocabulary.sep], 0)
    assert len(encode_texts(texts, vocabulary, 8).tokens) == 8
    many = encode_examples([Example(texts[:1], None), Example(texts, None)], vocabulary, 8)
    assert [found.tokens for found in many] == [
        encode_texts(part, vocabulary, 8).tokens for part in (texts[:1], texts)
    ]
    assert [found.example for found in many] == [0, 1]
