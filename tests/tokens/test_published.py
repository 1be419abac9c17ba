"""Tokenizers as they come with published checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tasklm.errors import DataError, RecipeError
from tasklm.tokens.tokenizer import Vocabulary
from tests.checkpoints import TEXTS, WORDS, names_of, tokenizer_of


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "xlm-roberta"])
def test_special_tokens_are_known_by_their_roles(family: str, tmp_path: Path) -> None:
    tokenizer, names = tokenizer_of(family), names_of(family)
    wanted = [tokenizer.token_to_id(names[role]) for role in ("pad", "unk", "cls", "sep", "mask")]
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(
        length=100, pad_id=wanted[0], pad_token=names["pad"]
    )  # as published with MiniLM: rows of one length
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.specials == wanted
    assert (
        4 < len(vocabulary.encode(WORDS[:1])[0]) < 100
        and wanted[0] not in vocabulary.encode(WORDS[:1])[0]
    )
    vocabulary.save(tmp_path / "tokenizer.json")
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
    assert Vocabulary.load(tmp_path / "tokenizer.json").specials == wanted


def odd_names(folder: Path) -> Path:
    """Writes a tokenizer whose special tokens nobody knows; returns its path."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    odd = ["<|pad|>", "<|unk|>", "<|begin|>", "<|end|>", "<|gap|>"]
    tokenizer.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=300, special_tokens=odd, show_progress=False)
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_files_beside_the_tokenizer_name_the_others(tmp_path: Path) -> None:
    path = odd_names(tmp_path)
    with pytest.raises(
        DataError,
        match=(
            r"has no \[PAD\] or <pad> "
            r'token\..*special_tokens_map\.json beside it: \{"pad_token": …\}'
        ),
    ):
        Vocabulary.load(path)
    said = {
        "pad_token": "<|pad|>",
        "unk_token": {"content": "<|unk|>", "lstrip": False},
        "cls_token": "<|begin|>",
        "eos_token": None,
    }
    path.with_name("tokenizer_config.json").write_text(
        json.dumps({**said, "sep_token": "wrong"}), encoding="utf-8"
    )
    path.with_name("special_tokens_map.json").write_text(
        json.dumps({"sep_token": "<|end|>", "mask_token": "<|gap|>"}), encoding="utf-8"
    )
    vocabulary = Vocabulary.load(path)
    assert vocabulary.specials == [0, 1, 2, 3, 4]
    (tmp_path / "saved").mkdir()
    vocabulary.save(tmp_path / "saved" / "tokenizer.json")
    assert Vocabulary.load(tmp_path / "saved" / "tokenizer.json").specials == [0, 1, 2, 3, 4]
    path.with_name("special_tokens_map.json").write_text(
        json.dumps({"sep_token": "nothing"}), encoding="utf-8"
    )
    with pytest.raises(DataError, match="has no nothing token"):
        Vocabulary.load(path)
    path.with_name("special_tokens_map.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(DataError, match=r"special_tokens_map\.json: damaged"):
        Vocabulary.load(path)


def test_numbers_may_be_left_out() -> None:
    known = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 7, "cat": 9}
    vocabulary = Vocabulary(Tokenizer(models.WordPiece(known, unk_token="[UNK]")))
    assert len(vocabulary) == 10 and vocabulary.continuing().tolist() == [False] * 10


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "xlm-roberta", "modernbert"])
def test_words_begin_where_they_do(family: str) -> None:
    """Punctuation is a word; '##' is a token of byte-level vocabularies too, and the first word of
    a text has no mark there.
    """
    vocabulary = Vocabulary(tokenizer_of(family))
    assert (
        family not in ("roberta", "modernbert")
        or vocabulary.tokenizer.token_to_id("##") is not None
    )
    for text, words in zip(WORDS, (12, 2), strict=True):
        numbers = vocabulary.encode([text])[0]
        begins = ~vocabulary.continuing()[numbers]
        begins[0] = True
        assert int(begins.sum()) == words, [
            vocabulary.tokenizer.id_to_token(number) for number in numbers
        ]


def test_a_vocabulary_that_marks_no_words_has_no_whole_words() -> None:
    known = {
        name: number
        for number, name in enumerate(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b</w>", "ab</w>"]
        )
    }
    with pytest.raises(
        RecipeError, match=r"train\.whole_words: this vocabulary does not mark where words begin"
    ):
        Vocabulary(
            Tokenizer(
                models.BPE(known, [("a", "b</w>")], end_of_word_suffix="</w>", unk_token="[UNK]")
            )
        ).continuing()
    words = Vocabulary(Tokenizer(models.WordLevel(known, unk_token="[UNK]")))
    assert not words.continuing().any()
