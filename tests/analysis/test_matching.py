"""Words that a passage shares with its asker: as BM25 compares them, in any script."""

from __future__ import annotations

import pytest

from tasklm.analysis.matching import matching_words
from tasklm.recipe.data_sections import Select


def matched(passage: str, asker: str, **settings: str) -> list[str]:
    (found,) = matching_words([passage], [asker], Select(**settings))  # type: ignore[arg-type]
    return found


def test_shared_words_once_in_the_order_of_the_passage() -> None:
    assert matched("Cold WATER, then cold wind over the house.", "the wind is cold") == [
        "cold",
        "wind",
        "the",
    ]
    assert matched("nothing here", "other words") == []


def test_stop_words_and_stems_are_those_of_the_recipe() -> None:
    pytest.importorskip("snowballstemmer")
    assert matched("the engines run", "the engine", stop_words="en") == []
    assert matched("the engines run", "the engine", stop_words="en", stemming="english") == [
        "engines"
    ]


@pytest.mark.parametrize(
    ("passage", "asker", "expected"),
    [
        ("深層学習は楽しい", "学習する", ["学", "習"]),  # the pair is what BM25 finds …
        ("学ぶ習い", "学習する", []),  # … its characters apart are not
        ("हिन्दी भाषा है", "भाषा", ["भाषा"]),
        ("Ｃａｔ and dog", "cat", ["ｃａｔ"]),
    ],
)
def test_any_script(passage: str, asker: str, expected: list[str]) -> None:
    assert matched(passage, asker) == expected


def test_what_the_corpus_is_full_of_is_left_out() -> None:
    sample = ["the ship"] * 2 + ["sails"] * 8  # `the` is in two of ten passages, `sails` in eight
    (one, other) = matching_words(
        ["the cat sails", "the gene"], ["the cat", "the gene sails"], Select(), sample=sample
    )
    assert one == ["cat"] and other == ["gene"]
    (kept,) = matching_words(
        ["the cat"], ["the cat"], Select(), sample=["the"] + ["ship"] * 9
    )  # a tenth, not more
    assert kept == ["the", "cat"]


def test_the_language_of_stop_words_is_that_of_the_task() -> None:
    task = [
        "this is the house and it is not one of the old ones that we have seen in the town"
    ] * 20
    settings = Select(stop_words="auto")
    assert matching_words(["the gene of it"], ["the gene"], settings, task) == [["gene"]]
