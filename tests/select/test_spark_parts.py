"""What Spark's tasks do, tried without Spark: many cuts of the work, all with the result of one
machine.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.artifacts import Artefacts
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.spark import repeats, store
from tasklm.corpus.spark.files import Sizes, list_files
from tasklm.corpus.spark.repeats import Head, first_ones
from tasklm.corpus.spark.session import Spark, spark_errors_are_clear
from tasklm.corpus.spark.store import SparkStore, build_spark_store, spark_corpus_key
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.select.base import Workplace
from tasklm.select.lexical.search import Scoring
from tasklm.select.spark import bm25
from tasklm.select.spark.bm25 import spark_search
from tasklm.tracking import SILENT
from tests.select.fake_spark import FakeSpark
from tests.select.spark_corpora import (
    PASSAGE_WORDS,
    check_same,
    on_one_machine,
    on_spark,
    queries_of,
    write_corpus,
)


@pytest.fixture
def corpus(tmp_path, make_texts) -> tuple[Path, dict[str, list[str]]]:
    folder, texts = tmp_path / "corpus", [text for text in make_texts(360, seed=1) if text.strip()]
    write_corpus(folder, texts)
    long = [text for text in texts if len(text.split()) > 20]
    return folder, {"dev": [*long[3:9], "too short"], "test": [*long[20:24], "the of and to in a"]}


SMALL, SMALLER = Sizes(chunk_bytes=900, shard_bytes=5000), Sizes(chunk_passages=4, shard_passages=9)


@pytest.mark.parametrize(
    ("k", "sizes"), [(1, SMALLER), (7, SMALL), (60, SMALLER), (60, Sizes()), (10_000, SMALL)]
)
def test_equals_one_machine(corpus, make_texts, tmp_path, monkeypatch, k, sizes):
    monkeypatch.setattr(bm25, "_SLICE_BYTES", 200)
    monkeypatch.setattr(repeats, "_BUCKET_KEYS", 50)
    monkeypatch.setattr(repeats, "_KEYS_AT_ONCE", 20)
    folder, held_out = corpus
    queries, scoring = queries_of(make_texts(17, seed=2)), Scoring(1.2, 0.75, k)
    here = on_one_machine(folder, held_out, queries, scoring, tmp_path / "here")
    assert (
        here.counts["duplicates"] > 50
        and 0 < here.contamination.banned.sum() < here.counts["passages"] / 2
    )
    check_same(
        here,
        on_spark(
            FakeSpark(k), [str(folder)], held_out, queries, scoring, tmp_path / "there", sizes
        ),
    )


def test_a_close_last_place_goes_by_exact_score(tmp_path):
    # "rare" weighs so much that what "a" adds is nearly lost in the sums; of the passages with "a"
    # the shortest, the last, are best
    (tmp_path / "corpus").mkdir()
    passages = (
        [" ".join(["a", *(f"x{n}w{i}" for i in range(14 - n))]) for n in range(12)]
        + ["rare"]
        + [f"other {n}" for n in range(20)]
    )
    for n, passage in enumerate(passages):
        (tmp_path / "corpus" / f"{n:02d}.txt").write_text(passage)
    queries, scoring = [["rare"] * 20_000 + ["a"]], Scoring(1.2, 0.75, 4)
    here = on_one_machine(tmp_path / "corpus", {}, queries, scoring, tmp_path / "here")
    there = on_spark(
        FakeSpark(), [str(tmp_path / "corpus")], {}, queries, scoring, tmp_path / "there"
    )
    assert sorted(there.ranking.passages.tolist()) == [9, 10, 11, 12]
    check_same(here, there)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), max_size=12), max_size=8), st.integers(0, 99))
def test_the_first_of_equal_passages_stays(files, seed):
    keys = [key for file in files for key in file]
    expected = [key not in keys[:at] for at, key in enumerate(keys)]
    heads = [Head(number, 0, len(file), ("",)) for number, file in enumerate(files) if file]
    spark = FakeSpark(seed)
    chunks = [_chunk(number, file) for number, file in enumerate(files) if file]
    raw = spark.context.parallelize(chunks, max(1, len(chunks)))
    firsts = first_ones(raw, heads, spark)
    assert firsts.ones.tolist() == expected
    number_of = [number for number, file in enumerate(files) for _ in file]
    with_text = [number for number, file in enumerate(files) if file]
    for at, number in enumerate(with_text):
        own = [i for i, first in enumerate(expected) if first and number_of[i] == number]
        assert firsts.repeats[at] == len(files[number]) - len(own)
        assert firsts.elsewhere[at] == sum(
            any(keys[j] == keys[i] and number_of[j] != number for j in range(len(keys)))
            for i in own
        )


def _chunk(number: int, keys: list[int]) -> store.Chunk:
    empty = np.zeros(len(keys), np.int32)
    return store.Chunk(
        number,
        0,
        b"",
        np.zeros(len(keys) + 1, np.int64),
        np.array(keys, np.uint64),
        empty,
        (("", ""),),
        empty,
    )


def test_an_interrupted_search_keeps_its_batches(corpus, make_texts, tmp_path, monkeypatch):
    folder, held_out = corpus
    queries, scoring = queries_of(make_texts(17, seed=2)), Scoring(1.2, 0.75, 60)
    here = on_one_machine(folder, held_out, queries, scoring, tmp_path / "here")
    (made := tmp_path / "made").mkdir()
    spark = FakeSpark()
    build_spark_store(
        made, CorpusText(tuple(list_files([str(folder)], spark)), "", PASSAGE_WORDS), spark, SILENT
    )
    place = Workplace(Artefacts(made), tmp_path / "scratch", SILENT, memory=1 << 15, threads=1)
    scored: list[int] = []
    whole = bm25._Search.fill

    def fill(self, found, prepared, allowed):
        scored.append(len(prepared))
        if len(scored) == 3:
            raise KeyboardInterrupt
        whole(self, found, prepared, allowed)

    monkeypatch.setattr(bm25._Search, "fill", fill)
    for _ in range(2):
        try:
            ranking = spark_search(
                SparkStore(made, spark), queries, here.contamination.banned, scoring, "none", place
            )
        except KeyboardInterrupt:
            continue
    assert (
        sum(scored) - scored[2] == len(queries) and len(scored) > 4
    )  # the third batch was begun twice, none was done twice
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(ranking, name), getattr(here.ranking, name))


def test_a_finished_search_and_an_open_store_need_no_spark(corpus, make_texts, tmp_path):
    (made := tmp_path / "made").mkdir()
    spark = FakeSpark()
    build_spark_store(
        made,
        CorpusText(tuple(list_files([str(corpus[0])], spark)), "", PASSAGE_WORDS),
        spark,
        SILENT,
    )
    place = Workplace(Artefacts(made), tmp_path / "scratch", SILENT, threads=1)
    asked = (
        queries_of(make_texts(5, seed=2)),
        np.zeros(len(SparkStore(made, spark)), bool),
        Scoring(1.2, 0.75, 3),
        "none",
        place,
    )
    first = spark_search(SparkStore(made, spark), *asked)
    again = spark_search(SparkStore(made, Spark("spark://nowhere:1")), *asked)
    assert first.passages.tolist() == again.passages.tolist()


def test_the_key_follows_the_files(tmp_path):
    def key(column: str = "", passage_words: int = 16) -> str:
        files = list_files([str(tmp_path)], FakeSpark())
        return spark_corpus_key(CorpusText(tuple(files), column, passage_words))

    (tmp_path / "a.txt").write_text("one")
    first = key()
    assert first == key() and len({first, key("text"), key(passage_words=17)}) == 3
    (tmp_path / "a.txt").write_text("two!")
    assert key() != first


def test_files_are_refused_with_a_reason(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    with pytest.raises(DataError, match=r"b\.jsonl, line 2: the line is not valid JSON"):
        build_spark_store(
            tmp_path,
            CorpusText(tuple(list_files([str(tmp_path)], FakeSpark())), "", 16),
            FakeSpark(),
            SILENT,
        )
    with pytest.raises(RecipeError, match=r"'executor\.memory=1g' is not a Spark setting"):
        Spark("local[1]", ["executor.memory=1g"])


class Py4JError(Exception):
    __module__ = "py4j.protocol"


WORKER = """An error occurred while calling o1.
Traceback (most recent call last):
  File "worker.py", line 1, in main
    import tasklm
ModuleNotFoundError: No module named 'tasklm'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:572)
"""


def test_failures_are_told_in_a_line():
    missing = (
        r"ModuleNotFoundError: No module named 'tasklm'\. Install the same packages on every worker"
    )
    with pytest.raises(RunError, match=missing), spark_errors_are_clear():
        raise Py4JError(WORKER)
    with (
        pytest.raises(RunError, match=r"the master is gone\. See Spark's own log"),
        spark_errors_are_clear(),
    ):
        raise Py4JError("the master is gone\n\tat java")
    with pytest.raises(KeyError), spark_errors_are_clear():
        raise KeyError(1)
