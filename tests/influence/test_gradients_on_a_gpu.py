"""Influence on a GPU: in bf16, by the modules that are watched and not by the kernels that pass
them by.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tasklm.device.machine import Machine
from tasklm.influence.scores import Influence, Pieces
from tasklm.recipe.data_sections import Select
from tasklm.tokens.tokenizer import Vocabulary
from tests.influence.test_gradients import (
    LENGTH,
    MACHINE,
    examples_of,
    in_order,
    joint,
    shards_of,
    texts_of,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 0.01), (True, 0.05)])
def test_scores_of_a_gpu_are_near_those_of_a_cpu(
    kind: str, bf16: bool, tolerance: float, vocabulary: Vocabulary
) -> None:
    texts, examples = texts_of(11), examples_of(7, vocabulary)
    found = []
    for machine in (MACHINE, Machine(torch.device("cuda"), bf16, 1)):
        pieces = Pieces(shards_of(texts, vocabulary), vocabulary, LENGTH, 1, 200)
        settings = dataclasses.replace(Select(), influence_layers="1,3", influence_draws=2)
        found.append(
            in_order(Influence(joint(kind, vocabulary), pieces, examples, settings, 0, machine))
        )
    # all scores together: in bf16 a single one may be off by more
    assert np.linalg.norm(found[1] - found[0]) < tolerance * np.linalg.norm(found[0])
