"""Exported folders answer like the models they come from, kind by kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasklm.export.exporting import as_onnx
from tasklm.recipe.schema import Hardware
from tasklm.serve.predictor import Predictor
from tasklm.tokens.tokenizer import Vocabulary
from tests.export.samples import examples, saved

ONE = Hardware(precision="fp32", threads=1)


def numbers_of(answer: Any) -> list[float]:
    """The numbers in an answer, in order."""
    if isinstance(answer, dict):
        return [number for value in answer.values() for number in numbers_of(value)]
    if isinstance(answer, list):
        return [number for value in answer for number in numbers_of(value)]
    return [float(answer)] if isinstance(answer, int | float) else []


def without_numbers(answer: Any) -> Any:
    """An answer with all floats taken out."""
    if isinstance(answer, dict):
        return {key: without_numbers(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [without_numbers(value) for value in answer]
    return None if isinstance(answer, float) else answer


@pytest.mark.parametrize(
    ("kind", "encoder", "length"),
    [("multilabel", "bert", 20), ("choice", "modern", 24), ("tag", "bert", 10)],
)
def test_answers_are_those_of_the_model(
    kind: str, encoder: str, length: int, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """Lengths that are no multiple of 8 too, and sentences that go on in further rows."""
    saved(tmp_path / "model", vocabulary, kind, encoder, layers=1, length=length)
    ours = Predictor(tmp_path / "model", ONE)
    theirs = Predictor(as_onnx(tmp_path / "model", tmp_path / "scratch"), ONE)
    given = examples(kind)
    one, other = ours.answers(given), theirs.answers(given)
    assert [without_numbers(answer) for answer in one] == [
        without_numbers(answer) for answer in other
    ]
    assert numbers_of(other) == pytest.approx(numbers_of(one), abs=1e-4)
    assert len({json.dumps(answer) for answer in one}) > 1  # there is something to compare
    assert (
        theirs.labels == ours.labels
        and theirs.task.to_dict() == ours.task.to_dict()
        and theirs.answers([]) == []
    )
    assert [answer for _, answer in theirs.stream(iter(given))] == other
