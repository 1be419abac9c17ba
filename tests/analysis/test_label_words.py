"""Words that speak for a label: counts by hand, brute force, rare words, any script."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasklm.analysis.label_words import LEAST, SHOWN, label_words


def test_pmi_and_frequencies_by_hand() -> None:
    """`goal` is in 6 of 8 sports texts and in 2 of 12 others; half of the words of the selection
    are `goal`.
    """
    texts = ["the goal"] * 6 + ["the ball"] * 2 + ["the goal"] * 2 + ["the law"] * 10
    labels = ["sports"] * 8 + ["world"] * 12
    found = label_words(texts, labels, ["goal stadium goal fan"], ["law"] * 3 + ["goal"])
    assert [entry["label"] for entry in found] == ["sports", "world"]
    (goal,) = found[0]["words"]  # `the` says nothing, `ball` is in too few examples
    assert goal == {
        "word": "goal",
        "pmi": pytest.approx(math.log((6 / 20) / ((8 / 20) * (8 / 20)))),
        "selected": 500_000.0,
        "corpus": 250_000.0,
        "examples": 6,
    }
    (law,) = found[1]["words"]
    assert (law["word"], law["selected"], law["corpus"], law["examples"]) == (
        "law",
        0.0,
        750_000.0,
        10,
    )
    assert law["pmi"] == pytest.approx(
        -math.log(12 / 20)
    )  # of one label alone: the highest there can be


def test_pmi_equals_the_mean_over_the_joint_distribution_computed_otherwise() -> None:
    """From the 2 × 2 table of each word and label, as expectations over examples."""
    draw = np.random.default_rng(0)
    names = [f"word{chr(97 + i)}" for i in range(12)]
    labels = [f"label{draw.integers(3)}" for _ in range(300)]
    texts = [
        " ".join(
            name
            for i, name in enumerate(names)
            if draw.random() < 0.1 + 0.05 * (i % 3 == int(label[-1]))
        )
        for label in labels
    ]
    for entry in label_words(texts, labels, texts, texts):
        has_label = np.array([label == entry["label"] for label in labels])
        values = {}
        for name in names:
            has_word = np.array([name in text.split() for text in texts])
            values[name] = np.log(
                (has_word & has_label).mean() / (has_word.mean() * has_label.mean())
            )
        best = sorted((name for name in names if values[name] > 0), key=lambda name: -values[name])[
            :SHOWN
        ]
        assert [word["word"] for word in entry["words"]] == best
        np.testing.assert_allclose(
            [word["pmi"] for word in entry["words"]], [values[name] for name in best]
        )


def test_rare_words_do_not_win_and_ties_go_to_the_more_frequent() -> None:
    texts = ["often"] * 20 + ["seldom"] * LEAST + ["rare"] * (LEAST - 1) + ["other"] * 50
    labels = ["yes"] * (len(texts) - 50) + ["no"] * 50
    found = {
        entry["label"]: [word["word"] for word in entry["words"]]
        for entry in label_words(texts, labels, [], [])
    }
    assert found == {"yes": ["often", "seldom"], "no": ["other"]}


def test_any_script_and_no_numbers() -> None:
    texts = ["भाषा 1234"] * 6 + ["深い"] * 6
    found = label_words(texts, ["hi"] * 6 + ["ja"] * 6, texts, ["x"])
    assert {entry["label"]: {word["word"] for word in entry["words"]} for entry in found} == {
        "hi": {"भाषा"},
        "ja": {"深", "い"},
    }
    assert found[0]["words"][0]["selected"] == pytest.approx(1e6 / 3)
