from __future__ import annotations

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tasklm.objectives.base import Corrupted
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.showing import MOST, shown_rows

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sees", "a", "dog"]
NUMBER = {word: number for number, word in enumerate(WORDS)}


def toy() -> Vocabulary:
    return Vocabulary(Tokenizer(WordLevel(NUMBER, unk_token="[UNK]")))


def batch_of(*rows: str) -> TokenBatch:
    ids = torch.tensor([[NUMBER[word] for word in row.split()] for row in rows])
    return TokenBatch(ids, (ids != 0).long(), torch.arange(ids.shape[1]).expand_as(ids))


def test_the_first_row_is_shown_whole_masked_and_with_what_is_hidden() -> None:
    whole = batch_of("[CLS] the cat sees a dog [SEP] [PAD]", "[CLS] a dog sees the cat [SEP] [PAD]")
    shown = batch_of(
        "[CLS] the [MASK] sees the dog [SEP] [PAD]", "[CLS] [MASK] dog sees the cat [SEP] [PAD]"
    )
    picked = torch.tensor([[2, 4, 0], [1, 0, 0]])
    answers = torch.tensor([[NUMBER["cat"], NUMBER["a"], NONE], [NUMBER["a"], NONE, NONE]])
    assert shown_rows(toy(), whole, Corrupted(shown, picked, answers)) == [
        "a row of 8 tokens: [CLS] the cat sees a dog [SEP]",
        "the same with masks: [CLS] the [MASK] sees the dog [SEP]",
        "masked tokens to predict: cat, a",
    ]
    assert whole.ids[0, -1] == 0  # the batch itself keeps its padding


def test_a_long_row_is_cut_and_only_what_is_shown_is_named() -> None:
    row = "[CLS] " + "the cat " * MOST + "[SEP]"
    whole = batch_of(row)
    picked, answers = torch.tensor([[2, MOST - 1, MOST, MOST + 1]]), torch.tensor([[6, 5, 6, 5]])
    lines = shown_rows(toy(), whole, Corrupted(whole, picked, answers))
    words = lines[0].removeprefix(f"a row of {2 * MOST + 2} tokens: ").split()
    assert words == [*row.split()[:MOST], "…"]
    assert lines[2] == "masked tokens to predict: cat, the"


def test_without_masks_only_the_row_is_shown() -> None:
    assert shown_rows(toy(), batch_of("[CLS] a cat [SEP]"), None) == [
        "a row of 4 tokens: [CLS] a cat [SEP]"
    ]
