"""What the linear baselines see: TF-IDF of words and of runs of letters, and for pairs how alike the two texts are.

Words and word pairs carry topics; runs of letters inside words carry morphology and spelling, and work for any language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasklm.corpus.words import words
from tasklm.tasks.examples import Example

MANY_EXAMPLES = 5000  # from here on, features seen in one example only are left out: they cannot help and fill the memory
SIMILARITY = 5.0  # times: the few columns that say how alike two texts are must not be held down like single words


def features(train: Sequence[Example], *others: Sequence[Example]) -> list[Any] | None:
    """Returns a sparse matrix for each part, fitted on train; None where the texts of train hold nothing to count.

    A pair has the features of both texts, side by side, the cosines of their words and of their letters, and the share of words in both.
    """
    # imported here: importing the kinds of tasks must not cost the second that scikit-learn takes
    from scipy.sparse import csr_matrix, hstack

    parts = [train, *others]
    sides = [[[example.texts[side] for example in part] for part in parts] for side in range(len(train[0].texts))]
    blocks: list[list[Any]] = [[] for _ in parts]
    for vectorizer in _vectorizers(len(train)):
        try:
            vectorizer.fit([text for side in sides for text in side[0]])
        except ValueError:  # no vocabulary: the texts hold no word (or are all empty); the other vectorizer may find some
            continue
        for number, block in enumerate(blocks):
            found = [vectorizer.transform(side[number]) if side[number] else csr_matrix((0, len(vectorizer.vocabulary_))) for side in sides]
            block += found
            if len(sides) == 2:
                block.append(csr_matrix(SIMILARITY * found[0].multiply(found[1]).sum(1)))
    if not blocks[0]:
        return None
    if len(sides) == 2:
        for block, one, other in zip(blocks, *sides, strict=True):
            block.append(csr_matrix(SIMILARITY * _overlaps(one, other)))
    return [hstack(block, format="csr") for block in blocks]


def _vectorizers(examples: int) -> list[Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    rarest = 1 if examples < MANY_EXAMPLES else 2
    return [
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=rarest, token_pattern=r"(?u)\b\w+\b"),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=rarest),
    ]


def _overlaps(one: Sequence[str], other: Sequence[str]) -> Any:
    """Returns the share of distinct words of both texts that stand in both, (texts, 1)."""
    found = []
    for left, right in zip(one, other, strict=True):
        ours, theirs = set(words(left)), set(words(right))
        found.append(len(ours & theirs) / max(1, len(ours | theirs)))
    return np.array(found).reshape(-1, 1)
