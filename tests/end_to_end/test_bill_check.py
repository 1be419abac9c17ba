"""The bill of text of a run is verified: what is missing, changed or damaged is named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tasklm import check_files, verify_bill
from tasklm.bill.record import BILL, read_bill
from tasklm.cli.app import app
from tasklm.errors import DamagedError
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT
from tests.end_to_end.bill_data import write

runner = CliRunner()
pytestmark = pytest.mark.usefixtures("speed_is_not_measured")


@pytest.fixture
def movable(tmp_path: Path) -> tuple[Path, Path]:
    """A run and its data, which a test may change."""
    (tmp_path / "data").mkdir()
    given = write(tmp_path / "data")
    fit(load(None, {**given, "train.steps": "3"}), tmp_path / "runs" / "run", SILENT)
    return tmp_path / "runs" / "run", tmp_path / "data"


def test_what_is_missing_changed_or_damaged_is_named(movable: tuple[Path, Path]) -> None:
    run, data = movable
    done = runner.invoke(app, ["bill", str(run), "--verify"])
    assert (done.exit_code, "6 files" in done.output) == (0, True), done.output
    assert "all are as the bill says" in done.output
    (data / "texts" / "größe.txt").write_text("another book", encoding="utf-8")
    (data / "dev.jsonl").unlink()
    weights = run / "model" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = runner.invoke(app, ["bill", str(run), "--verify", "--json"])
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    problems = {(Path(one["path"]).name, one["role"]): one["problem"] for one in result["problems"]}
    assert problems["größe.txt", "corpus"] == "its content has changed"
    assert problems["dev.jsonl", "examples"] == "it is missing"
    assert problems["model.safetensors", "model"] == "its content has changed"
    assert result["files"] == 5
    assert [problem.path for problem in verify_bill(run).problems]


def test_a_corpus_that_changes_has_another_bill(movable: tuple[Path, Path]) -> None:
    run, data = movable
    before = read_bill(run)
    book = data / "texts" / "größe.txt"
    book.write_text(book.read_text(encoding="utf-8") + "\n\nOne more line .", encoding="utf-8")
    done = runner.invoke(app, ["report", str(run)])
    assert done.exit_code == 0, done.output
    after = read_bill(run)
    assert before.corpus[1].sha256 == after.corpus[1].sha256  # the news
    assert after.corpus[0].sha256 == hashlib.sha256(book.read_bytes()).hexdigest()
    assert not verify_bill(run).problems


def test_a_damaged_bill_is_found_and_written_again(movable: tuple[Path, Path]) -> None:
    run, _ = movable
    before = read_bill(run)
    (run / BILL).write_bytes((run / BILL).read_bytes()[:-100])
    (damage,) = check_files(run).damaged
    assert Path(damage.file).name == BILL and damage.remedy == f"Rebuild it: tasklm report {run}"
    with pytest.raises(DamagedError):
        verify_bill(run)
    assert runner.invoke(app, ["report", str(run)]).exit_code == 0
    after = read_bill(run)
    assert (before.model, before.corpus) == (after.model, after.corpus)
