"""Calibration against scipy's minimiser and counts by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from tasklm.evaluate.calibration import (
    COLDEST,
    HOTTEST,
    best_temperature,
    calibration,
    reliability,
    scaled,
)


def drawn(
    true_temperature: float, examples: int = 400, classes: int = 4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns probabilities of a model that is right as often as its logits
    over a temperature say.
    """
    draw = np.random.default_rng(seed)
    logits = draw.normal(0, 2, (examples, classes))
    right = np.array(
        [draw.choice(classes, p=row) for row in softmax(logits / true_temperature, axis=1)]
    )
    return softmax(logits, axis=1), right


@pytest.mark.parametrize("true_temperature", [0.4, 1.0, 3.0])
def test_the_temperature_is_the_one_that_scipy_finds(true_temperature: float) -> None:
    probabilities, right = drawn(true_temperature)

    def loss(log_temperature: float) -> float:
        return float(
            -log_softmax(np.log(probabilities) / np.exp(log_temperature), axis=1)[
                np.arange(len(right)), right
            ].sum()
        )

    found = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    temperature = best_temperature(probabilities, right)
    assert temperature == pytest.approx(np.exp(found.x), rel=1e-5)
    assert loss(float(np.log(temperature))) <= found.fun + 1e-9
    assert temperature == pytest.approx(true_temperature, rel=0.3)  # it mends what was put in


def test_where_no_temperature_is_best_the_ends_are_given() -> None:
    sure = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert best_temperature(sure, np.array([0, 1])) == COLDEST  # no mistake: the colder the better
    assert best_temperature(sure, np.array([1, 0])) == HOTTEST  # nothing but mistakes


def test_scaling_is_the_softmax_of_logits_over_the_temperature() -> None:
    logits = np.random.default_rng(1).normal(0, 3, (50, 3))
    np.testing.assert_allclose(
        scaled(softmax(logits, axis=1), 2.5), softmax(logits / 2.5, axis=1), rtol=1e-12
    )


def test_bins_and_errors_by_hand() -> None:
    probabilities = np.array([[0.95, 0.05], [0.91, 0.09], [0.3, 0.7], [0.65, 0.35], [0.4, 0.6]])
    right = np.array([0, 1, 1, 1, 1])
    found = reliability(probabilities, right)
    # 0.6 is the end of its bin; 0.65 and 0.7 share (0.6, 0.7]; 0.91 and 0.95 share (0.9, 1]
    wanted = [(0.6, 1.0, 1), (0.675, 0.5, 2), (0.93, 0.5, 2)]
    assert [one["count"] for one in found["bins"]] == [1, 2, 2]
    np.testing.assert_allclose(
        [(one["confidence"], one["accuracy"], one["count"]) for one in found["bins"]], wanted
    )
    assert found["ece"] == pytest.approx((0.4 * 1 + 0.175 * 2 + 0.43 * 2) / 5)
    assert found["nll"] == pytest.approx(-np.log([0.95, 0.09, 0.7, 0.35, 0.6]).mean())


def answers_of(rows: np.ndarray) -> list[dict[str, object]]:
    return [
        {
            "label": "ab"[int(row.argmax())],
            "probabilities": {"a": float(row[0]), "b": float(row[1])},
        }
        for row in rows
    ]


def test_the_temperature_is_of_dev_and_the_pictures_are_of_test() -> None:
    (dev, dev_right), (test, test_right) = drawn(3.0, classes=2), drawn(3.0, classes=2, seed=1)
    gold = {
        "dev": ["ab"[number] for number in dev_right],
        "test": ["ab"[number] for number in test_right],
    }
    found = calibration(["a", "b"], gold, {"dev": answers_of(dev), "test": answers_of(test)})
    assert found["split"] == "test" and found["temperature"] == pytest.approx(
        best_temperature(dev, dev_right)
    )
    assert found["before"] == reliability(test / test.sum(1, keepdims=True), test_right)
    assert (
        found["after"]["nll"] < found["before"]["nll"]
        and found["after"]["ece"] < found["before"]["ece"]
    )
    alone = calibration(["a", "b"], gold, {"dev": answers_of(dev)})
    assert alone["split"] == "dev" and alone["before"]["nll"] == pytest.approx(
        reliability(dev, dev_right)["nll"]
    )


def test_a_probability_written_as_zero_is_no_infinite_loss() -> None:
    found = reliability(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0]))
    assert 40 < found["nll"] < 45  # (87.3 + 0.7) / 2
    assert (
        COLDEST < best_temperature(np.array([[1.0, 0.0]] * 10), np.array([0] * 9 + [1])) < HOTTEST
    )
