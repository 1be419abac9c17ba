from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.artifacts import Artefacts
from tasklm.corpus import store as store_module
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.dedupe import text_key
from tasklm.corpus.kernels import KeySet
from tasklm.corpus.sources import find_files
from tasklm.corpus.store import PassageStore, build_store, corpus_key, kept_store
from tasklm.errors import DamagedError, DataError, RunError
from tasklm.tracking import SILENT, Tracker


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, values: dict[str, Any]) -> None:
        self.seen.append((name, values))


def corpus(folder: Path, texts: list[str | None], name: str = "a.jsonl") -> list[Path]:
    folder.mkdir(exist_ok=True)
    rows = [{"text": text, "source": "odd" if i % 2 else "even"} for i, text in enumerate(texts)]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return find_files([str(folder)])


def text_of(files: Sequence[Path], words: int = 256) -> CorpusText:
    return CorpusText(tuple(files), passage_words=words)


def build(tmp_path: Path, texts: list[str | None], words: int = 256) -> PassageStore:
    target = tmp_path / "store"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    build_store(target, text_of(corpus(tmp_path / "corpus", texts), words), SILENT)
    return PassageStore.open(target)


def test_passages_come_back_in_order_with_ids_and_sources(tmp_path: Path) -> None:
    store = build(
        tmp_path,
        ["The first text.", "Zweiter Text: größer. 中文", "one two three. four five six."],
        words=4,
    )
    assert store.texts(0, len(store)) == [
        "The first text.",
        "Zweiter Text: größer.",
        "中文",
        "one two three.",
        "four five six.",
    ]
    assert store.text(3) == "one two three."
    assert [store.source(i) for i in range(5)] == ["even", "odd", "odd", "even", "even"]
    assert store.id(0) == f"{text_key('the FIRST  text.'):016x}"
    assert len(store.id(0)) == 16
    assert store.texts(2, 2) == []
    with pytest.raises(IndexError):
        store.text(5)


@pytest.mark.parametrize("batch", [1, 20, 1 << 19])
def test_duplicates_and_empty_rows_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(
        store_module, "_BATCH", batch
    )  # equal texts within a batch and across batches
    texts = [
        "Same text here",
        "same  TEXT\nhere",
        "another",
        None,
        "",
        "---",
        "ｓａｍｅ text here",
        "last é",
    ]
    store = build(tmp_path, texts)
    assert store.texts(0, 3) == ["Same text here", "another", "last é"]
    assert store.counts == {
        "documents": 8,
        "passages": 3,
        "duplicates": 2,
        "empty": 3,
        "words": 6,
        "bytes": 28,
    }


def test_ids_do_not_depend_on_the_corpus_around(tmp_path: Path) -> None:
    one = build(tmp_path, ["alpha beta", "gamma"]).id(1)
    assert build(tmp_path, ["gamma"]).id(0) == one


def test_many_passages_pass_through_batches(tmp_path: Path) -> None:
    texts: list[str | None] = [f"text number {i % 6000}" for i in range(9000)]
    store = build(tmp_path, texts)
    assert len(store) == 6000
    assert store.counts["duplicates"] == 3000
    assert store.texts(0, 6000) == texts[:6000]


def test_key_set_agrees_with_a_python_set() -> None:
    draw = np.random.default_rng(0)
    keys, seen = KeySet(16), set[int]()
    for _ in range(50):
        batch = draw.integers(1, 3000, 100).astype(np.uint64)
        expected = []
        for value in batch.tolist():
            expected.append(value not in seen)
            seen.add(value)
        assert keys.add(batch).tolist() == expected


def test_it_is_an_artefact_with_a_key_and_starts_over_half_written_files(tmp_path: Path) -> None:
    files = corpus(tmp_path / "corpus", ["some text", "more text"])
    key = corpus_key(text_of(files))
    assert key == corpus_key(text_of(files))
    others = [CorpusText(tuple(files), "text"), text_of(files, 128)]
    assert len({key, *map(corpus_key, others)}) == 3
    artefacts = Artefacts(tmp_path / "cache")

    def killed(folder: Path) -> None:
        (folder / "text.bin").write_bytes(b"half a pass")
        (folder / "store.json").write_text("{}", encoding="utf-8")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        artefacts.build("corpus", key, killed)
    folder = artefacts.build(
        "corpus", key, lambda partial: build_store(partial, text_of(files), SILENT)
    )
    assert PassageStore.open(folder).texts(0, 2) == ["some text", "more text"]
    corpus(tmp_path / "corpus", ["some text", "more texts"])
    assert corpus_key(text_of(files)) != key


def test_files_with_other_times_are_known_by_their_content(tmp_path: Path) -> None:
    files = corpus(tmp_path / "corpus", ["some text", "more text"])
    cache = Artefacts(tmp_path / "cache")
    store, key, name = kept_store(text_of(files), cache, SILENT)
    assert (key, cache.builds) == (corpus_key(text_of(files)), 1)
    for path in files:
        os.utime(path, (1, 1))
    assert corpus_key(text_of(files)) != key
    again, *known = kept_store(text_of(files), cache, SILENT)
    assert known == [key, name] and cache.builds == 1
    assert again.folder == store.folder
    _, other, _ = kept_store(text_of(files, 128), cache, SILENT)  # other settings
    assert other != key and cache.builds == 2
    corpus(tmp_path / "corpus", ["some text", "mere text"])  # as long
    changed, other, _ = kept_store(text_of(files), cache, SILENT)
    assert other != key and cache.builds == 3
    assert changed.texts(0, 2) == ["some text", "mere text"]


def test_a_table_without_text_beside_the_corpus_is_left_out_and_named(tmp_path: Path) -> None:
    corpus(tmp_path / "corpus", ["real text of the corpus"])
    (tmp_path / "corpus" / "INDEX.tsv").write_text("name\tsize\na\t3\n", encoding="utf-8")
    events = Events()
    (tmp_path / "store").mkdir()
    files = find_files([str(tmp_path / "corpus")])
    build_store(tmp_path / "store", text_of(files), Tracker(sinks=[events]))
    assert len(PassageStore.open(tmp_path / "store")) == 1
    assert any(name == "message" and "INDEX.tsv" in values["text"] for name, values in events.seen)
    assert any(name == "corpus" and values["passages"] == 1 for name, values in events.seen)
    with pytest.raises(
        DataError, match="no column looks like text; the columns are 'name', 'size'"
    ):
        build_store(tmp_path / "store", text_of([tmp_path / "corpus" / "INDEX.tsv"]), SILENT)


def test_a_corpus_without_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    files = corpus(tmp_path / "corpus", ["", "..."])
    with pytest.raises(
        DataError, match=r"a\.jsonl: the corpus has no text\. Name other files, or the column"
    ):
        build_store(tmp_path / "store", text_of(files), SILENT)
    with pytest.raises(RunError, match=r"store\.json is damaged \(it is missing"):
        PassageStore.open(tmp_path / "store")


def test_damage_and_other_formats_are_refused(tmp_path: Path) -> None:
    folder = build(tmp_path, ["some text", "more text"]).folder
    record = json.loads((folder / "store.json").read_text(encoding="utf-8"))
    for number in (0, 99):
        (folder / "store.json").write_text(
            json.dumps({**record, "format": number}), encoding="utf-8"
        )
        with pytest.raises(
            RunError, match=f"another version of tasklm .format {number}.*Delete this folder"
        ):
            PassageStore.open(folder)
    (folder / "store.json").write_text(json.dumps(record), encoding="utf-8")
    with (folder / "text.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(RunError, match="are inconsistent"):
        PassageStore.open(folder)
    (folder / "ids.npy").write_bytes(b"nonsense")
    with pytest.raises(RunError, match="damaged"):
        PassageStore.open(folder)
    (folder / "store.json").write_text("{", encoding="utf-8")
    with pytest.raises(RunError, match="damaged"):
        PassageStore.open(folder)


def test_offsets_that_point_anywhere_are_never_followed(tmp_path: Path) -> None:
    store = build(tmp_path, [f"text number {i} of many" for i in range(9)])
    right = np.load(store.folder / "offsets.npy")
    for harm in (-5, 1 << 40, right[-1] + 1, right[5]):
        offsets = right.copy()
        offsets[2] = harm
        np.save(store.folder / "offsets.npy", offsets)
        broken = PassageStore.open(store.folder)
        for read in (
            PassageStore.raw,
            PassageStore.texts,
            lambda store, start, stop: [store.text(i) for i in range(start, stop)],
        ):
            with pytest.raises(DamagedError, match=r"(offsets\.npy|text\.bin) is damaged"):
                read(broken, 0, 9)


def test_text_that_is_no_utf8_or_not_that_of_its_id_is_named(tmp_path: Path) -> None:
    store = build(tmp_path, [f"text number {i} of many" for i in range(9)])
    content = (store.folder / "text.bin").read_bytes()
    for harm in (b"\xff", b"x"):
        (store.folder / "text.bin").write_bytes(harm + content[1:])
        with pytest.raises(DamagedError, match=r"text\.bin is damaged"):
            PassageStore.open(store.folder).sample()


def test_several_processes_write_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_BATCH", 500)
    texts: list[str | None] = [f"Text {i % 170} about größe. " * (1 + i % 40) for i in range(400)]
    texts[7], texts[11] = None, "---"
    files = corpus(tmp_path / "corpus", texts)
    for processes in (1, 2):
        (tmp_path / str(processes)).mkdir()
        build_store(tmp_path / str(processes), text_of(files, 50), SILENT, processes)
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert names == [
        "files.json",
        "ids.npy",
        "offsets.npy",
        "sources.json",
        "sources.npy",
        "store.json",
        "text.bin",
    ]
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name
    assert PassageStore.open(tmp_path / "2").counts["duplicates"] > 100
