"""The style of the pages can be read in light and dark, and what the analyses find has one way into
a report.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tasklm.report.page as page
from tasklm.report.inline_svg import SERIES, colour

STYLE = Path(page.__file__).with_name("page.css").read_text(encoding="utf-8")


def luminance(colour_: str) -> float:
    """The relative luminance of #rrggbb, as the Web Content Accessibility
    Guidelines 2.2 define it.
    """
    parts = [int(colour_[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_letters_and_lines_stand_out_from_what_is_behind_them(scheme: int) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    colours = dict(
        re.findall(r"--(\w+):(#[0-9a-f]{6})", re.findall(r":root \{(.*?)\}", STYLE, re.S)[scheme])
    )
    for behind in ("page", "panel"):
        for letters in ("ink", "soft", "bad", "warn"):
            assert contrast(colours[letters], colours[behind]) >= 4.5, (letters, behind)
        for number in range(SERIES):
            assert contrast(colours[f"c{number}"], colours[behind]) >= 3, (number, behind)
    assert contrast(colours["ink"], colours["mark"]) >= 4.5


def test_every_colour_of_a_drawing_is_one_of_the_page() -> None:
    for name in ("ink", "soft", "rule", *(f"c{number}" for number in range(SERIES))):
        assert STYLE.count(f"--{name}:#") == 2  # light and dark
        assert re.fullmatch(r"#fe01[0-9a-f]{2}", colour(name))
    with pytest.raises(ValueError, match="not in tuple"):
        colour("mauve")


def test_sorting_keys_stand_beside_the_cells() -> None:
    made = page.table(["a", "b"], [["x", "1,000"], ["y", "–"]], keys=[["x", 1000], ["y", ""]])
    assert (
        '<td class="n" data-sort="1000">1,000</td>' in made
        and '<td class="n" data-sort="">–</td>' in made
    )
    assert "sortable" not in page.table(["a"], [["x"]])
