"""The recurrent encoder from files to answers, for a kind of each head."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import RecipeError
from tasklm.pipeline.flow import fit
from tasklm.pipeline.opening import _hardware_of
from tasklm.recipe.toml import load
from tasklm.tracking import Tracker
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.kind_data import CASES, Case
from tests.end_to_end.test_kinds import SPLITS, settings_of

runner = CliRunner()
SIZES = {"train": 200, "dev": 40, "test": 40}
CHOSEN = [case for case in CASES if case.kind in ("classify", "tag", "parse")]


@dataclass
class Done:
    """A case with its finished run."""

    case: Case
    folder: Path


def recurrent(settings: dict[str, str], **changes: str) -> dict[str, str]:
    """The settings with the other encoder; what belongs to attention is left out."""
    rest = {
        key: value for key, value in settings.items() if key not in ("model.layers", "model.heads")
    }
    small = {"model.encoder": "bilstm", "model.width": "24", "model.feedforward": "32"}
    return {**rest, **small, **{key.replace("__", "."): value for key, value in changes.items()}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recurrent")
    rows = [{"text": " ".join(sentences(8, 100 + i))} for i in range(60)]
    write_jsonl(folder / "corpus.jsonl", rows)
    return folder


@pytest.fixture(scope="module", params=CHOSEN, ids=lambda case: str(case.kind))
def done(request: pytest.FixtureRequest, corpus: Path) -> Done:
    case: Case = request.param
    data = corpus / case.kind
    data.mkdir()
    (data / "corpus.jsonl").symlink_to(corpus / "corpus.jsonl")
    for name, _, seed in SPLITS:
        case.write(data / f"{name}{case.suffix}", case.rows(SIZES[name], seed))
    changes = {"select__method": "bm25", "finetune__wide": "false", "finetune__epochs": "12"}
    changes["finetune__learning_rate"] = "0.003"  # with 0.01 it stays at the majority
    settings = recurrent(settings_of(case, data), **changes)
    fit(load(None, settings), corpus / "runs" / case.kind, Tracker())
    return Done(case, corpus / "runs" / case.kind)


def test_it_learns_and_answers(done: Done) -> None:
    scores = json.loads((done.folder / "scores.json").read_text(encoding="utf-8"))
    *baselines, ours = scores["rows"]
    assert ours["dev"]["mean"] > baselines[0]["dev"]["mean"]
    assert "2 layers" in (done.folder / "log.txt").read_text(encoding="utf-8")
    result = runner.invoke(app, ["predict", str(done.folder / "model"), done.case.asked])
    assert result.exit_code == 0, (result.output, result.exception)
    assert json.loads(result.stdout.splitlines()[0])


def test_what_cannot_be_exported_says_why(done: Done, tmp_path: Path) -> None:
    for target, reason in (("hf", "no class"), ("onnx", "no projection")):
        command = ["export", str(done.folder), "--to", target, "--out", str(tmp_path / target)]
        result = runner.invoke(app, command)
        assert result.exit_code and reason in str(result.exception)


def test_predictions_are_explained(done: Done) -> None:
    if done.case.kind != "classify":
        pytest.skip("one kind will do")
    result = runner.invoke(app, ["explain", str(done.folder), done.case.asked])
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model__layers": "3"}, "has 2 layers"),
        ({"model__heads": "2"}, "no attention"),
        ({"select__method": "bm25,influence"}, "gradients of single passages"),
    ],
)
def test_what_does_not_fit_is_refused(
    corpus: Path, tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    case = CHOSEN[0]
    data = tmp_path / "data"
    data.mkdir()
    (data / "corpus.jsonl").symlink_to(corpus / "corpus.jsonl")
    for name, count, seed in SPLITS:
        case.write(data / f"{name}{case.suffix}", case.rows(count, seed))
    settings = recurrent(settings_of(case, data), **changes)
    with pytest.raises(RecipeError, match=reason):
        fit(load(None, settings), tmp_path / "run", Tracker())


def test_steps_are_compiled_only_if_that_is_asked_for() -> None:
    recipe = load(None, {"model.encoder": "bilstm"})
    assert _hardware_of(recipe).compile == "off"
    assert _hardware_of(recipe.changed(hardware={"compile": "on"})).compile == "on"
    assert _hardware_of(load(None, {"model.encoder": "bert"})).compile == "auto"


def test_others_begin_with_its_model_and_ablations_are_of_its_shape(
    corpus: Path, tmp_path: Path
) -> None:
    """Their recipes name all numbers of the shape, also the heads that it does not use."""
    case = next(one for one in CHOSEN if one.kind == "classify")
    (tmp_path / "corpus.jsonl").symlink_to(corpus / "corpus.jsonl")
    for name, _, seed in SPLITS:
        case.write(tmp_path / f"{name}{case.suffix}", case.rows(40, seed))
    short = {"train__steps": "2", "finetune__epochs": "1", "finetune__wide": "false"}
    short |= {"evaluate__compare": "task-only", "select__method": "bm25"}
    settings = recurrent(settings_of(case, tmp_path), **short)
    scores = fit(load(None, settings), tmp_path / "first", Tracker())
    assert scores is not None and [row.kind for row in scores.rows].count("ablation") == 1
    own = ("data.train", "data.dev", "tokens.length", "finetune.epochs", "finetune.wide")
    later = {name: settings[name] for name in own if name in settings}
    later |= {"train.start": str(tmp_path / "first" / "model"), "train.steps": "0"}
    fit(load(None, {**later, "finetune.freeze": "true"}), tmp_path / "second", Tracker())
    before, after = (
        json.loads((tmp_path / name / "model" / "config.json").read_text(encoding="utf-8"))
        for name in ("first", "second")
    )
    assert after["encoder"] == "bilstm" and after["shape"] == before["shape"]
