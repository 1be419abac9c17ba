"""Where the trainings of a run lie, and which of its models is the best."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasklm.errors import RunError
from tasklm.run_folder import (
    Seed,
    best_seed,
    is_stage1,
    seed_title,
    seeds_of,
    shipped_stage1,
    trainings_of,
)
from tasklm.storage.files import write_json


def scored(run: Path, dev: list[float], trainings: int) -> list[Seed]:
    seeds = seeds_of(run, trainings, len(dev) // trainings)
    for seed, score in zip(seeds, dev, strict=True):
        write_json(seed.folder / "summary.json", {"dev": score})
    return seeds


def test_the_first_training_lies_where_the_only_one_does() -> None:
    seeds = seeds_of(Path("run"), 3, 2)
    assert [str(seed.training) for seed in seeds[::2]] == [
        "run/stage1",
        "run/stage1-2",
        "run/stage1-3",
    ]
    folders = [
        "stage2/seed-1",
        "stage2/seed-2",
        "stage2-2/seed-1",
        "stage2-2/seed-2",
        "stage2-3/seed-1",
        "stage2-3/seed-2",
    ]
    assert [str(seed.folder.relative_to("run")) for seed in seeds] == folders
    assert trainings_of(seeds) == 3 and trainings_of(seeds_of(Path("run"), 1, 3)) == 1
    assert [is_stage1(Path(name)) for name in ("x/stage1", "x/stage1-2", "x/stage1-10")] == [
        True
    ] * 3
    assert not any(
        is_stage1(Path(name))
        for name in ("stage1-1", "stage1-02", "stage1.partial", "stage2", "my-stage1")
    )


def test_the_best_seed_is_the_first_with_the_highest_score_on_dev(tmp_path: Path) -> None:
    seeds = scored(tmp_path, [0.5, 0.7, 0.6, 0.8, 0.8, 0.1], 3)
    assert best_seed(seeds) == Seed(tmp_path, 2, 2)
    assert (seed_title(seeds[3], seeds), seed_title(seeds[1], seeds[:2])) == ("seed 2.2", "seed 2")


def test_the_shipped_model_says_of_which_training_it_is(tmp_path: Path) -> None:
    for name in ("stage1", "stage1-2"):
        (tmp_path / name).mkdir()
    assert shipped_stage1(tmp_path) == tmp_path / "stage1"  # there is no model yet
    config = tmp_path / "model" / "config.json"
    write_json(config, {"about": {"seed": 3}})  # of a version that had one training
    assert shipped_stage1(tmp_path) == tmp_path / "stage1"
    write_json(config, {"about": {"stage1": 2, "seed": 1}})
    assert shipped_stage1(tmp_path) == tmp_path / "stage1-2"
    write_json(config, {"about": {"stage1": 3, "seed": 1}})
    with pytest.raises(
        RunError,
        match=r"lacks stage1-3, which its model was built from\. Train it again: tasklm train",
    ):
        shipped_stage1(tmp_path)
    write_json(config, {"about": {"stage1": "two"}})
    with pytest.raises(RunError, match=r"config\.json is damaged: about\.stage1 is 'two'"):
        shipped_stage1(tmp_path)
