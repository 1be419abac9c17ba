"""Opening a run: its recipe is checked and saved, with the versions it runs on."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path
from typing import Any

import torch

from tasklm.artifacts import Artefacts
from tasklm.console.clock import Clock
from tasklm.device.machine import Machine, set_up
from tasklm.encoders.base import ENCODERS
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES
from tasklm.pipeline.context import Run
from tasklm.recipe.schema import Hardware, Recipe
from tasklm.recipe.toml import absolute, cache_folder, dump
from tasklm.registry import Registry
from tasklm.run_folder import EVENTS, LOG, MANIFEST, RECIPE
from tasklm.storage.files import sweep, write_json, write_text
from tasklm.storage.scratch import sweep_scratch
from tasklm.tasks.base import TASKS
from tasklm.tasks.readers.image_files import refuse_images
from tasklm.tasks.readers.splits import resolved
from tasklm.tracking import EventFile, LogFile, TensorBoard, Tracker
from tasklm.train.started_recipes import started


def check_names(recipe: Recipe) -> None:
    """Refuses plug-ins that do not exist or do not fit together, before any work is done."""
    problems: list[str] = []
    chosen: list[tuple[Registry[Any], str]] = [
        (TASKS, recipe.data.kind),
        (ENCODERS, recipe.model.encoder),
        (OBJECTIVES, recipe.train.objective),
    ]
    for registry, name in chosen:
        if name == "auto":
            continue
        try:
            registry.get(name)
        except RecipeError as error:
            problems += error.problems
    if recipe.train.next_sentence and recipe.train.objective != "mlm":
        problems.append(
            f"train.next_sentence requires train.objective = 'mlm', not {recipe.train.objective!r}"
        )
    if recipe.model.encoder == "bilstm" and "influence" in recipe.select.method:
        problems.append(
            f"select.method = {recipe.select.method!r}: gradients of single passages are computed "
            "for the layers of Transformers, which model.encoder = 'bilstm' does not have; choose "
            "another encoder, or another method such as bm25"
        )
    if recipe.kind.decoder == "lstm" and recipe.hardware.compile == "on":
        problems.append(
            "hardware.compile = 'on': the LSTM of kind.decoder = 'lstm' does not go into a "
            "compiled graph; leave hardware.compile out"
        )
    if problems:
        raise RecipeError(problems)


def open_run(
    recipe: Recipe,
    folder: Path,
    tracker: Tracker,
    cache: Artefacts | None = None,
    clock: Clock | None = None,
) -> Run:
    """The run in a folder, with its recipe and the versions it runs on saved."""
    data = resolved(recipe.data)
    refuse_images(data.kind, "this")
    check_names(recipe)
    recipe = started(recipe.changed(data=dataclasses.asdict(data)), folder)
    machine = set_up(_hardware_of(recipe))
    pool = _pool(recipe, machine)
    artefacts = Artefacts(folder, machine.ranks, tell=tracker.warn, pool=pool)
    cache = cache or Artefacts(
        cache_folder(recipe, folder), machine.ranks, tracker.say, tracker.warn
    )
    run = Run(recipe, artefacts, cache, machine, tracker, clock or Clock())
    if not machine.ranks.first:
        tracker.screen = None
        return run
    for place in (artefacts, cache):
        place.sweep()
    for leftover in (folder / "stage2", folder / "inputs"):
        sweep(leftover)
    sweep_scratch()
    record_run(run)
    return run


def record_run(run: Run) -> None:
    """Saves the recipe of a run and the versions it runs on, and follows its events."""
    folder, recipe, machine, tracker = run.folder, run.recipe, run.machine, run.tracker
    write_text(folder / RECIPE, dump(absolute(recipe)))
    tracker.sinks = [EventFile(folder / EVENTS), LogFile(folder / LOG)]
    if recipe.hardware.tensorboard:
        tracker.sinks.append(TensorBoard(folder / "tensorboard"))
    write_json(folder / MANIFEST, _made_with(machine))
    tracker.event(
        "started", folder=str(folder), device=str(machine.device), threads=machine.threads
    )


def _pool(recipe: Recipe, machine: Machine) -> Path | None:
    """Where finished steps are shared; several processes build them together, and share nothing."""
    if not recipe.hardware.shared or machine.ranks.total > 1:
        return None
    return Path(recipe.hardware.shared)


def _hardware_of(recipe: Recipe) -> Hardware:
    """The settings of the machine; an encoder may be faster without compilation."""
    encoder, hardware = recipe.model.encoder, recipe.hardware
    compiles = encoder == "auto" or getattr(ENCODERS.get(encoder), "compiles_by_default", True)
    if compiles and recipe.kind.decoder != "lstm":
        return hardware
    if hardware.compile == "auto":
        return dataclasses.replace(hardware, compile="off")
    return hardware


def _made_with(machine: Machine) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "device": str(machine.device),
        "threads": machine.threads,
        "bf16": machine.bf16,
        "compiled": machine.compiles,
        "processes": machine.ranks.total,
    }
