"""SIGKILL in every stage, then the same command again: the end is identical to a run that was never
cut off.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np

from tasklm.models.weights import load_weights
from tests.end_to_end.conftest import options
from tests.end_to_end.forking import Commands

POINTS = [
    "decontaminated.partial",
    "selected.partial",
    "tokens.partial",
    "stage1.partial/plan.json",
    "stage1.partial/checkpoint-00000000[5-9]",
    "stage1.partial/checkpoint-00000002*",
    "stage1-2.partial/checkpoint-00000001*",
    "stage2/seed-1.partial/curve.json",
    "stage2-2/seed-1.partial/checkpoint-*",
    "predictions.partial",
    "model.partial",
]


def command(files: Path, out: Path) -> list[str]:
    few = {"evaluate__baselines": "false", "evaluate__bootstrap": "100"}
    few |= {"train__checkpoint_seconds": "0", "finetune__seeds": "1"}
    given = options(files, train__seeds="2", **few)
    words = [
        "fit",
        given.pop("data.train"),
        "--corpus",
        given.pop("data.corpus"),
        "--out",
        str(out),
    ]
    for key, value in given.items():
        words += [f"--{key}", value]
    return words


def kill_at(commands: Commands, words: list[str], folder: Path, pattern: str, delay: float) -> bool:
    """Starts the command, kills it a moment after something matching the pattern appears; says
    whether it was in time.
    """
    command = commands.start(words)
    while not command.ended() and not any(folder.glob(pattern)):
        time.sleep(0.002)
    time.sleep(delay)
    alive = not command.ended()
    command.kill()
    return alive


def test_killed_in_every_stage_ends_in_identical_weights(
    files: Path, tmp_path: Path, commands: Commands
) -> None:
    straight, cut = tmp_path / "straight" / "run", tmp_path / "cut" / "run"
    draw = random.Random(7)
    commands.run(command(files, straight))
    killed = [
        kill_at(commands, command(files, cut), cut, pattern, draw.uniform(0, 0.05))
        for pattern in POINTS
    ]
    assert sum(killed) >= 6, "the kills came too late to test anything"
    commands.run(command(files, cut))
    weights = [f"{stage}/model.safetensors" for stage in ("stage1", "stage1-2", "model")]
    for name in (
        *weights,
        *(f"{stage}/seed-1/best.safetensors" for stage in ("stage2", "stage2-2")),
    ):
        first, second = load_weights(straight / name), load_weights(cut / name)
        assert first.keys() == second.keys()
        for key in first:
            assert np.array_equal(first[key].numpy(), second[key].numpy()), f"{name}: {key}"
    for answers in ("dev-1", "dev-2", "test-1", "test-2"):
        assert (straight / f"predictions/{answers}.json").read_text() == (
            cut / f"predictions/{answers}.json"
        ).read_text()
    assert not list(cut.rglob("*.partial"))
