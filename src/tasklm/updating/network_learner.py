"""Updates of a model with a network: its linear part, its stage 2, answers, model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasklm.device.machine import Machine, set_up
from tasklm.models.answering import encoded_with
from tasklm.models.task_model import (
    ModelDescription,
    TaskModel,
    kept_of,
    load_model,
    new_encoder,
    save_models,
)
from tasklm.models.weights import load_weights
from tasklm.run_folder import RECIPE, SUMMARY, UPDATE
from tasklm.storage.checksums import load_array
from tasklm.storage.files import digest, file_digest, read_json, write_json
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.baselines.counted import Counted
from tasklm.tasks.baselines.fitted_files import OUTPUTS, kept_outputs, save_fitted
from tasklm.tasks.baselines.refitting import Grown, cross_fitted, refitted
from tasklm.tasks.baselines.wide import FOLDER, Wide
from tasklm.tasks.baselines.wide_parts import AnyWide, read_wide
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.context import TrainingContext
from tasklm.train.stage_runs import BEST
from tasklm.updating.before_after import AFTER, BEFORE, SPLITS, Answers
from tasklm.updating.linear_learner import ANSWERS, MODEL, TUNED, kept_answers
from tasklm.updating.linear_part import REFIT, fitted_before
from tasklm.updating.network_part import Learning, go_on
from tasklm.updating.replay import mixture
from tasklm.updating.text_part import encoder_of, read_text
from tasklm.updating.work import Learned, Work

NETWORK = "network"  # the artefact of the training


class NetworkLearner:
    """Stage 2 goes on from the shipped weights."""

    def learn(self, work: Work) -> Learned:
        """Builds refit, network, answers and model."""
        machine = set_up(work.recipe.hardware)
        text = read_text(work, machine) if work.request.corpus else None
        folder, wide, outputs = _linear_part(work)
        chosen, earlier = mixture(work.grounds.task, work.grounds.splits.train, work.grounds.fresh)
        context = _context(work, machine, wide, outputs, chosen)
        settings, seconds = work.recipe.finetune, work.recipe.train.checkpoint_seconds
        encoder = {} if text is None else encoder_of(text)
        metric = work.grounds.metric
        learning = Learning(work.base, context, settings, metric, seconds, encoder)

        def train(part: Path) -> None:
            go_on(part, learning, work.tracker)

        before = [one for one in (folder, text) if one is not None]
        key = digest([NETWORK, work.data])
        network = work.artefacts.build(NETWORK, key, train, uses=before)

        def answer(part: Path) -> None:
            with work.tracker.progress("answering dev and test"):
                _answer(part, work, context, network)

        key = digest([ANSWERS, work.data])
        answers = work.artefacts.build(ANSWERS, key, answer, uses=[network])

        def save(part: Path) -> None:
            _save(part, work, context, network, answers)

        model = work.artefacts.build(MODEL, digest([MODEL, work.data]), save, uses=[answers])
        return Learned(model, answers, _costs(work, context, network, earlier))


def _costs(work: Work, context: TrainingContext, network: Path, earlier: int) -> dict[str, Any]:
    """How much was read: every pass has the same mixture."""
    steps, epoch = (
        int(read_json(network / name)[key])
        for name, key in ((SUMMARY, "steps"), ("plan.json", "epoch"))
    )
    if steps < epoch:
        work.note(
            f"{steps:,} steps are less than a pass over the examples ({epoch:,}): the first run "
            "was too short for its twentieth to teach a network much; to train on everything: "
            f"tasklm run {work.folder / RECIPE} --out …"
        )
    read = round(len(context.train.examples) * steps / max(1, epoch))
    share = earlier / max(1, len(context.train.examples))
    replayed = round(read * share)
    return {"steps": steps, "replayed": replayed, "new_read": read - replayed}


def _linear_part(work: Work) -> tuple[Path | None, Wide | None, NDArray[np.float32] | None]:
    """The linear model of words beside the network, fitted again, with its outputs on train by
    models without them.
    """
    before = work.base.wide
    if before is None:
        return None, None, None

    def fit(folder: Path) -> None:
        with work.tracker.progress("fitting the linear model again"):
            fitted = _fitted_again(work, before)
            save_fitted(folder, *fitted, work.grounds.splits.train)

    folder = work.artefacts.build(REFIT, digest([REFIT, "out of fold", work.data]), fit)
    wide = read_wide(folder)
    assert isinstance(wide, Wide)
    return folder, wide, load_array(folder / OUTPUTS, np.float32, dimensions=2)


def _fitted_again(work: Work, before: Wide) -> tuple[AnyWide, NDArray[np.float32]]:
    """The linear model fitted to all examples, and what models that were fitted without them say of
    those: the model before of the new ones; the earlier ones have theirs from their own first fit.
    """
    base, grounds = work.base, work.grounds
    train = grounds.splits.train
    counted = Counted.load(fitted_before(base))
    grown = Grown(base.task, grounds.task, train, grounds.fresh, counted)
    earlier = None
    if not grounds.new_classes and _is_same(fitted_before(base), base.model / FOLDER):
        earlier = kept_outputs(fitted_before(base), train)
    if earlier is not None:
        rest = [place for place, own in enumerate(earlier) if own is None]
        again = refitted(before, grown) if grounds.fresh[rest].all() else None
        if again is not None:
            own = [train[place] for place in rest]
            rows = dict(zip(rest, before.rows_of(own, before.outputs(own)), strict=True))
            return again, np.concatenate(
                [rows[place] if one is None else one for place, one in enumerate(earlier)]
            )
    fitted = cross_fitted(before, grown, grounds.splits.dev, grounds.metric)
    return fitted.wide, fitted.train


def _is_same(folder: Path, other: Path) -> bool:
    """Whether two folders have the same linear model; one may have been put there by hand."""
    names = [one / "weights.safetensors" for one in (folder, other)]
    return names[0].is_file() and file_digest(names[0]) == file_digest(names[1])


def _context(
    work: Work,
    machine: Machine,
    wide: Wide | None,
    outputs: NDArray[np.float32] | None,
    chosen: NDArray[np.int64],
) -> TrainingContext:
    saved, grounds = work.base.saved, work.grounds
    length, train = int(saved.config["length"]), grounds.splits.train
    own = None
    if wide is not None and outputs is not None:
        rows = wide.rows_of(train, outputs)
        own = np.concatenate([rows[place] for place in chosen.tolist()])
    some = [train[place] for place in chosen.tolist()]
    return TrainingContext(
        saved.encoder,
        saved.shape,
        grounds.task,
        saved.vocabulary,
        EncodedExamples.of(grounds.task, some, saved.vocabulary, length, own),
        encoded_with(wide, grounds.task, grounds.splits.dev, saved.vocabulary, length),
        None,
        length,
        machine,
        wide,
    )


def _model(context: TrainingContext, network: Path) -> TaskModel:
    """The best weights of an update."""
    encoder = new_encoder(context.encoder, context.shape, context.vocabulary)
    head = context.task.head(context.shape.width, 0.0, encoder.normed_heads)
    model = TaskModel(encoder, head, context.wide is not None)
    model.load_state_dict(load_weights(network / BEST))
    return model.to(context.machine.device)


def _answer(folder: Path, work: Work, context: TrainingContext, network: Path) -> None:
    """Writes what both models answer on dev and test, and the dev score."""
    model, grounds, task = _model(context, network), work.grounds, context.task
    encoded = {
        split: context.dev if split == "dev" else context.encoded(grounds.splits.test)
        for split in SPLITS
        if grounds.splits.named().get(split)
    }
    outputs = {
        split: kept_of([model], task, part, context.machine, finite=True)
        for split, part in encoded.items()
    }
    dev = encoded["dev"]
    tuned = task.tuned(dev.examples, dev.units, outputs["dev"])
    write_json(folder / TUNED, tuned.to_dict())
    for split, part in encoded.items():
        after = tuned.answers(part.examples, part.units, outputs[split])
        write_json(folder / f"{AFTER}-{split}.json", after, synced=False)
        before = _before(work, split, part.examples, context.machine)
        write_json(folder / f"{BEFORE}-{split}.json", before, synced=False)
    write_json(folder / "dev.json", {"dev": Answers(folder, grounds).score(AFTER, "dev")})


def _before(work: Work, split: str, examples: Sequence[Example], machine: Machine) -> list[Answer]:
    """What the model before answers; read where the run has it already."""
    earlier = kept_answers(work, split, examples)
    rest = [replace(one, label=None) for one in examples[len(earlier) :]]
    if not rest:
        return earlier
    loaded = load_model(work.base.model, machine.device)
    encoded = loaded.encoded(rest)
    outputs = kept_of(loaded.models, loaded.task, encoded, machine, finite=True)
    return [*earlier, *loaded.task.answers(encoded.examples, encoded.units, outputs)]


def _save(folder: Path, work: Work, context: TrainingContext, network: Path, answers: Path) -> None:
    """Writes the model folder."""
    task: Task = type(context.task).from_dict(read_json(answers / TUNED))
    about = {**work.base.saved.config["about"], UPDATE: work.number}
    about["dev"] = read_json(answers / "dev.json")["dev"]
    description = ModelDescription(
        context.encoder, context.shape, task, context.vocabulary, context.length
    )
    with torch.inference_mode():
        save_models(folder, description, [_model(context, network)], about, context.wide)
