"""Several processes under torchrun train what one process trains, and a dead one ends the job in a
way that can be continued.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tasklm.bill.record import read_bill
from tasklm.models.weights import load_weights
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT
from tasklm.train.held_out import HELD_OUT
from tests.end_to_end.conftest import options
from tests.end_to_end.forking import Commands


def quick(files: Path, **changes: str) -> dict[str, str]:
    few = {"train__steps": "12", "finetune__seeds": "1", "finetune__epochs": "2"}
    return options(files, **few, train__held_out="4", **changes)


def arguments(files: Path, out: Path, **changes: str) -> list[str]:
    given = quick(files, **changes)
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


def several(count: int) -> list[str]:
    """The beginning of a command that starts so many processes, which speak to one another on this
    machine alone.
    """
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr",
        "127.0.0.1",
        "--nproc-per-node",
        str(count),
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, check=False, capture_output=True, text=True, env=environment(), timeout=300
    )


def losses(folder: Path) -> list[tuple[int, dict[str, float]]]:
    points = json.loads((folder / "curve.json").read_text())
    return [
        (
            point["step"],
            {name: value for name, value in point.items() if name not in ("step", "rate")},
        )
        for point in points
    ]


def same_training(first: Path, second: Path) -> None:
    """Losses and weights of stage 1 agree but for the order of sums, which differs between kinds of
    CPU; other weights at the start, or other text, move losses by a hundred times as much.
    """
    for (step, ours), (other_step, theirs) in zip(
        losses(first / "stage1"), losses(second / "stage1"), strict=True
    ):
        assert step == other_step and ours.keys() == theirs.keys()
        assert all(ours[name] == pytest.approx(theirs[name], abs=1e-3) for name in ours), (
            step,
            ours,
            theirs,
        )
    weights = load_weights(first / "stage1/model.safetensors")
    other = load_weights(second / "stage1/model.safetensors")
    for name, weight in weights.items():
        torch.testing.assert_close(other[name], weight, atol=1e-3, rtol=1e-2, msg=name)


@pytest.fixture(scope="module")
def alone(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    fit(load(None, quick(files)), folder, SILENT)
    return folder


def test_two_processes_train_what_one_trains(files: Path, alone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "two" / "run"
    done = run([*several(2), "-m", "tasklm", *arguments(files, folder)])
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "manifest.json").read_text())["processes"] == 2
    same_training(alone, folder)
    assert [name for _, names in losses(folder / "stage1") for name in names].count(HELD_OUT) == 12
    assert (
        done.stdout.count("report:") == 1 and (folder / "report.html").exists()
    )  # one of them speaks and writes
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert (
        len(
            [
                event
                for event in events
                if event["event"] == "message" and event["text"].startswith("selected")
            ]
        )
        == 1
    )
    bills = [read_bill(place) for place in (alone, folder)]
    assert bills[0].corpus == bills[1].corpus and bills[0].labelled == bills[1].labelled
    assert [bill.network["training_processes"] for bill in bills] == [1, 2]
    ours, theirs = (json.loads((place / "scores.json").read_text()) for place in (alone, folder))
    assert [row["name"] for row in ours["rows"]] == [row["name"] for row in theirs["rows"]]


def test_a_process_that_dies_ends_the_job_and_another_number_continues(
    files: Path, alone: Path, tmp_path: Path, commands: Commands
) -> None:
    folder = tmp_path / "cut" / "run"
    words = arguments(files, folder, train__checkpoint_seconds="0")
    done = run([*several(2), str(Path(__file__).parent / "dying_process.py"), *words])
    assert done.returncode != 0
    assert "rank 1 gives up" in done.stderr
    assert list(folder.glob("stage1.partial/checkpoint-*")), done.stderr
    commands.run(["train", str(folder)], processes=3)
    same_training(alone, folder)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    steps = [
        event["step"]
        for event in events
        if event["event"] == "step" and event["stage"] == "stage 1"
    ]
    assert steps.count(1) == 1 and steps[-1] == 12  # continued, not begun anew
