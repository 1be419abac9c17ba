"""The verb that searches text, and what `select --explain` shows."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tasklm.cli.explain import show_influence
from tasklm.cli.images import refuse_image_folders
from tasklm.console.terminal import say
from tasklm.tracking import Tracker

screen = Console(stderr=True)
_JSON_NAMES = {"in_query": "asked", "in_passage": "found"}


def search(
    where: Annotated[
        Path,
        typer.Argument(
            help="Run folder, or files or a folder of text (indexed when first searched)."
        ),
    ],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    k: Annotated[int, typer.Option("--k", "-k", help="Passages to show.", min=1)] = 10,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of indexes; by default the run's, or runs/.cache."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Search a corpus with BM25.

    Shows the best passages, with the matching words marked.

    Example: tasklm search texts/ "enzyme inhibits receptor" -k 3
    """
    from tasklm.pipeline.search import find

    refuse_image_folders([where], "search", "the run has no corpus")
    hits = find(where, query, k, Tracker(screen), cache)
    if as_json:
        typer.echo(
            json.dumps([asdict(hit, dict_factory=_json_names) for hit in hits], ensure_ascii=False)
        )
        return
    if not hits:
        typer.echo("No passage contains a word of the query.")
    for rank, hit in enumerate(hits, 1):
        _show_hit(Console(), hit, f"{rank}.")


def explain_selection(folder: Path, passage: str, as_json: bool) -> None:
    """Shows which task examples retrieved a selected passage, and through which words."""
    from tasklm.pipeline.search import why_selected

    refuse_image_folders([folder], "select --explain", "the run has selected nothing")
    reasons = why_selected(folder, passage, 5, Tracker(screen))
    if as_json:
        typer.echo(json.dumps(asdict(reasons, dict_factory=_json_names), ensure_ascii=False))
        return
    out = Console()
    _show_hit(out, reasons.hit, f"position {reasons.place + 1:,} in the selection")
    if reasons.influence is not None:
        show_influence(out, reasons.influence)
    if reasons.queries:
        say(out, f"retrieved by {reasons.queries_in_all:,} examples; the best:")
    for asker in reasons.queries:
        say(out, f"\n[{asker.label}] {asker.text}")
        say(out, f"  rank {asker.rank + 1:,}, score {asker.score:.2f} = {_sum_of(asker.terms)}")


def _show_hit(out: Console, hit: Any, title: str) -> None:
    text = Text(hit.text)
    for start, end in hit.marked:
        text.stylize("bold yellow", start, end)
    say(out, f"{title}  {hit.score:.2f}  {hit.id}  {hit.source}", style="bold")
    out.print(text, soft_wrap=not out.is_terminal)
    out.print()


def _json_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, which keeps the older names of a term's counts."""
    return {_JSON_NAMES.get(name, name): value for name, value in pairs}


def _sum_of(terms: list[Any]) -> str:
    """The contributions of the terms, as a sum with the largest first."""
    times = {term.term: f" (asked {term.in_query}×)" if term.in_query > 1 else "" for term in terms}
    parts = [f"{term.term} {term.adds:.2f}{times[term.term]}" for term in terms[:8]]
    if len(terms) > 8:
        parts.append(f"{len(terms) - 8} more {sum(term.adds for term in terms[8:]):.2f}")
    return " + ".join(parts)
