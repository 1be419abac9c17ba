"""What tests of ways to train share: a training that is cut off, and a recipe that is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tasklm.errors import RecipeError
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import Tracker
from tasklm.train.stage1 import JointStage
from tests.end_to_end.kind_data import CASES
from tests.end_to_end.test_kinds import SPLITS, settings_of
from tests.train.test_resumed import cut_off


def assert_a_cut_changes_nothing(
    train: Callable[[Path], object], folder: Path, patch: pytest.MonkeyPatch, step: int
) -> None:
    """Trains stage 1 in one go (straight), and another time (cut) with an end before a step."""
    train(folder / "straight")
    with patch.context() as patched, pytest.raises(KeyboardInterrupt):
        cut_off(patched, JointStage, step)
        train(folder / "cut")
    train(folder / "cut")
    for name in ("model.safetensors", "curve.json"):
        assert (folder / "cut" / name).read_bytes() == (folder / "straight" / name).read_bytes()


def assert_refused(folder: Path, kind: str, changes: dict[str, str], reason: str) -> None:
    """A recipe with these values, for examples of a kind, is refused before any work."""
    case = next(case for case in CASES if case.kind == kind)
    for name, count, seed in SPLITS:
        case.write(folder / f"{name}{case.suffix}", case.rows(count, seed))
    settings = {**settings_of(case, folder), **changes}
    settings.pop("data.corpus")
    with pytest.raises(RecipeError, match=reason):
        fit(load(None, settings), folder / "run", Tracker())
