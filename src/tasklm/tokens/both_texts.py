"""What a language model reads of examples whose answers are written: both texts."""

from __future__ import annotations

from tasklm.tasks.base import Unit
from tasklm.tokens.examples import EncodedExamples


def both_texts(encoded: EncodedExamples) -> EncodedExamples:
    """The sources and the texts to write of some examples, each in a row by itself, without
    targets.
    """
    vocabulary = encoded.vocabulary
    rows = [(unit.example, unit.tokens) for unit in encoded.units]
    for unit in encoded.units:
        if unit.targets is not None:
            words = unit.targets[unit.targets != vocabulary.sep].tolist()
            rows.append((unit.example, vocabulary.around(words[: encoded.length - 2])))
    units = [Unit(tokens, [0], None, example=number) for number, tokens in rows]
    return EncodedExamples(encoded.examples, units, vocabulary, encoded.length)
