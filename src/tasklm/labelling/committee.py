"""The seeds of a run, which answer together; of other models, the one there is."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from tasklm.evaluate.scores import from_dict
from tasklm.export.onnx_model import is_export
from tasklm.models.saved_model import read_saved_model
from tasklm.run_folder import SCORES, seeds_of
from tasklm.serve.predictor import Predictor
from tasklm.storage.files import read_json

if TYPE_CHECKING:
    from tasklm.run_folder import Seed


def committee_of(run: Path, predictor: Predictor, name: str) -> list[Predictor]:
    """The shipped model as each seed trained it; that model alone where it is linear, has one
    seed, or its seeds' weights are gone.
    """
    if is_export(predictor.folder) or read_saved_model(predictor.folder).is_linear:
        return [predictor]
    scores = from_dict(read_json(run / SCORES)) if (run / SCORES).exists() else None
    if scores is None:
        return [predictor]
    seeds = seeds_of(run, scores.trainings, scores.seeds)
    if len(seeds) < 2 or not all(seed.weights.exists() for seed in seeds):
        return [predictor]
    return [_of_seed(predictor, seed, name) for seed in seeds]


def _of_seed(predictor: Predictor, seed: Seed, name: str) -> Predictor:
    from tasklm.models.networks import Networks, open_networks
    from tasklm.models.weights import load_weights

    networks = open_networks(read_saved_model(predictor.folder), predictor.hardware)
    networks.loaded.model.load_state_dict(load_weights(seed.weights))
    own = copy(predictor)
    own.answering = networks.alone(name) if name else networks
    assert isinstance(own.answering, Networks)
    return own
