"""Several tasks are read from paths with names, audited across tasks, and scored as recipes say."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import write_jsonl

from tasklm.errors import DataError, RecipeError
from tasklm.pipeline.opening import open_run
from tasklm.pipeline.reading import read_task
from tasklm.recipe.schema import Recipe, from_dict
from tasklm.tasks.audit import refuse
from tasklm.tasks.base import Task
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.several import (
    CHECK,
    cross_leaks,
    metrics_of,
    named_path,
    read_several,
    sources_of,
)
from tasklm.tasks.regress import Regress
from tasklm.tracking import Tracker

Row = dict[str, object]


def pairs(name: str, count: int, start: int = 0) -> list[Row]:
    """Rows of two texts that no other name has."""
    numbers = range(start, start + count)
    return [
        {"text_a": f"{name} one {i}", "text_b": f"{name} two {i}", "label": "ab"[i % 2]}
        for i in numbers
    ]


def write_task(folder: Path, name: str, **more: list[Row]) -> Path:
    """The folder of a task, with further rows for some splits."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for start, (split, count) in enumerate((("train", 12), ("dev", 6), ("test", 4))):
        rows = [*pairs(name, count, 100 * start), *more.get(split, [])]
        write_jsonl(folder / name / f"{split}.jsonl", rows)
    return folder / name


def recipe_of(*tasks: str, **sections: dict[str, Any]) -> Recipe:
    return from_dict({"several": {"tasks": list(tasks)}, **sections})


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("tasks/rte", "rte"),
        ("tasks/rte/", "rte"),
        ("RTE/train.tsv", "RTE"),
        ("RTE/train.jsonl.gz", "RTE"),
        ("runs/mnli/recipe.toml", "mnli"),
        ("nli=tasks/rte", "nli"),
        ("nli=a/train.csv", "nli"),
        ("odd/x=y/rte", "rte"),
        ("sst-2.0", "sst-2.0"),
    ],
)
def test_tasks_are_named_by_their_folders(entry: str, name: str) -> None:
    assert named_path(entry) == (name, Path(entry.removeprefix("nli=")))


def test_a_file_names_its_task(tmp_path: Path) -> None:
    for file in ("cola.csv", "sst.jsonl.gz", "mnli.toml"):
        (tmp_path / file).write_text("", encoding="utf-8")
        assert named_path(str(tmp_path / file))[0] == file.split(".")[0]


@pytest.mark.parametrize("entry", [".", "a b=tasks/rte", "x,y=tasks", "n" * 81])
def test_bad_names_are_refused(entry: str) -> None:
    with pytest.raises(RecipeError, match=r"cannot be the name of a task; give another: NAME="):
        named_path(entry)


def test_two_tasks_with_different_names_are_needed(tmp_path: Path) -> None:
    one, two = write_task(tmp_path / "a", "rte"), write_task(tmp_path / "b", "rte")
    with pytest.raises(RecipeError, match="two tasks are called 'rte'; name one of them: OTHER="):
        sources_of(recipe_of(str(one), str(two)))
    with pytest.raises(RecipeError, match="name two tasks or more"):
        sources_of(recipe_of(str(one)))
    sources = sources_of(recipe_of(str(one), f"other={two}"))
    assert [source.name for source in sources] == ["rte", "other"]
    assert all(source.data.kind == "classify" for source in sources)
    assert sources[1].data.dev == str(two / "dev.jsonl")


def test_markers_of_one_of_several_tasks_are_named(tmp_path: Path) -> None:
    """With them it takes turns with the others, without a linear part."""
    for name, more in (("found", ""), ("named", '[kind]\nmarks = ["<<", "[["]\n')):
        write_task(tmp_path, name)
        for split in ("train", "dev", "test"):
            file = tmp_path / name / f"{split}.jsonl"
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            write_jsonl(
                file, [{**row, "text_a": f"<< {name} >> [[ x ]] {row['text_a']}"} for row in rows]
            )
        own = '[data]\ntrain = "train.jsonl"\ndev = "dev.jsonl"\ntest = "test.jsonl"\n'
        (tmp_path / name / "recipe.toml").write_text(own + more, encoding="utf-8")
    recipes = [str(tmp_path / name / "recipe.toml") for name in ("found", "named")]
    task = read_several(recipe_of(*recipes)).task
    assert task.member("found").task.to_dict().get("marks") is None
    assert task.member("named").task.to_dict()["marks"] == ["<<", "[["]


def test_a_recipe_brings_its_columns_kind_and_metric(tmp_path: Path) -> None:
    write_task(tmp_path, "rte")
    rows: list[Row] = [{"body": f"text {i}", "stars": i % 5} for i in range(40)]
    (tmp_path / "stars").mkdir()
    write_jsonl(tmp_path / "stars" / "all.jsonl", rows)
    text = '[data]\ntrain = "all.jsonl"\ntext_column = "body"\nlabel_column = "stars"\n'
    more = 'kind = "regress"\ndev_share = 0.5\nleaks = "keep"\n[evaluate]\nmetric = "pearson"\n'
    own = tmp_path / "stars" / "recipe.toml"
    own.write_text(text + more, encoding="utf-8")
    recipe = recipe_of(str(tmp_path / "rte"), str(own), data={"leaks": "drop"})
    tasks = read_several(recipe)
    stars = tasks.task.member("stars")
    assert stars.task.kind == "regress" and stars.metric == "pearson"
    assert tasks.sources[1].data.leaks == "drop"  # the policy is one for all tasks
    dev = [example for example in tasks.splits.dev if example.task == "stars"]
    assert len(dev) == 20 and tasks.task.member("rte").metric == "macro_f1"
    assert dev[0].label == ("stars", pytest.approx(dev[0].label[1]))


def tasks_for_metrics() -> dict[str, Task]:
    return {"cola": Classify(["a", "b"]), "stsb": Regress(0, 5), "mnli": Classify(["a", "b", "c"])}


@pytest.mark.parametrize(
    ("wanted", "metrics"),
    [
        ("auto", ["macro_f1", "spearman", "macro_f1"]),
        ("", ["macro_f1", "spearman", "macro_f1"]),
        ("accuracy", ["accuracy", "spearman", "accuracy"]),
        ("accuracy,cola=matthews,stsb=pearson", ["matthews", "pearson", "accuracy"]),
        (" accuracy , pearson ", ["accuracy", "pearson", "accuracy"]),
        ("mnli=micro_f1", ["macro_f1", "spearman", "micro_f1"]),
    ],
)
def test_metrics_are_for_all_tasks_or_named_ones(
    wanted: str, metrics: list[str], tmp_path: Path
) -> None:
    folders = [str(write_task(tmp_path, name)) for name in ("cola", "stsb", "mnli")]
    sources = sources_of(recipe_of(*folders, evaluate={"metric": wanted}))
    assert list(metrics_of(wanted, tasks_for_metrics(), sources).values()) == metrics


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("col=matthews", "there is no task 'col'.*cola.*tasks: cola, stsb, mnli"),
        ("bleu", "no task has the metric 'bleu'"),
        ("stsb=accuracy", "stsb: evaluate.metric: there is no 'accuracy'"),
        ("mnli=f1", "mnli: evaluate.metric = 'f1' needs two labels"),
    ],
)
def test_metrics_that_a_task_lacks_are_refused(wanted: str, problem: str, tmp_path: Path) -> None:
    folders = [str(write_task(tmp_path, name)) for name in ("cola", "stsb", "mnli")]
    with pytest.raises(RecipeError, match=problem):
        metrics_of(wanted, tasks_for_metrics(), sources_of(recipe_of(*folders)))


def leaky(folder: Path) -> tuple[str, str]:
    """Two tasks; training pairs of the first are in dev and, turned round, in test of the second."""
    first = pairs("mrpc", 3)
    turned: list[Row] = [
        {"text_a": row["text_b"], "text_b": f" {row['text_a']} ", "label": "a"} for row in first[1:]
    ]
    write_task(folder, "mrpc")
    write_task(folder, "stsb", dev=first[:1], test=turned)
    return str(folder / "mrpc"), str(folder / "stsb")


def test_leaks_between_tasks_are_found_in_either_order_of_a_pair() -> None:
    one, two = Example(("some text", "other text"), "a"), Example(("other text", "Some  text"), "b")
    single = Example(("some text",), "a")
    splits = {"x": Splits([one, single], []), "y": Splits([], [two], [single])}
    leaks = [(leak.trained, leak.where, leak.examples) for leak in cross_leaks(splits)]
    assert leaks == [
        ("x", "dev of y", [(one, two)]),
        ("x", "test of y", [(single, single)]),
    ]
    apart = Example(('He said : " it is n\'t so . "', "A   café"), "a")
    joined_up = Example(("A cafe\u0301", 'he said: "It isn\'t so."'), "b")
    punctuated = {"x": Splits([apart], []), "y": Splits([], [joined_up])}
    assert [leak.where for leak in cross_leaks(punctuated)] == ["dev of y"]
    signs = {"x": Splits([Example((":)",), "a")], []), "y": Splits([], [Example((":(",), "b")])}
    assert cross_leaks(signs) == []  # texts without words are compared as they are
    parted = {"x": Splits([one], []), "y": Splits([], [single])}
    assert cross_leaks(parted) == []  # one text of the pair alone is no leak
    assert cross_leaks({"x": Splits([one], [one])}) == []  # that is the task's own audit


def test_leaks_are_refused_with_the_way_out(tmp_path: Path) -> None:
    tasks = read_several(recipe_of(*leaky(tmp_path)))
    across = [finding for finding in tasks.findings if finding.check == CHECK]
    assert [finding.level for finding in across] == ["error", "error"]
    assert across[0].message.startswith("1 examples in dev of stsb are in train of mrpc.")
    assert across[1].message.startswith("2 examples in test of stsb are in train of mrpc.")
    assert "--data.leaks drop leaves them out of train of mrpc" in across[0].message
    place = across[0].examples[0]
    assert "stsb/dev.jsonl, line 7 is also in" in place and "mrpc/train.jsonl, line 1" in place
    with pytest.raises(DataError, match="stsb"):
        refuse(tasks.findings)


def test_leaks_are_dropped_from_train_and_counted(tmp_path: Path) -> None:
    tasks = read_several(recipe_of(*leaky(tmp_path), data={"leaks": "drop"}))
    sizes = {
        name: [sum(one.task == name for one in part) for part in tasks.splits.named().values()]
        for name in ("mrpc", "stsb")
    }
    assert sizes == {"mrpc": [9, 6, 4], "stsb": [12, 7, 6]}
    (note,) = [note for note in tasks.splits.notes if "left out" in note]
    assert note.startswith("mrpc, train: 3 examples left out")
    assert note.endswith("they also occur in dev of stsb, test of stsb")
    (across,) = [finding for finding in tasks.findings if finding.check == CHECK]
    assert across.level == "ok"
    refuse(tasks.findings)


def test_leaks_are_kept_with_a_warning(tmp_path: Path) -> None:
    tasks = read_several(recipe_of(*leaky(tmp_path), data={"leaks": "keep"}))
    across = [finding for finding in tasks.findings if finding.check == CHECK]
    assert [finding.level for finding in across] == ["warning", "warning"]
    assert "Scores of stsb are too high" in across[0].message
    assert sum(one.task == "mrpc" for one in tasks.splits.train) == 12


def test_a_task_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    one = write_task(tmp_path, "one")
    rows = [json.loads(line) for line in (one / "train.jsonl").read_text().splitlines()]
    two = write_task(tmp_path, "two", test=rows)
    with pytest.raises(DataError, match="every training example of one is in dev or test"):
        read_several(recipe_of(str(one), str(two), data={"leaks": "drop"}))


def test_words_of_sentences_are_counted(tmp_path: Path) -> None:
    (tmp_path / "pos").mkdir()
    for start, split in enumerate(("train", "dev")):
        sentences: list[Row] = [
            {"tokens": [f"w{start}{i}"] * (2 + i % 3), "tags": ["N", "V", "N", "V"][: 2 + i % 3]}
            for i in range(6)
        ]
        write_jsonl(tmp_path / "pos" / f"{split}.jsonl", sentences)
    tasks = read_several(recipe_of(str(tmp_path / "pos"), str(write_task(tmp_path, "rte"))))
    assert [member.places for member in tasks.task.members] == [3.0, 1.0]
    assert {example.task for example in tasks.splits.train} == {"pos", "rte"}


def test_the_key_is_of_files_names_and_how_they_are_read(tmp_path: Path) -> None:
    one, two = str(write_task(tmp_path, "one")), str(write_task(tmp_path, "two"))
    own = tmp_path / "two" / "recipe.toml"
    (tmp_path / "two" / "dev.jsonl").rename(tmp_path / "two" / "later.jsonl")

    def key(*tasks: str, share: float = 0.1, **sections: dict[str, Any]) -> str:
        text = f'[data]\ntrain = "train.jsonl"\ndev_share = {share}\n'
        own.write_text(text, encoding="utf-8")
        run = open_run(recipe_of(*tasks, **sections), tmp_path / "run", Tracker(None))
        return read_task(run).key

    first = key(one, str(own))
    assert key(one, str(own)) == first
    others = [
        key(one, str(own), share=0.3),
        key(one, f"other={own}"),
        key(str(own), one),
        key(one, str(own), data={"leaks": "drop"}),
        key(one, str(own), evaluate={"metric": "accuracy"}),
    ]
    assert len({first, *others}) == 6
    for name, value in (("train", one), ("dev", one), ("test", one), ("kind", "classify")):
        both = recipe_of(one, two, data={name: value})
        with pytest.raises(RecipeError, match=rf"data\.{name} is for one task"):
            read_task(open_run(both, tmp_path / f"both-{name}", Tracker(None)))
    assert dataclasses.asdict(recipe_of(one, two).several)["power"] == 0.75
