"""Written texts after training: lists of candidates, exports, ensembles, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tasklm import TaskLM
from tasklm.cli.app import app
from tasklm.errors import RecipeError
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tracking import Tracker
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.kind_data import CASES
from tests.serve.models import need_onnx

(CASE,) = [case for case in CASES if case.kind == "translate"]
FAST = {**QUICK, "train.steps": "2", "finetune.epochs": "4", "evaluate.bootstrap": "100"}
runner = CliRunner()


def files(folder: Path) -> dict[str, str]:
    return {
        f"data.{name}": str(CASE.write(folder / f"{name}.jsonl", CASE.rows(count, seed)))
        for name, count, seed in (("train", 48, 1), ("dev", 12, 2), ("test", 12, 3))
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    settings = {**FAST, **files(folder), "evaluate.ensemble": "true", "data.leaks": "keep"}
    fit(load(None, settings), folder / "run", Tracker())
    return folder / "run"


def printed(*words: str) -> list[dict[str, Any]]:
    result = runner.invoke(app, [*words])
    assert result.exit_code == 0, (result.output, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(*words: str) -> str:
    result = runner.invoke(app, [*words])
    assert isinstance(result.exception, RecipeError), result.output
    return str(result.exception)


@pytest.fixture(scope="module")
def recurrent(run: Path) -> Path:
    """A run whose decoder is an LSTM."""
    settings = {**FAST, "kind.decoder": "lstm", "kind.decoder_layers": "2", "data.leaks": "keep"}
    settings |= {f"data.{name}": str(run.parent / f"{name}.jsonl") for name in ("train", "dev")}
    fit(load(None, settings), run.parent / "recurrent", Tracker())
    return run.parent / "recurrent"


@pytest.mark.parametrize("decoder", ["run", "recurrent"])
def test_an_export_to_onnx_writes_what_the_model_writes(
    decoder: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    need_onnx()
    run: Path = request.getfixturevalue(decoder)
    result = runner.invoke(app, ["export", str(run), "--to", "onnx", "--out", str(tmp_path / "o")])
    assert result.exit_code == 0, (result.output, result.exception)
    assert {path.name for path in (tmp_path / "o").iterdir()} >= {"model.onnx", "decoder.onnx"}
    texts = [row["source"] for row in CASE.rows(9, 5)] + ["x", "the cat " * 30]
    for beam, best in ((1, 1), (4, 3)):
        ours, theirs = (
            Predictor(folder).searching(beam, best).answers(texts)
            for folder in (run / "model", tmp_path / "o")
        )
        for one, other in zip(ours, theirs, strict=True):
            assert other["target"] == one["target"] and other.get("unread") == one.get("unread")
            assert other["score"] == pytest.approx(one["score"], abs=1e-4)
    assert "unread" in ours[-1] and "decoder.onnx" in (tmp_path / "o" / "README.md").read_text()


def test_lists_of_candidates_are_read_by_rerank(run: Path, tmp_path: Path) -> None:
    lists = printed("predict", str(run / "model"), str(run.parent / "test.jsonl"), "--n-best", "3")
    assert all(1 <= len(one["candidates"]) <= 3 for one in lists)
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lists), encoding="utf-8")
    result = runner.invoke(app, ["rerank", str(run), str(path), "--weight", "0.5"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert len(result.stdout.splitlines()) == len(lists)


def test_an_ensemble_and_python_write_texts(run: Path) -> None:
    (one,) = printed("predict", str(run / "ensemble"), "the cat sees music number 5 .")
    assert isinstance(one["target"], str)
    model = TaskLM.load(str(run))
    assert model.predict(["the cat sees music number 5 ."]) == [
        Predictor(run / "model").answers(["the cat sees music number 5 ."])[0]["target"]
    ]
    about = json.loads((run / "model" / "config.json").read_text(encoding="utf-8"))["about"]
    scores = json.loads((run / "scores.json").read_text(encoding="utf-8"))["rows"]
    assert any(about["dev"] in row["dev"]["values"] for row in scores if row["kind"] == "ours")


def test_the_report_marks_differences(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Texts that the model wrote" in page and "<mark>" in page


def test_what_cannot_be_is_refused_with_the_way_out(run: Path) -> None:
    model = str(run / "model")
    assert "--n-best gives the best candidates" in refused(
        "predict", model, "x", "--coverage", "0.9"
    )
    assert "from 1 to 64" in refused("predict", model, "x", "--beam", "65")
    assert "--to onnx" in refused("export", str(run), "--to", "hf")
    assert "weights in fp32" in refused("export", str(run), "--to", "onnx-int8")
    assert "cannot be ranked" in refused(
        "label-next", str(run), "--from", str(run.parent / "test.jsonl")
    )
    assert "tasklm predict" in refused("distill", str(run), "--out", str(run.parent / "taught"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"select.method": "bm25,influence"}, "stage 1 has no decoder"),
        ({"train.internal_pass": "one"}, "set it to two"),
        ({"finetune.epochs": "0"}, "give 1 or more"),
        ({"tokens.kind": "unigram"}, "set it to bpe"),
        ({"finetune.unlabelled": "vat"}, "choose from cross-view, word-dropout"),
        ({"finetune.unlabelled": "cross-view"}, "there is no unlabelled text"),
        ({"evaluate.metric": "accuracy"}, "bleu, chrf"),
        ({"kind.decoder": "lstm", "hardware.compile": "on"}, "leave hardware.compile out"),
    ],
)
def test_settings_that_do_not_fit_are_refused_early(
    settings: dict[str, str], words: str, tmp_path: Path
) -> None:
    given = {**FAST, **files(tmp_path), "data.leaks": "keep", **settings}
    with pytest.raises(RecipeError, match=words):
        fit(load(None, given), tmp_path / "run", Tracker())
    assert not (tmp_path / "run" / "stage1").exists()
