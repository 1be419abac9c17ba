from __future__ import annotations

import re
from pathlib import Path

import pytest

import tasklm
from tasklm.console.durations import duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (-1, "0 s"),
        (1.26, "1.3 s"),
        (2, "2 s"),
        (9.97, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h"),
        (90061, "25 h 1 min"),
    ],
)
def test_a_time_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "5 s"),
        (2.4, "5 s"),
        (33, "35 s"),
        (57.4, "55 s"),
        (58, "1 min"),
        (80, "1 min"),
        (185, "3 min"),
        (3560, "59 min"),
        (3580, "1 h"),
        (7500, "2 h 5 min"),
        (138542, "38 h 29 min"),
    ],
)
def test_an_estimate_has_no_digits_that_mean_nothing(seconds: float, words: str) -> None:
    assert duration(seconds, rough=True) == words


def test_durations_are_written_in_one_place() -> None:
    """Nobody else divides seconds into minutes and hours for people, in Python or in a page."""
    package = Path(tasklm.__file__).parent
    splits = re.compile(r"(//|/|%) ?(60|3600)\b.*(min|\bh\b)|\} (min|s|h) (left|ago)|f\} s\b")
    written = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*"))
        if path.suffix in (".py", ".js") and splits.search(path.read_text(encoding="utf-8"))
    ]
    assert written == ["console/durations.py"]
