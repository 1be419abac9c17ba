"""Runs that start from a published checkpoint: the recipes for it, on tiny checkpoints and little
data.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from tasklm.bill.record import read_bill
from tasklm.encoders.checkpoints.folder import read_checkpoint
from tasklm.errors import RecipeError
from tasklm.evaluate.scores import Scores
from tasklm.models.weights import load_weights
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tracking import SILENT
from tests.checkpoints import write_checkpoint
from tests.end_to_end.conftest import options

transformers = pytest.importorskip("transformers")
RECIPES = Path(__file__).parents[2] / "recipes"
DECIDED = (
    "model.",
    "tokens.vocabulary",
    "train.",
    "finetune.",
    "data.corpus",
)  # by the checkpoint, by the recipe or by the test
SMALL = {
    "train.batch": "16",
    "finetune.epochs": "1",
    "finetune.seeds": "1",
    "evaluate.baselines": "false",
    "evaluate.bootstrap": "100",
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of each family."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in ("bert", "roberta", "electra", "modernbert"):
        write_checkpoint(folder / name, name, transformers, spread=0.05)
    return folder


def run(recipe: str, files: Path, start: Path | str, out: Path, **changes: str) -> Scores | None:
    """Runs a recipe of the repository with the sizes of a test."""
    usual = {key: value for key, value in options(files).items() if not key.startswith(DECIDED)}
    given = {
        **usual,
        **SMALL,
        "train.start": str(start),
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    return fit(load(RECIPES / f"{recipe}.toml", given), out, SILENT)


def encoder_of(run: Path) -> dict[str, Tensor]:
    weights = load_weights(run / "stage1" / "model.safetensors")
    return {
        name.removeprefix("encoder."): value
        for name, value in weights.items()
        if name.startswith("encoder.")
    }


def moved(run: Path, start: dict[str, Tensor]) -> set[str]:
    """The encoder's weights that are not those it started from; rows that were filled up are left
    out.
    """
    return {
        name
        for name, value in encoder_of(run).items()
        if not torch.equal(value[: len(start[name])], start[name])
    }


def losses(run: Path) -> set[str]:
    points = json.loads((run / "stage1" / "curve.json").read_text(encoding="utf-8"))
    return {name for point in points for name in point} - {"step", "rate"}


def test_plm_fine_tunes_what_the_checkpoint_holds(
    files: Path, checkpoints: Path, tmp_path: Path
) -> None:
    scores = run("plm", files, checkpoints / "roberta", tmp_path / "run", finetune__wide="false")
    assert scores is not None and scores.ours is not None and scores.ours.test is not None
    assert scores.ours.name == "task data only, from roberta"
    assert moved(tmp_path / "run", read_checkpoint(checkpoints / "roberta").weights()[0]) == set()
    tuned = load_weights(tmp_path / "run" / "stage2" / "seed-1" / "best.safetensors")
    assert not torch.equal(
        tuned["encoder.token.weight"], encoder_of(tmp_path / "run")["token.weight"]
    )
    assert (
        json.loads(
            (tmp_path / "run" / "stage2" / "seed-1" / "summary.json").read_text(encoding="utf-8")
        )["learning_rate"]
        == 2e-5
    )
    start = read_bill(tmp_path / "run").start
    assert start is not None and start["published"] and start["bill"] is None
    assert Predictor(tmp_path / "run" / "model").answers(["the cat hears music number 7 ."])[0][
        "label"
    ] in ("yes", "no")


def test_dapt_and_then_tapt(files: Path, checkpoints: Path, tmp_path: Path) -> None:
    few = {"train__steps": "8", "select__k": "20", "data__corpus": str(files / "corpus.jsonl")}
    run("dapt", files, checkpoints / "bert", tmp_path / "dapt", **few)
    points = json.loads((tmp_path / "dapt" / "stage1" / "curve.json").read_text(encoding="utf-8"))
    assert [("lm" in point, "task" in point) for point in points] == [
        (False, True),
        *[(True, False)] * 7,
    ]
    first, rates = encoder_of(tmp_path / "dapt"), {point["rate"] for point in points}
    assert (
        "token.weight"
        in moved(tmp_path / "dapt", read_checkpoint(checkpoints / "bert").weights()[0])
        and max(rates) <= 1e-4
    )
    scores = run("tapt", files, tmp_path / "dapt", tmp_path / "both", train__steps="4")
    assert scores is not None and losses(tmp_path / "both") == {"task", "lm on task"}
    assert "token.weight" in moved(tmp_path / "both", first)
    apart = max(
        float((value - first[name]).abs().max())
        for name, value in encoder_of(tmp_path / "both").items()
    )
    assert apart < 4 * 2e-4  # four steps of Adam at 1e-4 from there


def test_iss_dapt_scores_by_a_model_from_the_same_checkpoint(
    files: Path, checkpoints: Path, tmp_path: Path
) -> None:
    few = {
        "train__steps": "2",
        "select__k": "20",
        "select__influence_steps": "2",
        "data__corpus": str(files / "corpus.jsonl"),
    }
    scores = run("iss-dapt", files, checkpoints / "bert", tmp_path / "run", **few)
    assert scores is not None and scores.ours is not None
    found = {
        name: pq.read_metadata(tmp_path / "run" / name / "selected.parquet").num_rows
        for name in ("candidates", "selected")
    }
    assert found["selected"] == round(0.2 * found["candidates"]) > 0
    start = read_checkpoint(checkpoints / "bert").weights()[0]["token.weight"]
    scored_by = load_weights(tmp_path / "run" / "scoring-model" / "model.safetensors")[
        "encoder.token.weight"
    ]
    assert (
        0 < float((scored_by[: len(start)] - start).abs().max()) < 2 * 3e-4
    )  # two steps of Adam at 1e-4 from there


def test_plm_and_mlm_train_jointly(files: Path, checkpoints: Path, tmp_path: Path) -> None:
    assert (
        run("plm+mlm", files, checkpoints / "modernbert", tmp_path / "run", train__steps="6")
        is not None
    )
    assert losses(tmp_path / "run") == {"task", "lm on task"}
    assert "token.weight" in moved(
        tmp_path / "run", read_checkpoint(checkpoints / "modernbert").weights()[0]
    )


def test_a_name_of_the_hub_is_recorded_as_the_folder(
    files: Path, checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "hub" / "models--someone--tiny" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(checkpoints / "electra", target_is_directory=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    run("plm", files, "someone/tiny", tmp_path / "run")
    assert moved(tmp_path / "run", read_checkpoint(checkpoints / "electra").weights()[0]) == set()
    monkeypatch.delenv("HF_HUB_CACHE")
    recorded = load(tmp_path / "run" / "recipe.toml")
    assert (
        Path(recorded.train.start) == (checkpoints / "electra").resolve()
        and recorded.model.embedding == 16
    )
    assert fit(recorded, tmp_path / "run", SILENT) is not None


def test_what_a_checkpoint_cannot_do_is_told_before_anything_is_done(
    files: Path, checkpoints: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        RecipeError, match=r"tokens\.length = 300: the encoder of train\.start has 160 positions"
    ):
        run("plm", files, checkpoints / "roberta", tmp_path / "run", tokens__length="300")
    with pytest.raises(
        RecipeError, match=r"model\.width|width 64, but the encoder of train\.start has width 32"
    ):
        run("plm", files, checkpoints / "roberta", tmp_path / "run", model__width="64")
    assert not (tmp_path / "run" / "tokens").exists()


@pytest.mark.parametrize("recipe", ["plm", "plm+mlm", "tapt", "dapt"])
def test_recipes_set_rates_for_weights_that_are_trained_already(recipe: str) -> None:
    """The automatic rates are for random weights."""
    found = load(RECIPES / f"{recipe}.toml")
    assert found.finetune.learning_rate == 2e-5 and (recipe != "tapt" or found.train.rho1 == 0)
    assert (
        recipe not in ("tapt", "dapt") or 1.0 / (1.0 + found.train.rho2) < 1e-5
    )  # what the labels weigh in stage 1
    assert found.train.steps == 0 or (
        found.train.learning_rate is not None and found.train.learning_rate <= 1e-4
    )
