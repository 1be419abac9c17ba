"""The benchmark of selection: its brute force against sums by hand, its text, and a small run of
it.
"""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.corpus.store import PassageStore
from tests.conftest import sentences, write_jsonl

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: importlib.import_module(f"bm25_peers.{name}")


def corpus(folder: Path) -> Path:
    """Writes 40 documents of 40 sentences each."""
    texts = [" ".join(sentences(40, seed)) for seed in range(40)]
    return write_jsonl(folder / "corpus.jsonl", [{"text": text} for text in texts])


def test_exact_scores_are_those_by_hand(module: Any, tmp_path: Path) -> None:
    passages = ["a b b", "b c d e f", "a", "ä ö a a"]
    (tmp_path / "passages.txt").write_text(
        "".join(line + "\n" for line in passages), encoding="utf-8"
    )
    queries = [["a", "b", "b", "unknown"], ["ö", "f"]]
    scores = module("exact").exact_scores(
        tmp_path / "passages.txt", 4, queries, tmp_path / "exact.npy"
    )

    def by_hand(query: list[str], words: list[str]) -> float:
        total = 0.0
        for term in query:
            holders = sum(term in other.split() for other in passages)
            idf = math.log(1 + (4 - holders + 0.5) / (holders + 0.5))
            frequency = words.count(term)
            total += idf * frequency / (frequency + 1.2 * (0.25 + 0.75 * len(words) / (13 / 4)))
        return total

    expected = [[by_hand(query, line.split()) for line in passages] for query in queries]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_overlap_counts_ties_as_equal_and_a_passage_once(module: Any) -> None:
    overlap = module("exact").overlap
    scores = np.array([3.0, 2.0, 2.0, 1.0, 0.0])
    assert overlap(scores, np.array([0, 2]), 2) == 1.0
    assert overlap(scores, np.array([0, 3]), 2) == 0.5
    assert overlap(scores, np.array([0, 0]), 2) == 0.5
    assert overlap(scores, np.array([3, 1, 0, 2, -1]), 5) == 1.0  # four share a word with the query


def test_passages_are_different_windows_and_queries_are_from_other_documents(
    module: Any, tmp_path: Path
) -> None:
    rows = [
        {"text": " ".join(f"d{document}w{word}" for word in range(300))} for document in range(60)
    ]
    text = module("text")
    words = text.corpus_words(write_jsonl(tmp_path / "corpus.jsonl", rows), tmp_path)
    data = text.make_data(words, tmp_path, 3000, [30], 50, seed=5)
    passages = list(data.lines())
    assert len(set(passages)) == 3000
    assert {len(passage.split()) for passage in passages} == set(
        range(text.SHORTEST, text.LONGEST + 1)
    )
    for passage in passages[::100]:
        found = passage.split()
        document, start = map(int, found[0][1:].split("w"))
        assert found == rows[document]["text"].split()[start : start + len(found)]
    asked = {word.split("w")[0] for query in data.queries(30) for word in query}
    assert asked and asked.isdisjoint(
        word.split("w")[0] for passage in passages for word in passage.split()[:1]
    )
    store = PassageStore.open(data.store)
    assert store.texts(0, len(store)) == passages


def test_a_quick_run_finds_what_brute_force_finds(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(BENCHMARKS / "selection.py"),
        "--quick",
        "--engines",
        "ours",
        "--work",
        str(tmp_path / "work"),
    ]
    done = subprocess.run(
        [*command, "--corpus", str(corpus(tmp_path))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "work" / "selection.json").read_text(encoding="utf-8"))
    (size,) = record["sizes"]
    ours = size["engines"]["ours"]
    assert "failed" not in ours, ours
    runs = ours["search"]["runs"]
    assert [(run["words"], run["k"], run["overlap"]) for run in runs] == [
        (30, 5, 1.0),
        (30, 50, 1.0),
        (200, 5, 1.0),
        (200, 50, 1.0),
    ]
    assert "2,000 passages" in done.stdout
