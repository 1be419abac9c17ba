"""The parts of the report about the inside of the model: its class vectors
and its attention heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tasklm.report.charts import Group, head_grid, legend, scatter
from tasklm.report.inline_svg import SERIES
from tasklm.report.page import Html, clipped, el, folded, joined, soft, table

HINT_LENGTH = 80


def class_vectors(found: Mapping[str, Any] | None, seed: str = "") -> Html:
    """The t-SNE of the class vectors in its stages, coloured by label, or nothing; `seed` says
    whose stage 2 it is.
    """
    if not found or not found["stages"] or not len(found["number"]):
        return Html("")
    labels = [str(label) for label in found["labels"]]
    number = [int(one) for one in found["number"]]
    counted = Counter(number)
    coloured = [
        label for label, _ in sorted(counted.items(), key=lambda entry: (-entry[1], entry[0]))
    ]
    if len(coloured) > SERIES:
        coloured = coloured[: SERIES - 1]
    groups: list[Group] = [
        (at, [point for point, own in enumerate(number) if own == label])
        for at, label in enumerate(coloured)
    ]
    entries = [(clipped(labels[label], 60), f"{counted[label]:,}") for label in coloured]
    grey = []
    if rest := [point for point, own in enumerate(number) if own not in coloured]:
        grey = [len(groups)]
        groups.append((None, rest))
        entries.append((f"{len(counted) - len(coloured)} other labels", f"{len(rest):,}"))
    texts = [
        f"{clipped(labels[at], 40)}: {_start(text)}"
        for at, text in zip(number, found["texts"], strict=True)
    ]
    panels = [
        scatter(str(stage["name"]), stage["points"], groups, texts) for stage in found["stages"]
    ]
    whose = f" Stage 2 is that of {seed}." if seed else ""
    about = (
        f"Each point is a text of dev, placed by t-SNE: "
        f"near points have similar vectors, distances between groups mean little.{whose}"
    )
    return joined(
        [
            el("p", about),
            el("div", legend(entries, grey), el("div", *panels, class_="charts"), class_="linked"),
        ]
    )


def attention(found: Mapping[str, Any] | None, seed: str = "") -> Html:
    """The grid of attention heads with those that look at neighbours or at separators marked, or
    nothing.

    `seed` says whose model it is.
    """
    if not found or not found["heads"]:
        return Html("")
    heads = sorted(found["heads"], key=lambda head: (head["layer"], head["head"]))
    hints = [
        f"layer {head['layer']}, head {head['head']}: "
        f"{head['kind']}; {head['positional']:.0%} on a neighbour, "
        f"{head['vertical']:.0%} on a special token or full stop"
        for head in heads
    ]
    total = found["total"]
    about = joined(
        [
            el("b", f"{found['positional']:,} of {total:,}"),
            " heads are positional ",
            el("span", class_="frame positional"),
            ": at least 90 % of their tokens look most at the token before or after. ",
            el("b", f"{found['vertical']:,} of {total:,}"),
            " are vertical ",
            el("span", class_="frame vertical"),
            ": more than 90 % look most at [CLS], [SEP] or a full stop; ",
            el("span", class_="frame both"),
            " are both. The definitions are those of figure 3 of TLM (arXiv 2111.04130), "
            "whose models have more positional and fewer vertical heads than BERT. ",
            (
                f"Counted in {found['texts']:,} "
                f"row{'s' if found['texts'] != 1 else ''} of "
                f"dev{f', in the model of {seed}' if seed else ''}."
            ),
        ]
    )
    pictured = soft(
        "The tokens of the pictures, in their order: ",
        joined((el("bdi", clipped(token, 40)) for token in found["shown"]), " "),
    )
    title = (
        "Layers downwards, heads across; "
        "each square shows how tokens (downwards) look at tokens (across)"
    )
    grid = head_grid(title, heads, found["tokens"], hints)
    rows = [
        [
            head["layer"],
            head["head"],
            head["kind"],
            f"{head['positional']:.1%}",
            f"{head['vertical']:.1%}",
        ]
        for head in heads
    ]
    keys = [
        [head["layer"], head["head"], head["kind"], head["positional"], head["vertical"]]
        for head in heads
    ]
    header = ["layer", "head", "kind", "on a neighbour", "on a special token or full stop"]
    listed = joined(
        [
            table(header, rows, left=3, keys=keys, label="Attention heads"),
            soft("Shares of tokens whose largest weight lies there."),
        ]
    )
    return joined([el("p", about), grid, pictured, folded("All heads in numbers", listed)])


def _start(text: Any) -> str:
    """The beginning of a text, for a hint."""
    whole = " ".join(str(text)[: 4 * HINT_LENGTH].split())
    return whole if len(whole) <= HINT_LENGTH else whole[:HINT_LENGTH].rstrip() + " …"
