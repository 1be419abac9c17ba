from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.tasks.word_samples import CONLLU, Letters, jsonl, lines
from torch.nn import functional

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import NONE, TASKS
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.tag import Tag

TRAIN = [
    Example(("Ann saw Rome",), ["B-PER", "O", "B-LOC"], "train", 1, ("Ann", "saw", "Rome")),
    Example(
        ("Ann Lee saw Bob .",),
        ["B-PER", "I-PER", "O", "B-PER", "O"],
        "train",
        2,
        ("Ann", "Lee", "saw", "Bob", "."),
    ),
]


def task(crf: bool = False) -> Tag:
    return Tag.from_examples(TRAIN, Kind(crf=crf))


def read(
    path: Path, labelled: bool = True, **columns: str
) -> list[tuple[int, tuple[str, ...], list[str] | None]]:
    examples, notes = Tag.read(path, Data(**columns), labelled)
    assert notes
    return [(example.line, example.words, example.label) for example in examples]


def problem(path: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        Tag.read(path, Data())
    assert caught.value.remedy and caught.value.file == path
    return caught.value


def test_tables_are_read(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "tokens": ["A", "b"], "pos_tags": [3, 0]},
        {"id": "b", "tokens": ["c"], "pos_tags": [1]},
    ]
    expected = [(1, ("A", "b"), ["3", "0"]), (2, ("c",), ["1"])]
    assert read(jsonl(tmp_path / "a.jsonl", rows)) == expected
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    assert read(tmp_path / "a.jsonl.gz") == expected
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == expected
    other = jsonl(tmp_path / "b.jsonl", [{"w": ["x"], "t": ["B-X"], "tags": [7], "tokens": ["no"]}])
    assert read(other, text_column="w", label_column="t") == [(1, ("x",), ["B-X"])]
    assert read(other) == [(1, ("no",), ["7"])]
    examples, _ = Tag.read(tmp_path / "a.jsonl", Data())
    assert examples[0].texts == ("A b",) and examples[0].file == str(tmp_path / "a.jsonl")


def test_empty_rows_are_left_out_with_a_note(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"words": ["a"], "tags": ["O"]}, {"words": [], "tags": []}])
    examples, notes = Tag.read(path, Data())
    assert len(examples) == 1 and "1 row without text left out (line 2)" in notes
    assert len(Tag.read(path, Data(), labelled=False)[0]) == 2


def test_faults_of_tables_name_file_and_line(tmp_path: Path) -> None:
    good = {"tokens": ["a"], "tags": ["O"]}
    for row, told in (
        ({"tokens": ["a", "b"], "tags": ["O"]}, "2 words in 'tokens' and 1 entries in 'tags'"),
        ({"tokens": "a", "tags": ["O"]}, "column 'tokens' is a str, not a list"),
        ({"tokens": ["a"], "tags": None}, "column 'tags' is empty"),
        ({"tokens": ["a"], "tags": [1.5]}, "the tag 1.5 in column 'tags' is not a name"),
        ({"tokens": ["a"], "tags": [" "]}, "is not a name"),
        ({"tokens": [5], "tags": ["O"]}, "the word 5 in column 'tokens' is not a text"),
    ):
        error = problem(jsonl(tmp_path / "a.jsonl", [good, row]))
        assert told in error.problem and error.line == 2


def test_columns_are_read(tmp_path: Path) -> None:
    text = (
        "-DOCSTART- -X- O O\n\n# id 1 is O\nEU NNP I-NP "
        "I-ORG\r\nrejects VBZ I-VP O\n\n\n# NN I-NP O\n#tag NN I-NP O\n"
    )
    expected = [(4, ("EU", "rejects"), ["I-ORG", "O"]), (8, ("#", "#tag"), ["O", "O"])]
    for name in ("a.conll", "a.txt", "a.bio", "a.iob"):
        assert read(lines(tmp_path / name, text)) == expected
    tabs = lines(tmp_path / "a.tsv", "# text = New York\nNew York\tB-LOC\n.\tO\n\n，\tO\n")
    assert read(tabs) == [(2, ("New York", "."), ["B-LOC", "O"]), (5, ("，",), ["O"])]
    assert read(tabs, labelled=False) == [(2, ("New York", "."), None), (5, ("，",), None)]
    assert read(lines(tmp_path / "b.conll", "one\n#two\n\nthree\n"), labelled=False) == [
        (1, ("one", "#two"), None),
        (4, ("three",), None),
    ]


def test_faults_of_columns_name_file_and_line(tmp_path: Path) -> None:
    for text, line, told in (
        ("a O\nb\n", 2, "the line has 1 columns, but the first one has 2"),
        ("a\tO\n\nb\t\n", 3, "the tag is empty"),
        ("# only\na\n", 2, "there are no tags"),
        ("Token\tTag\na\tO\n", 1, "names columns"),
    ):
        error = problem(lines(tmp_path / "a.conll", text))
        assert told in error.problem and error.line == line
    assert "no words" in problem(lines(tmp_path / "a.conll", "\n\n")).problem


def test_conllu_words_are_read_without_ranges_and_empty_nodes(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.conllu", CONLLU)
    words = ("In", "dem", "Haus", "regnet", "'s")
    assert read(path) == [
        (4, words, ["ADP", "DET", "NOUN", "VERB", "PRON"]),
        (12, ("Ja",), ["INTJ"]),
    ]
    assert read(path, labelled=False) == [(4, words, None), (12, ("Ja",), None)]
    error = problem(lines(tmp_path / "b.conllu", CONLLU.replace("\n2\tdem", "\n3\tdem")))
    assert "the number '3' instead of 2" in error.problem and error.line == 5
    error = problem(lines(tmp_path / "c.conllu", CONLLU.replace("NN\t_\t4", "NN _ 4")))
    assert "the line has 8 fields" in error.problem and error.line == 6


def test_unlabelled_text_is_split(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.txt", "Ann's 1,000.5 dogs, \n\n北京 हिन्दी\n")
    examples, _ = Tag.read(path, Data(), labelled=False)
    kept = [np.zeros(20, int)] * 3
    plain = Tag(["O", "X"], "plain")
    units = plain.encode(examples, Letters(), 64)
    found = [answer["words"] for answer in plain.answers(examples, units, kept)]
    assert found == [["Ann", "'", "s", "1,000.5", "dogs", ","], [], ["北", "京", "हिन्दी"]]
    characters = Tag.from_dict({**plain.to_dict(), "characters": True})
    assert characters.answers(examples, units, kept)[0]["words"] == list("Ann's1,000.5dogs,")
    table = jsonl(tmp_path / "a.jsonl", [{"text": "a b"}, {"text": None}])
    assert [example.texts for example in Tag.read(table, Data(), labelled=False)[0]] == [
        ("a b",),
        ("",),
    ]
    assert Tag.from_examples(
        [Example(("北 京",), ["B", "I"], words=("北", "京"))], Kind()
    ).characters
    assert not task().characters


@pytest.mark.parametrize("crf", [False, True])
def test_a_task_comes_back_from_json(crf: bool) -> None:
    made = task(crf)
    again = Tag.from_dict(json.loads(json.dumps(made.to_dict())))
    assert vars(again) == vars(made)
    assert made.labels == ["B-LOC", "B-PER", "I-PER", "O"] and made.scheme == "BIO"
    assert made.packs != crf and made.metrics == ("entity_f1", "accuracy")
    assert Tag(["NOUN"], "plain").metrics == ("accuracy",)
    assert TASKS.get("tag") is Tag


def test_first_pieces_carry_the_tags() -> None:
    units = task().encode(TRAIN, Letters(), 64)
    assert [unit.example for unit in units] == [0, 1]
    assert len(units[0].tokens) == 2 + 2 + 2 + 2 and units[0].places == [1, 3, 5]
    assert units[0].tokens[0] == Letters.cls and units[0].tokens[-1] == Letters.sep
    assert units[0].targets is not None and units[0].targets.tolist() == [1, 3, 0]
    assert units[1].tokens[9] == Letters.unk and units[1].places == [1, 3, 5, 7, 9]
    assert task().encode([Example(("Ann",), None)], Letters(), 64)[0].targets is None


def test_long_sentences_are_cut_between_words_and_all_words_are_answered() -> None:
    words = (
        "aaaa",
        "bb",
        "c" * 40,
        "dd",
        "ee",
        "ff",
        "gggg",
    )  # 2, 1, 20, 1, 1, 1, 2 tokens; rows have room for 4
    example = Example(
        (" ".join(words),), ["B-PER", "I-PER", "O", "B-LOC", "O", "O", "B-PER"], words=words
    )
    other = Example(("Ann",), ["B-PER"], words=("Ann",))
    units = task().encode([example, other], Letters(), 6)
    assert [len(unit.tokens) for unit in units] == [5, 6, 5, 4, 4]
    assert [unit.places for unit in units] == [[1, 3], [1], [1, 2, 3], [1], [1]]
    assert [unit.example for unit in units] == [0, 0, 0, 0, 1]
    answers = task().answers([example, other], units, [unit.targets for unit in units])
    assert [task().label_of(answer) for answer in answers] == [example.label, other.label]


def test_entities_stand_in_the_text_as_given() -> None:
    examples = [
        Example(("  Ann   Lee, Rome!",), None),
        Example(("Ann Lee",), None, words=("Ann", "Lee")),
    ]
    kept = [np.array([1, 2, 3, 0, 3]), np.array([1, 1])]
    first, second = task().answers(examples, task().encode(examples, Letters(), 64), kept)
    assert first == {
        "words": ["Ann", "Lee", ",", "Rome", "!"],
        "tags": ["B-PER", "I-PER", "O", "B-LOC", "O"],
        "entities": [
            {"type": "PER", "text": "Ann   Lee", "begin": 2, "end": 11, "words": [0, 1]},
            {"type": "LOC", "text": "Rome", "begin": 13, "end": 17, "words": [3, 3]},
        ],
    }
    assert [(entity["text"], entity["begin"], entity["end"]) for entity in second["entities"]] == [
        ("Ann", 0, 3),
        ("Lee", 4, 7),
    ]
    assert json.loads(json.dumps([first, second])) == [first, second]
    assert (
        "entities"
        not in Tag(["A", "B"], "plain").answers(
            examples[1:], task().encode(examples[1:], Letters(), 64), [np.zeros(2, int)]
        )[0]
    )


def test_linear_loss_is_a_sum_over_words() -> None:
    made = task()
    outputs = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([[1, 2, NONE], [0, NONE, NONE]])
    expected = sum(
        -functional.log_softmax(outputs[row, place], -1)[targets[row, place]]
        for row, place in ((0, 0), (0, 1), (1, 0))
    )
    torch.testing.assert_close(made.loss(outputs, targets), expected)
    assert made.count(targets) == 3
    assert made.keep(outputs[0].double().numpy()).tolist() == outputs[0].argmax(-1).tolist()


@pytest.mark.parametrize("crf", [False, True])
def test_heads_learn_the_tags_of_a_sentence(crf: bool) -> None:
    torch.manual_seed(0)
    made = task(crf)
    unit = made.encode(TRAIN, Letters(), 64)[1]
    states = torch.randn(1, 5, 8)
    head = made.head(8, 0.0)
    targets = torch.from_numpy(unit.targets)[None]
    optimiser = torch.optim.Adam(head.parameters(), 0.1)
    for _ in range(40):
        optimiser.zero_grad()
        loss = made.loss(head(states), targets)
        loss.backward()
        optimiser.step()
    outputs = head(states)[0].detach().double().numpy()
    assert outputs.shape == ((5, 4, 4) if crf else (5, 4))
    assert (
        made.label_of(
            made.answers(TRAIN[1:], made.encode(TRAIN[1:], Letters(), 64), [made.keep(outputs)])[0]
        )
        == TRAIN[1].label
    )


def test_audit() -> None:
    dev = [
        Example(("x y",), ["O", "I-PER"], "dev", 7, ("x", "y")),
        Example(("z",), ["B-GPE"], "dev", 9, ("z",)),
    ]
    test = [Example(("a " * 150,), ["O"] * 150, "test", 4, ("a",) * 150)]
    findings = {finding.check: finding for finding in task().audit(Splits(TRAIN, dev, test))}
    assert (
        findings["tags"].level == "ok"
        and "4 tags in the scheme BIO in train: B-PER 3, O 3, B-LOC 1, I-PER 1"
        in findings["tags"].message
    )
    assert findings["rare tags"].level == "warning"
    assert (
        findings["unknown tags"].level == "error" and "'B-GPE'" in findings["unknown tags"].message
    )
    assert findings["unknown tags"].examples == ("dev, line 9: word 1, 'z': B-GPE",)
    assert (
        findings["tag sequences"].level == "warning"
        and "1 of 2 sentences of dev" in findings["tag sequences"].message
    )
    assert findings["tag sequences"].examples == ("dev, line 7: word 2, 'y': I-PER after O",)
    assert findings["long sentences"].examples == ("test, line 4: 150 words",)
    clean = task().audit(Splits(TRAIN, TRAIN))
    assert {finding.level for finding in clean if finding.check != "rare tags"} == {"ok"}


def test_a_few_unknown_tags_are_a_warning_and_no_targets() -> None:
    test = [Example(("a " * 200,), ["O"] * 199 + ["B-GPE"], "test", 4, ("a",) * 200)]
    (finding,) = [
        finding
        for finding in task().audit(Splits(TRAIN, TRAIN, test))
        if finding.check == "unknown tags"
    ]
    assert finding.level == "warning" and "1 of 200 words of test" in finding.message
    targets = task().encode(test, Letters(), 512)[0].targets
    assert targets is not None and targets.tolist() == [3] * 199 + [NONE]


def test_baselines_by_hand() -> None:
    held = {"dev": [Example(("",), ["O"] * 5, words=("Ann", "Bob", "foosaw", "xLee", "zzz"))]}
    found = task().baselines(TRAIN, held, "accuracy")
    assert found["majority"] == {"dev": [["B-PER"] * 5]}
    assert found["most frequent tag of the word"] == {
        "dev": [["B-PER", "B-PER", "O", "I-PER", "B-PER"]]
    }


def test_metrics_are_those_of_the_scheme() -> None:
    assert task().metric("entity_f1").name == "entity_f1"
    assert Tag(["A"], "plain").metric("accuracy").name == "accuracy"
    with pytest.raises(RecipeError, match="are accuracy"):
        Tag(["A"], "plain").metric("entity_f1")
    with pytest.raises(RecipeError, match="entity_f1, accuracy"):
        task().metric("macro_f1")
