"""Task examples as units, made from plain texts and numbers of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasklm.tasks.examples import Example
from tasklm.tasks.texts import encode_examples
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary


def encoded_texts(
    texts: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int, targets: Sequence[int] | Any | None = None
) -> EncodedExamples:
    """Returns texts (or pairs of texts) as units, each with a target (the number of its class) or several."""
    examples = [Example(tuple(parts), None) for parts in texts]
    units = encode_examples(examples, vocabulary, length)
    if targets is not None:
        for unit, target in zip(units, targets, strict=True):
            unit.targets = np.asarray(target, np.int64)[None]
    return EncodedExamples(examples, units, vocabulary, length)
