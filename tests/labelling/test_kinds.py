"""What each kind of task is asked: rows in the columns of its training file, or a refusal."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tasklm.errors import DataError, RecipeError
from tasklm.labelling.doubts import Doubt, doubts
from tasklm.labelling.sheet import row_of, write_sheet
from tasklm.labelling.suggesting import Labeller, Suggestions
from tasklm.recipe.data_sections import Data
from tasklm.serve.predictor import Predictor
from tasklm.tasks.choice import Choice
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.parse import Parse
from tasklm.tasks.regress import Regress
from tasklm.tasks.rivals import likeliest, nearest_threshold
from tasklm.tasks.span import Span
from tasklm.tasks.tag import Tag
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tests.conftest import labelled, write_jsonl
from tests.labelling.runs import linear_run
from tests.several_models import several_run
from tests.tasks.wide_samples import labelled as of_kind


def suggestions(run: Path, pile: Path, count: int = 5) -> Suggestions:
    labeller = Labeller.of(run)
    return labeller.from_pile(labeller.pile([str(pile)]), count, SILENT)


def test_questions_are_asked_with_their_options_and_read_back(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    def table(count: int, seed: int, name: str) -> Path:
        rows: list[dict[str, object]] = []
        for one in of_kind("choice", count, seed):
            texts = {"context": one.texts[0], "question": one.texts[1]}
            rows.append({**texts, "choices": list(one.options), "gold": one.label})
        return write_jsonl(tmp_path / name, rows)

    files = {"train": table(60, 1, "train.jsonl"), "dev": table(30, 2, "dev.jsonl")}
    run = linear_run(tmp_path / "run", vocabulary, files)
    found = suggestions(run, table(40, 3, "pile.jsonl"))
    row = row_of(found.suggestions[0], found.columns)
    assert list(row) == ["context", "question", "choices", "gold", "doubt", "reason"]
    assert "between option " in row["reason"]
    for suffix in ("csv", "jsonl"):
        sheet = tmp_path / f"next.{suffix}"
        write_sheet(found, sheet)
        with pytest.raises(DataError, match="none of the 5 rows has a label yet"):
            Choice.read(sheet, Data(kind="choice"))
        questions, _ = Choice.read(sheet, Data(kind="choice"), labelled=False)
        assert [one.options for one in questions] == [
            one.example.options for one in found.suggestions
        ]


def test_pairs_keep_their_two_columns(tmp_path: Path, vocabulary: Vocabulary) -> None:
    def table(count: int, seed: int, name: str) -> Path:
        rows: list[dict[str, object]] = [
            {"premise": row["text"], "hypothesis": f"{seed} water", "label": row["label"]}
            for row in labelled(count, seed)
        ]
        return write_jsonl(tmp_path / name, rows)

    files = {"train": table(60, 1, "train.jsonl"), "dev": table(30, 2, "dev.jsonl")}
    found = suggestions(linear_run(tmp_path / "run", vocabulary, files), table(40, 3, "p.jsonl"))
    assert list(row_of(found.suggestions[0], found.columns))[:3] == [
        "premise",
        "hypothesis",
        "label",
    ]


def test_blank_label_sets_of_a_sheet_are_left_out_and_empty_ones_are_not(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"text": "a", "labels": ["x", "y"], "doubt": 0.5, "reason": "between x and not x"},
        {"text": "b", "labels": [], "doubt": 0.5, "reason": "…"},
        {"text": "c", "labels": None, "doubt": 0.5, "reason": "…"},
    ]
    path = write_jsonl(tmp_path / "next.jsonl", rows)
    examples, notes = Multilabel.read(path, Data(kind="multilabel"))
    assert [one.label for one in examples] == [("x", "y"), ()]
    assert notes[1:] == ["1 row without a label yet left out"]
    with (tmp_path / "next.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "labels", "doubt", "reason"])
        writer.writerows([["a", "x|y", 0.5, "…"], ["b", "[]", 0.5, "…"], ["c", "", 0.5, "…"]])
    again, _ = Multilabel.read(tmp_path / "next.csv", Data(kind="multilabel"))
    assert [one.label for one in again] == [("x", "y"), ()]


@pytest.mark.parametrize("kind", [Regress, Span, Parse, Tag])
def test_kinds_without_probabilities_are_refused_with_reason_and_remedy(kind: type) -> None:
    with pytest.raises(RecipeError, match=r"cannot be ranked.*at random, such as with shuf"):
        kind.sheet(Path("train.csv"), Data())


def test_a_score_is_refused_before_anything_is_read(tmp_path: Path, vocabulary: Vocabulary) -> None:
    rows: list[dict[str, object]] = [
        {"text": row["text"], "label": 1.5 if row["label"] == "yes" else 0.25}
        for row in labelled(60, 1)
    ]
    files = {"train": write_jsonl(tmp_path / "train.jsonl", rows)}
    run = linear_run(tmp_path / "run", vocabulary, files)
    with pytest.raises(RecipeError, match="a score does not say how sure it is"):
        Labeller.of(run)


def test_rivals_by_hand() -> None:
    assert likeliest({"a": 0.2, "b": 0.5, "c": 0.3}) == (("b", 0.5), ("c", 0.3))
    assert likeliest({"a": 0.5, "b": 0.5}) == (("a", 0.5), ("b", 0.5))
    # 0.3 is just above the threshold of 0.2: (0.3 − 0.2) / 0.8 of the way from one half to 1
    first, second = nearest_threshold({"x": 0.3, "y": 0.9}, [0.2, 0.5])
    assert first == ("x", pytest.approx(0.5625)) and second == ("not x", pytest.approx(0.4375))
    (name, _), _ = nearest_threshold({"x": 0.1, "y": 0.99}, [0.2, 0.5])
    assert name == "not x"


def test_seeds_that_disagree_make_a_text_doubtful() -> None:
    class Seed:
        """A model whose answers are given."""

        task = Multilabel(["a"])

        def __init__(self, *odds: float) -> None:
            self.odds = odds

        def answers(self, examples: object) -> list[dict[str, object]]:
            return [
                {"labels": ["a"] if odds > 0.5 else [], "probabilities": {"a": odds}}
                for odds in self.odds
            ]

    seeds: list[Predictor] = [Seed(0.9, 0.9), Seed(0.2, 0.9)]  # type: ignore[list-item]
    apart, agreed = doubts(seeds, [])
    assert apart.disagree and not agreed.disagree
    assert apart.amount == pytest.approx(1 - 0.1) and agreed.amount == pytest.approx(1 - 0.8)
    assert isinstance(apart, Doubt)


def test_of_several_tasks_one_is_named(tmp_path: Path, vocabulary: Vocabulary) -> None:
    run = several_run(tmp_path / "run", vocabulary, ("classify", "tag"))
    with pytest.raises(RecipeError, match="name one with --task: classify, tag"):
        Labeller.of(run)
    with pytest.raises(RecipeError, match="kind tag: tags are predicted without"):
        Labeller.of(run, "tag")
    labeller = Labeller.of(run, "classify")
    found = labeller.from_texts(["some water", "some music"], 5, SILENT)
    assert {one.example.text for one in found.suggestions} == {"some water", "some music"}
    assert all(isinstance(one.label, str) for one in labeller.splits.train)
