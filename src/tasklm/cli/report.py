"""What the verb `report` does with several run folders: a page and a table that compare them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

from tasklm.cli.images import refuse_image_folders
from tasklm.console.terminal import say, say_command


def compare(folders: Sequence[Path], out: Path, as_json: bool) -> None:
    """Writes the page that compares finished runs, and shows them as a table or as JSON."""
    from tasklm.evaluate.scores import to_dict
    from tasklm.report.comparison import (
        differences,
        leader,
        pairs_of,
        read_runs,
        recipe_differences,
        terminal_table,
    )
    from tasklm.report.comparison_page import render_comparison
    from tasklm.storage.files import write_text

    reason = "answers are paired text by text; --compare supervised has the usual comparison"
    refuse_image_folders(folders, "report of several runs", reason)
    runs = read_runs(folders)
    pairs = pairs_of(runs)
    write_text(out, render_comparison(runs, pairs))
    if as_json:
        comparison = {
            "runs": {run.name: to_dict(run.scores) for run in runs},
            "verdict": leader(runs, pairs),
            "differences": {
                pair.other.name: {
                    **asdict(pair.difference),
                    "p_holm": pair.corrected,
                    "p_seeds": pair.seeds,
                }
                for pair in pairs
                if pair.difference is not None
            },
            "warnings": differences(runs),
            "recipes": {
                key: dict(zip((run.name for run in runs), values, strict=True))
                for key, values in recipe_differences(runs)
            },
        }
        typer.echo(json.dumps(comparison, ensure_ascii=False))
        return
    console = Console()
    console.print(terminal_table(runs))
    console.print()
    say(console, leader(runs, pairs))
    for sentence in differences(runs):
        say(console, sentence, "note", "yellow")
    say_command(console, str(out), "report")
