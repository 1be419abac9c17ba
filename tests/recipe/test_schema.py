from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.schema import Recipe, from_dict, to_dict, with_overrides
from tasklm.recipe.toml import dump, load


def test_all_problems_are_told_at_once_with_the_nearest_key() -> None:
    with pytest.raises(RecipeError) as error:
        from_dict(
            {
                "train": {"rho": 3, "steps": "many", "batch": 0},
                "selekt": {},
                "select": {"queries": "rakes"},
                "model": 3,
            }
        )
    told = "\n".join(error.value.problems)
    assert len(error.value.problems) == 6
    assert (
        "unknown key train.rho (did you mean 'rho1'?)" in told
        or "unknown key train.rho (did you mean 'rho2'?)" in told
    )
    assert "train.steps = 'many': must be a whole number" in told
    assert "train.batch = 0: must be at least 1" in told
    assert "unknown section [selekt] (did you mean 'select'?)" in told
    assert "choose from text, rake (did you mean 'rake'?)" in told
    assert "[model] must be a section" in told


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("train", "steps", 1.5),
        ("train", "steps", True),
        ("tokens", "lowercase", "perhaps"),
        ("data", "train", 3),
        ("data", "corpus", 3),
        ("train", "rho2", "x"),
        ("train", "rho2", float("nan")),
    ],
)
def test_wrong_types_are_refused(section: str, key: str, value: object) -> None:
    with pytest.raises(RecipeError, match=f"{section}.{key}"):
        from_dict({section: {key: value}})


def test_command_line_texts_are_read_by_type() -> None:
    values = {
        "train.steps": "1_000",
        "train.rho1": "auto",
        "tokens.lowercase": "false",
        "data.corpus": "a,b",
        "train.rho2": "1e2",
    }
    recipe = from_dict(with_overrides({"train": {"rho1": 3}}, values))
    assert (recipe.train.steps, recipe.train.rho1, recipe.tokens.lowercase) == (1000, None, False)
    assert (recipe.data.corpus, recipe.train.rho2) == (("a", "b"), 100.0)


def test_an_option_without_a_section_names_the_key_it_may_mean() -> None:
    with pytest.raises(
        RecipeError, match=r"unknown option --rho1 \(did you mean '--train\.rho1'\?\)"
    ):
        with_overrides({}, {"rho1": "3"})


def test_files_round_trip_and_paths_follow_the_file(tmp_path: Path) -> None:
    recipe = Recipe().changed(train={"steps": 7}, data={"text_column": 'odd "name" \\ \n é'})
    path = tmp_path / "recipe.toml"
    for comments in (False, True):
        path.write_text(dump(recipe, comments=comments), encoding="utf-8")
        assert to_dict(load(path)) == to_dict(recipe)
    path.write_text('[data]\ntrain = "train.csv"\ncorpus = ["texts/*.txt"]\n', encoding="utf-8")
    found = load(path, {"data.dev": "dev.csv"})
    assert found.data.train == str(tmp_path / "train.csv") and found.data.corpus == (
        str(tmp_path / "texts/*.txt"),
    )
    assert found.data.dev == "dev.csv"  # given on the command line: relative to where the person is


def test_broken_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such recipe"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[train\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"bad\.toml is not valid TOML"):
        load(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    "path",
    sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml")),
    ids=lambda path: path.name,
)
def test_every_ready_recipe_is_valid(path: Path) -> None:
    load(path)


def test_a_start_is_a_folder_beside_the_recipe_or_a_name_of_the_hub(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('[train]\nstart = "roberta-base"\n', encoding="utf-8")
    assert load(file).train.start == "roberta-base"
    (tmp_path / "roberta-base").mkdir()
    assert load(file).train.start == str(tmp_path / "roberta-base")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("data.dev", "\ud800", r"data.dev = '\ud800': must be UTF-8 text"),
        ("data.corpus", ["a", "b\0"], "must be UTF-8 text without NUL"),
        ("train.steps", 10**400, "must be at most 1,000,000,000,000,000"),
        ("train.steps", 10**5000, "a number with very many digits"),
        ("train.rho2", 10**400, "must be a number"),
        ("train.rho2", float("inf"), "must be a number"),
        ("model.width", 10**9, "must be at most 65536"),
        ("select.queries", "x" * 5000, "…: choose from"),
        ("train.seed", ["x" * 5000], "…: must be a whole number"),
    ],
    ids=range(9),
)
def test_values_that_nothing_can_be_done_with_are_refused_in_few_words(
    key: str, value: Any, words: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        load(None, {key: value})
    assert words in str(caught.value) and len(str(caught.value)) < 300
