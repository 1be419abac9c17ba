"""`tasklm export` on a run folder: what is written, where, and what the card says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.device.machine import Machine
from tasklm.errors import RecipeError, RunError
from tasklm.evaluate.scores import Row, Scores, Spread, to_dict
from tasklm.evaluate.verdict import with_verdict
from tasklm.export.exporting import default_folder, export
from tasklm.export.publishing import without_paths
from tasklm.export.source import new_folder, open_source
from tasklm.models.task_model import answers_of
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Hardware
from tasklm.recipe.toml import dump, load
from tasklm.serve.finished_run import training_examples
from tasklm.serve.predictor import Predictor
from tasklm.storage.files import read_json, write_json
from tasklm.tasks.base import score
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import labelled, write_jsonl
from tests.export.samples import ran, saved

runner = CliRunner()


@pytest.fixture
def run(tmp_path: Path, vocabulary: Vocabulary) -> Path:
    """A run folder with all that an export reads; its model was never trained."""
    folder = tmp_path / "runs" / "first"
    saved(folder / "model", vocabulary, labels=["no", "yes"], layers=1)
    files = {
        name: str(write_jsonl(tmp_path / f"{name}.jsonl", labelled(40, i)))
        for i, name in enumerate(("train", "dev", "test"))
    }
    servers = {
        "select.engine": "elastic",
        "select.url": "http://user:secret@host:9200",
        "select.spark": "spark.key=hidden",
    }
    overrides = {
        **{f"data.{name}": file for name, file in files.items()},
        "data.corpus": [str(tmp_path / "texts" / "c.jsonl")],
        **servers,
    }
    (folder / "recipe.toml").write_text(dump(load(None, overrides)), encoding="utf-8")
    (folder / "manifest.json").touch()
    rows = [
        Row("majority", "baseline", Spread(0.4, 0, [0.4]), Spread(0.41, 0, [0.41], 0.3, 0.5)),
        Row(
            "BM25 | ours",
            "ours",
            Spread(0.8, 0.01, [0.8, 0.81]),
            Spread(0.777, 0.01, [0.77, 0.78], 0.71, 0.834),
            selected_passages=1234,
        ),
    ]
    data = {"train": 40, "dev": 40, "test": 40, "corpus": {"passages": 99_999}}
    write_json(
        folder / "scores.json",
        to_dict(with_verdict(Scores("macro_f1", ["no", "yes"], rows, data, 2))),
    )
    return folder


def test_the_card_says_what_it_is(run: Path, tmp_path: Path) -> None:
    found, folder = export(run, "hf", tmp_path / "out")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert (
        card.startswith("---\nlicense:  #")
        and "library_name: transformers" in card
        and "pipeline_tag: text-classification" in card
    )
    assert (
        "`no`, `yes`" in card
        and "AutoModelForSequenceClassification.from_pretrained" in card
        and "at most 24 tokens" in card
    )
    assert (
        "1,234 of 99,999 passages from `c.jsonl`" in card
        and "40 examples from `train.jsonl`" in card
    )
    assert (
        "| **BM25 \\| ours** | 80.0 ± 1.0 | 77.7 ± 1.0 [71.0, 83.4] |" in card
        and "| majority | 40.0 | 41.0 [30.0, 50.0] |" in card
    )
    assert (
        "ahead of the best other row, majority" in card
        and "## Limits" in card
        and "[finetune]" in card
    )
    for private in (str(tmp_path), "secret", "hidden", "host:9200"):
        assert private not in card
    written = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    assert written[
        "loads_with"
    ] == found.loads_with == "ElectraForSequenceClassification" and written["task"]["labels"] == [
        "no",
        "yes",
    ]
    assert written["megabytes"] == (folder / "model.safetensors").stat().st_size / 1e6


def test_the_code_of_the_card_runs(run: Path, tmp_path: Path) -> None:
    pytest.importorskip(
        "transformers", reason="transformers is not installed: it is what the code loads"
    )
    _, folder = export(run, "hf", tmp_path / "out")
    source = open_source(run)
    encoded = EncodedExamples.of(
        source.task, [source.task.example_of("a text")], source.vocabulary, source.length
    )
    torch.testing.assert_close(
        ran(folder)["logits"], source.model(encoded.padded(np.arange(1)))[:, 0], atol=1e-4, rtol=0
    )


def test_a_recipe_without_paths_can_be_read(run: Path) -> None:
    recipe = load(run / "recipe.toml")
    plain = without_paths(recipe)
    assert (
        plain.data.train == "train.jsonl"
        and plain.data.corpus == ("c.jsonl",)
        and plain.finetune == recipe.finetune
    )


def test_a_model_by_itself_has_a_card_that_says_so(vocabulary: Vocabulary, tmp_path: Path) -> None:
    saved(tmp_path / "alone", vocabulary, "regress")
    _, folder = export(tmp_path / "alone", "hf", tmp_path / "out")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert (
        "exported without its run folder" in card
        and "0 + 5 · sigmoid(logit)" in card
        and "spearman on dev, used to pick the model: 50.0" in card
    )


def test_only_a_new_or_empty_folder_is_written(run: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    full = tmp_path / "texts"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for taken in (full, full / "mine.txt", tmp_path / "link", run):
        with pytest.raises(RunError, match="--out"):
            export(run, "hf", taken)
    assert (full / "mine.txt").read_text() == "mine" and not (tmp_path / "elsewhere").exists()
    (tmp_path / "empty").mkdir()
    export(run, "hf", tmp_path / "empty")
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    names = {
        "README.md",
        "config.json",
        "export.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert after - before.keys() - {full / "mine.txt"} == {
        tmp_path / "empty" / name for name in names
    }
    assert all(path.read_bytes() == content for path, content in before.items())


def test_nothing_is_left_after_an_error(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"model\.safetensors has .* MB; --to onnx"):
        export(run, "hf", tmp_path / "out" / "deep", max_mb=0.001)
    with pytest.raises(RecipeError, match="choose from hf, onnx, onnx-int8"):
        export(run, "gguf", tmp_path / "out" / "deep")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "out" / "deep") as folder:
        (folder / "half.txt").write_text("half")
        raise ZeroDivisionError
    assert list((tmp_path / "out").iterdir()) == []


def test_where_models_are_found(run: Path, tmp_path: Path) -> None:
    assert open_source(run).run == open_source(run / "model").run == run.resolve()
    assert (
        default_folder(run, "hf") == default_folder(run / "model", "hf") == Path("exports/first-hf")
    )
    with pytest.raises(RunError, match="there is no folder"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(RunError, match="already an export"):
        open_source(export(run, "hf", tmp_path / "out")[1])
    (run / "model" / "config.json").unlink()
    with pytest.raises(RunError, match="tasklm evaluate"):
        open_source(run)


def test_the_loss_on_dev_is_measured_told_and_stored(run: Path, tmp_path: Path) -> None:
    result = runner.invoke(
        app, ["export", str(run), "--to", "onnx-int8", "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))
    source = open_source(run)
    dev = source.dev()
    assert dev is not None
    encoded = EncodedExamples.of(source.task, dev, source.vocabulary, source.length)
    answers = answers_of(
        [source.model], source.task, encoded, Machine(torch.device("cpu"), False, 1)
    )
    ours = score(
        source.task.metric("macro_f1"),
        [example.label for example in dev],
        [answer["label"] for answer in answers],
    )
    assert (
        written["dev"]["model"] == ours
        and written["dev"]["examples"] == 40
        and written["dev"]["metric"] == "macro_f1"
    )
    assert (
        written["dev"]["loss"] == written["dev"]["model"] - written["dev"]["exported"]
        and written["max_difference"] > 1e-6
    )
    both = f"{100 * ours:.2f} in fp32, {100 * written['dev']['exported']:.2f}"
    lost = f"a loss of {100 * written['dev']['loss']:.2f}"
    assert ran(tmp_path / "out")["logits"].shape == (2, 2)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    shown = " ".join(result.output.split())
    assert both in shown and lost in shown and both in card and lost in card
    write_jsonl(
        tmp_path / "train.jsonl",
        [{**row, "label": "other" if row["label"] == "no" else "yes"} for row in labelled(40, 0)],
    )
    write_jsonl(tmp_path / "dev.jsonl", [{**row, "label": "yes"} for row in labelled(40, 1)])
    write_jsonl(tmp_path / "test.jsonl", [{**row, "label": "yes"} for row in labelled(40, 2)])
    with pytest.raises(RunError, match="the file has changed"):
        source.dev()


def test_changed_and_missing_files_are_told_with_a_way_out_that_works(
    run: Path, tmp_path: Path
) -> None:
    train = tmp_path / "train.jsonl"
    before = train.read_bytes()
    write_jsonl(train, labelled(41, 0))
    with pytest.raises(
        RunError,
        match=r"train has 41 examples instead of 40\. Restore the old files, or copy .*elsewhere",
    ):
        open_source(run / "model").dev()
    with pytest.raises(
        RunError,
        match=r"train has 41 examples instead of 40\. Restore the old files, or train again",
    ):
        training_examples(run, open_source(run).task)
    train.unlink()
    with pytest.raises(
        RunError,
        match=r"train\.jsonl.*Restore the old files, or copy .*elsewhere and export the copy",
    ) as told:
        open_source(run / "model").dev()
    shutil.copytree(str(told.value).split(" copy ")[1].split(" elsewhere")[0], tmp_path / "copied")
    assert open_source(tmp_path / "copied").dev() is None
    train.write_bytes(before)
    dev = open_source(run).dev()
    assert (
        dev is not None
        and len(dev) == 40
        and len(training_examples(run, open_source(run).task)) == 40
    )


def test_scores_of_an_earlier_recipe_are_no_card(run: Path, tmp_path: Path) -> None:
    write_json(
        run / "scores.json",
        {**json.loads((run / "scores.json").read_text(encoding="utf-8")), "recipe": "another"},
    )
    with pytest.raises(RunError, match=r"from an earlier recipe.*tasklm report"):
        export(run, "hf", tmp_path / "out")


def test_an_export_knows_the_columns_of_its_training_data(run: Path, tmp_path: Path) -> None:
    overrides = {"data.text_column": "headline", "data.label_column": "topic"}
    (run / "recipe.toml").write_text(dump(load(run / "recipe.toml", overrides)), encoding="utf-8")
    found, folder = export(run, "onnx", tmp_path / "out")
    assert found.columns == {"text_column": "headline", "label_column": "topic"}
    row = {"headline": "a dog likes music", "id": "17", "note": "something else"}
    one = Hardware(precision="fp32", threads=1)
    assert Predictor(folder, one).answers([row]) == Predictor(folder, one).answers(
        [row["headline"]]
    )
    assert Predictor(folder, one, Data(text_column="note")).answers([row]) == Predictor(
        folder, one
    ).answers([row["note"]])
    older = {
        key: value
        for key, value in read_json(folder / "export.json").items()
        if key not in ("columns", "files")
    }
    write_json(folder / "export.json", older)
    assert Predictor(folder, one).data == Data()
