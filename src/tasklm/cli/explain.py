"""The verb that explains a prediction, and the table of `check --influence`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasklm.cli.images import explain_image, is_image_folder, refuse_image_folders
from tasklm.cli.options import TaskName
from tasklm.console.terminal import say, say_command
from tasklm.storage.json_lines import json_line
from tasklm.tracking import Tracker

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.influence.evidence import Attribution, Attributions, Explanation
    from tasklm.influence.selection_reasons import InfluenceReasons

screen = Console(stderr=True)
MOST_WORDS = 8  # shared words that are listed and marked
MOST_TEXT = 300  # characters of a text that are shown


def explain(
    where: Annotated[Path, typer.Argument(help="Run folder, or the folder `model` in it.")],
    text: Annotated[
        str,
        typer.Argument(
            help=(
                "Text whose prediction to explain, or a JSON object with the "
                "columns of train; for a model of images: an image file."
            )
        ),
    ],
    task: TaskName = None,
    top: Annotated[
        int, typer.Option(help="Examples and passages to show on each side.", min=1)
    ] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, with full texts.")
    ] = False,
) -> None:
    """Show the training texts behind a prediction.

    Lists the training examples and selected passages that support it and that speak against it
    (docs/methods/explain.md). For an image, shows what each part adds to the answer.

    Example: tasklm explain runs/first "a text to classify" --top 3
    """
    if is_image_folder(where):
        explain_image(where, text, as_json)
        return
    from tasklm.serve.explainer import explainer_of

    explanation = explainer_of(where, task or "").explain(text, top)
    if as_json:
        typer.echo(json_line(asdict(explanation)))
    else:
        _show(explanation)


def _show(explanation: Explanation) -> None:
    out = Console()
    headline = explanation.label
    if explanation.probability is not None:
        headline = f"{headline} (probability {explanation.probability:.2f})"
    say(out, headline, style="bold")
    _show_side(out, explanation.examples, "training examples", explanation.label)
    if explanation.passages is not None:
        _show_side(out, explanation.passages, "selected passages", explanation.label)


def _show_side(out: Console, attributions: Attributions, kind: str, label: str) -> None:
    read = f"{attributions.compared:,} of {attributions.in_all:,} compared"
    for side, word in (
        (attributions.supporting, "support"),
        (attributions.opposing, "speak against"),
    ):
        out.print()
        if not side:
            say(out, f"no {kind} {word} {label} ({read})")
            continue
        say(out, f"{kind} that {word} {label} ({read}):", style="bold")
        for attribution in side:
            say_entry(out, f"{attribution.score:+.3f}", _marked(attribution), _about(attribution))


def say_entry(out: Console, number: str, text: Text, about: str) -> None:
    """Prints a text from the data after a number, with details on the line below."""
    if not out.is_terminal:
        say(out, f"{number:>6}  {text.plain}\n        {about}")
        return
    entry = Table.grid(padding=(0, 2, 0, 0))
    entry.add_column(justify="right", no_wrap=True, min_width=6)
    entry.add_column(overflow="fold")
    entry.add_row(number, text)
    entry.add_row("", Text(about, style="dim"))
    out.print(entry)


def _about(attribution: Attribution) -> str:
    """Label and source of a text, and the words that it shares with the query."""
    label = [] if attribution.label is None else [f"labelled {attribution.label}"]
    words = ", ".join(attribution.shared[:MOST_WORDS])
    shared = [f"shared words: {words}"] if words else []
    return "; ".join([*label, _place(attribution), *shared])


def _marked(attribution: Attribution) -> Text:
    """The shortened text with the shared words marked."""
    from tasklm.analysis.word_counts import spans

    line = shortened(attribution.text, MOST_TEXT)
    text = Text(line)
    for start, end in spans(line, set(attribution.shared[:MOST_WORDS])):
        text.stylize("bold yellow", start, end)
    return text


def _place(attribution: Attribution) -> str:
    """Where the text comes from; for a training file the name is enough."""
    return attribution.where if attribution.label is None else attribution.where.rsplit("/", 1)[-1]


def shortened(text: str, most: int) -> str:
    """The text on one line, cut to `most` characters."""
    line = " ".join(text[: 2 * most].split())
    return line if len(line) <= most and len(text) <= 2 * most else line[: most - 1].rstrip() + "…"


def check_labels(run: Path, top: int, as_json: bool) -> None:
    """Shows the training examples of a run that are probably mislabelled."""
    from tasklm.pipeline.search import suspicious_labels

    reason = "the influence of images on one another is not computed"
    refuse_image_folders([run], "check --influence", reason)
    suspects, path = suspicious_labels(run, Tracker(screen))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in suspects], ensure_ascii=False))
        return
    out = Console()
    for one in suspects[:top]:
        labels = f"labelled {one.label}, similar examples suggest {one.suggested}"
        about = f"line {one.line:,}; {labels}; score {one.score:.2f}"
        say_entry(out, f"{one.rank:,}.", Text(shortened(one.text, 200)), about)
    out.print()
    count = min(top, len(suspects))
    say(out, f"{len(suspects):,} training examples may be mislabelled; showing {count:,}")
    say_command(out, str(path), "all")


def show_influence(out: Console, reasons: InfluenceReasons) -> None:
    """Prints the task batches that a passage helps most, its influence on them, and its rank among
    the candidates.
    """
    batches = f"{reasons.batches_in_all:,} batches of {reasons.split} examples"
    say(out, f"influence: among the {reasons.k:,} best candidates of {batches}; the best:")
    for batch in reasons.batches:
        for text, label in zip(batch.texts, batch.labels, strict=True):
            say(out, f"\n[{label}] {text}")
        say(out, f"  rank {batch.rank + 1:,}, influence {batch.score:.3g}")
    place = f"candidate {reasons.place + 1:,} of {reasons.candidates:,} by {reasons.found_by}"
    say(out, f"\n{place}: rank {reasons.first_rank + 1:,}, score {reasons.first_score:.2f}")
