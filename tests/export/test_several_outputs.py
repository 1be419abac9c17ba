"""One ONNX file of several tasks: an output for each, by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import RecipeError, RunError
from tasklm.export.exporting import as_onnx, export, export_each
from tasklm.export.onnx_model import session_of
from tasklm.export.source import open_source
from tasklm.models.one_task import alone
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Hardware
from tasklm.serve.all_tasks import AllTasks
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import score
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.end_to_end.kind_data import LONG
from tests.serve.models import need_onnx
from tests.several_models import KINDS, several_run

ONE = Hardware(device="cpu", precision="fp32", threads=1)
TEXTS = [*sentences(5, 4), LONG, "music"]


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    need_onnx()
    return several_run(tmp_path_factory.mktemp("several") / "many", vocabulary)


@pytest.fixture(scope="module")
def folder(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of all tasks as one ONNX file."""
    ((exported, folder),) = export_each(run, "onnx", tmp_path_factory.mktemp("onnx") / "out")
    assert exported.name == "many" and exported.outputs == list(KINDS)
    return folder


def test_the_file_has_an_output_for_each_task(folder: Path) -> None:
    session = session_of(folder / "model.onnx", 1)
    shapes = {one.name: one.shape for one in session.get_outputs()}
    assert list(shapes) == list(KINDS)
    assert shapes["classify"] == ["batch", 2] and shapes["regress"] == ["batch", 1]
    assert shapes["tag"][:2] == ["batch", "length"]
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    assert record["task"]["kind"] == "several" and record["max_difference"] < 1e-4
    assert record["network"]["tasks"]["tag"]["metric"] == "entity_f1"
    columns = record["columns_by_task"]["regress"]
    assert columns == {"text_column": "sentence1,sentence2", "label_column": "score"}


@pytest.mark.parametrize("encoder", ["bert", "modern"])
def test_other_programs_get_the_logits_of_each_task(
    encoder: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """From text on with the tokenizer of the folder, against the model of each task by itself."""
    need_onnx()
    run = several_run(tmp_path / "many", vocabulary, encoder=encoder, wide=False)
    _, folder = export(run, "onnx", tmp_path / "out")
    session = session_of(folder / "model.onnx", 1)
    rows = Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(TEXTS)
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    inputs = [one.name for one in session.get_inputs()]
    arrays = {name: np.array([getattr(row, fields[name]) for row in rows]) for name in inputs}
    theirs = dict(zip(KINDS, session.run(list(KINDS), arrays), strict=True))
    loaded = open_source(run).loaded
    for kind in KINDS:
        own = alone(loaded, kind)
        for number, text in enumerate(TEXTS):
            encoded = own.encoded([own.task.example_of(text)])
            with torch.inference_mode():
                ours = own.model(encoded.padded(np.array([0])))[0].numpy()
            logits = theirs[kind][number]
            read = logits[encoded.units[0].places] if kind == "tag" else logits[None]
            np.testing.assert_allclose(read, ours[: len(read)], atol=1e-4)


def test_it_answers_for_all_tasks_and_for_each_as_pytorch_does(run: Path, folder: Path) -> None:
    ours, theirs = Predictor(run / "model", ONE), Predictor(folder, ONE)
    together = AllTasks(ours), AllTasks(theirs)
    expected, every = (list(one.answers(one.examples(TEXTS))) for one in together)
    assert every == [rounded(answer) for answer in expected]
    for kind in KINDS:
        own = theirs.of(kind).answers(TEXTS)
        assert own == [rounded(answer) for answer in ours.of(kind).answers(TEXTS)]
    row = {"sentence1": TEXTS[0], "sentence2": "music", "more": "a much longer text"}
    pair = ours.of("regress").answers([(TEXTS[0], "music")])
    assert theirs.of("regress").answers([row]) == [rounded(answer) for answer in pair]
    renamed = Predictor(folder, ONE, {"classify": Data(text_column="body")})
    assert renamed.of("classify").answers([{"body": TEXTS[0]}]) == [
        rounded(answer) for answer in ours.of("classify").answers(TEXTS[:1])
    ]


def test_tasks_of_texts_alone_read_the_first_token(vocabulary: Vocabulary, tmp_path: Path) -> None:
    need_onnx()
    run = several_run(tmp_path / "many", vocabulary, ("classify", "regress"))
    folder = as_onnx(run / "model", tmp_path)
    ours, theirs = AllTasks(Predictor(run / "model", ONE)), AllTasks(Predictor(folder, ONE))
    expected = [rounded(answer) for answer in ours.answers(ours.examples(TEXTS))]
    assert list(theirs.answers(theirs.examples(TEXTS))) == expected


def test_the_loss_by_8_bits_is_measured_task_by_task(run: Path, tmp_path: Path) -> None:
    exported, folder = export(run, "onnx-int8", tmp_path / "out")
    assert exported.dev is not None and exported.weights == "int8"
    small, source = Predictor(folder, ONE), open_source(run)
    dev = source.dev()
    assert dev is not None
    after = []
    for member in source.task.members:  # type: ignore[attr-defined]
        own, task = member.own(dev), member.task
        answers = small.of(member.name).answers(own)
        labels = [task.label_of(answer) for answer in answers]
        after.append(score(task.metric(member.metric), [one.label for one in own], labels))
        measured = exported.dev["tasks"][member.name]
        assert measured["exported"] == pytest.approx(after[-1], abs=0.1)  # batches differ
        assert measured["loss"] == measured["model"] - measured["exported"]
    parts = [one["exported"] for one in exported.dev["tasks"].values()]
    assert exported.dev["exported"] == pytest.approx(np.mean(parts))
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "By task: `classify` " in card and "a loss of" in card


def test_the_code_of_the_card_computes_the_logits(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "A small model for 4 tasks, which share one encoder" in card
    assert "- `tag` (rows, length, tags), kind `tag`" in card and "only for these tasks" in card
    assert "- task `regress` from `regress`" in card and str(folder.parent) not in card
    lines = card.partition("```python\n")[2].partition("```")[0].replace("FOLDER", str(folder))
    names: dict[str, Any] = {}
    exec(lines, names)
    assert list(names["logits"]) == list(KINDS) and names["logits"]["classify"].shape == (2, 2)


def test_names_of_tasks_may_be_those_of_values_inside_the_graph(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    need_onnx()
    names = ("linear", "gelu", "val_1", "encoder.token.weight")
    run = several_run(tmp_path / "many", vocabulary, names=names)
    exported, folder = export(run, "onnx", tmp_path / "out")
    assert exported.outputs == list(names)
    tasks = AllTasks(Predictor(folder, ONE))
    (answer,) = tasks.answers(tasks.examples(TEXTS[:1]))
    assert list(answer["tasks"]) == list(names)
    inputs = several_run(
        tmp_path / "other", vocabulary, ("classify", "regress"), names=("input_ids", "b")
    )
    with pytest.raises(RecipeError, match="a task cannot be called input_ids, as an input is"):
        export(inputs, "onnx", tmp_path / "never")
    assert export(inputs, "onnx", tmp_path / "alone", task="input_ids")[0].outputs == ["logits"]


def test_a_file_of_other_outputs_is_refused(run: Path, folder: Path, tmp_path: Path) -> None:
    _, one = export(run, "onnx", tmp_path / "one", task="classify")
    (folder / "model.onnx").rename(tmp_path / "whole.onnx")
    try:
        (folder / "model.onnx").write_bytes((one / "model.onnx").read_bytes())
        with pytest.raises(RunError, match="export"):
            AllTasks(Predictor(folder, ONE))
    finally:
        (tmp_path / "whole.onnx").replace(folder / "model.onnx")


def test_the_command_line_writes_one_folder_and_says_what(run: Path, tmp_path: Path) -> None:
    words = ["export", str(run), "--to", "onnx-int8", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    assert "mean × 100 on 48 dev examples" in done.output and "tag, entity_f1:" in done.output
    asked_for = ["predict", str(tmp_path / "out"), TEXTS[0], "--task", "all"]
    done = CliRunner().invoke(app, asked_for)
    assert done.exit_code == 0 and set(json.loads(done.output)["tasks"]) == set(KINDS)
