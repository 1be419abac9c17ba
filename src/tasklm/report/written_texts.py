"""The part of the report about texts that a model has written: examples beside the right texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from tasklm.report.page import Html, clipped, el, folded, joined, soft

OPEN = 6  # examples that are not folded
LONGEST = 800  # characters of a text


def written_texts(entries: Sequence[Mapping[str, Any]], of: str = "") -> Html:
    """Examples from the worst to the best: source, text, and right text, with the words marked that
    only one of the two has. `of` names model and split.
    """
    if not entries:
        return Html("")
    about = (
        "Evenly spaced from the worst to the best by chrF. Marked: words of the "
        "model that the reference does not have there, and words that it left out."
    )
    cards = [_card(entry) for entry in entries]
    if rest := cards[OPEN:]:
        cards[OPEN:] = [folded(f"{len(rest)} more", joined(rest))]
    return joined([soft(of), el("p", about), *cards])


def _card(entry: Mapping[str, Any]) -> Html:
    wrote, right = differences(
        clipped(entry["predicted"], LONGEST).split(), clipped(entry["gold"], LONGEST).split()
    )
    lines = [
        el(
            "div",
            f"chrF {100 * entry['score']:.1f} · ",
            clipped(entry["where"], 200),
            class_="soft",
        ),
        el("p", clipped(entry["source"], LONGEST)),
        el("p", "wrote: ", wrote),
        el("p", "right: ", right),
    ]
    return el("div", joined(lines), class_="card")


def differences(written: Sequence[str], right: Sequence[str]) -> tuple[Html, Html]:
    """Both texts with the words marked that the other does not have in that place."""
    parts: tuple[list[Html], list[Html]] = ([], [])
    matcher = SequenceMatcher(a=list(written), b=list(right), autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        for own, words in ((parts[0], written[first:last]), (parts[1], right[begin:end])):
            if not words:
                continue
            text = " ".join(words)
            own.append(el("span", text) if tag == "equal" else el("mark", text))
    return joined(parts[0], " "), joined(parts[1], " ")
