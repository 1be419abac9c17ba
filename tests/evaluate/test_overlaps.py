from __future__ import annotations

import math

import pytest

from tasklm.evaluate.overlaps import overlaps


def test_shared_words_by_rarity_and_the_nearest_by_hand() -> None:
    found = overlaps(
        "A rare word, a common word",
        ["the common thing", "a common word", "rare", "none", "a common rare ant"],
    )
    assert found.words == ["a", "rare", "word", "common"] and len(found) == 5
    assert found.rarity.tolist() == pytest.approx([math.log(6 / count) for count in (2, 2, 1, 3)])
    assert (
        found.shared(1) == ["word", "a", "common"]
        and found.shared(3) == []
        and found.shared(4) == ["a", "rare", "common"]
    )
    assert found.nearest(2).tolist() == [1, 4]  # ln 6 + ln 3 + ln 2, and 2 · ln 3 + ln 2
    assert found.nearest(3).tolist() == [1, 2, 4] and found.nearest(9).tolist() == [0, 1, 2, 3, 4]


def test_ties_go_to_the_first_and_any_script_has_words() -> None:
    assert overlaps("x y", ["y", "x", "y", "x"]).nearest(1).tolist() == [0]
    found = overlaps("猫が水を見る", ["水", "犬が見る", "no"])
    assert found.shared(0) == ["水"] and sorted(found.shared(1)) == sorted("が見る")
    assert overlaps("नमस्ते दुनिया", ["दुनिया बड़ी है"]).shared(0) == ["दुनिया"]
    empty = overlaps("…", ["a", "b"])
    assert empty.words == [] and empty.nearest(1).tolist() == [0] and empty.shared(0) == []
