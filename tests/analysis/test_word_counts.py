"""Over-represented words: the formula, its direction, and any script."""

from __future__ import annotations

import math

import pytest

from tasklm.analysis.word_counts import counted, overrepresented, spans


def test_log_odds_equal_the_papers_formula() -> None:
    selected, sample = ["gene gene gene cell the the"], ["the the the ship cell"]
    found = {
        word: (odds, count)
        for word, odds, count in overrepresented(selected, sample, prior=10, least=1)
    }
    alpha = 10 * 3 / 11  # gene: 3 of the 11 words of both
    expected = math.log((3 + alpha) / (6 + 10 - 3 - alpha)) - math.log(alpha / (5 + 10 - alpha))
    assert found["gene"] == (pytest.approx(expected), 3)
    assert "the" not in found and "ship" not in found


def test_log_odds_and_order_by_numbers_worked_out_by_hand() -> None:
    """100 words each; α = 10 · 40 / 200 = 2 and 10 · 30 / 200 = 1.5, in place of equal ones for all
    words.
    """
    selected = ["gene " * 30 + "cell " * 20 + "the " * 50]
    sample = ["gene " * 10 + "cell " * 10 + "the " * 80]
    (gene, cell) = overrepresented(selected, sample, prior=10)
    assert (gene[0], cell[0]) == ("gene", "cell")
    assert gene[1] == pytest.approx(math.log(32 / 78) - math.log(12 / 98)) and cell[
        1
    ] == pytest.approx(math.log(21.5 / 88.5 * 98.5 / 11.5))
    # gene: 1.209 / √(1/32 + 1/12) = 3.57; cell: 0.733 / √(1/21.5 + 1/11.5) = 2.01
    surer = [
        odds / math.sqrt(1 / here + 1 / there)
        for odds, here, there in ((gene[1], 32, 12), (cell[1], 21.5, 11.5))
    ]
    assert surer == pytest.approx([3.572, 2.006], abs=2e-3)


def test_sure_words_come_before_rare_ones() -> None:
    background = ["of the and to in it"] * 200
    selected = [*background, *["protein"] * 100, *["kinase"] * 6, "once"]
    ranked = [word for word, _, _ in overrepresented(selected, [*background, "sails"])]
    assert ranked[:2] == ["protein", "kinase"]
    assert "once" not in ranked  # below the least count
    assert [word for word, _, _ in overrepresented(selected, background, count=1)] == ["protein"]


def test_nothing_to_compare_gives_nothing() -> None:
    assert overrepresented([], ["a b"]) == []
    assert overrepresented(["a b"] * 9, ["", "12 34"]) == []


def test_words_are_counted_in_any_script_and_numbers_are_not() -> None:
    assert counted(["Don't stop, ME2!", "2 times stop"]) == {
        "don": 1,
        "t": 1,
        "stop": 2,
        "me2": 1,
        "times": 1,
    }
    assert counted(["हिन्दी भाषा ٣", "Привет, мир"]) == {
        "हिन्दी": 1,
        "भाषा": 1,
        "привет": 1,
        "мир": 1,
    }
    assert counted(["深層学習 model", "cafe\u0301 CAFÉ"]) == {
        "深": 1,
        "層": 1,
        "学": 1,
        "習": 1,
        "model": 1,
        "café": 2,
    }


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("The cat, a CAT; cats", {"cat"}, ["cat", "CAT"]),
        ("हिन्दी भाषा है", {"भाषा"}, ["भाषा"]),
        ("深層学習は学ぶ", {"学", "層"}, ["層", "学", "学"]),
        ("ภาษาไทย", {"า"}, ["า", "า"]),
        ("Ｃａｔ straße", {"cat", "strasse"}, ["Ｃａｔ", "straße"]),
        ("nothing here", set(), []),
    ],
)
def test_where_words_stand(text: str, wanted: set[str], expected: list[str]) -> None:
    assert [text[start:end] for start, end in spans(text, wanted)] == expected
