"""What the model sees, as text: one packed row and one masked row, when training starts."""

from __future__ import annotations

from tasklm.objectives.base import Corrupted
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary

MOST = 96  # tokens shown of a row


def shown_rows(vocabulary: Vocabulary, whole: TokenBatch, corrupted: Corrupted | None) -> list[str]:
    """The first row as the model reads it, and with its masks and the masked tokens."""
    lines = [f"a row of {whole.ids.shape[1]} tokens: {_text(vocabulary, whole.ids[0].tolist())}"]
    if corrupted is None:
        return lines
    lines.append(f"the same with masks: {_text(vocabulary, corrupted.batch.ids[0].tolist())}")
    hidden = [
        int(token)
        for column, token in zip(corrupted.picked[0], corrupted.answers[0], strict=True)
        if token != NONE and column < MOST
    ]
    words = ", ".join(str(vocabulary.tokenizer.id_to_token(token)) for token in hidden)
    return [*lines, f"masked tokens to predict: {words}"]


def _text(vocabulary: Vocabulary, row: list[int]) -> str:
    while row and row[-1] == vocabulary.pad:
        row.pop()
    words = [str(vocabulary.tokenizer.id_to_token(token)) for token in row[:MOST]]
    if len(row) > MOST:
        words.append("…")
    return " ".join(words)
