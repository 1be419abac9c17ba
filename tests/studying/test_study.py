"""Studies as TOML: those of the package can all be run, and mistakes are all named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import tasklm
from tasklm.errors import DataError, RecipeError
from tasklm.pipeline.ablations import check_ablations
from tasklm.pipeline.opening import check_names
from tasklm.pipeline.selection import check_settings
from tasklm.studying import estimates, flow
from tasklm.studying.jobs import jobs_of, own_part
from tasklm.studying.order import Order, part_of
from tasklm.studying.running import key_of
from tasklm.studying.study import SIZES, load_scale, load_study, studies
from tests.studying.small import corpus, data_for, study, write_task


@pytest.fixture(autouse=True)
def _a_known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "matmul_ceiling", lambda machine: 1e12)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    for task in {task for name in studies() for task in load_study(name).everything}:
        write_task(folder / task, data_for(task))
    corpus(folder)
    return folder


@pytest.mark.parametrize("name", studies())
def test_the_dry_run_of_every_study(name: str, data: Path, tmp_path: Path) -> None:
    loaded = load_study(name)
    order = Order(data, (str(data / "corpus.jsonl"),), tmp_path / "out")
    costs = flow.dry_run([loaded], order)
    alone = [line for line in loaded.lines_run if not line.together]
    single = [one.job for one in costs if not one.job.line.together]
    for task in loaded.tasks:
        assert [job.line for job in single if job.task == task] == alone
    several = [one.job for one in costs if one.job.line.together]
    for job in several:
        assert list(job.tasks) == loaded.tasks_of(job.line, job.task)
    if not loaded.companions:
        assert len(single) == len(alone) * len(loaded.tasks)
    assert all(one.flops > 0 and one.bytes > 0 and one.seconds > 30 for one in costs)
    assert not any(one.done for one in costs) and not order.out.exists()
    assert (loaded.source.count("(") and "arXiv" in loaded.source) or "Oberlin" in loaded.source


@pytest.mark.parametrize("scale", SIZES)
@pytest.mark.parametrize("name", studies())
def test_every_run_of_every_study_has_a_recipe_that_goes_together(
    name: str, scale: str, data: Path, tmp_path: Path
) -> None:
    order = Order(data, (str(data / "corpus.jsonl"),), tmp_path, scale=scale)
    for job in jobs_of(load_study(name), order):
        train, budget = job.recipe.train, job.recipe.budget
        # a run is bounded by its steps, or by FLOPs that are equal in all rows
        assert (train.steps is None) == (budget.flops is not None)
        check_names(job.recipe)
        check_settings(job.recipe.select)
        check_ablations(job.recipe)


def test_scales_have_the_numbers_of_tlm(data: Path, tmp_path: Path) -> None:
    """Table B.1 (arXiv 2111.04130), rows that differ between tasks."""

    def numbers(scale: str, task: str) -> tuple[object, ...]:
        keys = load_scale(scale).of(task)
        names = ("train.batch", "tokens.length", "tokens.external_length", "train.steps")
        return tuple(keys.get(name) for name in names)

    assert numbers("small", "imdb") == (256, 512, 128, 150000)
    assert numbers("medium", "imdb") == (256, 512, None, 300000)
    assert numbers("large", "imdb") == (512, 512, None, 500000)
    assert numbers("large", "scierc") == (512, 128, None, 300000)
    assert numbers("large", "chemprot") == (256, 128, None, 500000)
    assert numbers("small", "hyperpartisan") == (256, 128, None, 50000)


def test_all_studies_are_listed_for_python() -> None:
    listed = tasklm.studies()
    assert [one.name for one in listed] == studies() and len(listed) >= 19


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"titel": "x"}, "unknown key 'titel' (did you mean 'title'?)"),
        ({"source": ""}, "small: source is missing"),
        ({"rows": []}, "small: rows is missing"),
        ({"rows": [{"name": "a"}, {"name": "a"}]}, "another row is called like 'a'"),
        ({"rows": [{"name": "a 1"}, {"name": "a-1"}]}, "another row is called like 'a 1'"),
        ({"rows": [{"name": "a", "published": {"x": 1.0}}]}, "row 'a': x is not among the tasks"),
        ({"rows": [{"name": "a", "published": {"one": "?"}}]}, "published scores must be numbers"),
        ({"rows": [{"name": "a", "recipe": {"train.step": 1}}]}, "unknown key train.step"),
        ({"rows": [{"name": "a", "recipe": {"train.rho1": -1}}]}, "train.rho1 = -1"),
        ({"claims": [{"text": "t", "better": "a", "than": "z"}]}, "no row 'z' is run"),
        ({"claims": [{"text": "t", "better": "b", "than": "theirs"}]}, "no row 'theirs' is run"),
        (
            {"claims": [{"text": "t", "better": "b", "than": "a", "tasks": ["x"]}]},
            "claim 't': x is not among the tasks",
        ),
        ({"scales": {"hours": {}}}, "unknown scale 'hours'"),
        ({"own": {"three": {}}}, "own: three is not among the tasks"),
        ({"axis": "select.k"}, "fewer than two rows have the key select.k"),
    ],
)
def test_what_is_wrong_with_a_study_is_named(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        study(**changes)
    assert problem in str(caught.value)


def test_an_unknown_study_a_missing_file_and_bad_toml(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"unknown study 'tlm-table-44' \(did you mean"):
        load_study("tlm-table-44")
    with pytest.raises(DataError, match="cannot be read"):
        load_study(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("title = ", encoding="utf-8")
    with pytest.raises(RecipeError, match="is not valid TOML"):
        load_study(str(tmp_path / "bad.toml"))


def test_keys_come_over_one_another_in_order(tmp_path: Path) -> None:
    write_task(tmp_path / "one", data_for("one"))
    given = study(
        tasks=["one"],
        recipe={"train.rho2": 3.0, "train.steps": 7},
        scales={"minutes": {"train.steps": 8, "train.rho1": 2}},
        own={"one": {"train.rho1": 3}},
        rows=[{"name": "a", "recipe": {"train.mask_rate": 0.3}}],
        claims=[],
    )
    (job,) = jobs_of(given, Order(tmp_path, (str(corpus(tmp_path)),), tmp_path / "out"))
    assert (job.recipe.train.rho2, job.recipe.train.steps) == (3.0, 8)
    assert (job.recipe.train.rho1, job.recipe.train.mask_rate) == (3, 0.3)
    assert job.recipe.tokens.length == 128  # of the scale
    assert not job.recipe.finetune.wide  # of all
    over = {"train.mask_rate": 0.4, "train.rho1": 9, "finetune.wide": True}
    (job,) = jobs_of(
        given, Order(tmp_path, (str(corpus(tmp_path)),), tmp_path / "out", overrides=over)
    )
    assert job.recipe.train.rho1 == 9 and job.recipe.finetune.wide
    assert job.recipe.train.mask_rate == 0.3  # what is studied stays
    small = Order(tmp_path, (str(corpus(tmp_path)),), tmp_path / "out", scale="small")
    assert jobs_of(given, small)[0].recipe.train.steps == 7


def test_the_papers_numbers_of_a_task_are_those_of_its_scale() -> None:
    small = load_scale("small").of("scierc")
    assert (small["select.k"], small["train.rho1"], small["train.rho2"]) == (5000, 999, 20.0)
    assert small["train.steps"] == 150_000
    assert load_scale("large").of("rct")["train.rho1"] == 7
    assert load_scale("small").of("chemprot")["evaluate.metric"] == "micro_f1"


def test_data_is_found_by_a_tasks_names_and_what_is_missing_is_said(tmp_path: Path) -> None:
    loaded = load_study("tlm-table-4")
    write_task(tmp_path / "scierc_rel", data_for("scierc"))
    order = Order(tmp_path, (str(corpus(tmp_path)),), tmp_path / "out")
    assert {job.task for job in jobs_of(loaded, order)} == {"scierc"}
    elsewhere = dataclasses.replace(order, tasks=(f"agnews={tmp_path / 'scierc_rel'}",))
    assert {job.task for job in jobs_of(loaded, elsewhere)} == {"agnews"}
    with pytest.raises(DataError, match="there is no data for chemprot"):
        jobs_of(loaded, dataclasses.replace(order, tasks=("scierc", "chemprot")))
    with pytest.raises(DataError, match="there is no data for agnews, scierc, chemprot"):
        jobs_of(loaded, dataclasses.replace(order, data=tmp_path / "nowhere"))
    with pytest.raises(RecipeError, match="'imdb' is not a task of tlm-table-4"):
        jobs_of(loaded, dataclasses.replace(order, tasks=("imdb",)))


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_parts_are_all_runs_once(parts: int, tmp_path: Path) -> None:
    for task in ("one", "two"):
        write_task(tmp_path / task, data_for(task))
    jobs = jobs_of(study(), Order(tmp_path, (str(corpus(tmp_path)),), tmp_path / "out"))
    own = [own_part(jobs, (number, parts)) for number in range(1, parts + 1)]
    assert sorted(job.title for part in own for job in part) == sorted(job.title for job in jobs)
    if parts == 2:  # each machine has whole tasks
        assert [{job.task for job in part} for part in own] == [{"one"}, {"two"}]


def test_a_part_is_a_number_of_a_number() -> None:
    assert part_of("2/8") == (2, 8)
    for text in ("0/8", "9/8", "2", "a/b", "2/8/9"):
        with pytest.raises(RecipeError, match="write the second of eight parts as 2/8"):
            part_of(text)


def test_text_that_is_needed_is_asked_for_before_anything_is_trained(tmp_path: Path) -> None:
    write_task(tmp_path / "one", data_for("one"))
    given = study(tasks=["one"], rows=[{"name": "a"}], claims=[])
    with pytest.raises(RecipeError, match=r"--corpus is missing: .*one, a reads selected text"):
        jobs_of(given, Order(tmp_path, (), tmp_path / "out"))
    with pytest.raises(DataError, match="no text files found"):
        jobs_of(given, Order(tmp_path, (str(tmp_path / "none.jsonl"),), tmp_path / "out"))
    alone = study(tasks=["one"], rows=[{"name": "a", "recipe": {"train.rho1": 0}}], claims=[])
    (job,) = jobs_of(alone, Order(tmp_path, (), tmp_path / "out"))
    write_task(tmp_path / "two", data_for("two"))
    (tmp_path / "one" / "train.jsonl").write_bytes(
        (tmp_path / "one" / "train.jsonl").read_bytes() + b'{"text": "new", "label": "good"}\n'
    )
    (later,) = jobs_of(alone, Order(tmp_path, (), tmp_path / "out"))
    assert job.recipe == later.recipe and key_of(job) != key_of(later)  # other data: not done
