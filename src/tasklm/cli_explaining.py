"""The verb that explains a prediction, and the table of `check --influence`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasklm.json_lines import json_line
from tasklm.tracking import Tracker

if TYPE_CHECKING:  # torch is imported when it is needed: help must come at once
    from tasklm.evaluate.explaining import Explanation, Push, Pushes
    from tasklm.select.explain_influence import InfluenceReasons

screen = Console(stderr=True)
MOST_WORDS = 8  # in common, that are shown and marked
MOST_TEXT = 300  # characters of a text that are shown


def explain(
    where: Annotated[Path, typer.Argument(help="Run folder, or the folder `model` in it.")],
    text: Annotated[str, typer.Argument(help="The text whose prediction is to be explained, or a JSON object with the columns of train.")],
    top: Annotated[int, typer.Option(help="Examples, and passages, to show on each side.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, with whole texts.")] = False,
) -> None:
    """Show which training examples and selected passages pushed for and against a prediction (docs/methods/explain.md).

    Example: tasklm explain runs/first "a text to classify" --top 3
    """
    from tasklm.serve.explainer import Explainer

    found = Explainer(where).explain(text, top)
    if as_json:
        typer.echo(json_line(asdict(found)))
    else:
        _show(found)


def _show(found: Explanation) -> None:
    out = Console()
    sure = "" if found.probability is None else f" (probability {found.probability:.2f})"
    out.print(f"{found.label}{sure}", style="bold", markup=False, highlight=False)
    _show_side(out, found.examples, "training examples", found.label)
    if found.passages is not None:
        _show_side(out, found.passages, "selected passages", found.label)


def _show_side(out: Console, pushes: Pushes, kind: str, label: str) -> None:
    read = f"{pushes.compared:,} of {pushes.in_all:,} {kind} compared"
    for side, word in ((pushes.pushed_for, "for"), (pushes.pushed_against, "against")):
        if not side:
            out.print(f"\nno {kind} pushed {word} {label} ({read})", markup=False, highlight=False)
            continue
        table = Table(title=Text(f"{kind} that pushed {word} {label} ({read})"), title_justify="left", show_lines=True)
        table.add_column("score", justify="right")
        if side[0].label is not None:
            table.add_column("label", overflow="fold")
        for column in ("text", "words in common", "where"):
            table.add_column(column, overflow="fold")
        for push in side:
            label_cell = [] if push.label is None else [Text(push.label)]
            words = Text(", ".join(push.shared[:MOST_WORDS]))
            table.add_row(f"{push.score:+.3f}", *label_cell, _marked(push), words, Text(_place(push)))
        out.print()
        out.print(table)


def _marked(push: Push) -> Text:
    """Returns the text, shortened, with the words in common marked."""
    from tasklm.analyse.words import spans

    shown = shortened(push.text, MOST_TEXT)
    text = Text(shown)
    for start, end in spans(shown, set(push.shared[:MOST_WORDS])):
        text.stylize("bold yellow", start, end)
    return text


def _place(push: Push) -> str:
    """Returns where the text stands; of a training file its name is enough."""
    return push.where if push.label is None else push.where.rsplit("/", 1)[-1]


def shortened(text: str, most: int) -> str:
    """Returns the text on one line, cut to `most` characters."""
    line = " ".join(text[: 2 * most].split())
    return line if len(line) <= most and len(text) <= 2 * most else line[: most - 1].rstrip() + "…"


def check_labels(run: Path, top: int, as_json: bool) -> None:
    """Shows the training examples of a run that the others speak against."""
    from tasklm.looking import suspicious_labels

    suspects, path = suspicious_labels(run, Tracker(screen))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in suspects], ensure_ascii=False))
        return
    shown: Sequence[object] = suspects[:top]
    if shown:
        table = Table(show_lines=True)
        for column in ("rank", "line", "text", "label", "suggested", "score"):
            table.add_column(column, overflow="fold", justify="right" if column in ("rank", "line", "score") else "left")
        for one in suspects[:top]:
            cells = (Text(shortened(one.text, 200)), Text(one.label), Text(one.suggested))
            table.add_row(f"{one.rank:,}", f"{one.line:,}", *cells, f"{one.score:.2f}")
        Console().print(table)
    said = f"{len(suspects):,} training examples have a label that the others speak against; {len(shown):,} are shown, all are in {path}"
    screen.print(said, markup=False, highlight=False, soft_wrap=True)


def show_influence(out: Console, reasons: InfluenceReasons) -> None:
    """Prints which task batches asked for a passage, with which influence, and where it stood among the candidates."""
    head = (
        f"influence: among the {reasons.k:,} best candidates of {reasons.batches_in_all:,} batches of {reasons.split} examples; the best:"
    )
    out.print(head, markup=False)
    for batch in reasons.batches:
        for text, label in zip(batch.texts, batch.labels, strict=True):
            out.print(f"\n[{label}] {text}", markup=False, highlight=False)
        out.print(f"  rank {batch.rank + 1:,}, influence {batch.score:.3g}", markup=False, highlight=False)
    place = f"candidate {reasons.place + 1:,} of {reasons.candidates:,} by {reasons.found_by}"
    out.print(f"\n{place}: rank {reasons.first_rank + 1:,}, score {reasons.first_score:.2f}", markup=False, highlight=False)
