"""Power laws: parity with SciPy and by hand, curves that share a slope, and points that fall."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit

from tasklm.forecasting.power_law import USUAL, fit_power_law

SIZES = np.array([0.1, 0.2, 0.4, 0.8, 1.0])
ONE = np.zeros(5, np.int64)


def law(size: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
    return a - b * size**-c


@pytest.mark.parametrize(("a", "b", "c"), [(0.9, 0.1, 0.5), (0.75, 0.02, 1.1), (1.1, 0.4, 0.15)])
def test_noiseless_points_give_what_scipy_finds(a: float, b: float, c: float) -> None:
    scores = law(SIZES, a, b, c)
    ours = fit_power_law(SIZES, ONE, scores, noise=1e-6)
    theirs, _ = curve_fit(law, SIZES, scores, p0=(a, b, 0.5), sigma=1 / SIZES, maxfev=10_000)
    np.testing.assert_allclose(theirs, [a, b, c], rtol=1e-3)
    assert abs(float(ours.exponent) / c - 1) < 0.01  # exponents are one hundredth apart
    for size in (1.0, 2.0):
        assert float(ours.at(size)[0]) == pytest.approx(
            float(law(np.array(size), *theirs)), abs=2e-4
        )


def test_noisy_points_with_the_usual_exponent_are_plain_least_squares() -> None:
    scores = law(SIZES, 0.8, 0.05, USUAL) + np.array([0.01, -0.01, 0.005, 0.0, -0.005])
    ours = fit_power_law(SIZES, ONE, scores, noise=10.0)  # so much noise that the exponent stays
    assert float(ours.exponent) == pytest.approx(USUAL, rel=0.01)
    design = np.stack([np.ones(5), -(SIZES ** -float(ours.exponent))], axis=1) * SIZES[:, None]
    by_hand = np.linalg.lstsq(design, scores * SIZES, rcond=None)[0]
    np.testing.assert_allclose([float(ours.levels[0]), float(ours.slope)], by_hand, rtol=1e-9)


def test_curves_share_what_labels_bring_and_have_their_own_level() -> None:
    sizes, curves = np.tile(SIZES, 2), np.repeat([0, 1], 5)
    scores = np.concatenate([law(SIZES, 0.9, 0.1, 0.4), law(SIZES, 0.7, 0.1, 0.4)])
    ours = fit_power_law(sizes, curves, scores, noise=1e-6)
    np.testing.assert_allclose(ours.levels, [0.9, 0.7], atol=3e-3)
    np.testing.assert_allclose(ours.at(1.0), [0.8, 0.6], atol=1e-4)
    assert float(ours.gain(1.0, 2.0)) == pytest.approx(0.1 * (1 - 2**-0.4), abs=3e-4)


def test_a_curve_that_falls_is_level() -> None:
    ours = fit_power_law(SIZES, ONE, np.array([0.9, 0.85, 0.8, 0.75, 0.7]))
    assert float(ours.slope) == 0.0 and float(ours.gain(1.0, 2.0)) == 0.0
    assert float(ours.at(2.0)[0]) == pytest.approx(
        float(np.average([0.9, 0.85, 0.8, 0.75, 0.7], weights=SIZES**2))
    )


def test_replicates_are_fitted_as_one_by_one() -> None:
    rows = np.stack([law(SIZES, 0.9, 0.1, 0.4), law(SIZES, 0.6, 0.03, 0.9)])
    both = fit_power_law(SIZES, ONE, rows)
    for number, row in enumerate(rows):
        alone = fit_power_law(SIZES, ONE, row)
        assert float(both.at(2.0)[number, 0]) == pytest.approx(float(alone.at(2.0)[0]))
