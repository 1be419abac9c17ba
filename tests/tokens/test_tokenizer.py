from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tasklm.errors import DataError
from tasklm.recipe.model_sections import Tokens
from tasklm.tokens.tokenizer import SPECIALS, Vocabulary, train_vocabulary, vocabulary_size
from tasklm.tokens.wordpiece import learn
from tests.conftest import sentences


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_training_is_deterministic_and_round_trips(kind: str, tmp_path: Path) -> None:
    texts = [*sentences(400), "Ọ̀rọ̀ tí ó dára púpọ̀", "日本語の文章です", "Привет, мир"]
    first, second = (train_vocabulary([texts], Tokens(kind=kind), 400) for _ in range(2))
    if kind != "unigram":  # the library's trainer of this one is not repeatable
        assert first.tokenizer.to_str() == second.tokenizer.to_str()
    first.save(tmp_path / "tokenizer.json")
    again = Vocabulary.load(tmp_path / "tokenizer.json")
    assert again.encode(texts) == first.encode(texts)
    assert again.specials == [again.tokenizer.token_to_id(special) for special in SPECIALS]
    text = "the cat sees cold water"
    assert again.decode(again.encode([text])[0]).strip() == text


def test_wordpiece_by_hand() -> None:
    """By hand: (p, ##u) 17, (##u, ##n) 16, (##u, ##g) 15, (h, ##u) 10, (b, ##u) 4; then the counts
    change with each merge.
    """
    counts = Counter({"hug": 10, "pug": 5, "pun": 12, "bun": 4})
    tokens = list(learn(counts, 100, ["[PAD]"], alphabet=100))
    assert tokens[:7] == ["[PAD]", "b", "h", "p", "##g", "##n", "##u"]
    # 17: pu; 12: pun; 10: (h, ##u) before (##u, ##g) by number, then hug; 5: pug; 4: bu, bun
    assert tokens[7:] == ["pu", "pun", "hu", "hug", "pug", "bu", "bun"]


def test_rare_pairs_and_rare_characters_are_left_out() -> None:
    number = learn(Counter({"ab": 5, "cd": 1, "xz": 1}), 100, [], alphabet=2)
    assert set(number) == {"a", "##b", "ab"}


def test_accents_are_kept() -> None:
    vocabulary = train_vocabulary([["ọkọ oko ọkọ oko"] * 20], Tokens(), 300)
    with_dots, without = vocabulary.encode(["ọkọ", "oko"])
    assert with_dots != without


def test_default_size_grows_with_the_text_within_limits() -> None:
    assert vocabulary_size(0) == 1000
    assert vocabulary_size(10**12) == 30_522
    assert vocabulary_size(10**6) < vocabulary_size(10**7)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer\.json.*tokens\.file"):
        Vocabulary.load(path)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_every_word_has_one_token_that_begins_it(kind: str) -> None:
    texts = [
        "the quick brown foxes jumped over several extraordinarily sleepy dogs",
        "ein größeres wörterbuch",
    ] * 20
    vocabulary = train_vocabulary([texts], Tokens(kind=kind), 300)
    continues = vocabulary.continuing()
    for text in texts[:2]:
        numbers = vocabulary.encode([text])[0]
        assert int((~continues[numbers]).sum()) == len(text.split()), [
            vocabulary.tokenizer.id_to_token(n) for n in numbers
        ]
