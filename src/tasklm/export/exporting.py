"""From a run or a model to a folder for other programs."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tasklm
from tasklm.bill.record import write_bill
from tasklm.errors import RecipeError
from tasklm.export.card import write_card
from tasklm.export.model_sizes import MEGABYTE, STEPS, DevScores, fitting
from tasklm.export.onnx_decoder import check_decoder, write_decoder
from tasklm.export.onnx_graph import check_onnx, inputs_of, require_same, write_graph
from tasklm.export.onnx_model import GRAPH, LOGITS, RECORD, outputs_of
from tasklm.export.onnx_writer import ENCODER_INPUTS, MEMORY
from tasklm.export.publishing import published
from tasklm.export.record import Exported
from tasklm.export.source import Source, new_folder, open_source
from tasklm.export.tokenizer_files import write_tokenizer
from tasklm.export.transformers_model import write_transformers
from tasklm.models.saved_model import read_saved_model
from tasklm.storage.checksums import files_in, seal
from tasklm.tasks.baselines.wide import FOLDER as WIDE
from tasklm.tasks.several import members_of
from tasklm.tasks.writing import writes

FORMATS = ("hf", "onnx", "onnx-int8")


def default_folder(where: Path, to: str, task: str = "") -> Path:
    """The default folder of an export: exports/NAME-FORMAT, or NAME-TASK-FORMAT."""
    folder = where.resolve()
    if folder.name == "model":
        folder = folder.parent
    parts = [folder.name, task, to] if task else [folder.name, to]
    return Path("exports") / "-".join(parts)


def export(
    where: Path, to: str, out: Path | None = None, max_mb: float | None = None, task: str = ""
) -> tuple[Exported, Path]:
    """Writes the model of a run or folder for other programs; returns what, and where.

    `task`: which of its several tasks; an ONNX file may have all of them.
    """
    require_format(to)
    source = open_source(where)
    if task or (members_of(source.task) and to == "hf"):
        source = source.of(task)
    target = out or default_folder(where, to, task)
    with new_folder(target) as folder:
        exported = _write(source, folder, to, max_mb)
    return exported, target


def export_each(
    where: Path, to: str, out: Path | None = None, max_mb: float | None = None
) -> list[tuple[Exported, Path]]:
    """Writes all of the model's tasks: an ONNX file, or a folder for transformers by each name."""
    require_format(to)
    source = open_source(where)
    members = members_of(source.task)
    if not members or to != "hf":
        return [export(where, to, out, max_mb)]
    target = out or default_folder(where, to)
    exports = []
    with new_folder(target) as folder:
        for member in members:
            (folder / member.name).mkdir()
            try:
                exported = _write(source.of(member.name), folder / member.name, to, max_mb)
            except RecipeError as error:
                way_out = "--task NAME exports one of the others."
                problems = [f"{member.name}: {problem} {way_out}" for problem in error.problems]
                raise RecipeError(problems) from None
            exports.append((exported, target / member.name))
    return exports


def require_format(to: str) -> None:
    """Raises RecipeError for a format that there is not."""
    if to not in FORMATS:
        raise RecipeError([f"--to {to}: choose from {', '.join(FORMATS)}"])


def _write(source: Source, folder: Path, to: str, max_mb: float | None) -> Exported:
    if to == "hf":
        exported = _transformers(source, folder, max_mb)
    else:
        exported = _onnx(source, folder, to, max_mb)
    write_card(source, exported, folder)
    if source.bill is not None:
        write_bill(folder, published(source.bill))
    source.copy_calibration(folder)
    # the card is there to be edited
    seal(folder / RECORD, asdict(exported), files_in(folder, leave_out=("README.md",)))
    return exported


def as_onnx(model_folder: Path, scratch: Path) -> Path:
    """Writes the model of a folder as ONNX in fp32 into a new folder below `scratch`.

    `serve.predictor.Predictor` opens it. Raises RecipeError if the model cannot be exported, or the
    packages for it are not installed.
    """
    count = len(read_saved_model(model_folder).weights)
    if count > 1:
        several = f"{model_folder} is an ensemble of {count} models"
        raise RecipeError(
            [f"{several}, but an ONNX file has a single one. Give the folder 'model'."]
        )
    target = scratch / f"{model_folder.resolve().name}-onnx"
    with new_folder(target) as folder:
        source = open_source(model_folder)
        exported = _onnx(source, folder, "onnx", None)
        source.copy_calibration(folder)
        seal(folder / RECORD, asdict(exported), files_in(folder))
    return target


def _facts(source: Source, to: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "to": to,
        "name": source.name,
        "tasklm": tasklm.__version__,
        "task": source.task.to_dict(),
        "encoder": source.encoder,
        "length": source.length,
        "columns": source.columns(),
        "columns_by_task": source.columns_by_task(),
        "wide": source.wide,
    }
    if source.wide is not None and (dev := source.dev()):
        facts["network"] = DevScores(source, dev).without_wide()
    return facts


def _transformers(source: Source, folder: Path, max_mb: float | None) -> Exported:
    loads_with = write_transformers(source, folder)
    size = (folder / "model.safetensors").stat().st_size / MEGABYTE
    if max_mb is not None and size > max_mb:
        problem = f"--max-mb {max_mb:g}: model.safetensors has {size:.2f} MB"
        raise RecipeError([f"{problem}; --to onnx with --max-mb chooses smaller weights"])
    inputs = ["input_ids", "attention_mask"]
    if source.has_segments:
        inputs.append("token_type_ids")
    about: dict[str, Any] = {"weights": "fp32", "megabytes": size, "loads_with": loads_with}
    return Exported(**_facts(source, "hf"), **about, inputs=inputs, outputs=[LOGITS])


def _decoder(source: Source, folder: Path, to: str, max_mb: float | None) -> Exported:
    """A model that writes: two graphs."""
    check_decoder(source, to, max_mb)
    apart, megabytes = write_decoder(source, folder)
    write_tokenizer(folder, source.vocabulary, source.length, segments=False, cuts=True)
    about: dict[str, Any] = {"weights": "fp32", "megabytes": megabytes, "max_difference": apart}
    names: dict[str, Any] = {"inputs": ENCODER_INPUTS, "outputs": [MEMORY]}
    return Exported(**_facts(source, to), **about, **names, loads_with="onnxruntime")


def _onnx(source: Source, folder: Path, to: str, max_mb: float | None) -> Exported:
    if writes(source.task):
        return _decoder(source, folder, to, max_mb)
    check_onnx(source)
    inputs, steps = inputs_of(source), steps_of(to, max_mb)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        exact = Path(scratch) / "exact.onnx"
        write_graph(source, exact, inputs)
        apart = require_same(source, exact, inputs)
        path, sized = fitting(source, exact, apart, inputs, steps, max_mb)
        path.replace(folder / GRAPH)
    write_tokenizer(
        folder, source.vocabulary, source.length, segments="token_type_ids" in inputs, cuts=True
    )
    if source.loaded.wide is not None:
        source.loaded.wide.save(folder / WIDE)
    about: dict[str, Any] = {
        "outputs": [one.name for one in outputs_of(source.task)],
        "weights": sized.step,
        "megabytes": sized.megabytes,
        "max_difference": sized.apart,
        "dev": sized.dev,
    }
    return Exported(**_facts(source, to), **about, loads_with="onnxruntime", inputs=inputs)


def steps_of(to: str, max_mb: float | None) -> list[str]:
    """The precisions to choose from: all of a format if there is a limit, else the format's own."""
    if max_mb is None:
        return ["int8" if to == "onnx-int8" else "fp32"]
    return [step for step in STEPS if step != "fp32" or to == "onnx"]
