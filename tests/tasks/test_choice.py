"""Choices: loss against a softmax by hand, options that are not there, layouts of files, answers in
three forms.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.conftest import write_jsonl
from tests.tasks.fitted import fitted_baselines

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import NONE, TASKS
from tasklm.tasks.choice import Choice
from tasklm.tasks.examples import Example, Splits
from tasklm.tokens.tokenizer import Vocabulary


def example(
    options: str,
    label: int | None,
    article: str = "the cat likes music",
    question: str = "a dog",
    line: int = 1,
) -> Example:
    names = tuple(options.split())
    return Example((article, question, *names), label, "f", line, options=names)


def batch(task: Choice, examples: list[Example], vocabulary: Vocabulary) -> torch.Tensor:
    return torch.tensor(np.array([unit.targets for unit in task.encode(examples, vocabulary, 32)]))


def test_loss_is_a_softmax_over_the_options_that_are_there(vocabulary: Vocabulary) -> None:
    examples = [example("cat dog bird", 2), example("cat dog", 1)]
    task = Choice.from_examples(examples, Kind())
    targets = batch(task, examples, vocabulary)
    assert targets.tolist() == [
        [[2, 3]],
        [[NONE, 3]],
        [[NONE, 3]],
        [[1, 2]],
        [[NONE, 2]],
        [[NONE, 2]],
    ]
    outputs = torch.tensor([0.3, -1.0, 0.7, 2.0, 1.5, 9.0], requires_grad=True)
    expected = (
        math.log(sum(map(math.exp, (0.3, -1.0, 0.7))))
        - 0.7
        + math.log(math.exp(2.0) + math.exp(1.5))
        - 1.5
    )
    loss = task.loss(outputs.view(6, 1, 1), targets)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert task.count(targets) == 2
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[5] == 0
    assert (outputs.grad[:5] != 0).all()


def test_padding_adds_nothing(vocabulary: Vocabulary) -> None:
    examples = [example("cat dog bird", 1)]
    task = Choice.from_examples(examples, Kind())
    targets = torch.cat([batch(task, examples, vocabulary), torch.full((3, 1, 2), NONE)])
    outputs = torch.randn(6, 1, 1, requires_grad=True)
    loss = task.loss(outputs, targets)
    loss.backward()
    assert outputs.grad is not None
    assert torch.isfinite(outputs.grad).all()
    assert (outputs.grad[3:] == 0).all()
    assert loss.item() == pytest.approx(task.loss(outputs[:3].detach(), targets[:3]).item())
    assert task.count(targets) == 1


def test_layout_of_tokens(vocabulary: Vocabulary) -> None:
    task, one = Choice(3), example("cat dog", 0)
    article, question, cat, dog = vocabulary.encode(one.texts)
    cls, sep = vocabulary.cls, vocabulary.sep
    units = task.encode([one, example("cat dog", None)], vocabulary, 64)
    assert [unit.tokens for unit in units[:3]] == [
        [cls, *article, sep, *question, sep, *cat, sep],
        [cls, *article, sep, *question, sep, *dog, sep],
        [cls, sep],
    ]
    assert [unit.example for unit in units] == [0, 0, 0, 1, 1, 1]
    assert [unit.places for unit in units] == [[0]] * 6
    assert units[0].tokens[units[0].second :] == [*question, sep, *cat, sep]
    assert all(unit.targets is None for unit in units[3:])
    cramped = 4 + len(question) + len(cat) + 2  # room for two tokens of the article
    assert task.encode([one], vocabulary, cramped)[0].tokens == [
        cls,
        *article[:2],
        sep,
        *question,
        sep,
        *cat,
        sep,
    ]
    long = Example(("cat", "a dog " * 50, "music " * 50, "dog"), 0, options=("music " * 50, "dog"))
    units = task.encode([long], vocabulary, 16)
    assert [len(unit.tokens) for unit in units] == [16, 16, 2]
    assert units[0].tokens[:2] == [
        cls,
        sep,
    ]  # nothing is left of the text, and question and option share the rest
    assert units[0].tokens[:-1].index(sep, 2) == 8
    with pytest.raises(
        DataError, match="f, line 7: the question has 4 options, but those of train have at most 3"
    ):
        task.encode([example("a b c d", 0, line=7)], vocabulary, 32)


def test_without_a_question_there_are_two_parts(vocabulary: Vocabulary) -> None:
    one = Example(("the cat", "music", "dog"), 1, options=("music", "dog"))
    text, music, _ = vocabulary.encode(one.texts)
    unit = Choice(2).encode([one], vocabulary, 32)[0]
    assert unit.tokens == [vocabulary.cls, *text, vocabulary.sep, *music, vocabulary.sep]
    assert unit.tokens[unit.second] == music[0]


def test_answers_leave_missing_options_out() -> None:
    task = Choice.from_dict(json.loads(json.dumps(Choice(3).to_dict())))
    examples = [example("cat dog bird", None), example("cat dog", None)]
    kept = [
        task.keep(np.array([[score]])) for score in (0.0, math.log(3), 0.0, 800.0, 799.0, 999.0)
    ]
    answers = json.loads(json.dumps(task.answers(examples, [], kept)))
    assert answers[0] == {
        "option": "dog",
        "number": 1,
        "probabilities": pytest.approx([0.2, 0.6, 0.2]),
    }
    assert answers[1]["probabilities"] == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)])
    assert [task.label_of(answer) for answer in answers] == [1, 0]
    assert TASKS.get("choice") is Choice
    assert task.head(8, 0.0)(torch.randn(6, 1, 8)).shape == (6, 1, 1)


OPTIONS = ["red", "green", "blue"]


@pytest.mark.parametrize(
    ("options", "answers", "expected"),
    [
        (OPTIONS, ["A", "C", "b"], [0, 2, 1]),
        (OPTIONS, [0, 2, 1.0], [0, 2, 1]),
        (OPTIONS, ["0", "2", "1"], [0, 2, 1]),
        (OPTIONS, ["red", "blue", "green"], [0, 2, 1]),
        (OPTIONS, ["red", " blue ", "B"], [0, 2, 1]),
        (["2", "1", "0"], ["2", "0", "1"], [0, 2, 1]),  # every answer is the text of an option
        (["2", "1", "0"], [2, 0, 1], [2, 0, 1]),
        (["B", "A", "C"], ["B", "C", "A"], [0, 2, 1]),
    ],
)
def test_answers_are_numbers_letters_or_texts(
    tmp_path: Path, options: list[str], answers: list[Any], expected: list[int]
) -> None:
    rows: list[dict[str, object]] = [
        {"context": "x", "question": "y", "choices": options, "label": answer} for answer in answers
    ]
    found, _ = Choice.read(write_jsonl(tmp_path / "a.jsonl", rows), Data())
    assert [one.label for one in found] == expected


@pytest.mark.parametrize("answer", ["D", 3, -1, "3", "purple", None, "", True, 0.5, ["A"]])
def test_an_answer_that_is_no_option_names_its_line(tmp_path: Path, answer: Any) -> None:
    rows: list[dict[str, object]] = [
        {"question": "y", "options": OPTIONS, "answer": given} for given in ("A", answer)
    ]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(
        DataError,
        match=r"a.jsonl, line 2: the answer .* is not one of the 3 options 'red', 'green', 'blue'",
    ):
        Choice.read(path, Data())
    assert [one.label for one in Choice.read(path, Data(), labelled=False)[0]] == [None, None]


def test_tables(tmp_path: Path) -> None:
    row: dict[str, object] = {
        "id": "7",
        "answer": "B",
        "options": OPTIONS,
        "question": "which?",
        "article": "a story",
    }
    write_jsonl(tmp_path / "a.jsonl", [row])
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    (tmp_path / "a.tsv").write_text(
        f"article\tquestion\tanswer\toptions\na story\twhich?\tB\t{json.dumps(OPTIONS)}\n",
        encoding="utf-8",
    )
    for name in ("a.jsonl", "a.parquet", "a.tsv"):
        found, notes = Choice.read(tmp_path / name, Data())
        line = 2 if name == "a.tsv" else 1
        assert found == [
            Example(
                ("a story", "which?", *OPTIONS),
                1,
                str(tmp_path / name),
                line,
                options=tuple(OPTIONS),
            )
        ]
        assert notes == [
            "text columns 'article' and 'question', options column 'options', label column 'answer'"
        ]
    named = Data(text_column="id", options_column="options", label_column="answer")
    assert Choice.read(tmp_path / "a.jsonl", named)[0][0].texts == ("7", *OPTIONS)
    with pytest.raises(DataError, match="no column is called 'options' or 'choices' or 'endings'"):
        Choice.read(
            write_jsonl(tmp_path / "b.jsonl", [{"question": "which?", "answer": "A"}]), Data()
        )
    for options in (["one"], "text", None):
        with pytest.raises(DataError, match="line 1: the options are not a list of two or more"):
            Choice.read(
                write_jsonl(
                    tmp_path / "b.jsonl",
                    [{"question": "which?", "answer": "A", "options": options}],
                ),
                Data(),
            )


def test_files_of_race(tmp_path: Path) -> None:
    article = {
        "article": "a story",
        "questions": ["one?", "two?"],
        "options": [OPTIONS, ["x", "y"]],
        "answers": ["C", "A"],
        "id": "1",
    }
    folder = tmp_path / "train" / "middle"
    folder.mkdir(parents=True)
    (folder / "1.txt").write_text(json.dumps(article), encoding="utf-8")
    (folder / "2.json").write_text(
        json.dumps({**article, "article": "other"}, indent=1), encoding="utf-8"
    )
    first = [
        Example(("a story", "one?", *OPTIONS), 2, str(folder / "1.txt"), 1, options=tuple(OPTIONS))
    ]
    first += [
        Example(("a story", "two?", "x", "y"), 0, str(folder / "1.txt"), 1, options=("x", "y"))
    ]
    found, notes = Choice.read(tmp_path / "train", Data())
    assert found[:2] == first
    assert [one.texts[0] for one in found[2:]] == ["other", "other"]
    assert notes == ["2 articles, one file each, with 4 questions"]
    assert Choice.read(folder / "1.txt", Data())[0] == first
    assert len(Choice.read(folder / "2.json", Data())[0]) == 2
    lines, notes = Choice.read(write_jsonl(tmp_path / "all.jsonl", [article, article]), Data())
    assert ([one.line for one in lines], notes) == ([1, 1, 2, 2], ["2 articles with 4 questions"])
    (folder / "3.txt").write_text(json.dumps({**article, "answers": ["A"]}), encoding="utf-8")
    with pytest.raises(
        DataError, match=r"3\.txt, line 1: the lists of the article are not equally long"
    ):
        Choice.read(tmp_path / "train", Data())
    (folder / "3.txt").write_text("just text", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"3\.txt, line 1: the file is not a JSON object with questions"
    ):
        Choice.read(tmp_path / "train", Data())


def test_audit() -> None:
    good = [example("a b c", 0), example("d e f", 1)]
    assert [finding.level for finding in Choice(3).audit(Splits(good, good))] == ["ok"]
    splits = Splits(
        [*good, example("a b", 0)], [example("a b a", 0, line=4)], [example("a b c d", 0)]
    )
    findings = Choice.from_examples(splits.train, Kind()).audit(splits)
    assert [(finding.level, finding.check) for finding in findings] == [
        ("warning", "options"),
        ("warning", "repeated options"),
        ("error", "options"),
    ]
    assert "the number of options varies in train: 1 with 2, 2 with 3" in findings[0].message
    assert findings[1].examples == ("f, line 4: 'a', 'b', 'a'",)
    assert (
        "test have too many options (1 with 4); those of train have at most 3"
        in findings[2].message
    )


def test_metrics_by_name() -> None:
    metric = Choice(2).metric("accuracy")
    assert float(metric.value(metric.statistics([0, 1, 1, 3], [0, 1, 0, 3]).sum(0))) == 0.75
    with pytest.raises(RecipeError, match="choose from accuracy"):
        Choice(2).metric("macro_f1")


def test_baselines() -> None:
    train = [
        example("x y z", label, article=f"common words here {label}")
        for label in (2, 2, 1, 2, 0, 1)
    ]
    held = [
        example(
            "common rare", 1, article="common rare words", question="rare?"
        ),  # both are there: the rare word weighs more
        Example(
            ("common words", "here", "strange other", "common words", "words"),
            1,
            options=("strange other", "common words", "words"),
        ),
    ]
    found = fitted_baselines(Choice(3), train, {"dev": held}, "accuracy")
    assert found["most frequent option"]["dev"] == [1, 2]  # the first has two options only
    assert found["most words in common"]["dev"] == [1, 1]


def test_an_option_is_read_in_the_blank_of_its_question(vocabulary: Vocabulary) -> None:
    task = Choice(2)
    blank = example("dog bird", 0, question="the cat likes the __ today")
    plain = example("dog bird", 0)

    def texts(one: Example) -> list[str]:
        units = task.encode([one, plain], vocabulary, 32)[:2]
        return [vocabulary.decode(unit.tokens) for unit in units]

    article = "[CLS] the cat likes music [SEP]"
    assert texts(blank) == [
        f"{article} the cat likes the {option} today [SEP]" for option in ("dog", "bird")
    ]
    assert texts(plain) == [f"{article} a dog [SEP] {option} [SEP]" for option in ("dog", "bird")]
    two = example("dog bird", 0, question="_ likes _")
    assert texts(two)[0].endswith(
        "[SEP] dog [SEP]"
    )  # two blanks: it is not known which part of an option goes where
    alone = Example(("the _ likes", "dog", "bird"), 0, options=("dog", "bird"))
    assert texts(alone)[0] == "[CLS] the dog likes [SEP]"
