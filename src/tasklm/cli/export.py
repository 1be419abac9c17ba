"""The verb that writes a trained model for other programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tasklm.cli.images import is_image_folder, show_image_export
from tasklm.console.terminal import say
from tasklm.errors import RecipeError

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.export.record import Exported


def export(
    where: Annotated[Path, typer.Argument(help="Run folder, or a folder with a model.")],
    to: Annotated[
        str, typer.Option("--to", help="hf (transformers), onnx, or onnx-int8 (8-bit weights).")
    ],
    out: Annotated[
        Path | None, typer.Option(help="New or empty folder; by default exports/NAME-FORMAT.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help=(
                "Task to export, for a model of several; by default all: in one "
                "ONNX file, or for transformers each in OUT/NAME/."
            )
        ),
    ] = None,
    max_mb: Annotated[
        float | None,
        typer.Option(
            help=(
                "Size limit of the weights file in MB; picks the ONNX precision that fits and "
                "loses least."
            ),
            min=0.001,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Export a model to transformers or ONNX.

    Also writes the tokenizer and a model card (docs/how-to/export.md).

    Example: tasklm export runs/first --to hf --out my-model

    Example: tasklm export runs/first --to onnx --max-mb 20
    """
    if is_image_folder(where):
        if task is not None or max_mb is not None:
            raise RecipeError(["--task and --max-mb are for models of text; leave them out"])
        show_image_export(where, to, out, as_json)
        return
    from tasklm.export.exporting import export as write
    from tasklm.export.exporting import export_each

    if task is None:
        exports = export_each(where, to, out, max_mb)
    else:
        exports = [write(where, to, out, max_mb, task)]
    if as_json:
        records = [{**asdict(exported), "folder": str(folder)} for exported, folder in exports]
        typer.echo(json.dumps(records if len(records) > 1 else records[0], ensure_ascii=False))
        return
    console = Console()
    for exported, folder in exports:
        for line in _lines(exported, folder):
            say(console, line)


def _lines(exported: Exported, folder: Path) -> list[str]:
    lines = [
        (
            f"wrote {folder}: {exported.megabytes:.2f} MB of "
            f"weights ({exported.weights}), loads with {exported.loads_with}"
        )
    ]
    if exported.max_difference is not None:
        lines.append(
            "largest difference from PyTorch's logits on random inputs: "
            f"{exported.max_difference:.1e}"
        )
    if exported.dev is not None:
        before, after = 100 * exported.dev["model"], 100 * exported.dev["exported"]
        loss = 100 * exported.dev["loss"]
        examples = f"{exported.dev['metric']} × 100 on {exported.dev['examples']:,} dev examples"
        lines.append(
            f"{examples}: {before:.2f} in fp32, {after:.2f} exported, a loss of {loss:.2f}"
        )
        for name, one in exported.dev.get("tasks", {}).items():
            before, after = 100 * one["model"], 100 * one["exported"]
            lines.append(f"  {name}, {one['metric']}: {before:.2f} → {after:.2f}")
    elif exported.weights != "fp32":
        lines.append(
            "the change in score was not measured: a model alone has no dev examples; give the "
            "run folder to measure it"
        )
    return [*lines, f"please fill in the licence in the model card, {folder / 'README.md'}"]
