"""Folders of models from anywhere are refused in words: no traceback, no hang, no abort, no NaN for
an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasklm.tokens.tokenizer import Vocabulary
from tests.hostile.folders import everything, is_start
from tests.hostile.good_folders import HARMLESS, Hostile, write_bases
from tests.hostile.workers import Outcome, Worker

FOLDERS = everything()[::3]  # all of them: benchmarks/hostile_folders.py
ASKED = {
    "choice": ('{"question": "what ?", "options": ["a", "b"]}'),
    "span": ('{"question": "what ?", "context": "the cat sees music ."}'),
}
TEXT = "日本 é the cat sees music aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """Good folders, from which the others are made."""
    folder = tmp_path_factory.mktemp("bases")
    write_bases(folder, vocabulary)
    return folder


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """The process that opens the folders."""
    with Worker() as worker:
        yield worker


def end_of(ended: Outcome) -> str:
    """Returns "answered" or "refused" where that is how it ended, in words or in JSON; otherwise
    what happened."""
    if "Traceback" in ended.err or "unforeseen" in ended.err:
        return f"traceback: {ended.err[-1500:]}"
    if ended.end == 2 and "error: " in ended.err and ended.out == "":
        return "refused"
    if ended.end == 0:
        for line in ended.out.splitlines():
            if line.startswith("{"):
                json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no number"))
        return "answered"
    return f"{ended.end}: {ended.err[-1500:]}"


def opened(one: Hostile, folder: Path, worker: Worker) -> Outcome:
    if is_start(one):
        return worker.ask("start", str(folder))
    return worker.ask("verb", "predict", str(folder), ASKED.get(one.base, TEXT))


def test_there_are_many() -> None:
    assert len(FOLDERS) >= 130


@pytest.mark.parametrize("base", sorted({one.base for one in FOLDERS}))
def test_good_folders_are_opened(base: str, bases: Path, worker: Worker) -> None:
    assert (
        end_of(opened(Hostile(base, base, lambda folder: None), bases / base, worker)) == "answered"
    )


@pytest.mark.parametrize("one", FOLDERS, ids=lambda one: one.name.replace("/", "|"))
def test_hostile_folders_are_refused_in_words(
    one: Hostile, bases: Path, worker: Worker, tmp_path: Path
) -> None:
    ended = end_of(opened(one, one.make(bases, tmp_path / "folder"), worker))
    assert ended in one.ends and set(one.ends) <= set(HARMLESS)
