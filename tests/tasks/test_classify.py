"""Classes: probabilities from the outputs of a head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example


@pytest.mark.parametrize("number", [np.float32, np.float64])
def test_probabilities_are_the_softmax_of_the_outputs(number: Any) -> None:
    draw = np.random.default_rng(0)
    outputs = draw.normal(0, 5, (20, 3)).astype(number)
    outputs[0], outputs[1] = (1e4, -1e4, 0), (-1e30, -1e30, -1e30)  # exp alone would overflow
    examples = [Example(("a",), None)] * 20
    answers = Classify(["x", "y", "z"]).answers(examples, [], list(outputs))
    expected = softmax(outputs.astype(np.float64), axis=-1)
    given = np.array([list(answer["probabilities"].values()) for answer in answers])
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-12)
    assert [answer["label"] for answer in answers] == ["xyz"[best] for best in expected.argmax(1)]
    assert Classify(["x", "y"]).answers([], [], []) == []
