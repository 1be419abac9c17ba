"""Texts that stand for others: by hand, and against a computation without shortcuts."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer

from tasklm.labelling.spread import spread
from tasklm.labelling.vectors import text_vectors
from tasklm.tasks.examples import Example
from tests.conftest import sentences

NONE = csr_matrix((0, 3))


def rows(*vectors: tuple[float, ...]) -> csr_matrix:
    dense = np.array(vectors, np.float64)
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    return csr_matrix(dense / np.where(lengths > 0, lengths, 1))


def test_the_first_stands_for_most_others_and_the_second_for_the_rest() -> None:
    cats = ((1, 0, 0, 0, 0, 0), (1, 0.1, 0, 0, 0, 0), (1, 0, 0.1, 0, 0, 0))
    dogs = ((0, 0, 0, 1, 0, 0), (0, 0, 0, 1, 0.1, 0))
    first, second, third = spread(rows(*cats, *dogs, (0, 0, 0, 0, 0, 1)), NONE, 3)
    assert (first.number, first.stands_for) == (0, 2)
    assert second.number in (3, 4) and second.stands_for == 1
    assert (third.number, third.stands_for) == (5, 0)


def test_what_is_labelled_already_is_not_asked_for_again() -> None:
    texts = rows((1, 0, 0), (1, 0.1, 0), (1, 0, 0.1), (0, 1, 0))
    (first,) = spread(texts, rows((1, 0, 0)), 1)
    assert first.number == 3


def test_copies_come_last_and_no_more_than_there_are() -> None:
    texts = rows((1, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 0))
    assert [one.number for one in spread(texts, NONE, 9)] == [0, 2, 1, 3]


def test_lazy_choices_are_those_of_a_computation_without_shortcuts() -> None:
    vectors = text_vectors([Example((text,), None) for text in sentences(130)])
    candidates, labelled = vectors[:110], vectors[110:]
    similar = (candidates @ candidates.T).toarray()
    covered = (candidates @ labelled.T).toarray().max(1)
    plain: list[int] = []
    for _ in range(25):
        gains = np.maximum(similar - covered, 0).sum(1)
        gains[plain] = -1
        plain.append(int(gains.argmax()))
        covered = np.maximum(covered, similar[plain[-1]])
    chosen = spread(candidates, labelled, 25)
    assert [one.number for one in chosen] == plain


def test_vectors_are_the_tfidf_of_scikit_learn_but_for_the_places_of_words() -> None:
    texts = sentences(40)
    names = sorted({word for text in texts for word in text.split() if word != "."})
    counts = np.array([[text.split().count(name) for name in names] for text in texts])
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    ours = text_vectors([Example((text,), None) for text in texts])
    assert np.allclose((ours @ ours.T).toarray(), (expected @ expected.T).toarray(), atol=1e-9)
