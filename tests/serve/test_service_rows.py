"""Rows of any shape: every kind answers them, or says in words what is wrong with them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tasklm.errors import DataError
from tasklm.recipe.schema import Hardware
from tasklm.serve.inputs import examples_of
from tasklm.serve.predictor import Predictor
from tasklm.tokens.tokenizer import Vocabulary
from tests.end_to_end.kind_data import CASES
from tests.hostile.limits import limited
from tests.serve.models import random_model

NAMES = [
    "text",
    "sentence1",
    "sentence2",
    "label",
    "article",
    "question",
    "questions",
    "context",
    "options",
    "answers",
    "tokens",
]
TEXTS = some.text(max_size=30)  # halves of characters among them
LARGE = some.sampled_from([10**400, -(10**400), 2**63])
LEAVES = some.none() | some.booleans() | some.integers() | LARGE | some.floats() | TEXTS
VALUES = some.recursive(
    LEAVES,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ROWS = some.dictionaries(some.sampled_from(NAMES) | TEXTS, VALUES, max_size=5)
ODD = "a \ud800 b"
KNOWN = {  # rows that once ended in tracebacks
    "classify": [{"text": ODD}, {"text": 10**400}, {"text": 10**5000}],
    "multilabel": [{"text": ODD, "labels": [ODD]}],
    "regress": [{"sentence1": ODD, "sentence2": ODD, "score": 10**400}],
    "choice": [
        {"article": ODD, "question": ODD, "options": [ODD, "b"]},
        {"question": "a", "options": ["b"] * 5000},
    ],
    "tag": [{"tokens": [ODD, "b"]}, {"text": ODD}],
    "span": [{"question": ODD, "context": ODD}],
    "parse": [{"tokens": ["a", ODD]}],
    "translate": [{"source": ODD}, {"text": "a"}],
}


def deep() -> list[Any]:
    """Returns lists inside one another, 2,000 deep."""
    found: list[Any] = []
    for _ in range(2000):
        found = [found]
    return found


@pytest.mark.parametrize("kind", [case.kind for case in CASES])
def test_a_row_of_any_shape_is_answered_or_refused(
    kind: str, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    predictor = Predictor(
        random_model(tmp_path / kind, kind, vocabulary),
        Hardware(device="cpu", precision="fp32", threads=1),
    )
    torch.set_flush_denormal(False)  # hypothesis makes such numbers
    seen: set[str] = set()

    @given(row=ROWS)
    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def ask(row: dict[str, Any]) -> None:
        try:
            with limited():
                (answer,) = predictor.answers([row])
            json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
            seen.add("answered")
        except DataError as error:
            assert "row.jsonl" not in str(error)
            seen.add("refused")

    for row in (*KNOWN[kind], *({name: deep()} for name in NAMES)):
        ask.hypothesis.inner_test(row)
    ask()
    assert seen == {"answered", "refused"}


def test_texts_and_pairs_of_any_characters_are_answered(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    predictor = Predictor(
        random_model(tmp_path / "classify", "classify", vocabulary),
        Hardware(device="cpu", precision="fp32", threads=1),
    )

    @given(text=TEXTS, other=TEXTS, line=some.binary(max_size=40))
    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def ask(text: str, other: str, line: bytes) -> None:
        with limited():
            assert len(predictor.answers([text, (text, other)])) == 2
            try:
                for example, answer in predictor.stream(
                    examples_of("-", predictor.task, predictor.data, io.BytesIO(line))
                ):
                    json.dumps([example.text, answer], ensure_ascii=False, allow_nan=False).encode()
            except DataError as error:
                assert "standard input, line " in str(error) or line.lstrip(
                    b"\xef\xbb\xbf \t\r\n"
                ).startswith(b"{")

    ask()
