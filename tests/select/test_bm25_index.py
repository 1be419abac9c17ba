"""The index on disk: words, reuse, resume, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.corpus.store import PassageStore, build_store
from tasklm.corpus.words import words
from tasklm.errors import RunError
from tasklm.recipe import Select
from tasklm.runs import Artefacts
from tasklm.select import bm25_index
from tasklm.select.base import SELECTORS, Workplace
from tasklm.select.bm25_index import Bm25Index, build_index, hash_terms
from tasklm.select.bm25_kernels import ANY_BYTE, LETTERS, split
from tasklm.tracking import SILENT


def score(store, folder, **dials):
    selector = SELECTORS.get("bm25")(Select(**dials))
    selector.fit(["model of language"], [])
    return selector.score(store, np.zeros(len(store), bool), 5, Workplace(Artefacts(folder), folder, SILENT))


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.text(st.characters(max_codepoint=127)), st.text(st.sampled_from("aA1 .'_-\0é日İß"))))
def test_compiled_splitting_finds_the_same_terms_as_words(text):
    class One:
        def __len__(self):
            return 1

        def texts(self, start, stop):
            return [text]

    (raw,) = bm25_index.read_blocks(One())
    hashes, numbers, bounds = split(raw.text, raw.bounds, raw.split_already, LETTERS, ANY_BYTE)
    expected = words(text)
    assert bounds.tolist() == [0, len(expected)]
    assert hashes[numbers].tolist() == (hash_terms(expected).tolist() if expected else [])


def test_every_ascii_character_splits_like_words():
    text = "".join(f"aZ{chr(code)}9b {chr(code)}{chr(code)} " for code in range(128))
    data = np.frombuffer(text.encode(), np.uint8)
    hashes, numbers, _ = split(data, np.array([0, len(data)]), np.zeros(1, bool), LETTERS, ANY_BYTE)
    assert hashes[numbers].tolist() == hash_terms(words(text)).tolist()


def test_more_terms_than_the_first_table_holds():
    terms = [f"t{number}" for number in range(100_000)]
    assert len(set(hash_terms(terms).tolist())) == 100_000
    assert hash_terms(terms)[:3].tolist() == hash_terms(terms[:3]).tolist()


def test_index_is_shared_by_other_dials_and_tasks(make_store, make_texts, tmp_path):
    store = make_store(make_texts(50))
    score(store, tmp_path)
    reads = store.reads
    assert reads > 0
    score(store, tmp_path, k1=2.0, b=0.1, stop_words="en")
    assert store.reads == reads
    assert len(list(tmp_path.glob("bm25-*"))) == 1
    score(make_store(make_texts(50, seed=9)), tmp_path)
    assert len(list(tmp_path.glob("bm25-*"))) == 2


def test_an_interrupted_build_goes_on_from_its_last_block(make_store, make_texts, tmp_path, monkeypatch):
    monkeypatch.setattr(bm25_index, "_BLOCK_PASSAGES", 100)
    monkeypatch.setattr(bm25_index, "_READ_AT_ONCE", 10)
    store = make_store(make_texts(450))
    (tmp_path / "whole").mkdir()
    build_index(store, tmp_path / "whole", SILENT)

    class Dying(make_store):
        def texts(self, start, stop):
            if start >= 320:
                raise KeyboardInterrupt
            return super().texts(start, stop)

    folder = tmp_path / "partial"
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        build_index(Dying(store.passages), folder, SILENT)
    assert (folder / "block-00001" / "block.json").exists() and not (folder / "index.json").exists()
    (folder / "block-00002" / "tf.npy").write_bytes(b"cut")  # as a crash of the machine may leave it
    reads = store.reads
    build_index(store, folder, SILENT)
    assert store.reads - reads == 25
    one, two = Bm25Index(tmp_path / "whole"), Bm25Index(folder)
    assert (one.passages, one.words, len(one.blocks)) == (two.passages, two.words, len(two.blocks)) == (450, one.words, 5)
    for a, b in zip(one.blocks, two.blocks, strict=True):
        for name in ("terms", "offsets", "passages", "tf", "lengths"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("name", ["terms", "offsets", "passages", "tf", "lengths"])
@pytest.mark.parametrize("harm", ["cut", "flipped", "gone", "other kind", "garbage"])
def test_a_damaged_index_is_refused(make_store, make_texts, tmp_path, name, harm):
    store = make_store(make_texts(50))
    score(store, tmp_path)
    (path,) = tmp_path.glob(f"bm25-*/block-00000/{name}.npy")
    content = path.read_bytes()
    if harm == "cut":
        path.write_bytes(content[:-3])
    elif harm == "flipped":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 0x40]))
    elif harm == "gone":
        path.unlink()
    elif harm == "garbage":
        path.write_bytes(b"not an array")
    else:
        np.save(path, np.load(path).astype(np.float32))
    with pytest.raises(RunError, match=r"bm25-\w+ is damaged\. Delete this folder and run the same command again"):
        score(store, tmp_path)


def test_another_format_is_refused_in_clear_words(make_store, make_texts, tmp_path):
    store = make_store(make_texts(20))
    score(store, tmp_path)
    (path,) = tmp_path.glob("bm25-*/index.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))
    with pytest.raises(RunError, match="has format 0, this tasklm reads 1"):
        score(store, tmp_path)
    path.write_text('{"format": 1}')
    with pytest.raises(RunError, match="is damaged"):
        score(store, tmp_path)
    path.unlink()
    with pytest.raises(RunError, match="is damaged"):
        score(store, tmp_path)


def test_a_store_on_disk(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in ["A cat sat.", "Language model: café", "Un modèle"]))
    (tmp_path / "store").mkdir()
    build_store(tmp_path / "store", [corpus], "", 256, SILENT)
    ranking = score(PassageStore.open(tmp_path / "store"), tmp_path / "indexes")
    assert ranking.passages.tolist() == [1]
