from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.corpus.passages import counted_passages, split_passages
from tasklm.corpus.words import words


def can_be_cut(piece: str) -> bool:
    whole = words(piece)
    halves = ((words(piece[:place]), words(piece[place:])) for place in range(1, len(piece)))
    return any(first and second and first + second == whole for first, second in halves)


@settings(max_examples=300)
@given(
    st.text(
        alphabet=st.one_of(st.sampled_from(" \n.!?ab1'-é中かก。Ω\u0301\u3099㎏"), st.characters()),
        max_size=120,
    ),
    st.integers(1, 8),
)
def test_no_word_is_lost_and_pieces_are_short(text: str, most: int) -> None:
    pieces = list(split_passages(text, most))
    assert words(" ".join(pieces)) == words(text)
    counts = [len(words(piece)) for piece in pieces]
    assert all(counts)
    assert [count for _, count in counted_passages(text, most)] == counts
    # one character can be several words (the square ㌀ is アパート), and a word can end in the next one
    # (¼¼ is 1, 41 and 4): only such are over the limit
    assert not any(
        count > most and can_be_cut(piece) for piece, count in zip(pieces, counts, strict=True)
    )


def test_short_texts_stay_whole() -> None:
    assert list(split_passages("  One. Two.\n\nThree. ", 3)) == ["One. Two.\n\nThree."]
    assert list(split_passages("--- ... ---", 3)) == []


def test_cuts_stand_at_ends_of_sentences() -> None:
    text = (
        "The first one is here. Is it not? Dr. "
        "Smith et al. wrote it! He paid 3.5 dollars, i.e. nothing."
    )
    assert list(split_passages(text, 8)) == [
        "The first one is here. Is it not?",
        "Dr. Smith et al. wrote it!",
        "He paid 3.5 dollars, i.e. nothing.",
    ]


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("今天天气好。我们走吧！好的。", 6),
        ("ठीक है। चलो अब चलें।", 3),
        ("هل أنت هنا؟ نعم أنا هنا؟", 3),
    ],
)
def test_sentence_ends_of_other_scripts(text: str, most: int) -> None:
    pieces = list(split_passages(text, most))
    assert len(pieces) >= 2
    assert all(piece[-1] in "。！।؟" for piece in pieces)


def test_pieces_are_of_about_equal_length() -> None:
    text = " ".join(f"Sentence number {i} has six words." for i in range(46))
    counts = [count for _, count in counted_passages(text, 256)]
    assert counts == [138, 138]


def test_a_sentence_over_the_limit_is_cut_at_lines_then_words_then_characters() -> None:
    assert list(split_passages("a b c\nd e f\ng h i", 4)) == ["a b c", "d e f", "g h i"]
    assert list(split_passages("a b c d e f g", 3)) == ["a b c", "d e f", "g"]
    assert list(split_passages("一二三四五六七", 4)) == ["一二三四", "五六七"]
    assert list(split_passages("（一二）（三四）", 2)) == ["（一二）", "（三四）"]


def test_absurd_input_takes_linear_time_and_gives_bounded_pieces() -> None:
    started = time.process_time()
    assert list(split_passages("word" + "." * 200_000 + "word" * 2, 1))
    assert max(map(len, split_passages("x" * 200_000, 16))) <= 16_000
    assert max(map(len, split_passages("\u0301" * 50_000, 16))) <= 16_000
    assert time.process_time() - started < 10
