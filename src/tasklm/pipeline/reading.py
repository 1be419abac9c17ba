"""The first arrow of the flow: the labelled data and the corpus, read and audited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tasklm.corpus.base import PassageSource
from tasklm.corpus.contamination import Contamination
from tasklm.corpus.corpus_text import CorpusText, corpus_text, local_text
from tasklm.corpus.spark.files import list_files
from tasklm.corpus.spark.session import Spark
from tasklm.corpus.spark.store import SparkStore, build_spark_store, spark_corpus_key
from tasklm.corpus.store import kept_store
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES, SharedPass
from tasklm.pipeline.context import CorpusData, Run, TaskData, sections
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.data_sections import Data
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.recipe.schema import Recipe
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import damaged, digest, read_json, write_json
from tasklm.storage.safe_reading import home_path
from tasklm.tasks.audit import audit_corpus, audit_splits
from tasklm.tasks.base import Task
from tasklm.tasks.readers.labelled_share import hide_labels, labelled_data
from tasklm.tasks.readers.several import read_several, sources_of
from tasklm.tasks.several import turns_of
from tasklm.tasks.writing import writes


def read_task(run: Run) -> TaskData:
    """The labelled data with its audit."""
    return task_of(run.recipe, run.inputs)


def task_of(recipe: Recipe, inputs: Inputs) -> TaskData:
    """The labelled data of a recipe with its audit."""
    data = recipe.data
    if recipe.several.tasks:
        return _read_several(recipe, inputs)
    inputs.watch(_paths(data))
    task, splits, hidden = labelled_data(recipe)
    _check_smoothing(recipe, task)
    _check_internal_pass(recipe.train, task)
    _check_rdrop(recipe.finetune, task)
    _check_writing(recipe, task)
    files = [inputs.content(path) for path in _paths(data)]
    settings = [
        data.text_column,
        data.label_column,
        data.options_column,
        data.dev_share,
        data.leaks,
        data.kind,
        *sections(recipe, "kind"),
        *_share(data),
        *_numbers_of_more(data),
    ]
    metric = recipe.evaluate.metric
    return TaskData(
        task=task,
        splits=splits,
        findings=[*task.audit(splits), *audit_splits(splits, data)],
        key=digest([files, settings]),
        metric=task.metrics[0] if metric == "auto" else task.metric(metric).name,
        hidden=hidden,
    )


def _share(data: Data) -> list[float]:
    """What the share of labels adds to a key: nothing where all are used."""
    return [] if data.share >= 1.0 else [data.share]


def _numbers_of_more(data: Data) -> list[list[int]]:
    """What further files add to a key beside their contents: nothing where there are none."""
    numbers = [len(data.more), len(data.more_dev), len(data.more_test)]
    return [numbers] if any(numbers) else []


def _paths(data: Data) -> list[Path]:
    """The files or folders of labelled data."""
    given = (data.train, data.dev, data.test, *data.more, *data.more_dev, *data.more_test)
    return [home_path(name) for name in given if name]


def _read_several(recipe: Recipe, inputs: Inputs) -> TaskData:
    """Several tasks as one."""
    data = recipe.data
    given = {"train": data.train, "dev": data.dev, "test": data.test}
    if data.kind != "auto":
        given["kind"] = data.kind
    for name in (name for name, value in given.items() if value):
        way_out = "give the task that needs it a recipe: several.tasks = NAME=recipe.toml"
        raise RecipeError([f"data.{name} is for one task, but several.tasks is given; {way_out}"])
    for source in sources_of(recipe):
        inputs.watch(_paths(source.data))
    tasks = read_several(recipe)
    _check_smoothing(recipe, tasks.task)
    _check_internal_pass(recipe.train, tasks.task)
    _check_rdrop(recipe.finetune, tasks.task)
    hidden = hide_labels(tasks.task, tasks.splits, data.share)
    contents: list[Any] = []
    for source in tasks.sources:
        data = source.data
        files = [inputs.content(path) for path in _paths(data)]
        read_by = [data.text_column, data.label_column, data.dev_share, data.kind]
        contents.append([source.name, files, read_by, *sections(source.recipe, "kind")])
    return TaskData(
        task=tasks.task,
        splits=tasks.splits,
        findings=tasks.findings,
        key=digest([contents, recipe.data.leaks, tasks.task.to_dict(), *_share(recipe.data)]),
        metric=tasks.task.metrics[0],
        equal_shares=recipe.several.queries == "equal",
        sources=tasks.sources,
        hidden=hidden,
    )


def _check_smoothing(recipe: Recipe, task: Task) -> None:
    if recipe.finetune.label_smoothing and task.unsmoothed:
        problem = f"labels of the kind {task.kind} cannot be smoothed: {task.unsmoothed}"
        raise RecipeError([f"finetune.label_smoothing: {problem}; set it to 0"])


def _check_rdrop(settings: Finetune, task: Task) -> None:
    if not settings.rdrop:
        return
    problem = task.incomparable
    if problem:
        problem = f"outputs of the kind {task.kind} cannot be compared: {problem}"
    elif not settings.dropout:
        problem = "without finetune.dropout both readings are the same"
    if problem:
        raise RecipeError([f"finetune.rdrop: {problem}; set it to 0"])


def _check_writing(recipe: Recipe, task: Task) -> None:
    """Refuses what needs a head that stage 1 has trained, of a kind whose decoder it has not."""
    if not writes(task):
        return
    why = "stage 1 has no decoder: it reads both texts for its language model alone"
    if recipe.select.by_influence:
        problem = f"select.method = {recipe.select.method!r}: influence needs the task's loss, but"
        raise RecipeError([f"{problem} {why}; choose {recipe.select.stages[0]}"])
    if recipe.train.internal_pass != "two":
        raise RecipeError([f"train.internal_pass = 'one': {why}; set it to two"])
    if recipe.finetune.epochs == 0:
        raise RecipeError([f"finetune.epochs = 0: {why}; give 1 or more"])
    if recipe.distill.teachers:
        problem = "probabilities of written texts are not taught; write the texts of further "
        way_out = "sources with tasklm predict, and add these rows to the training file"
        raise RecipeError([f"distill.teachers: {problem}{way_out}"])


def _check_internal_pass(settings: Train, task: Task) -> None:
    """Refuses one pass for both losses on task text where these do not read the same rows."""
    if settings.internal_pass == "two":
        return
    rows = [task.together, *(turn.task.together for turn in turns_of(task))]
    problem = ""
    if not issubclass(OBJECTIVES.get(settings.objective), SharedPass):
        problem = f"the objective {settings.objective} does not read masked text as the task can"
    elif not settings.rho2:
        problem = "with train.rho2 = 0 task text has no masked pass"
    elif max(rows) > 1:
        problem = "of a choice, the language model reads one option, the task all"
    if problem:
        raise RecipeError([f"train.internal_pass = 'one': {problem}; set it to two"])


def prepare_corpus(run: Run, task: TaskData) -> CorpusData | None:
    """The passages of the corpus, deduplicated, with those that contain dev or test text marked."""
    data, tracker = run.recipe.data, run.tracker
    if not data.corpus:
        return None
    store: PassageSource
    if run.recipe.select.engine == "spark":
        spark = Spark(run.recipe.select.master, run.recipe.select.spark)
        files = list_files(data.corpus, spark)
        text = corpus_text(data, files, [(file.path, file.size) for file in files])
        store, key, name = _spark_store(run, text, spark)
    else:
        text = local_text(data)
        store, key, name = kept_store(text, run.cache, tracker)
    held_out = {split: task.texts(split) for split in ("dev", "test") if task.texts(split)}
    banned_key = digest([key, held_out, data.contamination_words])

    def decontaminate(part: Path) -> None:
        result = store.contaminated(held_out, data.contamination_words, tracker)
        np.save(part / "banned.npy", result.banned)
        write_json(
            part / "found.json",
            {"examples": result.examples, "short": result.short, "unchecked": result.unchecked},
        )

    part = run.artefacts.build("decontaminated", banned_key, decontaminate, uses=[store.folder])
    contamination = _contamination(part, len(store))
    return CorpusData(
        store=store,
        contamination=contamination,
        findings=audit_corpus(store, task.splits, contamination),
        key=digest([key, banned_key]),
        artefact=name,
        folders=(store.folder, part),
        text=text,
    )


def _contamination(folder: Path, passages: int) -> Contamination:
    """Which passages contain text of dev or test, from the artefact."""
    banned = load_array(folder / "banned.npy", np.bool_)
    if len(banned) != passages:
        raise damaged(
            folder / "banned.npy", f"it is for {len(banned):,} passages, but there are {passages:,}"
        )
    with damage_is_clear(folder / "found.json"):
        return Contamination(banned, **read_json(folder / "found.json"))


def _spark_store(run: Run, text: CorpusText, spark: Spark) -> tuple[SparkStore, str, str]:
    """The passages of a corpus on a cluster, their key and the name of their artefact."""
    key = spark_corpus_key(text)
    name = f"spark-corpus-{key}"

    def build(folder: Path) -> None:
        build_spark_store(folder, text, spark, run.tracker)

    return SparkStore(run.cache.build(name, key, build), spark), key, name
