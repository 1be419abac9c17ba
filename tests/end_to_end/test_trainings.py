"""Several trainings of stage 1 in one run: where they lie, what they differ by, and which of their
models is kept.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import RecipeError
from tasklm.evaluate.scores import Scores
from tasklm.influence.attribution import PassageAttribution
from tasklm.models.language_model import read_description
from tasklm.pipeline.file_check import check_files
from tasklm.pipeline.flow import fit
from tasklm.recipe.parsing import values_for_key
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.report.comparison import leader, pairs_of, read_runs
from tasklm.report.comparison_page import render_comparison
from tasklm.run_folder import best_seed, seeds_of, shipped_stage1
from tasklm.storage.files import digest, read_json
from tasklm.tasks.classify import Classify
from tasklm.tracking import SILENT
from tasklm.train.held_out import HELD_OUT
from tasklm.train.start import starting_weights, title_of
from tasklm.watch.charts import History, charts_of
from tests.end_to_end.conftest import options

SMALL = {
    "train__steps": "20",
    "finetune__epochs": "4",
    "evaluate__bootstrap": "100",
    "evaluate__baselines": "false",
}


pytestmark = pytest.mark.usefixtures("speed_is_not_measured")


def recipe_of(files: Path, **changes: str) -> Recipe:
    return load(None, options(files, **{**SMALL, **changes}))


@pytest.fixture(scope="module")
def done(files: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scores]:
    """A run of two trainings with two fine-tunings each, and the same of
    random passages beside it.
    """
    folder = tmp_path_factory.mktemp("trainings") / "run"
    scores = fit(
        recipe_of(
            files,
            train__seeds="2",
            train__held_out="4",
            evaluate__compare="random",
            evaluate__ensemble="true",
        ),
        folder,
        SILENT,
    )
    assert scores is not None
    return folder, scores


def test_the_loss_of_held_out_text_is_in_curves_scores_and_the_report(
    done: tuple[Path, Scores],
) -> None:
    folder, scores = done
    losses = []
    for name in ("stage1", "stage1-2"):
        measured = [point for point in read_json(folder / name / "curve.json") if HELD_OUT in point]
        summary = read_json(folder / name / "summary.json")["held_out"]
        assert len(measured) == 20 and summary["passages"] == 4
        assert 0 < summary["loss"] < measured[0][HELD_OUT] + 1
        losses.append(summary["loss"])
    assert losses[0] != losses[1]
    assert scores.data["held_out_text"]["loss"] == pytest.approx(sum(losses) / 2)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "held-out text · seed 2" in page and "held out text loss" in page
    history = History(folder / "events.jsonl")
    history.read()
    (losses_of_stage1,) = [
        chart
        for group in charts_of({"": history})
        if group["title"] == "stage 1"
        for chart in group["charts"]
        if chart["title"] == "loss"
    ]
    names = [line["name"] for line in losses_of_stage1["lines"]]
    assert HELD_OUT in names and f"{HELD_OUT}, training 2" in names


def test_an_objective_without_such_a_loss_says_so(files: Path, tmp_path: Path) -> None:
    recipe = recipe_of(files, train__held_out="4", train__objective="electra")
    with pytest.raises(RecipeError, match=r"train\.held_out = 4: the loss of electra depends"):
        fit(recipe, tmp_path / "run", SILENT)


def test_each_training_has_its_folders_its_seed_and_as_many_steps(
    done: tuple[Path, Scores],
) -> None:
    folder, _ = done
    for where in (folder, folder / "compare" / "random"):
        one, two = (
            load_file(where / name / "model.safetensors") for name in ("stage1", "stage1-2")
        )
        assert not all(torch.equal(one[name], two[name]) for name in one)
        assert [
            read_json(where / name / "config.json")["train"]["seed"]
            for name in ("stage1", "stage1-2")
        ] == [1, 2]
        assert {
            read_json(where / name / "summary.json")["steps"] for name in ("stage1", "stage1-2")
        } == {20}
        tuned = [
            where / f"stage2{of}" / f"seed-{seed}" / "best.safetensors"
            for of in ("", "-2")
            for seed in (1, 2)
        ]
        assert all(path.exists() for path in tuned) and not (where / "stage1-3").exists()


def test_scores_name_every_seed_and_the_best_of_all_is_kept(done: tuple[Path, Scores]) -> None:
    folder, scores = done
    stored = read_json(folder / "scores.json")
    assert (stored["trainings"], stored["seeds"]) == (2, 2)
    rows = {row["name"]: row for row in stored["rows"]}
    for row in (rows["random selection"], rows["BM25 selection (TLM)"]):
        assert [(seed["stage1"], seed["stage2"]) for seed in row["seeds"]] == [
            (1, 1),
            (1, 2),
            (2, 1),
            (2, 2),
        ]
        assert (
            len(row["test"]["stage1"]) == 2
            and row["resampled"] == "test examples and seeds of stages 1 and 2"
        )
    dev = [read_json(seed.folder / "summary.json")["dev"] for seed in seeds_of(folder, 2, 2)]
    assert [seed["dev"] for seed in rows["BM25 selection (TLM)"]["seeds"]] == pytest.approx(dev)
    best, about = (
        best_seed(seeds_of(folder, 2, 2)),
        read_json(folder / "model" / "config.json")["about"],
    )
    assert (about["stage1"], about["seed"], about["dev"]) == (best.stage1, best.stage2, max(dev))
    kept, tuned = load_file(folder / "model" / "model.safetensors"), load_file(best.weights)
    assert all(torch.equal(kept[name], tuned[name]) for name in tuned)
    assert (
        rows["ensemble of 4 seeds"]["seeds"] == []
        and read_json(folder / "ensemble" / "config.json")["models"] == 4
    )
    assert "significant" not in scores.verdict or "not significant" in scores.verdict


def test_the_report_shows_the_spread_over_trainings(done: tuple[Path, Scores]) -> None:
    page = (done[0] / "report.html").read_text(encoding="utf-8")
    assert (
        "over 4 seeds (2 of stage 1 × 2 of stage 2)" in page
        and "over 2 trainings of stage 1" in page
    )
    assert "test examples and seeds of stages 1 and 2" in page


def test_what_asks_for_the_language_model_gets_that_of_the_shipped_model(
    done: tuple[Path, Scores], tmp_path: Path
) -> None:
    folder, _ = done
    number = read_json(folder / "model" / "config.json")["about"]["stage1"]
    wanted = folder / ("stage1" if number == 1 else "stage1-2")
    assert shipped_stage1(folder) == wanted and read_description(folder).folder == wanted
    for other in (1, 2):
        config = folder / "model" / "config.json"
        before = config.read_bytes()
        values = {
            name: value
            for name, value in json.loads(before).items()
            if name not in ("crc32", "files")
        }  # changed on purpose
        values["about"]["stage1"] = other
        config.write_text(json.dumps(values), encoding="utf-8")
        try:
            weights = load_file(
                folder / ("stage1" if other == 1 else "stage1-2") / "model.safetensors"
            )
            head = PassageAttribution(
                folder, Classify(["no", "yes"]), torch.device("cpu")
            ).head.state_dict()
            assert head and all(
                torch.equal(value, weights[f"head.{name}"]) for name, value in head.items()
            )
            assert (
                starting_weights(folder).folder
                == (folder / ("stage1" if other == 1 else "stage1-2")).resolve()
            )
        finally:
            config.write_bytes(before)
    assert title_of(folder / "stage1-2") == title_of(folder / "stage1") == "run"


def test_the_advice_for_damage_of_a_later_training_makes_it_again(
    done: tuple[Path, Scores], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(done[0].parent, tmp_path / "copy")) / "run"
    verbs = {
        "stage1-2/model.safetensors": "train",
        "stage2-2/seed-2/best.safetensors": "finetune",
        "compare/random/stage1-2/model.safetensors": "evaluate",
        "compare/random/stage2-2/seed-1/best.safetensors": "evaluate",
    }
    whole = {name: (run / name).read_bytes() for name in verbs}
    for name, content in whole.items():
        (run / name).write_bytes(content[:-9] + bytes([content[-9] ^ 4]) + content[-8:])
    remedies = {damage.file: damage.remedy for damage in check_files(run).damaged}
    assert remedies == {
        str(run / name): f"Rebuild it: tasklm {verb} {run}" for name, verb in verbs.items()
    }
    output = ""
    for remedy in remedies.values():
        result = CliRunner().invoke(app, remedy.split()[3:])
        assert result.exit_code == 0, remedy
        output += "".join(result.output.split())
    for name in verbs:  # also in a comparison, which says little else
        assert f"{(run / name).parent}isdamaged;rebuildingit" in output
    assert {name: (run / name).read_bytes() for name in verbs} == whole and check_files(
        run
    ).damaged == []


def test_another_number_of_trainings_redoes_none_of_them(files: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def stamps() -> dict[str, int]:
        return {
            str(path.relative_to(run)): path.stat().st_mtime_ns
            for path in run.glob("stage*/**/*.safetensors")
        }

    fit(recipe_of(files, finetune__seeds="1"), run, SILENT, until="finetune")
    one = stamps()
    assert set(one) == {"stage1/model.safetensors", "stage2/seed-1/best.safetensors"}
    fit(recipe_of(files, finetune__seeds="1", train__seeds="2"), run, SILENT, until="finetune")
    two = stamps()
    assert one.items() < two.items() and set(two) - set(one) == {
        "stage1-2/model.safetensors",
        "stage2-2/seed-1/best.safetensors",
    }
    fit(recipe_of(files, finetune__seeds="1"), run, SILENT, until="finetune")
    assert stamps() == two


def test_the_keys_are_those_of_runs_before_there_were_several_trainings(
    done: tuple[Path, Scores], files: Path
) -> None:
    """A finished run of the version before is not trained again: the number of seeds is no part of
    any key.
    """
    folder, _ = done
    recipe = recipe_of(files, train__seeds="2", train__held_out="4")
    train = {name: value for name, value in values_for_key(recipe.train).items() if name != "seeds"}
    made_of = [values_for_key(recipe.model), train, dataclasses.asdict(recipe.budget)]
    tokens = read_json(folder / "tokens" / "artefact.json")["key"]
    stage1 = digest([tokens, "tiny", 16, "", *made_of])
    assert read_json(folder / "stage1" / "artefact.json")["key"] == stage1
    tuned = digest([stage1, 4, "macro_f1", 2, {**values_for_key(recipe.finetune), "seeds": 1}])
    assert read_json(folder / "stage2" / "seed-2" / "artefact.json")["key"] == tuned


def test_runs_are_compared_by_the_same_resampling(
    done: tuple[Path, Scores], files: Path, tmp_path: Path
) -> None:
    folder, _ = done
    other = tmp_path / "other"
    fit(
        recipe_of(files, train__steps="1", finetune__epochs="1", finetune__seeds="1"),
        other,
        SILENT,
        until="evaluate",
    )
    runs = read_runs([folder, other])
    (pair,) = pairs_of(runs)
    assert pair.difference is not None and pair.difference.resamples == 100
    assert pair.difference.resampled == "test examples and seeds of stages 1 and 2"
    means = {
        run.name: run.scores.ours.test.mean
        for run in runs
        if run.scores.ours is not None and run.scores.ours.test is not None
    }
    assert pair.difference.difference == pytest.approx(max(means.values()) - min(means.values()))
    told = leader(runs, [pair])
    assert (
        told.startswith("run is ahead")
        and f"Compared with other: difference {100 * pair.difference.difference:.1f}, " in told
    )
    assert pair.difference.sureness() in told and (
        "2 and 1 trainings of stage 1" in told or "not significant" in told
    )
    assert "paired over test examples" in render_comparison(runs, [pair]).lower()
    (other / "predictions" / "test-1.json").unlink()
    (lost,) = pairs_of(runs)
    assert lost.difference is None and "predictions/test-1.json" in leader(runs, [lost])
