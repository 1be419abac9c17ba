"""A run with the encoder of larger models, trained for a few steps: exported, its test answers are
the ones that were scored.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tasklm.bill.record import read_bill
from tasklm.cli.app import app
from tasklm.evaluate.scores import Scores
from tasklm.export.exporting import export
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.explainer import Explainer
from tasklm.serve.predictor import Predictor
from tasklm.tracking import SILENT
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import QUICK


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scores]:
    folder = tmp_path_factory.mktemp("trained")
    files = {
        name: str(write_jsonl(folder / f"{name}.jsonl", labelled(50, seed)))
        for seed, name in enumerate(("train", "dev", "test"))
    }
    files["corpus"] = str(
        write_jsonl(
            folder / "corpus.jsonl", [{"text": " ".join(sentences(8, 100 + i))} for i in range(60)]
        )
    )
    few = {
        "model.encoder": "modern",
        "train.steps": "8",
        "finetune.epochs": "2",
        "finetune.seeds": "1",
    }
    scores = fit(
        load(None, {**QUICK, **{f"data.{name}": file for name, file in files.items()}, **few}),
        folder / "run",
        SILENT,
    )
    assert scores is not None
    return folder / "run", scores


def test_transformers_answers_as_was_scored(run: tuple[Path, Scores], tmp_path: Path) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: nothing to compare with"
    )
    found, folder = export(run[0], "hf", tmp_path / "out")
    assert found.loads_with == "ModernBertForSequenceClassification" and found.inputs == [
        "input_ids",
        "attention_mask",
    ]
    texts = [str(row["text"]) for row in labelled(50, 2)]
    ours = [
        answer["probabilities"]
        for answer in json.loads(
            (run[0] / "predictions" / "test-1.json").read_text(encoding="utf-8")
        )
    ]
    classify = transformers.pipeline("text-classification", str(folder), device="cpu", top_k=None)
    for answer, theirs in zip(ours, classify(texts), strict=True):
        assert {one["label"]: one["score"] for one in theirs} == pytest.approx(answer, abs=1e-4)


def test_the_card_has_the_scores_of_the_run_and_the_loss(
    run: tuple[Path, Scores], tmp_path: Path
) -> None:
    result = CliRunner().invoke(
        app, ["export", str(run[0]), "--to", "onnx-int8", "--out", str(tmp_path / "out"), "--json"]
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    ours = run[1].ours
    assert (
        ours is not None
        and ours.test is not None
        and ours.test.low is not None
        and ours.dev is not None
    )
    passages = (
        f"{ours.selected_passages:,} of "
        f"{run[1].data['corpus']['passages']:,} passages from `corpus.jsonl`"
    )
    assert f"| {100 * ours.test.mean:.1f} [{100 * ours.test.low:.1f}," in card and passages in card
    bill = read_bill(tmp_path / "out")
    assert bill.totals == read_bill(run[0]).totals and bill.corpus[0].path == "corpus.jsonl"
    assert "## What it has read" in card and "| corpus.jsonl | not stated | 60 passages |" in card
    assert str(run[0].parent) not in (tmp_path / "out" / "bill.json").read_text(encoding="utf-8")
    assert said["dev"]["examples"] == 50 and said["dev"]["model"] == pytest.approx(ours.dev.mean)
    assert Predictor(tmp_path / "out").answers(["a dog likes music"])[0][
        "probabilities"
    ].keys() == {"no", "yes"}


def test_the_run_is_explained(run: tuple[Path, Scores]) -> None:
    """The norm's gradients are among those that are compared."""
    found = Explainer(run[0]).explain("the cat likes music number 5 .", top=2)
    assert found.label in ("no", "yes") and found.passages is not None
