"""Contestants that begin with a model of others, on tiny ones with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.contestants import tuned
from tasklm.contestants.base import CONTESTANTS
from tasklm.contestants.frozen import Reader
from tasklm.contestants.parts import sentence_model
from tasklm.contestants.parts.sentence_model import SentenceModel, model_folder, rows_by_length
from tasklm.errors import RecipeError, RunError
from tasklm.run_folder import RECIPE
from tasklm.storage.files import write_json
from tasklm.tasks.base import Unit
from tests.checkpoints import write_checkpoint
from tests.contestants.jobs import job_of, test_score

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: DOWNLOADED MODELS ARE NOT COMPARED"
)
KINDS = ["classify", "multilabel", "regress", "choice", "tag"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a tiny model of BERT's kind, one level below that which is named."""
    folder = tmp_path_factory.mktemp("downloaded")
    (folder / "inside").mkdir()
    write_checkpoint(folder / "inside", "bert, headless", transformers, num_hidden_layers=2)
    yield folder


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose words begin with a space, and that has no segments."""
    folder = tmp_path_factory.mktemp("roberta")
    write_checkpoint(folder, "roberta", transformers, num_hidden_layers=1)
    return folder


@pytest.mark.parametrize("name", ["inside", "."])
def test_a_text_is_the_mean_of_the_states_that_transformers_computes(
    source: Path, name: str
) -> None:
    model = SentenceModel(source / name, torch.device("cpu")).eval()
    texts = ["the quick brown foxes", "twice"]
    folder = source / "inside"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    units = [Unit(tokenizer(text)["input_ids"], [0], None) for text in texts]
    with torch.inference_mode():
        ours = model(units)[:, 0]
        for row, text in enumerate(texts):
            states = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            torch.testing.assert_close(ours[row], states.mean(0), rtol=1e-4, atol=1e-5)


def test_a_pair_is_read_with_segments_and_words_have_states_of_their_own(source: Path) -> None:
    model = SentenceModel(source, torch.device("cpu")).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source / "inside")
    theirs = transformers.AutoModel.from_pretrained(source / "inside").eval()
    one, other = tokenizer("the foxes")["input_ids"], tokenizer("sleepy dogs")["input_ids"][1:]
    segments = torch.tensor([[0] * len(one) + [1] * len(other)])
    ids = torch.tensor([[*one, *other]])
    with torch.inference_mode():
        ours = model([Unit([*one, *other], [0, 2, 3], None, len(one))])[0]
        states = theirs(input_ids=ids, token_type_ids=segments).last_hidden_state[0]
    wanted = torch.stack([states.mean(0), states[2], states[3]])
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)


def test_words_begin_with_a_space_where_the_vocabulary_tells(roberta: Path) -> None:
    tokeniser = SentenceModel(roberta, torch.device("cpu")).tokeniser
    alone = tokeniser.encode(["cat", "dog"])
    assert [alone[0] + alone[1]] == tokeniser.encode(["cat dog"])
    assert tokeniser.encode([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_model_answers_each_kind(kind: str, source: Path, tmp_path: Path) -> None:
    job = job_of(kind, tmp_path, source=source)
    learned, reached, labels = test_score("frozen", job)
    majority = test_score("majority", job)[1]
    assert reached >= majority and len(labels) == 40
    weights = (source / "inside" / "model.safetensors").stat().st_size
    assert learned.outside_weights and learned.size > weights and learned.flops > 0


def test_a_frozen_model_reads_the_same_row_once(source: Path, tmp_path: Path) -> None:
    job = job_of("choice", tmp_path, source=source)
    model = SentenceModel(source, torch.device("cpu"))
    reader = Reader(model, job.task, bags=2)
    some = reader.encoded(job.dev[:4])
    rows = reader.vectors(some)
    assert rows.shape == (12, 4 * model.width)
    once, reader.tokens = reader.tokens, 0
    again = reader.vectors(reader.encoded([job.dev[0], job.dev[0]]))
    np.testing.assert_allclose(again[:3], again[3:])
    np.testing.assert_allclose(rows[:3], again[:3], rtol=1e-3, atol=1e-4)
    assert reader.tokens < once / 2


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights need larger rates."""
    monkeypatch.setattr(tuned, "RATES", (3e-3,))
    monkeypatch.setattr(tuned, "EPOCHS", 2)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_fine_tuned_for_each_kind(kind: str, source: Path, tmp_path: Path) -> None:
    job = job_of(kind, tmp_path, source=source)
    learned, _, labels = test_score("tuned", job)
    assert len(labels) == 40 and learned.setting.startswith("rate 0.003, ")
    assert learned.outside_weights and learned.flops > 0 and learned.seconds is not None
    assert not (job.folder / "rates").exists()
    assert learned.size == sum(one.stat().st_size for one in job.folder.rglob("*") if one.is_file())


@pytest.mark.usefixtures("eager")
def test_a_fine_tuned_model_learns(source: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tuned, "EPOCHS", 8)
    assert test_score("tuned", job_of("classify", tmp_path, source=source))[1] > 0.9


def test_a_rate_that_was_finished_before_a_stop_is_not_trained_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "RATES", (3e-3, 4e-3))
    monkeypatch.setattr(tuned, "EPOCHS", 1)
    trained: list[float] = []
    train = tuned._fine_tune

    def counted(job: Any, rate: float, folder: Path) -> dict[str, float | str]:
        trained.append(rate)
        if trained == [3e-3, 4e-3]:
            raise KeyboardInterrupt
        return train(job, rate, folder)

    monkeypatch.setattr(tuned, "_fine_tune", counted)
    job = job_of("classify", tmp_path, source=source)
    with pytest.raises(KeyboardInterrupt):
        tuned.Tuned().learn(job)
    tuned.Tuned().learn(job)
    assert trained == [3e-3, 4e-3, 4e-3]


def test_rows_of_one_length_are_read_together_and_options_stay_so() -> None:
    units = [Unit([0] * length, [0], None) for length in (9, 1, 5, 2, 7, 7)]
    assert rows_by_length(units) == [[1, 3, 2, 4, 5, 0]]
    assert rows_by_length(units, 2) == [[2, 3, 4, 5, 0, 1]]
    many = [Unit([0], [0], None)] * 40
    assert [len(batch) for batch in rows_by_length(many)] == [16, 16, 8]


def test_folders_without_weights_and_runs_are_refused(source: Path, tmp_path: Path) -> None:
    check = CONTESTANTS.get("frozen").check
    with pytest.raises(RunError, match=r"has no folders with config.json .* nothing is downloaded"):
        check(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
        write_json(tmp_path / name / "config.json", {})
    with pytest.raises(RunError, match="has 2 folders with"):
        check(tmp_path)
    assert model_folder(tmp_path / "one") == tmp_path / "one"
    (tmp_path / RECIPE).touch()
    with pytest.raises(RunError, match=f"Compare it as run={tmp_path}"):
        check(tmp_path)


def test_weights_that_transformers_cannot_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    write_json(tmp_path / "config.json", {"encoder": "bert"})
    with pytest.raises(RunError, match="transformers cannot read"):
        SentenceModel(tmp_path, torch.device("cpu"))


def test_without_transformers_there_is_a_way_out(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentence_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="pip install transformers"):
        CONTESTANTS.get("tuned").check(source)
