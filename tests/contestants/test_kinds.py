"""Contestants on every kind of task: each learns what the little data sets have, or says why not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from tasklm.contestants import hashed, static
from tasklm.contestants.base import CONTESTANTS
from tasklm.contestants.parts.raw_text import clean_passages
from tasklm.errors import RunError
from tests.conftest import sentences, write_jsonl
from tests.contestants.jobs import KINDS, job_of, test_score

SEARCHED = {"span", "parse", "translate"}  # answers that no linear layer gives
UNCOUNTED = {"parse", "translate"}  # kinds without a linear model of words
LEARNT = {"regress": 0.6}  # the least score on test; 0.9 of other kinds


@pytest.mark.parametrize("kind", KINDS)
def test_the_majority_answers_every_kind_and_needs_no_file(kind: str, tmp_path: Path) -> None:
    job = job_of(kind, tmp_path)
    learned, _, labels = test_score("majority", job)
    assert learned.size == 0 and len(labels) == 40
    usual = job.task.baselines(job.train, {"dev": job.dev}, job.metric)
    assert (
        CONTESTANTS.get("majority")().load(job).labels(job.dev) == next(iter(usual.values()))["dev"]
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNCOUNTED])
def test_tfidf_answers_as_the_wide_part_alone_does(kind: str, tmp_path: Path) -> None:
    job = job_of(kind, tmp_path)
    learned, reached, _ = test_score("tfidf", job)
    assert reached > LEARNT.get(kind, 0.9) and learned.parameters > 0
    assert learned.size == sum(
        file.stat().st_size for file in job.folder.rglob("*") if file.is_file()
    )
    wide = job.task.fit_wide(job.train, job.dev, job.metric).wide
    labels = CONTESTANTS.get("tfidf")().load(job).labels(job.dev)
    baselines = job.task.baselines(job.train, {"dev": job.dev}, job.metric, wide)
    if kind != "regress":  # whose baseline is not held to the range of train
        assert labels == list(baselines.values())[-1]["dev"]


@pytest.mark.parametrize("kind", sorted(UNCOUNTED))
def test_tfidf_says_where_a_kind_has_no_linear_model(kind: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"tasks of kind {kind} have no linear model"):
        CONTESTANTS.get("tfidf")().learn(job_of(kind, tmp_path))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contestants that try less."""
    monkeypatch.setattr(hashed, "RATES", (0.1,))
    monkeypatch.setattr(hashed, "EPOCHS", 6)
    monkeypatch.setattr(static, "WIDTH", 16)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["hashed", "static"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SEARCHED])
def test_vectors_of_words_learn_each_kind(kind: str, name: str, tmp_path: Path) -> None:
    learned, reached, _ = test_score(name, job_of(kind, tmp_path))
    assert reached > LEARNT.get(kind, 0.9)
    assert learned.setting and learned.size > 0 and not learned.outside_weights


@pytest.mark.parametrize("name", ["hashed", "static", "frozen", "tuned"])
@pytest.mark.parametrize("kind", sorted(SEARCHED))
def test_a_kind_that_cannot_be_done_has_a_reason(kind: str, name: str, tmp_path: Path) -> None:
    problem = CONTESTANTS.get(name).against(job_of(kind, tmp_path).task)
    assert (
        problem
        == f"answers of kind {kind} are searched for, not read from a vector of text or word"
    )


def test_static_vectors_leave_out_text_of_dev_and_test(tmp_path: Path) -> None:
    clean = [" ".join(f"w{number}x{place}" for place in range(20)) for number in range(5)]
    job = job_of("classify", tmp_path, corpus=[*clean, *clean[:2]])
    passages = [text for batch in clean_passages(job) for text in batch]
    assert sorted(passages) == sorted([*clean, *clean[:2]])
    leaked = job_of("classify", tmp_path / "leaked", corpus=clean, held_out={"test": [clean[3]]})
    assert clean[3] not in [text for batch in clean_passages(leaked) for text in batch]


def test_static_vectors_leave_out_what_the_recipe_does(tmp_path: Path) -> None:
    job = job_of("classify", tmp_path, corpus=["kept one", "kept two"])
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl",
        [
            {"text": "free to use", "licence": "CC0-1.0"},
            {"text": "not to be sold", "licence": "CC-BY-NC-4.0"},
        ],
    )
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "another file"}])
    data = {"corpus": [str(corpus), str(other)], "without": ["licence:CC-BY-NC*", "other.jsonl"]}
    without = dataclasses.replace(job, recipe=job.recipe.changed(data=data))
    assert [text for batch in clean_passages(without) for text in batch] == ["free to use"]


@pytest.mark.usefixtures("quick")
def test_static_vectors_say_that_they_read_text(tmp_path: Path) -> None:
    without, _, _ = test_score("static", job_of("classify", tmp_path / "without"))
    job = job_of("classify", tmp_path / "with", corpus=[" ".join(sentences(50, 7)), "quux " * 9])
    learned, _, _ = test_score("static", job)
    assert learned.reads_text and not without.reads_text
    assert int(learned.setting.split()[0]) > int(without.setting.split()[0])  # words with a vector


@pytest.mark.usefixtures("quick")
def test_hashed_embeddings_are_saved_whole(tmp_path: Path) -> None:
    job = job_of("classify", tmp_path)
    contestant = hashed.Hashed()
    contestant.learn(job)
    before = hashed.HashedWords.load(job.folder)
    before.save(tmp_path)
    after = hashed.HashedWords.load(tmp_path)
    assert torch.equal(before.table, after.table) and torch.equal(before.linear, after.linear)


def test_hashed_words_stop_when_their_time_is_up(tmp_path: Path) -> None:
    learned, _, _ = test_score("hashed", job_of("classify", tmp_path, seconds=0.0))
    assert learned.setting.endswith("epoch 1")
