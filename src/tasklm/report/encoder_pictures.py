"""The parts of the report about the model's inner workings: class vectors and attention heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tasklm.report.charts import Group, head_grid, legend, scatter
from tasklm.report.inline_svg import SERIES
from tasklm.report.page import Html, clipped, count_of, el, folded, joined, soft, table

HINT_LENGTH = 80


def class_vectors(vectors: Mapping[str, Any] | None, seed: str = "") -> Html:
    """The t-SNE of the class vectors by stage, coloured by label; `seed` names the stage 2."""
    if not vectors or not vectors["stages"] or not len(vectors["number"]):
        return Html("")
    labels = [str(label) for label in vectors["labels"]]
    number = [int(one) for one in vectors["number"]]
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
        for at, text in zip(number, vectors["texts"], strict=True)
    ]
    panels = [
        scatter(str(stage["name"]), stage["points"], groups, texts) for stage in vectors["stages"]
    ]
    whose = f" Stage 2 is from {seed}." if seed else ""
    about = (
        f"Each point is a text of dev, placed by t-SNE: "
        f"nearby points have similar vectors; distances between groups mean little.{whose}"
    )
    charts = el("div", joined(panels), class_="charts")
    return joined([el("p", about), el("div", legend(entries, grey), charts, class_="linked")])


def attention(attention_map: Mapping[str, Any] | None, seed: str = "") -> Html:
    """The grid of attention heads, framed by what they attend to; `seed` names the model."""
    if not attention_map or not attention_map["heads"]:
        return Html("")
    heads = sorted(attention_map["heads"], key=lambda head: (head["layer"], head["head"]))
    hints = [
        f"layer {head['layer']}, head {head['head']}: "
        f"{head['kind']}; {head['positional']:.0%} on a neighbour, "
        f"{head['vertical']:.0%} on a special token or full stop"
        for head in heads
    ]
    pictured = soft(
        "The tokens of the pictures, in order: ",
        joined((el("bdi", clipped(token, 40)) for token in attention_map["shown"]), " "),
    )
    title = (
        "Layers downwards, heads across; "
        "each square shows how tokens (downwards) attend to tokens (across)"
    )
    grid = head_grid(title, heads, attention_map["tokens"], hints)
    numbers = folded("All heads as numbers", _heads_table(heads))
    return joined([el("p", _about_heads(attention_map, seed)), grid, pictured, numbers])


def _about_heads(attention_map: Mapping[str, Any], seed: str) -> Html:
    """The number of heads of each kind, and what the kinds mean."""
    total = attention_map["total"]
    whose = f", in the model of {seed}" if seed else ""
    return joined(
        [
            el("b", f"{attention_map['positional']:,} of {total:,}"),
            " heads are positional ",
            el("span", class_="frame positional"),
            ": at least 90 % of their tokens attend most to the token before or after. ",
            el("b", f"{attention_map['vertical']:,} of {total:,}"),
            " are vertical ",
            el("span", class_="frame vertical"),
            ": more than 90 % attend most to [CLS], [SEP] or a full stop; ",
            el("span", class_="frame both"),
            " are both. The definitions are those of figure 3 of TLM (arXiv 2111.04130), "
            "whose models have more positional and fewer vertical heads than BERT. ",
            f"Counted in {count_of(attention_map['texts'], 'row')} of dev{whose}.",
        ]
    )


def _heads_table(heads: Sequence[Mapping[str, Any]]) -> Html:
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
    listed = table(header, rows, left=3, keys=keys, label="Attention heads")
    return joined([listed, soft("Shares of tokens that put their largest weight there.")])


def _start(text: Any) -> str:
    """The beginning of a text, for a hint."""
    whole = " ".join(str(text)[: 4 * HINT_LENGTH].split())
    return whole if len(whole) <= HINT_LENGTH else whole[:HINT_LENGTH].rstrip() + " …"
