"""Corpora in several kinds of files, what one machine makes of them, and what
Spark makes of them.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasklm.artifacts import Artefacts
from tasklm.corpus.contamination import Contamination
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.decontaminate import contaminated
from tasklm.corpus.portions import FileRead, Portion
from tasklm.corpus.sources import find_files
from tasklm.corpus.spark.decontaminate import contaminated_on_spark
from tasklm.corpus.spark.files import Sizes, list_files
from tasklm.corpus.spark.session import Spark
from tasklm.corpus.spark.store import SparkStore, build_spark_store
from tasklm.corpus.store import PassageStore, build_store
from tasklm.select.base import Ranking, Workplace, union, write_selection
from tasklm.select.bm25 import open_index
from tasklm.select.lexical.search import Scoring, search
from tasklm.select.lexical.terms import terms
from tasklm.select.spark.bm25 import spark_search
from tasklm.tracking import SILENT

PASSAGE_WORDS = 16
RUN_WORDS = 8
LICENCES = ("MIT", None, "CC0-1.0", "")
CONF = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
)
SMALL = Sizes(chunk_passages=16, chunk_bytes=900, shard_passages=40, shard_bytes=2500)


@dataclass
class Outcome:
    """All that a selection is made of."""

    counts: dict[str, int]
    contamination: Contamination
    ranking: Ranking
    rows: list[dict[str, object]]
    files: list[FileRead]
    portions: list[Portion]
    portion_of: list[int]  # of each passage


def write_corpus(folder: Path, texts: list[str]) -> None:
    """Writes the texts to files of many kinds, a fifth of them twice, with empty rows, halves of
    characters and a list beside.
    """
    (folder / "deep" / "er").mkdir(parents=True)
    again = texts[::5] + [text.upper() + "  " for text in texts[1::9]]
    step = len(texts) // 6

    def part(number: int) -> list[str]:
        return texts[number * step : (number + 1) * step] + again[number::6]

    (folder / "b.jsonl").write_text(
        "".join(
            json.dumps({"text": text, "source": f"site {i % 3}", "license": LICENCES[i % 4]}) + "\n"
            for i, text in enumerate(part(0))
        )
    )
    with gzip.open(folder / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(
            json.dumps({"n": i, "text": text}, ensure_ascii=False) + "\n"
            for i, text in enumerate(part(1))
        )
        file.write(json.dumps({"n": -1, "text": "\ud800 half of a character \udc00"}) + "\n")
    table = pa.table(
        {"text": part(2), "source": [None if i % 2 else "parquet" for i in range(len(part(2)))]}
    )
    pq.write_table(table, folder / "deep" / "z.snappy.parquet", row_group_size=11)
    (folder / "deep" / "er" / "name with space.txt").write_text(
        "\n\n".join(part(3)), encoding="utf-8"
    )
    rows = "".join('"' + text.replace('"', '""') + '"\n' for text in part(4))
    (folder / "B.csv").write_text("text\n" + rows, encoding="utf-8")
    (folder / "Ω.md").write_text("\n".join([*part(5), *texts[6 * step :]]), encoding="utf-8")
    (folder / "list.tsv").write_text("n\tcode\n1\tab\n", encoding="utf-8")
    (folder / ".hidden.txt").write_text("not read")


def queries_of(texts: list[str]) -> list[list[str]]:
    return [terms(text) for text in [*texts, "the the the model", "", "nothingknown"]]


def on_one_machine(
    corpus: Path,
    held_out: dict[str, list[str]],
    queries: list[list[str]],
    scoring: Scoring,
    folder: Path,
) -> Outcome:
    folder.mkdir()
    text = CorpusText(tuple(find_files([str(corpus)])), passage_words=PASSAGE_WORDS)
    build_store(folder, text, SILENT)
    store = PassageStore.open(folder)
    found = contaminated(store, held_out, RUN_WORDS, SILENT)
    place = Workplace(Artefacts(folder), folder, SILENT)
    ranking = search(
        open_index(store, place.indexes, "none", 1, SILENT), queries, found.banned, scoring, place
    )
    write_selection(folder / "selected.parquet", store, union(ranking, 200))
    return outcome_of(store, found, ranking, folder)


def outcome_of(
    store: PassageStore | SparkStore, found: Contamination, ranking: Ranking, folder: Path
) -> Outcome:
    portion_of = store.portions_of(np.arange(len(store))).tolist()
    rows = pq.read_table(folder / "selected.parquet").to_pylist()
    return Outcome(store.counts, found, ranking, rows, store.files, store.portions, portion_of)


def on_spark(
    spark: Spark,
    paths: list[str],
    held_out: dict[str, list[str]],
    queries: list[list[str]],
    scoring: Scoring,
    folder: Path,
    sizes: Sizes = SMALL,
) -> Outcome:
    folder.mkdir()
    build_spark_store(
        folder, CorpusText(tuple(list_files(paths, spark)), "", PASSAGE_WORDS), spark, SILENT, sizes
    )
    store = SparkStore(folder, spark)
    found = contaminated_on_spark(store, held_out, RUN_WORDS, SILENT)
    place = Workplace(Artefacts(folder), folder / "scratch", SILENT, memory=1 << 16, threads=1)
    ranking = spark_search(store, queries, found.banned, scoring, "none", place)
    chosen = union(ranking, 200)
    write_selection(folder / "selected.parquet", store.fetch(chosen.passages, folder), chosen)
    assert sorted(path.name for path in folder.iterdir()) == [
        "chunks.npy",
        "files.json",
        "kept.npy",
        *(["portions.npy"] if len(store.portions) > len(store.files) else []),
        "sample.json",
        "scratch",
        "selected.parquet",
        "store.json",
    ]
    return outcome_of(store, found, ranking, folder)


def check_same(here: Outcome, there: Outcome) -> None:
    assert here.counts == there.counts
    np.testing.assert_array_equal(here.contamination.banned, there.contamination.banned)
    assert here.contamination.examples == there.contamination.examples
    assert (here.contamination.short, here.contamination.unchecked) == (
        there.contamination.short,
        there.contamination.unchecked,
    )
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(here.ranking, name), getattr(there.ranking, name))
        assert getattr(here.ranking, name).dtype == getattr(there.ranking, name).dtype
    assert here.rows == there.rows
    assert (here.files, here.portions) == (there.files, there.portions)
    assert here.portion_of == there.portion_of
