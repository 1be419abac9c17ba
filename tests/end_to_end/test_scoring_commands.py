from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from tasklm.cli.app import app
from tasklm.device.machine import set_up
from tasklm.encoders.base import Shape
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.evaluate.likelihood import Scorer
from tasklm.models.language_model import load_language_model
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import Hardware
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tests.conftest import labelled, sentences, write_jsonl

runner = CliRunner()
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose stage 1 is done, trained long enough to know the order of words."""
    out = tmp_path_factory.mktemp("runs") / "first"
    (out / "stage1").mkdir(parents=True)
    write_shards(out / "stage1", [sentences(400, 1)], vocabulary)
    examples = [Example((str(row["text"]),), row["label"]) for row in labelled(40, 1)]
    task = Classify.from_examples(examples, Kind())
    encoded = EncodedExamples.of(task, examples, vocabulary, 32)
    machine = set_up(Hardware(device="cpu", precision="fp32", threads=1))
    shape = Shape(len(vocabulary), 2, 64, 2, 128, 32)
    parts = TrainingContext(
        "bert", shape, task, vocabulary, encoded, encoded, Shards.open(out / "stage1"), 32, machine
    )
    run_stage1(
        out / "stage1",
        parts,
        Train(learning_rate=3e-3),
        Stage1Plan(steps=200, rho1=8, batch=16, seconds_allowed=None),
        SILENT,
    )
    return out


def rows_of(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, (result.output, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_score_reads_every_kind_of_file(run: Path, tmp_path: Path) -> None:
    texts = ["the cat likes cold water number 5 .", "", "music", " ".join(sentences(6, 7))]
    plain, table = tmp_path / "texts.txt", tmp_path / "texts.csv"
    plain.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    table.write_text("body,other\n" + "".join(f'"{text}",0\n' for text in texts), encoding="utf-8")
    lines = write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in texts])
    first = runner.invoke(app, ["score", str(run), str(plain)])
    found = rows_of(first)
    wanted = list(Scorer(load_language_model(run / "stage1", CPU)).scored(texts))
    assert [row["pll"] for row in found] == pytest.approx([each.total for each in wanted])
    assert [row["tokens"] for row in found] == [len(each.tokens) for each in wanted] and found[1][
        "pll_per_token"
    ] is None
    assert [row["number"] for row in found] == [1, 2, 3, 4] and [
        row["text"] for row in found
    ] == texts
    assert found[0]["pll_per_token"] == pytest.approx(wanted[0].total / len(wanted[0].tokens))
    assert (
        "4 texts" in first.stderr
        and "1 of the texts are longer than 30 tokens: split into windows" in first.stderr
    )
    assert [row["pll"] for row in rows_of(runner.invoke(app, ["score", str(run), str(lines)]))] == [
        row["pll"] for row in found
    ]
    named = runner.invoke(
        app,
        [
            "score",
            str(run),
            str(table),
            "--text-column",
            "body",
            "--out",
            str(tmp_path / "out.jsonl"),
        ],
    )
    assert rows_of(named) == []
    written = [
        json.loads(line)
        for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row["pll"] for row in written] == [row["pll"] for row in found] and [
        row["line"] for row in written
    ] == [2, 3, 4, 5]


def test_score_shows_every_token(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat\n", encoding="utf-8")
    (row,) = rows_of(
        runner.invoke(app, ["score", str(run), str(tmp_path / "a.txt"), "--per-token"])
    )
    assert [piece for piece, _ in row["scores"]] == ["the", "cat"]  # type: ignore[attr-defined]
    assert sum(score for _, score in row["scores"]) == pytest.approx(row["pll"])  # type: ignore[attr-defined]


def lists_of(count: int, seed: int) -> list[dict[str, object]]:
    """Returns lists whose scores say nothing: a sentence among versions of it with two words
    exchanged.
    """
    draw, lists = random.Random(seed), []
    for number, text in enumerate(sentences(count, seed)):
        candidates = [text]
        while len(candidates) < 4:
            words = text.split()
            first, second = draw.sample(range(len(words)), 2)
            words[first], words[second] = words[second], words[first]
            if " ".join(words) not in candidates:
                candidates.append(" ".join(words))
        draw.shuffle(candidates)
        scored = [{"text": candidate, "score": draw.gauss(0, 1)} for candidate in candidates]
        lists.append(
            {
                "id": f"list {number}",
                "candidates": scored,
                "answer": text if number % 2 else candidates.index(text),
            }
        )
    return lists


def test_rerank_finds_the_sentences_among_disordered_ones(run: Path, tmp_path: Path) -> None:
    dev, lists = write_jsonl(tmp_path / "dev.jsonl", lists_of(40, 50)), lists_of(40, 51)
    test = write_jsonl(tmp_path / "test.jsonl", lists)
    result = runner.invoke(app, ["rerank", str(run), str(test), "--dev", str(dev)])
    found = rows_of(result)
    assert [row["id"] for row in found] == [each["id"] for each in lists]
    before = 0
    for row, each in zip(found, lists, strict=True):
        candidates = each["candidates"]
        assert isinstance(candidates, list)
        right = (
            each["answer"]
            if isinstance(each["answer"], int)
            else [c["text"] for c in candidates].index(each["answer"])
        )
        before += max(range(4), key=lambda number: candidates[number]["score"]) == right
        assert (
            row["right"] == (row["choice"] == right)
            and row["text"] == candidates[row["choice"]]["text"]
        )
    after = sum(bool(row["right"]) for row in found)
    assert before < 20 and after > 30, (before, after)
    assert (
        f"accuracy {after / 40:.3f} ({before / 40:.3f} with the scores alone) on 40 lists"
        in result.stderr
        and "chosen on" in result.stderr
    )
    weight = float(result.stderr.partition("λ = ")[2].partition(",")[0])
    again = rows_of(
        runner.invoke(
            app,
            [
                "rerank",
                str(run),
                str(test),
                "--weight",
                str(weight),
                "--out",
                str(tmp_path / "out.jsonl"),
            ],
        )
    )
    assert again == []
    assert [
        json.loads(line)
        for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    ] == found
    for row in found:
        assert row["sum"] == pytest.approx(row["score"] + weight * row["pll"])  # type: ignore[operator]


def test_rerank_without_answers_says_so(run: Path, tmp_path: Path) -> None:
    lists = write_jsonl(
        tmp_path / "lists.jsonl",
        [{"candidates": [{"text": "the cat", "score": 0.0}, {"text": "music", "score": 1e6}]}],
    )
    result = runner.invoke(app, ["rerank", str(run), str(lists)])
    (row,) = rows_of(result)
    assert row["choice"] == 1 and row["id"] == 1 and "right" not in row
    assert "λ = 1 by default" in result.stderr and "none with an answer" in result.stderr


def test_rerank_says_the_word_error_rate(run: Path, tmp_path: Path) -> None:
    texts = ("the cat", "music")
    candidates = [
        {"text": text, "score": score} for text, score in zip(texts, (0, 9e9), strict=True)
    ]
    lists = write_jsonl(
        tmp_path / "lists.jsonl", [{"candidates": candidates, "reference": "the cat"}]
    )
    result = runner.invoke(app, ["rerank", str(run), str(lists), "--dev", str(lists)])
    said = "word error rate 100.00 % (100.00 % with the scores alone, 0.00 % at best) on 1 lists"
    assert said in result.stderr and rows_of(result)[0]["choice"] == 1
    result = runner.invoke(app, ["rerank", str(run), str(lists), "--errors", "characters"])
    assert "character error rate 100.00 % (100.00 %" in result.stderr  # 6 of 6 characters
    result = runner.invoke(app, ["rerank", str(run), str(lists), "--errors", "syllables"])
    assert isinstance(result.exception, RecipeError) and "words, characters" in str(
        result.exception
    )


def test_what_cannot_be_scored_is_told(run: Path, tmp_path: Path) -> None:
    lists = write_jsonl(tmp_path / "lists.jsonl", [{"candidates": [{"text": "a", "score": 1}]}])
    (tmp_path / "empty.txt").write_text("")
    cases: list[tuple[list[str], type[Exception], str]] = [
        (["score", str(tmp_path), str(lists)], RunError, "contains no language model"),
        (["score", str(run), str(tmp_path / "none.txt")], DataError, "none.txt"),
        (["score", str(run), str(tmp_path / "empty.txt")], DataError, "the file is empty"),
        (["score", str(run), str(lists), "--text-column", "body"], DataError, "'body'"),
        (["rerank", str(run), str(tmp_path / "empty.txt")], DataError, "JSON lines"),
        (
            ["rerank", str(run), str(lists), "--dev", str(lists)],
            DataError,
            "no list has a 'reference' or an 'answer'",
        ),
        (
            ["rerank", str(run), str(lists), "--dev", str(lists), "--weight", "1"],
            RecipeError,
            "give only one of them",
        ),
    ]
    for words, kind, message in cases:
        result = runner.invoke(app, words)
        assert isinstance(result.exception, kind) and message in str(result.exception), (
            words,
            result.exception,
        )


@pytest.mark.parametrize("verb", ["score", "rerank"])
def test_the_verbs_have_help_with_an_example(verb: str) -> None:
    result = runner.invoke(app, [verb, "--help"])
    assert result.exit_code == 0 and f"Example: tasklm {verb}" in result.stdout
