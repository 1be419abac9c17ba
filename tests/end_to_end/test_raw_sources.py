"""Kinds that write and texts that nobody wrote an answer to: runs, sides, and going on after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasklm.pipeline.raw_sources import Sides, are_sentences, sources_alone
from tasklm.storage.files import read_json
from tasklm.tasks.examples import Example
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.forking import Commands
from tests.end_to_end.test_kill import kill_at
from tests.end_to_end.test_raw_text import FAST, raw_texts, run, words_of

MIRROR = str.maketrans("abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba")


def other_language(text: str) -> str:
    """The text in a language of its own words."""
    return text.translate(MIRROR)


def pairs(count: int, seed: int) -> list[dict[str, str]]:
    return [{"source": text, "target": other_language(text)} for text in sentences(count, seed)]


def own_sentences() -> set[str]:
    """Those of the corpus that are in the language of the sources."""
    return {text.capitalize() for number in range(24) for text in sentences(6, 100 + number)}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, and a corpus with passages of both languages."""
    folder = tmp_path_factory.mktemp("sources")
    for split, count, seed in (("train", 48, 1), ("dev", 12, 2), ("test", 12, 3)):
        write_jsonl(folder / f"{split}.jsonl", pairs(count, seed))
    texts = [[text.capitalize() for text in sentences(6, 100 + number)] for number in range(24)]
    own = [" ".join(passage) for passage in texts]
    write_jsonl(
        folder / "corpus.jsonl", [{"text": text} for text in [*own, *map(other_language, own)]]
    )
    return folder


def settings(data: Path, student: str, **changes: Any) -> dict[str, Any]:
    files = {f"data.{split}": str(data / f"{split}.jsonl") for split in ("train", "dev", "test")}
    given = {"finetune.unlabelled": student, "data.corpus": str(data / "corpus.jsonl")}
    more = {key.replace("__", "."): value for key, value in changes.items()}
    return {**FAST, "kind.written_tokens": "24", **files, **given, **more}


@pytest.mark.parametrize("decoder", ["transformer", "lstm"])
@pytest.mark.parametrize("student", ["cross-view", "word-dropout"])
def test_a_decoder_learns_from_sources_alone(
    data: Path, tmp_path: Path, student: str, decoder: str
) -> None:
    more = {"kind__decoder": decoder, "data__share": "0.5", "evaluate__compare": "supervised"}
    folder = tmp_path / "run"
    scores = run(folder, settings(data, student, **more))
    (ours,) = [row for row in scores.rows if row.kind == "ours"]
    assert ours.name.endswith(f", {student} on raw text")
    assert [row.name for row in scores.rows if row.kind == "ablation"] == [
        "labels alone, without raw text"
    ]
    texts = raw_texts(folder)
    assert all(len(one["texts"]) == 1 for one in texts)
    written = {one["texts"][0] for one in texts}
    train = {row["source"] for row in pairs(48, 1)}
    hidden, selected = written & train, written - train
    assert len(hidden) == 24 and len(selected) > 20
    assert selected <= own_sentences()  # none of the other language
    curve = read_json(folder / "stage2" / "seed-1" / "curve.json")
    names = {name for point in curve for name in point}
    views = {"attention view", "future view"} if student == "cross-view" else {"word-dropout"}
    assert views <= names and not any("auxiliar" in name for name in names)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "were right with labels alone" not in page


def test_killed_beside_sources_ends_in_identical_weights(
    data: Path, tmp_path: Path, commands: Commands
) -> None:
    values = settings(data, "cross-view", train__checkpoint_seconds="0")

    straight, cut = tmp_path / "straight" / "run", tmp_path / "cut" / "run"
    commands.run(words_of(values, straight))
    points = ("raw-text", "stage2/seed-1.partial/checkpoint-*")
    points += ("stage2/seed-1.partial/checkpoint-00000000[5-9]",)
    killed = [kill_at(commands, words_of(values, cut), cut, point, 0.01) for point in points]
    assert sum(killed) >= 2
    commands.run(words_of(values, cut))
    for name in ("stage2/seed-1/best.safetensors", "model/model.safetensors"):
        assert (cut / name).read_bytes() == (straight / name).read_bytes()


def test_odds_are_those_of_naive_bayes() -> None:
    train = [Example(("a dog runs", "ein hund rennt"), None), Example(("a cat", "ein mann"), None)]
    sides = Sides.of(train)
    # ten words of either side, nine types and one for all others
    sources = {"a": 2, "dog": 1, "runs": 1, "cat": 1}
    assert dict(sides.sources) == sources and sides.targets.total() == 5
    assert (
        round(sides.odds("a dog"), 6) == 1.791759
    )  # ln(3/1) + ln(2/1): both sides have five words
    assert round(sides.odds("a hund"), 6) == 0.405465  # ln(3/1) − ln(2/1)
    pieces = [(1, "the dog runs"), (1, "ein hund, ein mann, ein hund rennt"), (2, "unknown words")]
    assert list(sources_alone(train, pieces)) == [pieces[0], pieces[2]]
    assert are_sentences(train) and not are_sentences([Example(("w " * 60, "x"), None)])
