from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.decontaminate import MOST_EXAMPLES, HeldOutRuns, RunTable, contaminated
from tasklm.corpus.store import PassageStore, build_store
from tasklm.corpus.words import words
from tasklm.tracking import SILENT


def make(tmp_path: Path, texts: list[str]) -> PassageStore:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    folder = tmp_path / "store"
    folder.mkdir()
    build_store(folder, CorpusText((path,)), SILENT)
    return PassageStore.open(folder)


RUN = "one two three four five six seven eight nine ten eleven twelve thirteen"


def test_a_shared_run_bans_and_a_shorter_one_does_not(tmp_path: Path) -> None:
    store = make(
        tmp_path,
        [
            "nothing in common at all",
            f"Before: {RUN.upper().replace(' ', ', ')}! after",  # case and marks do not hide it
            " ".join(RUN.split()[:12]) + " and no more",
            f"{RUN.replace('seven', 'SIEBEN')} thirteen",
        ],
    )
    found = contaminated(
        store,
        {
            "dev": ["some other text that is in nobody's passage"],
            "test": ["x y", f"zero {RUN} fourteen"],
        },
        13,
        SILENT,
    )
    assert found.banned.tolist() == [False, True, False, False]
    assert found.examples == [
        {
            "id": store.id(1),
            "source": "corpus.jsonl",
            "words": RUN,
            "split": "test",
            "example": 2,
            "text": store.text(1),
        }
    ]
    assert (found.short, found.unchecked) == (1, 1)


def test_short_task_texts_are_looked_for_as_a_whole_from_five_words(tmp_path: Path) -> None:
    store = make(
        tmp_path,
        [
            "he said that this is a short text of six",
            "this is a short one",
            "good movie indeed, very good",
        ],
    )
    found = contaminated(
        store,
        {"test": ["This is a short text!", "very good", "this is a short text of"]},
        13,
        SILENT,
    )
    assert found.banned.tolist() == [True, False, False]
    assert found.unchecked == 1
    assert found.short == 2


def test_runs_do_not_cross_passages_or_task_texts(tmp_path: Path) -> None:
    half, rest = " ".join(RUN.split()[:7]), " ".join(RUN.split()[7:])
    store = make(tmp_path, [f"tick {half}", f"{rest} tock"])
    assert not contaminated(store, {"test": [f"tack {RUN}"]}, 13, SILENT).banned.any()
    (tmp_path / "other").mkdir()
    store = make(tmp_path / "other", [RUN])
    assert not contaminated(
        store,
        {"test": [f"other words begin this {half}", f"{rest} and then it goes on"]},
        13,
        SILENT,
    ).banned.any()


def test_nothing_to_check(tmp_path: Path) -> None:
    found = contaminated(make(tmp_path, ["a text"]), {"dev": [], "test": ["ok"]}, 13, SILENT)
    assert found.banned.tolist() == [False]
    assert found.unchecked == 1


def test_examples_are_limited(tmp_path: Path) -> None:
    store = make(tmp_path, [f"{RUN} number {i}" for i in range(50)])
    found = contaminated(store, {"test": [RUN]}, 13, SILENT)
    assert found.banned.all()
    assert len(found.examples) == MOST_EXAMPLES


def brute(passage: str, texts: list[str], run: int) -> bool:
    def runs(found: list[str], size: int) -> set[tuple[str, ...]]:
        return {tuple(found[i : i + size]) for i in range(len(found) - size + 1)}

    there = words(passage)
    return any(
        runs(words(text), min(run, len(words(text)))) & runs(there, min(run, len(words(text))))
        for text in texts
        if len(words(text)) >= min(5, run)
    )


@settings(max_examples=200)
@given(
    st.lists(st.text("abé 中", max_size=60), min_size=1, max_size=6),
    st.lists(st.text("abé 中", max_size=60), max_size=4),
    st.integers(2, 9),
)
def test_agrees_with_the_plain_definition(passages: list[str], texts: list[str], run: int) -> None:
    runs = HeldOutRuns({"test": texts}, run)
    places, _ = runs.table.find(passages)
    assert (places >= 0).tolist() == [brute(passage, texts, run) for passage in passages]


def test_agrees_with_the_plain_definition_on_long_texts() -> None:
    draw = random.Random(0)
    vocabulary = [f"w{i}" for i in range(5)]
    texts = [" ".join(draw.choices(vocabulary, k=draw.randrange(3, 60))) for _ in range(200)]
    passages = [" ".join(draw.choices(vocabulary, k=80)) for _ in range(200)]
    runs = HeldOutRuns({"dev": texts[:100], "test": texts[100:]}, 7)
    places, sizes = runs.table.find(passages)
    expected = [brute(passage, texts, 7) for passage in passages]
    assert any(expected)
    assert (places >= 0).tolist() == expected
    names = list(runs.table.numbers)
    for passage, place, size in zip(passages, places, sizes, strict=True):
        if place >= 0:
            shared = " ".join(names[word - 1] for word in runs.table.task[place : place + size])
            split, number = runs.origin(int(place))
            assert f" {shared} " in f" {passage} "
            assert f" {shared} " in f" {texts[number - 1 + (100 if split == 'test' else 0)]} "
    assert set(sizes[places >= 0].tolist()) <= {5, 6, 7}


def test_equal_hashes_of_unequal_words_ban_nothing() -> None:
    runs = HeldOutRuns({"test": ["a b c d e f"]}, 5)
    hashes, places = runs.table.hashes, runs.table.places
    # pretend that the first run's hash belongs to other words: its place now names the second run
    first, second = (int(np.flatnonzero(places == place)[0]) for place in (0, 1))
    places[first] = 1
    assert hashes[first] != hashes[second]
    assert runs.table.find(["a b c d e"])[0].tolist() == [-1]
    assert runs.table.find(["b c d e f"])[0].tolist() == [1]


def test_several_processes_find_the_same(tmp_path: Path) -> None:
    draw = random.Random(3)
    drawn = [" ".join(draw.choices("abcdefgh", k=30)) for _ in range(5000)]  # more than one batch
    store = make(tmp_path, [f"{text} é {number}" for number, text in enumerate(drawn)])
    held_out = {"dev": [drawn[10]], "test": [drawn[number] for number in range(20, 5000, 97)]}
    alone, together = (contaminated(store, held_out, 13, SILENT, processes) for processes in (1, 2))
    assert alone.banned[[10, 20, 117]].all()
    assert 52 <= alone.banned.sum() < 5000
    assert (together.banned == alone.banned).all()
    assert together.examples == alone.examples
    assert len(together.examples) == MOST_EXAMPLES


SEARCHING = """
import sys
from pathlib import Path
from tasklm.corpus.decontaminate import contaminated
from tasklm.corpus.store import PassageStore
from tasklm.tracking import Tracker

class Stopping:
    def event(self, name, values):
        if name == "progress" and any(bar["done"] for bar in values["bars"]):
            print("searching", flush=True)
            sys.stdin.readline()

store = PassageStore.open(Path(sys.argv[1]))
held_out = {"test": [store.text(4000)]}
print(contaminated(store, held_out, 13, Tracker(sinks=[Stopping()]), 2).banned.nonzero()[0])
"""


def test_a_killed_search_leaves_nothing_once_it_is_repeated(tmp_path: Path) -> None:
    draw = random.Random(3)
    store = make(tmp_path, [" ".join(draw.choices("abcdefgh", k=30)) for _ in range(12_000)])
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", SEARCHING, str(store.folder)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "searching\n"
        killed.kill()
    assert list(temporary.iterdir())
    again = subprocess.run(
        command, input="", capture_output=True, env=environment, text=True, check=True
    )
    assert again.stdout.endswith("[4000]\n")
    assert not list(temporary.iterdir())


def test_the_table_of_other_processes_is_plain_arrays_and_words(tmp_path: Path) -> None:
    table = HeldOutRuns({"test": [RUN, "wörter, 中文 too; lone \udc80 ones"]}, 5).table
    table.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".npy", ".json"}
    opened = RunTable.open(tmp_path)
    assert opened.numbers == table.numbers
    texts = [RUN.upper(), "of wörter, 中文 too; lone ones", "nothing in common at all"]
    for found, expected in zip(opened.find(texts), table.find(texts), strict=True):
        assert found.tolist() == expected.tolist()
    assert (table.find(texts)[0] >= 0).tolist() == [True, True, False]
