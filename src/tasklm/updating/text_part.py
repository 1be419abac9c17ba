"""New text in an update: passages that old and new examples retrieve from it, and a few steps of
stage 1 on them and on the examples, from the shipped encoder.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasklm.artifacts import Artefacts
from tasklm.budget.rules import Plan, passages_for
from tasklm.device.machine import Machine
from tasklm.errors import RecipeError
from tasklm.models.language_model import read_description, under
from tasklm.models.weights import load_weights, save_weights
from tasklm.pipeline.bill_parts import Readings, text_files
from tasklm.pipeline.context import Run, TaskData, Tokenised, Trained
from tasklm.pipeline.reading import prepare_corpus
from tasklm.pipeline.selection import select
from tasklm.pipeline.steps import tokenize
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import cache_folder
from tasklm.run_folder import SUMMARY, shipped_stage1
from tasklm.storage.files import digest, read_json, write_json
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.context import TrainingContext
from tasklm.train.reading import read_reading
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tasklm.updating.network_part import first_flops
from tasklm.updating.work import Work

START, TEXT = "text-start", "text"  # artefacts: where stage 1 goes on, and what it has learnt
FILES = "files.json"  # in the latter: the files, for the bill
FLOPS = 0.02  # of those of the first run
K = 500  # passages for each example


def read_text(work: Work, machine: Machine) -> Path:
    """The folder with the encoder after some steps on new text; built unless it is there."""
    before = _stage1_before(work)
    start = work.artefacts.build(
        START, digest([START, work.data]), lambda folder: _write_start(folder, work)
    )
    run = _run(work, machine, start)
    grounds = work.grounds
    task = TaskData(grounds.task, grounds.splits, [], work.data, grounds.metric)
    corpus = prepare_corpus(run, task)
    assert corpus is not None
    batch, rho1 = int(before["batch"]), max(1, int(before["rho1"]))
    paid = int(FLOPS * first_flops(work.base.run) * before["steps"] / before["flops"])
    steps = max(rho1 + 1, paid)  # of which one is on the examples
    tokens_read = steps * batch * int(work.base.saved.config["length"])
    counts = corpus.store.counts
    most = passages_for(tokens_read, counts["words"] / max(1, counts["passages"]))
    plan = Plan("", run.recipe.select.k or K, most, batch, None, None, ())
    selected, key = select(run, task, corpus, plan)
    tokens = tokenize(run, task, selected, key)
    context = _context(work, machine, tokens)

    def train(folder: Path) -> None:
        stage1 = Stage1Plan(steps, rho1, batch, None)
        title = "stage 1, continued"
        run_stage1(folder, context, run.recipe.train, stage1, work.tracker, title)
        trained = Trained(run, task, corpus, plan, selected, context, [], {})
        readings = Readings([read_reading(folder)], 1)
        write_json(folder / FILES, [asdict(one) for one in text_files(trained, readings)])

    uses = [start, tokens.folder]
    return work.artefacts.build(TEXT, digest([TEXT, work.data]), train, uses=uses)


def encoder_of(folder: Path) -> dict[str, Any]:
    """The weights of the encoder that read the text."""
    weights = load_weights(folder / "model.safetensors")
    return {f"encoder.{name}": one for name, one in under("encoder.", weights).items()}


def _stage1_before(work: Work) -> dict[str, Any]:
    """What stage 1 of the first run did; raises RecipeError where it took no step."""
    summary: dict[str, Any] = read_json(shipped_stage1(work.base.run) / SUMMARY)
    if not summary["steps"]:
        raise RecipeError(
            [
                "--corpus: the network of this run has no stage 1 that could go on: its time was "
                "too short for it; train again with more --minutes and both corpora: tasklm fit …"
            ]
        )
    if work.recipe.select.engine != "local":
        raise RecipeError(["--corpus: new text is read on this machine; use select.engine = local"])
    return summary


def _write_start(folder: Path, work: Work) -> None:
    """Writes stage 1 of the run with the shipped encoder in it."""
    about = read_description(shipped_stage1(work.base.run))
    weights = load_weights(about.weights)
    shipped = load_weights(work.base.saved.weights[0])
    for name, tensor in under("encoder.", shipped).items():
        weights[f"encoder.{name}"] = tensor
    save_weights(folder / "model.safetensors", weights)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((about.folder / name).read_bytes())


def _recipe(work: Work, start: Path) -> Recipe:
    recipe = work.recipe
    method = recipe.select.stages[0]  # gradients of single passages take long
    length = int(work.base.saved.config["length"])
    vocabulary = str(work.base.model / "tokenizer.json")
    return recipe.changed(
        data={"corpus": list(work.request.corpus)},
        select={"method": method},
        tokens={"kind": "file", "file": vocabulary, "length": length},
        train={"start": str(start), "seeds": 1, "held_out": 0, "average": 0.0, "anneal": 0.0},
    )


def _run(work: Work, machine: Machine, start: Path) -> Run:
    """A run in the folder of the update whose only text is the new one."""
    recipe, tracker = _recipe(work, start), work.tracker
    cache = Artefacts(cache_folder(work.recipe, work.folder), None, tracker.say, tracker.warn)
    return Run(recipe, work.artefacts, cache, machine, tracker, work.clock, inputs=work.inputs)


def _context(work: Work, machine: Machine, tokens: Tokenised) -> TrainingContext:
    saved, grounds = work.base.saved, work.grounds
    length, task = int(saved.config["length"]), grounds.task

    def encoded(examples: Any) -> EncodedExamples:
        return EncodedExamples.of(task, examples, saved.vocabulary, length)

    return TrainingContext(
        saved.encoder,
        saved.shape,
        task,
        saved.vocabulary,
        encoded(grounds.splits.train),
        encoded(grounds.splits.dev),
        tokens.external,
        length,
        machine,
    )
