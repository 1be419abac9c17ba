from __future__ import annotations

import hashlib
import random
import time

from hypothesis import given
from hypothesis import strategies as st

from tasklm.corpus.dedupe import SHORT_WORDS, near_duplicates, text_key
from tasklm.corpus.words import words


def jaccard(left: str, right: str) -> float:
    one, two = words(left), words(right)
    size = 3 if min(len(one), len(two)) < SHORT_WORDS else 5

    def runs(found: list[str]) -> set[tuple[str, ...]]:
        length = min(size, len(found))
        return {tuple(found[i : i + length]) for i in range(len(found) - length + 1)}

    return len(runs(one) & runs(two)) / len(runs(one) | runs(two))


def test_text_key_ignores_form_case_and_spacing_only() -> None:
    assert text_key("Hello  World") == text_key(" hello\nworld ") == text_key("ｈｅｌｌｏ world")
    assert text_key("hello world") != text_key("hello, world")
    assert text_key("hello world") == int(
        hashlib.blake2b(b"hello world", digest_size=8).hexdigest(), 16
    )
    assert text_key("a\ud800") != text_key("a")  # half a character, which cannot be encoded


@given(st.text())
def test_text_key_fits_64_bits_and_is_never_zero(text: str) -> None:
    assert 0 < text_key(text) < 1 << 64
    assert text_key(text + "  ") == text_key(text)


def test_pairs_are_those_of_a_plain_comparison() -> None:
    draw = random.Random(1)
    vocabulary = [f"w{i}" for i in range(3000)]
    texts = []
    for i in range(60):
        base = draw.choices(vocabulary, k=draw.choice([8, 20, 29, 31, 60, 200]))
        texts.append(" ".join(base))
        for _ in range(i % 3):
            copy = list(base)
            for _ in range(draw.randrange(0, 4)):
                copy[draw.randrange(len(copy))] = draw.choice(vocabulary)
            texts.append(" ".join(copy))
    expected = {
        (i, j)
        for i in range(len(texts))
        for j in range(i + 1, len(texts))
        if jaccard(texts[i], texts[j]) >= 0.8
    }
    found = near_duplicates(texts)
    assert len(expected) > 15
    assert {(i, j) for i, j, _ in found} == expected
    assert all(abs(score - jaccard(texts[i], texts[j])) < 1e-12 for i, j, score in found)
    assert found == near_duplicates(texts)


def test_lower_thresholds_find_more() -> None:
    texts = ["a b c d e f g h i j", "a b c d e f g x y z", "other words stand here in this text"]
    assert near_duplicates(texts) == []
    assert [(i, j) for i, j, _ in near_duplicates(texts, 0.4)] == [(0, 1)]


def test_very_short_and_empty_texts() -> None:
    assert near_duplicates([]) == []
    assert near_duplicates(["", "...", "one", "One!", "two"]) == [(2, 3, 1.0)]
    assert near_duplicates(["我喜欢吃苹果和香蕉。", "我喜欢吃苹果和香蕉！"]) == [(0, 1, 1.0)]


def test_a_thousand_copies_do_not_take_quadratic_work() -> None:
    found = near_duplicates(["the very same text every time"] * 3000)
    assert len(found) <= 100 * 3000
    assert {j for i, j, _ in found if i == 0} == set(range(1, 3000))


def test_speed() -> None:
    draw = random.Random(2)
    vocabulary = [f"w{i}" for i in range(20_000)]
    texts = [" ".join(draw.choices(vocabulary, k=30)) for _ in range(10_000)]
    near_duplicates(texts[:10])  # compile
    started = time.process_time()
    near_duplicates([*texts, texts[17]])
    assert time.process_time() - started < 10  # about 1 on an idle core
