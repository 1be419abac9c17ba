"""Rows of any shape: every kind answers them, or says in words what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tasklm.errors import DataError
from tasklm.recipe import Hardware
from tasklm.serve.predictor import Predictor
from tasklm.tokens.tokenizer import Vocabulary
from tests.end_to_end.kind_data import CASES
from tests.serve.models import random_model

NAMES = ["text", "sentence1", "sentence2", "label", "article", "question", "questions", "context", "options", "answers", "tokens"]
TEXTS = some.text(some.characters(exclude_categories=["Cs"]), max_size=30)
LEAVES = some.none() | some.booleans() | some.integers() | some.floats() | TEXTS
VALUES = some.recursive(LEAVES, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(TEXTS, inner, max_size=3), max_leaves=6)
ROWS = some.dictionaries(some.sampled_from(NAMES) | TEXTS, VALUES, max_size=5)


@pytest.mark.parametrize("kind", [case.kind for case in CASES])
def test_a_row_of_any_shape_is_answered_or_refused(kind: str, tmp_path: Path, vocabulary: Vocabulary) -> None:
    predictor = Predictor(random_model(tmp_path / kind, kind, vocabulary), Hardware(device="cpu", precision="fp32", threads=1))
    torch.set_flush_denormal(False)  # hypothesis makes such numbers
    seen: set[str] = set()

    @given(row=ROWS)
    @settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def ask(row: dict[str, Any]) -> None:
        try:
            (answer,) = predictor.answers([row])
            assert isinstance(answer, dict)
            seen.add("answered")
        except DataError as error:
            assert "row.jsonl" not in str(error)
            seen.add("refused")

    ask()
    assert "refused" in seen
