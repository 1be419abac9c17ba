"""A run whose linear model reads word vectors of its corpus: taken where it is better, and in no
one else's way.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tasklm.budget import rules
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tracking import SILENT
from tests.conftest import write_jsonl
from tests.end_to_end.conftest import options

SMALL = {
    "train__steps": "6",
    "finetune__epochs": "1",
    "finetune__seeds": "1",
    "finetune__wide": "true",
}
LETTERS = random.Random(0)
NAMES = ["".join(LETTERS.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(120)]
TOPICS = {"sea": NAMES[:60], "law": NAMES[60:]}  # whose letters tell nothing


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few labels and many words: only the corpus tells which words belong together."""
    folder, draw = tmp_path_factory.mktemp("topics"), random.Random(1)
    for name, count in (("train", 40), ("dev", 80), ("test", 80)):
        labels = [draw.choice(list(TOPICS)) for _ in range(count)]
        write_jsonl(
            folder / f"{name}.jsonl",
            [
                {"text": " ".join(draw.choices(TOPICS[label], k=3)), "label": label}
                for label in labels
            ],
        )
    passages = [" ".join(draw.choices(TOPICS[name], k=20)) for name in TOPICS for _ in range(200)]
    write_jsonl(folder / "corpus.jsonl", [{"text": text} for text in passages])
    return folder


def test_it_is_the_first_model_and_the_part_that_the_network_joins(
    topics: Path, tmp_path: Path
) -> None:
    given = options(topics, **SMALL, finetune__learning_rate="1e-12", evaluate__compare="task-only")
    scores = fit(load(None, given), tmp_path / "run", SILENT)
    assert scores is not None and scores.ours is not None and scores.ours.dev is not None
    dev = {row.name: row.dev.mean for row in scores.rows if row.dev is not None}
    assert scores.ours.dev.mean > dev["TF-IDF + linear"]
    assert dev["task data only"] == dev["TF-IDF + linear"]  # which knows nothing of the corpus
    assert (tmp_path / "run/wide-text/vectors.json").exists()
    assert (tmp_path / "run/model/wide/vectors.safetensors").exists()
    assert not (tmp_path / "run/compare/task-only/model/wide/vectors.json").exists()
    answers = Predictor(tmp_path / "run/model").answers(
        [" ".join(words) for words in TOPICS.values()]
    )
    assert [answer["label"] for answer in answers] == list(TOPICS)
    before = (tmp_path / "run/model/artefact.json").read_bytes()
    fit(load(None, given), tmp_path / "run", SILENT)
    assert (tmp_path / "run/model/artefact.json").read_bytes() == before


def test_a_run_that_is_stopped_after_it_has_it_as_its_model(topics: Path, tmp_path: Path) -> None:
    recipe = load(None, options(topics, **SMALL))
    fit(recipe, tmp_path / "run", SILENT, until="select")
    about = json.loads((tmp_path / "run/model/config.json").read_text())["about"]
    assert about["linear"] and (tmp_path / "run/model/wide/vectors.json").exists()


@pytest.mark.parametrize(
    "change",
    [{"finetune__word_vectors": "false"}, {"train__rho1": "0"}, {"finetune__wide": "false"}],
)
def test_who_wants_none_gets_none(topics: Path, tmp_path: Path, change: dict[str, str]) -> None:
    fit(
        load(None, options(topics, **{**SMALL, **change})), tmp_path / "run", SILENT, until="select"
    )
    assert not (tmp_path / "run/wide-text").exists()


def test_minutes_that_are_few_leave_no_time_for_them(
    topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rules.words_for_vectors(None) == rules.USUAL_WORDS
    assert (
        rules.words_for_vectors(1)
        == 0
        < rules.words_for_vectors(5)
        < rules.words_for_vectors(20)
        <= rules.MOST_WORDS
    )
    given = {
        name: value for name, value in options(topics, **SMALL).items() if name != "train.steps"
    }
    fit(load(None, {**given, "budget.minutes": "1"}), tmp_path / "one", SILENT, until="select")
    assert not (tmp_path / "one/wide-text").exists()
    monkeypatch.setattr(
        rules, "VECTORS_SHARE", 1e-9
    )  # what the linear model took is more than that
    monkeypatch.setattr(rules, "words_for_vectors", lambda minutes: 1000)
    fit(load(None, {**given, "budget.minutes": "5"}), tmp_path / "slow", SILENT, until="select")
    assert (tmp_path / "slow/wide-text").exists() and not (
        tmp_path / "slow/wide-text/wide.json"
    ).exists()
