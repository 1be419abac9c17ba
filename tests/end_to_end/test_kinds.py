"""Every kind of task from a file to a report, and from a model to answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tasklm.cli.app import app, screen
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.pipeline.flow import check, fit
from tasklm.recipe.toml import load
from tasklm.tracking import Tracker
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import options
from tests.end_to_end.kind_data import ASKED, CASES, LONG, Case

runner = CliRunner()
SPLITS = (("train", 48, 1), ("dev", 24, 2), ("test", 24, 3))


@dataclass
class Done:
    """A case with its files and its finished run."""

    case: Case
    data: Path
    folder: Path
    settings: dict[str, str]


def settings_of(case: Case, data: Path) -> dict[str, str]:
    """The recipe keys of a quick run."""
    quick = {
        "train__steps": "30",
        "finetune__epochs": "12",
        "finetune__learning_rate": "0.01",
        "finetune__seeds": "1",
        "finetune__wide": "true",
        "select__passages": "40",
        "select__near_duplicates": "0",
        "select__influence_steps": "5",
        "select__influence_model": "tiny",
        "data__leaks": "keep",
        "evaluate__bootstrap": "100",
    }
    files = {f"data__{name}": str(data / f"{name}{case.suffix}") for name, _, _ in SPLITS}
    return options(data, **{**quick, **files, **case.options})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus."""
    folder = tmp_path_factory.mktemp("kinds")
    write_jsonl(
        folder / "corpus.jsonl", [{"text": " ".join(sentences(8, 100 + i))} for i in range(100)]
    )
    return folder


@pytest.fixture(scope="module", params=CASES, ids=lambda case: str(case.kind))
def done(request: pytest.FixtureRequest, corpus: Path) -> Done:
    case: Case = request.param
    data = corpus / case.kind
    data.mkdir()
    (data / "corpus.jsonl").symlink_to(corpus / "corpus.jsonl")
    for name, count, seed in SPLITS:
        case.write(data / f"{name}{case.suffix}", case.rows(count, seed))
    settings = settings_of(case, data)
    fit(load(None, settings), corpus / "runs" / case.kind, Tracker())
    return Done(case, data, corpus / "runs" / case.kind, settings)


def answers(done: Done, *words: str) -> list[dict[str, Any]]:
    """What `tasklm predict` prints."""
    result = runner.invoke(app, ["predict", str(done.folder / "model"), *words])
    assert result.exit_code == 0, (result.output, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_scores_and_report(done: Done) -> None:
    scores = json.loads((done.folder / "scores.json").read_text(encoding="utf-8"))
    *baselines, ours = scores["rows"]
    assert scores["metric"] == done.case.metrics[0]
    assert [row["name"] for row in baselines] == done.case.baselines and ours["kind"] == "ours"
    for row in scores["rows"]:
        assert list(row["metrics"]) == done.case.metrics
        assert all(-1 <= value <= 1 for value in row["metrics"].values())
        assert row["metrics"][scores["metric"]] == pytest.approx(row["test"]["mean"])
    # On dev, which chooses the epoch: 24 test examples are luck, which differs between kinds of
    # CPU.
    assert ours["dev"]["mean"] > baselines[0]["dev"]["mean"]
    assert done.case.baselines[1] in (done.folder / "report.html").read_text(encoding="utf-8")
    assert (
        json.loads((done.folder / "model" / "config.json").read_text(encoding="utf-8"))["task"][
            "kind"
        ]
        == done.case.kind
    )


def classify_is_natural(answer: dict[str, Any]) -> None:
    assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert set(answer["probabilities"]) == {"yes", "no"} and sum(
        answer["probabilities"].values()
    ) == pytest.approx(1)


def multilabel_is_natural(answer: dict[str, Any]) -> None:
    assert set(answer["labels"]) <= set(answer["probabilities"]) == {"cat", "road", "water"}
    assert all(0 <= value <= 1 for value in answer["probabilities"].values())


def regress_is_natural(answer: dict[str, Any]) -> None:
    assert 0.5 <= answer["score"] <= 4.0


def choice_is_natural(answer: dict[str, Any]) -> None:
    assert sum(answer["probabilities"]) == pytest.approx(1)
    assert answer["probabilities"][answer["number"]] == max(answer["probabilities"])
    assert (
        answer["text"].split("\n")[-len(answer["probabilities"]) :][answer["number"]]
        == answer["option"]
    )


def tag_is_natural(answer: dict[str, Any]) -> None:
    assert answer["words"] == answer["text"].split() and len(answer["tags"]) == len(answer["words"])
    for found in answer["entities"]:
        assert answer["text"][found["begin"] : found["end"]] == found["text"]
        first, last = found["words"]
        assert (
            " ".join(answer["words"][first : last + 1]) == found["text"]
            and answer["tags"][first][2:] == found["type"]
        )


def span_is_natural(answer: dict[str, Any]) -> None:
    context = answer["text"].split("\n")[1]
    assert context[answer["begin"] : answer["end"]] == answer["answer"] and 0 < answer["score"] <= 1
    assert answer["answerable"] == bool(answer["answer"])


def parse_is_natural(answer: dict[str, Any]) -> None:
    words = answer["text"].split()
    assert (
        answer["words"] == words
        and answer["heads"].count(0) == 1
        and len(answer["relations"]) == len(words)
    )
    comment, *lines = answer["conllu"].removesuffix("\n\n").split("\n")
    assert comment == f"# text = {answer['text']}"
    for place, line in enumerate(lines):
        fields = line.split("\t")
        assert len(fields) == 10 and fields[:2] == [str(place + 1), words[place]]
        assert fields[6:8] == [str(answer["heads"][place]), answer["relations"][place]]


def translate_is_natural(answer: dict[str, Any]) -> None:
    assert isinstance(answer["target"], str) and answer["score"] <= 0
    assert answer["target"] == answer["target"].strip() and "[SEP]" not in answer["target"]


NATURAL: dict[str, Callable[[dict[str, Any]], None]] = {
    "classify": classify_is_natural,
    "multilabel": multilabel_is_natural,
    "regress": regress_is_natural,
    "choice": choice_is_natural,
    "tag": tag_is_natural,
    "span": span_is_natural,
    "parse": parse_is_natural,
    "translate": translate_is_natural,
}


def test_predict_gives_the_natural_answer(done: Done) -> None:
    (one,) = answers(done, done.case.asked)
    assert ASKED in one["text"]
    several = answers(done, str(done.data / f"test{done.case.suffix}"))
    assert len(several) == SPLITS[2][1]
    for answer in (one, *several):
        NATURAL[done.case.kind](answer)
    stored = json.loads((done.folder / "predictions" / "test-1.json").read_text(encoding="utf-8"))
    kept = [
        {name: value for name, value in answer.items() if name in stored[0]} for answer in several
    ]
    assert [_rounded(answer) for answer in kept] == [
        _rounded(answer) for answer in stored
    ]  # a file with labels: they are not looked at


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


def test_a_text_by_itself(done: Done) -> None:
    result = runner.invoke(app, ["predict", str(done.folder / "model"), "a text"])
    if done.case.kind in ("choice", "span"):
        assert isinstance(result.exception, DataError) and "not a single text" in str(
            result.exception
        )
    else:
        assert result.exit_code == 0, result.exception


def test_passages_are_selected_by_what_the_kind_asks(done: Done) -> None:
    chosen = pq.read_table(done.folder / "selected" / "selected.parquet").to_pylist()
    if "influence" in done.settings.get("select.method", ""):
        candidates = pq.read_table(done.folder / "candidates" / "selected.parquet").to_pylist()
        assert (len(candidates), len(chosen)) == (40, 8)
        assert {row["id"] for row in chosen} < {row["id"] for row in candidates}
        assert len({row["score"] for row in chosen}) > 1
    else:
        assert len(chosen) == 40
    found = runner.invoke(app, ["select", str(done.folder), "--explain", chosen[0]["id"], "--json"])
    assert found.exit_code == 0, found.exception
    assert json.loads(found.stdout)["queries"][0]["terms"]


def test_explain_explains_or_says_why_not(done: Done) -> None:
    result = runner.invoke(
        app, ["explain", str(done.folder), done.case.asked, "--top", "2", "--json"]
    )
    if done.case.kind == "choice":
        assert isinstance(result.exception, RunError) and "one row each" in str(result.exception)
        return
    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    shown = [*found["examples"]["supporting"], *found["examples"]["opposing"]]
    assert ASKED in found["text"] and "{" not in found["text"] and found["examples"]["in_all"] == 48
    # a number that the model gives has no squared error there, and so no gradient to compare with
    assert bool(shown) == (done.case.kind != "regress")
    assert all(
        -1 <= attribution["score"] <= 1 and f"train{done.case.suffix}, line" in attribution["where"]
        for attribution in shown
    )
    if done.case.kind == "translate":  # stage 1 has no decoder to compare passages by
        assert found["passages"] is None
        return
    assert found["passages"]["supporting"] or found["passages"]["opposing"]


def test_explain_says_what_it_needs_and_what_is_too_long(done: Done) -> None:
    if done.case.kind in ("choice", "span"):
        result = runner.invoke(app, ["explain", str(done.folder), "a text"])
        assert isinstance(result.exception, DataError) and "a JSON object" in str(result.exception)
    if done.case.kind == "tag":
        result = runner.invoke(app, ["explain", str(done.folder), LONG])
        assert isinstance(result.exception, RunError) and "one row each" in str(result.exception)


def test_another_metric_is_refused_with_those_that_exist(done: Done, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as raised:
        fit(load(None, {**done.settings, "evaluate.metric": "rouge"}), tmp_path / "run", Tracker())
    assert "'rouge'" in str(raised.value) and all(
        name in str(raised.value) for name in done.case.metrics
    )
    assert not (tmp_path / "run" / "stage1").exists() and not (tmp_path / "run" / "tokens").exists()


def test_init_recognises_the_kind_and_says_why(
    done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "recipe.toml"
    files = [f"--{name}={done.data / f'{name}{done.case.suffix}'}" for name in ("dev", "test")]
    monkeypatch.setattr(screen, "width", 1000)
    result = runner.invoke(
        app, ["init", str(done.data / f"train{done.case.suffix}"), *files, "--to", str(to)]
    )
    assert result.exit_code == 0, result.exception
    assert f"data.kind: {done.case.why}" in result.stderr
    text = to.read_text(encoding="utf-8")
    assert f'kind = "{done.case.kind}"' in text and done.case.why in text
    assert load(to).evaluate.metric in done.case.metrics


def test_check_finds_the_faults_of_the_kind(done: Done, tmp_path: Path) -> None:
    case = done.case
    spoilt = case.write(tmp_path / f"train{case.suffix}", case.spoil(case.rows(48, 1)))
    level, name, words = case.fault
    settings = {**done.settings, "data.corpus": ""}

    def found(train: str) -> list[Any]:
        findings = check(load(None, {**settings, "data.train": train}), tmp_path / "run", Tracker())
        return [finding for finding in findings if (finding.level, finding.check) == (level, name)]

    (fault,) = found(str(spoilt))
    assert words in fault.message
    assert not found(settings["data.train"])


def test_the_same_command_changes_nothing(done: Done) -> None:
    def files() -> dict[str, tuple[int, bytes]]:
        records = (
            "events.jsonl",
            "log.txt",
            "progress.json",
            "clock.json",
        )  # of the process itself
        kept = (
            path
            for path in sorted(done.folder.rglob("*"))
            if path.is_file() and path.name not in records
        )
        return {
            str(path): (
                path.stat().st_mtime_ns if path.suffix == ".safetensors" else 0,
                path.read_bytes(),
            )
            for path in kept
        }

    before = files()
    fit(load(None, done.settings), done.folder, Tracker())
    after = files()
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == []


def test_another_number_of_epochs_trains_stage_2_alone_again(done: Done) -> None:
    stage1 = (done.folder / "stage1" / "model.safetensors").stat().st_mtime_ns
    fit(
        load(None, {**done.settings, "finetune.epochs": "1"}),
        done.folder,
        Tracker(),
        until="finetune",
    )
    assert (
        json.loads(
            (done.folder / "stage2" / "seed-1" / "summary.json").read_text(encoding="utf-8")
        )["epochs"]
        == 1
    )
    assert (done.folder / "stage1" / "model.safetensors").stat().st_mtime_ns == stage1
