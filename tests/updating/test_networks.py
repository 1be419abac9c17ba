"""An update of a network: a wider head, replayed examples, and a training that goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tasklm import TaskLM
from tasklm.bill.record import read_bill
from tasklm.errors import RecipeError
from tasklm.models.task_model import TaskModel, new_encoder
from tasklm.models.weights import load_weights
from tasklm.recipe.data_sections import Kind
from tasklm.storage.files import read_json
from tasklm.tasks.base import TASKS
from tasklm.tasks.baselines.refitting import cross_fitted
from tasklm.tasks.examples import Example
from tasklm.tracking import SILENT
from tasklm.train.loop import Loop
from tasklm.updating import network_learner
from tasklm.updating.flow import update
from tasklm.updating.reading import Request, base_of, grounds_of, recipe_for
from tasklm.updating.replay import mixture
from tasklm.updating.widening import widened
from tests.updating.small import first_run, rows

NETWORK = {
    "model.size": "tiny",
    "train.steps": 10,
    "train.batch": 8,
    "finetune.epochs": 6,
    "finetune.learning_rate": 0.002,
    "tokens.length": 32,
    "finetune.wide": False,
    "evaluate.baselines": False,
}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a network, once for the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasklm.train.stage_runs.matmul_ceiling", lambda _: 1e9)
        return first_run(tmp_path_factory.mktemp("network"), **NETWORK)


@pytest.fixture
def run(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that run to update."""
    monkeypatch.setattr("tasklm.train.stage_runs.matmul_ceiling", lambda _: 1e9)
    shutil.copytree(first, tmp_path / "run")
    return tmp_path / "run"


def file(first: Path, name: str) -> str:
    return str(first.parent / f"{name}.jsonl")


def test_a_wider_head_keeps_old_outputs_bit_for_bit() -> None:
    draw = np.random.default_rng(0)
    old = {
        "head.out.weight": draw.normal(size=(2, 8)).astype(np.float32),
        "head.out.bias": draw.normal(size=2).astype(np.float32),
        "head.dense.weight": draw.normal(size=(8, 8)).astype(np.float32),
    }
    new = widened(old, ["b", "d"], ["a", "b", "c", "d"])
    assert (new["head.out.weight"][[1, 3]] == old["head.out.weight"]).all()
    assert (new["head.out.bias"][[1, 3]] == old["head.out.bias"]).all()
    assert np.allclose(new["head.out.weight"][0], old["head.out.weight"].mean(0))
    assert new["head.dense.weight"] is old["head.dense.weight"]


def test_a_head_that_searches_is_refused() -> None:
    crf = {"head.out.weight": np.zeros((2, 8)), "head.transitions": np.zeros((2, 2))}
    with pytest.raises(RecipeError, match="cannot take new classes"):
        widened(crf, ["a", "b"], ["a", "b", "c"])


def test_the_shipped_logits_of_old_classes_stay(first: Path) -> None:
    weights = load_weights(first / "model/model.safetensors")
    arrays = {name: tensor.numpy() for name, tensor in weights.items()}
    model = TaskLM.load(first).predictor_.model
    task = TASKS.get("classify").from_examples(
        [Example(("x",), label) for label in ("food", "music", "sport")], Kind()
    )
    encoder = new_encoder("bert", model.encoder.shape)
    wide = TaskModel(encoder, task.head(model.encoder.shape.width, 0.0, encoder.normed_heads))
    wider = widened(arrays, ["food", "sport"], task.labels)
    wide.load_state_dict({name: torch.from_numpy(one) for name, one in wider.items()})
    states = torch.randn(4, 1, model.encoder.shape.width, generator=torch.manual_seed(0))
    with torch.inference_mode():
        old, new = model.head.eval()(states), wide.head.eval()(states)
    assert torch.equal(new[..., [0, 2]], old)


def test_earlier_examples_are_never_fewer_than_new_ones() -> None:
    task = TASKS.get("classify").from_examples(
        [Example((str(number),), label) for number, label in enumerate("abc")], Kind()
    )
    train = [
        Example((f"text {number}",), "c" if number % 50 == 0 else "a") for number in range(900)
    ]
    train += [Example((f"new {number}",), "b") for number in range(300)]
    fresh = np.arange(1200) >= 900
    chosen, earlier = mixture(task, train, fresh)
    assert earlier == 600 and len(chosen) == 900
    assert sum(place >= 900 for place in chosen) == 300
    assert sum(train[place].label == "c" for place in chosen) == 18  # all of a rare class
    few, earlier = mixture(task, train, np.arange(1200) >= 1190)
    assert earlier == 200 and len(few) == 210
    assert (mixture(task, train, fresh)[0] == chosen).all()


def test_a_network_learns_a_new_class_and_keeps_the_old(first: Path, run: Path) -> None:
    request = Request(
        file(first, "new-class"),
        test=file(first, "new-test"),
        settings={"finetune.learning_rate": 0.004},
    )
    result = update(run, request, SILENT)
    groups = {group.name: group for group in result.groups}
    assert result.steps > 0 and result.replayed >= result.new_read // 2
    assert groups["old classes"].after >= groups["old classes"].before - 0.1
    assert TaskLM.load(run).classes_.tolist() == ["food", "music", "sport"]
    assert read_json(run / "updates/1/network/summary.json")["flops"] <= 0.052 * sum(
        read_json(path)["flops"] for path in run.glob("stage*/**/summary.json")
    )


def test_a_stopped_training_goes_on_to_the_same_bytes(
    first: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(file(first, "more"), settings={"train.checkpoint_seconds": 0.001})
    shutil.copytree(run, tmp_path / "whole")
    update(tmp_path / "whole", request, SILENT)
    steps = read_json(tmp_path / "whole/updates/1/network/summary.json")["steps"]
    whole, taken = Loop.run, []

    def stopping(self: Loop):  # type: ignore[no-untyped-def]
        for record in whole(self):
            taken.append(record.step)
            if len(taken) == max(1, steps // 2):
                raise KeyboardInterrupt
            yield record

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run", stopping)
        with pytest.raises(KeyboardInterrupt):
            update(run, request, SILENT)
    update(run, request, SILENT)
    for name in ("model/model.safetensors", "answers/after-test.json"):
        own = (run / "updates/1" / name).read_bytes()
        assert own == (tmp_path / "whole/updates/1" / name).read_bytes()


def test_a_linear_part_is_not_fitted_out_of_fold_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = base_of(first_run(tmp_path))
    request = Request(str(tmp_path / "more.jsonl"))
    grounds = grounds_of(base, recipe_for(base, request), request)
    work, before = SimpleNamespace(base=base, grounds=grounds), base.wide
    calls = []

    def counted(*given: Any) -> Any:
        calls.append(given)
        return cross_fitted(*given)

    monkeypatch.setattr(network_learner, "cross_fitted", counted)
    wide, outputs = network_learner._fitted_again(work, before)  # type: ignore[arg-type]
    assert not calls and len(outputs) == len(grounds.splits.train)
    old = ~grounds.fresh
    assert (outputs[old] == np.load(base.run / "wide/train.npy")).all()
    fresh = [one for one, new in zip(grounds.splits.train, grounds.fresh, strict=True) if new]
    assert (outputs[grounds.fresh] == before.outputs(fresh)).all()
    assert np.abs(wide.outputs(fresh) - before.outputs(fresh)).max() > 0.1  # it has learnt them
    path = base.run / "wide/train.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    network_learner._fitted_again(work, before)  # type: ignore[arg-type]
    assert len(calls) == 1


def test_new_text_is_selected_read_and_billed(first: Path, run: Path) -> None:
    texts = run.parent / "texts"
    texts.mkdir()
    for number, row in enumerate(rows("sport food music", 60, 11)):
        (texts / f"{number}.txt").write_text(f"{row['text']} and more of it", encoding="utf-8")
    result = update(run, Request(corpus=(str(texts),)), SILENT)
    summary = read_json(run / "updates/1/text/summary.json")
    assert summary["steps"] >= 1
    assert result.new_read == 0 and result.replayed > 0
    bill = read_bill(run / "updates/1")
    assert len(bill.corpus) == 60 and bill.corpus[0].sha256
    assert sum(part.tokens_read for one in bill.corpus for part in one.parts) > 0
