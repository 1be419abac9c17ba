"""The benchmark of recipes: arms, differences by hand, and a small run that goes on."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_rel

from tasklm.errors import RecipeError
from tasklm.train import stage_runs
from tests.end_to_end.conftest import QUICK, files  # noqa: F401

ARMS = """
[base]
"train.held_out" = 2
"budget.flops" = 8e8

[arms.mask-20]
"train.mask_rate" = 0.2

[arms.soup]
"finetune.soup" = true

[arms.other-words]
"tokens.vocabulary" = 350
"""


def run_of(loss: float | None, dev: float, content: str = "a") -> dict[str, Any]:
    about = {"content": content, "objective": "mlm", "passages": 9, "tokens": 640, "targets": 96}
    return {"loss": loss, "dev": dev, "steps": 1000, "seconds": 20.0, **about}


def test_differences_are_seed_by_seed(module: Any) -> None:
    report = module("recipe_runs.report")
    base = {"1": run_of(5.0, 70.0), "2": run_of(5.2, 72.0), "3": run_of(5.1, 71.0)}
    arm = {
        "2": run_of(5.15, 71.0),
        "1": run_of(4.94, 71.0),
        "3": run_of(5.06, 70.5),
        "4": run_of(4, 9),
    }
    differences = report.pairs(base, arm, "loss")
    assert sorted(differences) == pytest.approx([-0.06, -0.05, -0.04])
    test = ttest_rel([4.94, 5.15, 5.06], [5.0, 5.2, 5.1]).confidence_interval(0.95)
    half = (test.high - test.low) / 2
    assert report.number(differences, 4, sign=True) == f"-0.0500 ± {half:.4f}"
    assert report.verdict(differences, less_is_better=True) == "better"
    assert report.verdict([-one for one in differences], less_is_better=True) == "worse"
    assert report.verdict(report.pairs(base, arm, "dev"), less_is_better=False) == "open"
    assert report.verdict([-0.1], less_is_better=True) == ""
    line = report.table({"base": base, "arm": arm})[-1]
    assert line.startswith("| arm | 4 | 4.7875 ± ") and "-0.0500 ± " in line


def test_losses_of_other_text_are_not_compared(module: Any) -> None:
    report = module("recipe_runs.report")
    base = {"1": run_of(5.0, 70.0), "2": run_of(None, 70.0)}
    arm = {"1": run_of(4.0, 71.0, content="b"), "2": run_of(4.0, 72.0)}
    assert report.pairs(base, arm, "loss") == []
    assert report.pairs(base, arm, "dev") == [1.0, 2.0]


@pytest.mark.parametrize(
    "text", ["[other]", "[arms.base]", '[arms."a/b"]', "[arms]\na = 1", "[arms.a.train]", "="]
)
def test_wrong_arms_are_refused(module: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "arms.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"--arms .*arms\.toml"):
        module("recipe_runs.arms").read_arms(path)


def test_the_arms_that_come_with_it_are_recipes(module: Any) -> None:
    arms = module("recipe_runs.arms")
    ours = arms.read_arms(Path(module("recipes").__file__).with_suffix(".toml"))
    base = arms.recipe_of(None, ours.base)
    for name in ours.own:
        recipe = arms.recipe_of(None, {**ours.base, **ours.options(name)})
        assert recipe != base and arms.text_key(recipe) == arms.text_key(base)


@pytest.fixture
def words(files: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "tasks" / "little").mkdir(parents=True)
    for split in ("train", "dev"):
        with gzip.open(tmp_path / "tasks" / "little" / f"{split}.jsonl.gz", "wb") as packed:
            packed.write((files / f"{split}.jsonl").read_bytes())
    (tmp_path / "arms.toml").write_text(ARMS, encoding="utf-8")
    quick = {**QUICK, "finetune.epochs": "1"}
    left = ("train.steps", "finetune.seeds", "hardware.threads")
    extra = " ".join(f"--{key} {value}" for key, value in quick.items() if key not in left)
    given = ["--work", tmp_path / "work", "--data", tmp_path / "tasks", "--tasks", "little"]
    given += ["--corpus", files / "corpus.jsonl", "--arms", tmp_path / "arms.toml"]
    return [*map(str, given), f"--extra={extra}", "--tunings", "2"]


def test_a_small_run_and_one_that_goes_on(
    module: Any,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_verb_here: Any,
) -> None:
    recipes, begun = module("recipes"), list[str]()

    def run_verb(verb: str, folder: Path, threads: int | None, deadline: Any) -> None:
        begun.append(f"{verb} {folder.relative_to(tmp_path / 'work')}")
        if len(begun) == 5:
            raise module("objective_runs.running").Failed("no memory")
        run_verb_here(verb, folder, threads, deadline)

    def main(*more: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["recipes.py", *words, *more])
        recipes.main()
        record: dict[str, Any] = json.loads((tmp_path / "work" / "recipes-8e+08.json").read_text())
        return record

    monkeypatch.setattr(recipes, "run_verb", run_verb)
    monkeypatch.setattr(stage_runs, "matmul_ceiling", lambda _: 1e9)  # it takes a second
    first = main("--seeds", "2")
    texts = [one for one in begun if one.startswith("tokenize text/little-")]
    assert len(texts) == 2  # the arm with another vocabulary has its own
    runs = [one.replace("8e+08/little/", "") for one in begun if one not in texts]
    verbs = ("finetune base", "finetune mask-20", "evaluate soup", "finetune other-words")
    assert runs == [f"{verb}/{seed}" for seed in (1, 2) for verb in verbs]
    assert first["failed"] == ["little/soup/1: no memory"]
    again = main("--seeds", "2")
    assert begun[10:] == ["evaluate 8e+08/little/soup/1"] and not again["failed"]
    arms = again["tasks"]["little"]["arms"]
    assert all(set(runs) == {"1", "2"} for runs in arms.values())
    for runs in arms.values():
        assert all(run["passages"] == 2 and 0 <= run["dev"] <= 100 for run in runs.values())
    scores = json.loads((tmp_path / "work/8e+08/little/soup/2/scores.json").read_text())
    (soup,) = [row for row in scores["rows"] if row["kind"] == "soup"]
    assert arms["soup"]["2"]["dev"] == pytest.approx(100 * soup["dev"]["mean"])
    assert arms["soup"]["2"]["loss"] == arms["base"]["2"]["loss"]
    page = (tmp_path / "work" / "recipes-8e+08.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("| other-words | 2 |"))
    assert [cell.strip() for cell in line.split("|")[4:6]] == ["", "not comparable"]
    line = next(line for line in page.splitlines() if line.startswith("| mask-20 | 2 |"))
    assert "±" in line.split("|")[4]
    # the tokens are those of the base's text, not made again
    where = [tmp_path / "work" / name / "tokens" / "tokens.bin" for name in _same_text(tmp_path)]
    assert len({path.stat().st_ino for path in where}) == 1
    main("--only", "mask-20", "--flops", "1.6e9", "--tunings", "0", "--seeds", "1")
    larger = json.loads((tmp_path / "work" / "recipes-1.6e+09.json").read_text())
    assert set(larger["tasks"]["little"]["arms"]) == {"base", "mask-20"}
    steps = [one["tasks"]["little"]["arms"]["base"]["1"]["steps"] for one in (larger, again)]
    assert steps[0] == pytest.approx(2 * steps[1], rel=0.2)
    with pytest.raises(SystemExit, match="unknown nothing"):
        main("--only", "nothing")


def _same_text(tmp_path: Path) -> list[str]:
    runs = [f"8e+08/little/{arm}/{seed}" for arm in ("base", "mask-20") for seed in (1, 2)]
    folders = sorted((tmp_path / "work" / "text").iterdir())
    base = [
        folder for folder in folders if "vocabulary = 400" in (folder / "recipe.toml").read_text()
    ]
    assert len(base) == 1
    return [*runs, f"text/{base[0].name}"]
