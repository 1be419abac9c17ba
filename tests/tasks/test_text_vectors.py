"""Word vectors as features of a linear model: means by hand, clusters, and what they are worth."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tasklm.errors import RunError
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS, score
from tasklm.tasks.baselines.featuriser import Featuriser
from tasklm.tasks.baselines.text_vectors import CLUSTERS, RARITY, SIZE, TextVectors, WordVectors
from tasklm.tasks.baselines.wide import Wide, labels_by
from tasklm.tasks.baselines.word_features import WordFeatures, _features
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.tag import Tag
from tasklm.train.init.word_vectors import word_vectors

LETTERS = random.Random(0)
NAMES = ["".join(LETTERS.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(120)]
TOPICS = {"sea": NAMES[:60], "law": NAMES[60:]}  # whose letters tell nothing


def hand_made() -> WordVectors:
    table = np.array([[1, 0], [0, 2], [3, 4]], np.float32)
    return WordVectors(["a", "b", "c"], table, np.array([0.5, RARITY, 0.0], np.float32))


def topic_texts(count: int, seed: int) -> list[Example]:
    """Texts of words of one topic, of which no two share many."""
    draw = random.Random(seed)
    labels = [draw.choice(list(TOPICS)) for _ in range(count)]
    return [Example((" ".join(draw.choices(TOPICS[label], k=3)),), label) for label in labels]


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    """Vectors of raw text whose passages are about one topic each."""
    draw = random.Random(5)
    texts = [" ".join(draw.choices(TOPICS[name], k=12)) for name in TOPICS for _ in range(300)]
    learnt = word_vectors([texts[:100], texts[100:]])
    assert learnt is not None
    return learnt


def test_the_mean_of_a_text_by_hand() -> None:
    vectors = hand_made()
    means = vectors.means(["a B unknown c", "nothing here", ""])
    weight = RARITY / (RARITY + 0.5)
    np.testing.assert_allclose(means[0], [(weight * 1 + 3) / 3, (0.5 * 2 + 4) / 3], rtol=1e-6)
    assert not means[1:].any()


def test_features_are_directions_from_the_mean_of_train() -> None:
    features = TextVectors.fit(hand_made(), ["c", "b"])
    np.testing.assert_allclose(features.middle, [1.5, 2.5])
    rows = features.matrix(["c", "unknown"]).toarray()
    away = np.array([1.5, 1.5])
    np.testing.assert_allclose(rows[0], SIZE * away / np.linalg.norm(away), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), SIZE)


def test_words_of_a_topic_have_like_vectors_and_share_clusters(vectors: WordVectors) -> None:
    assert set(vectors.words) == {*TOPICS["sea"], *TOPICS["law"]}
    directions = vectors.table / np.linalg.norm(vectors.table, axis=1, keepdims=True)
    near = directions @ directions.T
    same = np.array(
        [
            [(one in TOPICS["sea"]) == (other in TOPICS["sea"]) for other in vectors.words]
            for one in vectors.words
        ]
    )
    assert near[same].mean() > near[~same].mean() + 0.1
    clusters = vectors.clusters()
    assert clusters == vectors.clusters() and set(clusters) == set(vectors.words)
    assert all(len(numbers) == len(CLUSTERS) for numbers in clusters.values())
    coarse = [{clusters[word][0] for word in names} for names in TOPICS.values()]
    assert not set.intersection(*coarse)


def test_they_tell_of_words_that_train_does_not_have(vectors: WordVectors) -> None:
    train, dev, test = topic_texts(20, 1), topic_texts(100, 2), topic_texts(200, 3)
    task = TASKS.get("classify").from_examples(train, Kind())
    accuracy = []
    for given in (None, vectors):
        fitted = task.fit_wide(train, dev, "accuracy", given)
        labels = labels_by(fitted.wide, task, {"dev": dev, "test": test})["test"]
        accuracy.append(score(task.metric("accuracy"), [example.label for example in test], labels))
    assert accuracy[1] > accuracy[0] + 0.05 and accuracy[1] > 0.95


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
def test_a_saved_wide_part_says_the_same(kind: str, vectors: WordVectors, tmp_path: Path) -> None:
    labels = {
        "classify": str,
        "multilabel": lambda name: (name,),
        "regress": lambda name: float(len(name) + (name == "sea")),
    }
    train = [Example(one.texts, labels[kind](one.label)) for one in topic_texts(40, 1)]
    task = TASKS.get(kind).from_examples(train, Kind())
    assert task.reads_vectors
    wide = task.fit_wide(train, train[:20], task.metrics[0], vectors).wide
    assert "vectors" in wide.linear.view
    wide.save(tmp_path)
    again = Wide.load(tmp_path)
    np.testing.assert_allclose(again.outputs(train), wide.outputs(train), atol=1e-4)


def test_pairs_of_texts_do_without() -> None:
    pairs = [Example(("a b", "b c"), "yes"), Example(("a", "c"), "no")] * 5
    features, parts = Featuriser.fit_parts(pairs, vectors=hand_made())
    assert features.vectors is None and "vectors" not in parts


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    features = TextVectors.fit(hand_made(), ["a c"])
    assert TextVectors.load(tmp_path) is None
    features.save(tmp_path)
    again = TextVectors.load(tmp_path)
    assert again is not None and again.vectors.words == ["a", "b", "c"]
    np.testing.assert_array_equal(again.vectors.table, features.vectors.table)
    about = json.loads((tmp_path / "vectors.json").read_text())
    (tmp_path / "vectors.json").write_text(json.dumps({**about, "words": ["a", "b"]}))
    with pytest.raises(RunError, match="different words"):
        TextVectors.load(tmp_path)
    (tmp_path / "vectors.json").write_text(json.dumps(about))
    arrays = safetensors.numpy.load_file(tmp_path / "vectors.safetensors")
    for bad, error in (
        ({"middle": np.zeros(3, np.float32)}, ValueError),
        ({"shares": np.full(3, np.nan, np.float32)}, RunError),
    ):
        safetensors.numpy.save_file({**arrays, **bad}, tmp_path / "vectors.safetensors")
        with pytest.raises(error):
            TextVectors.load(tmp_path)


def test_clusters_of_words_and_their_neighbours_by_hand() -> None:
    clusters = {"to": (0, 7), "paris": (1, 9)}
    plain = _features(["To", "Paris", "Zz"], {}, {})
    rows = _features(["To", "Paris", "Zz"], {}, clusters)
    assert [row[len(before) :] for row, before in zip(rows, plain, strict=True)] == [
        ["co0 0", "co1 7", "cn0 1", "cn1 9", "con 7 9"],
        ["cp0 0", "cp1 7", "co0 1", "co1 9", "cpo 7 9"],
        ["cp0 1", "cp1 9"],
    ]


def test_a_tagger_learns_of_clusters_and_is_saved_with_them(
    vectors: WordVectors, tmp_path: Path
) -> None:
    def sentences(count: int, seed: int) -> list[Example]:
        rows = [tuple(one.text.split()) for one in topic_texts(count, seed)]
        tags = [["B-SEA" if word in TOPICS["sea"] else "O" for word in words] for words in rows]
        return [
            Example((" ".join(words),), own, words=words)
            for words, own in zip(rows, tags, strict=True)
        ]

    train, dev = sentences(12, 1), sentences(60, 2)
    task = Tag.from_examples(train, Kind())
    scores = []
    for given in (None, vectors):
        wide = task.fit_wide(train, dev, "entity_f1", given).wide
        labels = labels_by(wide, task, {"dev": dev})["dev"]
        scores.append(score(task.metric("entity_f1"), [example.label for example in dev], labels))
    assert scores[1] > scores[0] + 0.1
    wide.save(tmp_path)
    np.testing.assert_allclose(Wide.load(tmp_path).outputs(dev), wide.outputs(dev), atol=1e-4)
    old = json.loads((tmp_path / "words.json").read_text())
    del old["clusters"]  # as folders from before have it
    (tmp_path / "words.json").write_text(json.dumps(old))
    assert WordFeatures.load(tmp_path).clusters == {}


def test_kinds_without_a_use_for_them_say_so() -> None:
    assert Classify.reads_vectors and Tag.reads_vectors
    assert not any(TASKS.get(kind).reads_vectors for kind in ("choice", "span", "parse"))
