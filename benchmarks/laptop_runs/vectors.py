"""Vectors of texts with a linear model on top; static vectors, made of a run's selected text."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, diags
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.extmath import randomized_svd

from laptop_runs.goals import Chosen, Goal, better
from tasklm.tasks.examples import Example, Splits
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary

WINDOW, WIDTH = 5, 256
SMOOTHING = 0.75  # power of the counts of contexts, so that rare ones do not weigh most
RARITY = 1e-3  # a token of share p weighs RARITY / (RARITY + p) in the mean of a text (SIF)
MOST_TOKENS = 4_000_000
STRENGTHS = (
    0.0001,
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
)  # C of logistic regression, 1 / alpha of ridge regression


def linear_on(vectors: dict[str, np.ndarray], splits: Splits, goal: Goal) -> Chosen:
    """Scores of a linear model of the vectors of all examples, with the strength best on dev."""
    middle = vectors["train"].mean(0)
    parts = {name: rows - middle for name, rows in vectors.items()}
    targets = goal.targets(splits.train)
    best: Chosen | None = None
    for strength in STRENGTHS:
        if goal.classes:
            model = LogisticRegression(C=strength, max_iter=300)
        else:
            model = Ridge(alpha=1 / strength)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(parts["train"], targets)
        dev = goal.score(_outputs(model, parts["dev"], goal), splits.dev)
        test = goal.score(_outputs(model, parts["test"], goal), splits.test)
        best = better(best, Chosen(dev, test, f"strength {strength:g}"))
    assert best is not None
    return best


def _outputs(model: LogisticRegression | Ridge, rows: np.ndarray, goal: Goal) -> np.ndarray:
    if goal.classes:
        return model.predict_proba(rows)
    return model.predict(rows)[:, None]


def of_pair(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The vectors of examples of one text, or of two with their difference and product.

    All vectors of texts get the same length, at which a number in them is about 1.
    """
    lengths = [np.maximum(1e-9, np.linalg.norm(part, axis=1, keepdims=True)) for part in parts]
    scaled = [part / long * part.shape[1] ** 0.5 for part, long in zip(parts, lengths, strict=True)]
    if len(scaled) == 1:
        return scaled[0]
    one, other = scaled
    return np.concatenate([one, other, np.abs(one - other), one * other], 1)


def static_vectors(run: Path, splits: Splits, goal: Goal) -> Chosen:
    """Scores of a linear model of mean token vectors, counted in the tokens of a run."""
    vocabulary = Vocabulary.load(run / "tokens" / "tokenizer.json")
    shards = Shards.open(run / "tokens")
    tokens = np.asarray(shards.tokens[:MOST_TOKENS], np.int64)
    passages = np.repeat(np.arange(len(shards)), shards.lengths)[: len(tokens)]
    counts = np.bincount(tokens, minlength=len(vocabulary))
    table = token_vectors(tokens, passages, len(vocabulary))
    weighted = table * (RARITY / (RARITY + counts / max(1, counts.sum())))[:, None]
    vectors = {}
    for name, examples in splits.named().items():
        columns = [_means(texts, vocabulary, weighted) for texts in _columns(examples)]
        vectors[name] = of_pair(columns)
    return linear_on(vectors, splits, goal)


def token_vectors(tokens: np.ndarray, passages: np.ndarray, size: int) -> np.ndarray:
    """A vector for each token: the largest directions of its mutual information with others."""
    counts = csr_matrix((size, size), dtype=np.float32)
    for distance in range(1, min(WINDOW, len(tokens) - 1) + 1):
        same = passages[:-distance] == passages[distance:]
        one, other = tokens[:-distance][same], tokens[distance:][same]
        ones = np.ones(len(one), np.float32)
        counts += csr_matrix((ones, (one, other)), shape=(size, size))
    counts = (counts + counts.T).tocsr()
    rows = np.maximum(1.0, np.asarray(counts.sum(1)).ravel())
    columns = rows**SMOOTHING
    information = (diags(1 / rows) @ counts @ diags(columns.sum() / columns)).tocsr()
    information.data = np.maximum(0.0, np.log(information.data)).astype(np.float32)
    information.eliminate_zeros()
    left, values, _ = randomized_svd(information, min(WIDTH, size - 1), n_iter=3, random_state=1)
    return left * np.sqrt(values)


def _columns(examples: Sequence[Example]) -> list[list[str]]:
    texts = len(examples[0].texts)
    return [[example.texts[place] for example in examples] for place in range(texts)]


def _means(texts: Sequence[str], vocabulary: Vocabulary, table: np.ndarray) -> np.ndarray:
    means = np.zeros((len(texts), table.shape[1]))
    for row, numbers in enumerate(vocabulary.encode(texts)):
        if numbers:
            means[row] = table[numbers].mean(0)
    return means
