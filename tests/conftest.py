"""Small data that tests make for themselves."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
import torch

from tasklm.recipe import Tokens
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # workers share the cores: threads that wait for one another's turn would spin

SUBJECTS = ["the cat", "a dog", "my sister", "the old farmer", "this engine", "a small bird"]
VERBS = ["likes", "sees", "hears", "follows", "remembers", "repairs"]
OBJECTS = ["the red ball", "a green field", "cold water", "the long road", "an empty house", "music"]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Returns sentences of a little language."""
    draw = random.Random(seed)
    return [f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)} number {draw.randrange(1000)} ." for _ in range(count)]


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    """Writes rows to a JSONL file and returns its path."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def labelled(count: int, seed: int) -> list[dict[str, object]]:
    """Returns examples of a task that can be learnt: is there water or music in the sentence?"""
    rows = sentences(count, seed)
    return [{"text": text, "label": "yes" if "water" in text or "music" in text else "no"} for text in rows]


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """A small WordPiece vocabulary of the little language."""
    return train_vocabulary([sentences(500)], Tokens(), 300)
