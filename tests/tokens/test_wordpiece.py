from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import normalizers, pre_tokenizers

from tasklm.tokens import wordpiece
from tasklm.tokens.wordpiece import PREFIX, count_words, learn


def naive(counts: Counter[str], size: int, specials: list[str], alphabet: int) -> dict[str, int]:
    """The vocabulary by counting all pairs anew before every merge."""
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        characters.update({character: count * times for character, times in Counter(word).items()})
    kept = set(
        sorted(characters, key=lambda character: (-characters[character], character))[:alphabet]
    )
    words = {
        word: count for word, count in counts.items() if len(word) <= 100 and set(word) <= kept
    }
    spelled = {word: [word[0], *(PREFIX + character for character in word[1:])] for word in words}
    tokens = [
        *specials,
        *sorted({word[0] for word in words}),
        *sorted({PREFIX + c for word in words for c in word[1:]}),
    ]
    while len(tokens) < size:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, parts in spelled.items():
            for left, right in pairwise(parts):
                pairs[tokens.index(left), tokens.index(right)] += words[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        left, right = tokens[best[0]], tokens[best[1]]
        joined = left + right.removeprefix(PREFIX)
        if joined not in tokens:
            tokens.append(joined)
        for parts in spelled.values():
            at = 0
            while at + 1 < len(parts):
                if parts[at : at + 2] == [left, right]:
                    parts[at : at + 2] = [joined]
                at += 1
    return {token: number for number, token in enumerate(tokens)}


@pytest.mark.parametrize("seed", range(12))
def test_the_vocabulary_is_that_of_counting_anew_before_every_merge(seed: int) -> None:
    draw = random.Random(seed)
    letters = (
        "ab" if seed % 3 == 0 else "abcdeé" if seed % 3 == 1 else "aaab日"
    )  # few letters: pairs repeat and overlap, ties abound
    words = ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(60)] + ["a" * 101]
    counts = Counter({word: draw.randint(1, 6) for word in words})
    alphabet = 2 if seed % 4 == 3 else 50
    found = learn(counts, 90, ["[PAD]", "[UNK]"], alphabet)
    assert found == naive(counts, 90, ["[PAD]", "[UNK]"], alphabet)
    assert list(found.values()) == list(range(len(found)))


def test_no_words_give_the_special_tokens_only() -> None:
    assert learn(Counter(), 10, ["[PAD]"], 10) == {"[PAD]": 0}
    assert learn(Counter({"a": 3, "b": 1}), 10, ["[PAD]"], 10) == {"[PAD]": 0, "a": 1, "b": 2}


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_words_are_counted_as_bert_splits_them(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpiece, "_HELD", held)
    normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=True
    )
    draw = np.random.default_rng(0)
    marks = [
        " ",
        "  ",
        "\n",
        "\t",
        "\r\n",
        "\u00a0",
        "\u2003",
        "\u0000",
        "\u000c",
        "\u200b",
        "\u0085",
        ",",
        "--",
        "日本",
        "…",
        "\u00ad",
    ]
    words = ["The", "cat's", "E.coli", "İstanbul", "ΣΊΣΥΦΟΣ", "Ọ̀rọ̀", "naïve", "ﬁne", "x"]
    texts = ["".join(draw.choice(words) + draw.choice(marks) for _ in range(40)) for _ in range(50)]
    split = pre_tokenizers.BertPreTokenizer()
    expected = Counter(
        word for text in texts for word, _ in split.pre_tokenize_str(normalizer.normalize_str(text))
    )
    assert count_words([texts[:20], [], texts[20:]], normalizer) == expected
