"""Word hashes: the words of every script, hashed as plain Python hashes them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.corpus.words import words
from tasklm.select.lexical.word_hashes import word_hashes

FULL = (1 << 64) - 1


def mixed(value: int) -> int:
    value ^= value >> 32
    value = (value * 0x9E3779B97F4A7C15) & FULL
    return value ^ (value >> 32) or 1


def hashed(word: str) -> int:
    """The hash of one word, in plain Python."""
    state = 14695981039346656037
    for byte in word.encode():
        state = ((state ^ byte) * 1099511628211) & FULL
    return mixed(state)


def check(texts):
    hashes, ends = word_hashes(texts)
    assert hashes.tolist() == [hashed(word) for text in texts for word in words(text)]
    assert ends.tolist() == np.cumsum([len(words(text)) for text in texts]).tolist()


def test_text_of_many_scripts(make_texts):
    long = "ไทย" * 50 + "日本語" * 40
    check(
        [
            *make_texts(80, seed=3),
            "",
            "...",
            "one",
            "日本",
            "\ud800 lone",
            "end of ascii",
            "Ünd",
            long,
            "a=\u0338b",
            "x \u0301y",
            "ﷺ",
        ]
    )
    check([])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=4))
def test_any_text(texts):
    check(texts)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "A",
                " ",
                "\u00a0",
                "\u3000",
                "\u0301",
                "\u0338",
                "<",
                "ß",
                "ﬁ",
                "漢",
                "\u1e9b",
                "Σ",
                "\u0345",
                "\n",
                "\0",
            ]
        )
    )
)
def test_spaces_and_marks_in_any_order(characters):
    check(["".join(characters)])
