from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from tasklm.corpus.words import count_words, folded, words


def test_ascii_words_are_lowered_runs_of_letters_and_digits() -> None:
    assert words("Hello, World_2: it's 3.5-fold\n\tNEW!") == [
        "hello",
        "world",
        "2",
        "it",
        "s",
        "3",
        "5",
        "fold",
        "new",
    ]


def test_any_script() -> None:
    assert words("Straße CAFÉ naïve") == ["strasse", "café", "naïve"]
    assert words("नमस्ते दुनिया") == ["नमस्ते", "दुनिया"]  # combining marks stay in the word
    assert words("Привет, мир—да") == ["привет", "мир", "да"]
    assert words("مرحبا بالعالم؟") == ["مرحبا", "بالعالم"]


def test_scripts_without_spaces_give_a_word_per_character() -> None:
    assert words("我用Python编程。") == ["我", "用", "python", "编", "程"]
    assert words("ひらカタ") == ["ひ", "ら", "カ", "タ"]
    assert words("ไทย ລາວ") == ["ไ", "ท", "ย", "ລ", "າ", "ວ"]


def test_compatibility_forms_and_composition_are_folded() -> None:
    assert words("ﬁne ＡＢＣ ①") == ["fine", "abc", "1"]
    assert words("cafe\u0301") == words("café")
    assert words("x\ud800y") == ["x", "y"]  # half a character, which JSON can spell


@given(st.text())
def test_words_of_words_are_the_same(text: str) -> None:
    found = words(text)
    assert words(" ".join(found)) == found
    assert words(folded(text)) == found
    assert count_words(text) == len(found)


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_the_quick_way_for_ascii_agrees_with_the_general_one(text: str) -> None:
    assert words(text + " é")[:-1] == words(text)


def test_long_texts_are_counted_in_slices() -> None:
    assert abs(count_words("word " * 500_000) - 500_000) <= 3


def test_speed_on_ascii() -> None:
    text = "The quick brown fox, jumps over 13 lazy dogs. " * 25
    rates = []
    for _ in range(5):
        started = time.process_time()
        for _ in range(500):
            words(text)
        rates.append(500 * len(text) / (time.process_time() - started) / 1e6)
    assert max(rates) > 15  # MB/s; 60-100 on an idle core
