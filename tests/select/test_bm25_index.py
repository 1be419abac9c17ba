"""The index on disk: words, reuse, resume, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.artifacts import Artefacts
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.store import PassageStore, build_store
from tasklm.errors import DamagedError, RecipeError, RunError
from tasklm.recipe.data_sections import Select
from tasklm.select.base import SELECTORS, Workplace
from tasklm.select.lexical import text
from tasklm.select.lexical.index import FreshIndex, StoredIndex, build_index, hash_terms
from tasklm.select.lexical.kernels import split
from tasklm.select.lexical.terms import terms
from tasklm.select.lexical.text import block_of_texts, folds
from tasklm.tracking import SILENT


def score(store, folder, **dials):
    selector = SELECTORS.get("bm25")(Select(**dials))
    selector.fit(["model of language"], [])
    return selector.score(
        store, np.zeros(len(store), bool), 5, Workplace(Artefacts(folder), folder, SILENT)
    )


def split_by_the_loops(text):
    raw = block_of_texts(0, [text])
    hashes, numbers, bounds = split(
        raw.text, raw.bounds, raw.split_already, folds().at, folds().folded
    )
    assert bounds.tolist() == [0, len(numbers)]
    return hashes[numbers].tolist(), bool(raw.split_already[0])


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(),
        st.text(st.characters(max_codepoint=0x24FF)),
        st.text(st.sampled_from("aA1 .'_-\0éÉßﬁςΣ日İẞ½Ж한ᄒ")),
    )
)
def test_compiled_splitting_finds_the_same_terms_as_python(text):
    expected = terms(text)
    assert split_by_the_loops(text)[0] == (hash_terms(expected).tolist() if expected else [])


def test_every_character_of_the_table_splits_like_python():
    easy = [chr(code) for code in range(1, 1 << 16) if not folds().hard[code]]
    assert len(easy) > 15_000 and {"é", "Ж", "ß", "ﬁ", "한", "…"} <= set(easy)
    for start in range(0, len(easy), 500):
        text = "".join(
            f"aZ{character}9b {character}{character} " for character in easy[start : start + 500]
        )
        found, helped = split_by_the_loops(text)
        assert not helped and found == hash_terms(terms(text)).tolist()


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


def equal(one, two):
    assert one.passages == two.passages and one.count == two.count
    for a, b in zip(one.blocks(), two.blocks(), strict=True):
        for name in ("start", "stop", "terms", "offsets", "passages", "tf", "lengths"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_an_interrupted_build_goes_on_after_its_finished_blocks(
    make_store, make_texts, tmp_path, monkeypatch
):
    monkeypatch.setattr(text, "BLOCK_PASSAGES", 100)
    store = make_store(make_texts(450))
    (tmp_path / "whole").mkdir()
    build_index(store, tmp_path / "whole", None, 1, SILENT)
    assert store.reads == 5

    class Dying(make_store):
        def texts(self, start, stop):
            if start >= 300:
                raise KeyboardInterrupt
            return super().texts(start, stop)

    folder = tmp_path / "partial"
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        build_index(Dying(store.passages), folder, None, 1, SILENT)
    assert (folder / "block-00001" / "block.json").exists() and not (folder / "index.json").exists()
    (folder / "block-00002" / "tf.npy").write_bytes(
        b"cut"
    )  # as a crash of the machine may leave it
    build_index(store, folder, None, 1, SILENT)
    assert store.reads == 5 + 3
    equal(StoredIndex(tmp_path / "whole"), StoredIndex(folder))


def test_a_corpus_that_grew_takes_over_the_blocks_it_had(
    make_store, make_texts, tmp_path, monkeypatch
):
    monkeypatch.setattr(text, "BLOCK_PASSAGES", 100)
    texts = make_texts(520)
    score(make_store(texts[:350]), tmp_path)
    grown = make_store(texts)
    ranking = score(grown, tmp_path)
    assert grown.reads == 3  # passages 300 on: the last block had been smaller
    np.testing.assert_array_equal(
        ranking.passages, score(make_store(texts), tmp_path / "other").passages
    )


def test_an_index_made_on_the_fly_is_the_same_and_leaves_nothing(
    make_store, make_texts, tmp_path, monkeypatch
):
    monkeypatch.setattr(text, "BLOCK_PASSAGES", 100)
    store = make_store(make_texts(450))
    kept = score(store, tmp_path / "kept", index="keep")
    fresh = score(store, tmp_path / "fresh", index="fly")
    for name in ("offsets", "passages", "scores"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(fresh, name))
    assert not list((tmp_path / "fresh").glob("bm25*"))
    (index,) = (StoredIndex(path) for path in (tmp_path / "kept").glob("bm25-*"))
    equal(index, FreshIndex(store, None, 2))


def test_stems_find_other_forms_of_a_word(make_store, tmp_path):
    store = make_store(["the modelling of languages", "nothing here"])
    assert score(store, tmp_path).passages.tolist() == [0]  # by "of"
    assert score(store, tmp_path, stop_words="en").passages.tolist() == []
    assert score(store, tmp_path, stop_words="en", stemming="english").passages.tolist() == [0]
    with pytest.raises(RecipeError, match="no stemmer for 'klingon'"):
        score(store, tmp_path, stemming="klingon")


@pytest.mark.parametrize("name", ["terms", "offsets", "passages", "tf", "lengths"])
@pytest.mark.parametrize("harm", ["cut", "flipped", "gone", "other kind", "garbage"])
def test_a_damaged_index_is_refused_and_built_anew(make_store, make_texts, tmp_path, name, harm):
    store = make_store(make_texts(50))
    before = score(store, tmp_path)
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
    with pytest.raises(
        DamagedError,
        match=r"index\.json is damaged .*Delete .*bm25-\w+ and run the same command again",
    ):
        list(StoredIndex(path.parents[1]).blocks())
    after = score(store, tmp_path)
    np.testing.assert_array_equal(before.passages, after.passages)
    np.testing.assert_array_equal(before.scores, after.scores)
    assert path.read_bytes() == content


def test_another_format_is_refused_in_clear_words(make_store, make_texts, tmp_path):
    store = make_store(make_texts(20))
    score(store, tmp_path)
    (path,) = tmp_path.glob("bm25-*/index.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))
    with pytest.raises(RunError, match="has format 0, but this tasklm reads 2"):
        StoredIndex(path.parent)
    path.write_text('{"format": 2}')
    with pytest.raises(DamagedError):
        StoredIndex(path.parent)
    path.unlink()
    with pytest.raises(DamagedError):
        StoredIndex(path.parent)


def test_a_store_on_disk(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        "".join(
            json.dumps({"text": text}) + "\n"
            for text in ["A cat sat.", "Language model: café", "Un modèle"]
        )
    )
    (tmp_path / "store").mkdir()
    build_store(tmp_path / "store", CorpusText((corpus,)), SILENT)
    ranking = score(PassageStore.open(tmp_path / "store"), tmp_path / "indexes")
    assert ranking.passages.tolist() == [1]
