"""A random model and a small trained run, behind the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import Tracker
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import options
from tests.serve.models import random_model


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """The folder of a random model of kind classify."""
    return random_model(tmp_path_factory.mktemp("random") / "classify", "classify", vocabulary)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, trained for a moment."""
    data, folder = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("runs") / "first"
    for name, count, seed in (("train", 60, 1), ("dev", 20, 2), ("test", 20, 3)):
        write_jsonl(data / f"{name}.jsonl", labelled(count, seed))
    write_jsonl(
        data / "corpus.jsonl",
        [{"text": " ".join(sentences(8, 100 + i)), "source": f"place/s{i % 3}"} for i in range(60)],
    )
    quick = {
        "train__steps": "10",
        "finetune__epochs": "2",
        "finetune__seeds": "1",
        "data__leaks": "keep",
        "evaluate__bootstrap": "100",
    }
    fit(load(None, options(data, **quick)), folder, Tracker())
    return folder
