"""A store knows the files that it was read from: the hashes of what was read, and whose the passages
are.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.corpus import portions, store_writer
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.file_reading import FileReading
from tasklm.corpus.portions import Repeats
from tasklm.corpus.sources import find_files
from tasklm.corpus.store import PassageStore, build_store
from tasklm.errors import DamagedError, DataError
from tasklm.tracking import SILENT
from tests.conftest import write_jsonl

ROWS = [{"text": f"the text number {i} of several hundred", "n": i} for i in range(3000)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def build(folder: Path, files: list[Path]) -> PassageStore:
    folder.mkdir()
    build_store(folder, CorpusText(tuple(files)), SILENT)
    return PassageStore.open(folder)


def contents(tmp_path: Path) -> Iterator[Path]:
    """The same text in files of every format, with odd beginnings and ends."""
    packed = zstandard.ZstdCompressor()
    for name, content in {
        "plain.txt": "\n\n".join(row["text"] for row in ROWS).encode() + b"\n \n",  # type: ignore[misc]
        "bom.csv": "\ufefftext\none text\n".encode(),
        "tabs.tsv": b"text\tn\na text of it\t1\n\n",
        "lines.jsonl": LINES + b"\n\n",
        "twice.jsonl.gz": gzip.compress(LINES) + gzip.compress(LINES) + b"\0" * 700_000,
        "frames.jsonl.zst": packed.compress(LINES) + packed.compress(LINES),
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        yield path
    path = tmp_path / "groups.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=333)
    yield path


def test_hashes_are_those_of_the_whole_files(tmp_path: Path) -> None:
    for path in contents(tmp_path):
        advanced: list[int] = []
        reading = FileReading(path, CorpusText((path,)), 0, advanced.append)
        assert reading.about().skipped  # nothing is read yet
        assert list(reading), path
        about = reading.about()
        assert about.sha256 == hashlib.sha256(path.read_bytes()).hexdigest(), path
        assert about.bytes == sum(advanced) == path.stat().st_size
        assert (about.name, about.skipped) == (path.name, False)


def test_a_store_has_the_hashes_of_its_files_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    for name in ("b.txt", "deep/b.txt", "a.txt"):
        (tmp_path / "texts" / name).write_text(f"the text of {name}", encoding="utf-8")
    (tmp_path / "texts" / "list.tsv").write_text("n\tcode\n1\tab\n", encoding="utf-8")
    files = find_files([str(tmp_path / "texts")])
    store = build(tmp_path / "store", files)
    assert [path.name for path in files] == ["a.txt", "b.txt", "b.txt", "list.tsv"]
    for path, about in zip(files[:3], store.files, strict=False):
        assert about.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert (about.documents, about.empty, about.left_out) == (1, 0, 0)
    assert store.files[3].skipped and not store.files[3].sha256
    # two files of one name are told apart
    assert [one.file for one in store.portions] == [0, 1, 2]
    assert store.portions_of(np.arange(3)).tolist() == [0, 1, 2]
    assert [store.source(i) for i in range(3)] == ["a.txt", "b.txt", "b.txt"]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    documents = iter(FileReading(path, CorpusText((path,)), 0, lambda size: None))
    next(documents)
    with path.open("ab") as file:
        file.write(LINES)
    with pytest.raises(DataError, match=r"a\.jsonl: the file changed while it was read\. Wait"):
        list(documents)
    documents = iter(FileReading(path, CorpusText((path,)), 0, lambda size: None))
    next(documents)
    os.utime(path, (1, 1))
    with pytest.raises(DataError, match="changed while it was read"):
        list(documents)


def test_licences_are_counted_by_row(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"text": f"text {i}", "license": ("MIT", None)[i % 3 == 0], "source": f"s{i % 2}"}
        for i in range(9)
    ]
    store = build(tmp_path / "store", [write_jsonl(tmp_path / "a.jsonl", rows)])
    assert [(one.licence, one.passages) for one in store.portions] == [("", 3), ("MIT", 6)]
    assert store.portions_of(np.arange(9)).tolist() == [0, 1, 1] * 3
    assert [store.source(i) for i in range(4)] == ["s0", "s1", "s0", "s1"]
    assert store.files[0].licence_column == "license"


def test_sources_beyond_the_limit_count_under_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "MOST_SOURCES", 2)
    rows: list[dict[str, object]] = [
        {"text": f"text {i}", "source": f"s{i}", "license": "MIT" if i % 2 else ""}
        for i in range(6)
    ]
    store = build(tmp_path / "store", [write_jsonl(tmp_path / "a.jsonl", rows)])
    assert [store.source(i) for i in range(6)] == ["s0", "s1", *["a.jsonl"] * 4]
    assert [(one.licence, one.passages) for one in store.portions] == [("", 3), ("MIT", 3)]


Files = list[list[tuple[int, str]]]  # the texts of each file, by number, and their licences


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["", "MIT"])), max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_the_first_file_owns_a_passage_and_others_are_counted(
    tmp_path_factory: pytest.TempPathFactory, texts: Files
) -> None:
    folder = tmp_path_factory.mktemp("files")
    files = []
    for number, own in enumerate(texts):
        rows: list[dict[str, object]] = [
            {"text": f"passage number {text}", "license": licence} for text, licence in own
        ]
        rows.append({"text": f"only in file {number}", "license": ""})
        files.append(write_jsonl(folder / f"{number}.jsonl", rows))
    store = build(folder / "store", files)
    everything = [(number, *one) for number, own in enumerate(texts) for one in own]
    owner: dict[int, tuple[int, str]] = {}
    repeats: Counter[tuple[int, str]] = Counter()
    standing: dict[int, set[int]] = {}
    for number, text, licence in everything:
        if text in owner:
            repeats[number, licence] += 1
        owner.setdefault(text, (number, licence))
        standing.setdefault(text, set()).add(number)
    owned = Counter(owner.values()) + Counter((number, "") for number in range(len(texts)))
    elsewhere = Counter(owner[text] for text, numbers in standing.items() if len(numbers) > 1)
    measured = {
        (one.file, one.licence): (one.passages, one.repeats, one.elsewhere)
        for one in store.portions
    }
    names = owned.keys() | repeats.keys()
    assert measured == {name: (owned[name], repeats[name], elsewhere[name]) for name in names}


def test_owners_are_looked_for_block_by_block() -> None:
    draw = np.random.default_rng(0)
    keys = draw.permutation(np.arange(1, 1001)).astype(np.uint64)
    own = draw.integers(0, 5, 1000)
    repeats = Repeats()
    again = draw.integers(0, 1000, 300)
    files = draw.integers(0, 3, 300).astype(np.uint32)
    for part in (slice(0, 100), slice(100, 100), slice(100, 300)):
        repeats.add(keys[again[part]], files[part])
    file_of = np.array([0, 0, 1, 1, 2])
    blocks = ((keys[start : start + 7], own[start : start + 7]) for start in range(0, 1000, 7))
    elsewhere = {
        place for place, file in zip(again, files, strict=True) if file_of[own[place]] != file
    }
    assert repeats.owners(blocks, file_of) == Counter(own[sorted(elsewhere)].tolist())
    assert Repeats().owners(iter([]), file_of) == Counter()


def test_a_damaged_list_of_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text", encoding="utf-8")
    store = build(tmp_path / "store", [tmp_path / "a.txt"])
    path = store.folder / portions.NAME
    record = json.loads(path.read_text(encoding="utf-8"))
    for harm in (
        "{",
        "[]",
        json.dumps({**record, "portions": [{"file": 7, "licence": ""}]}),
        json.dumps({**record, "files": [{"name": 3}]}),
    ):
        path.write_text(harm, encoding="utf-8")
        with pytest.raises(DamagedError, match="is damaged"):
            PassageStore.open(store.folder)
