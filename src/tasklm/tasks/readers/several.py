"""Several tasks for one model: their files are read as for one task, then joined and audited.

Text that one task is trained on must not be in dev or test of another: a model of both would have
seen it. Such examples are refused, dropped or kept as data.leaks says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasklm.corpus.dedupe import text_key
from tasklm.corpus.words import words
from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.parsing import named_value
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.registry import nearest
from tasklm.tasks.audit import audit_splits
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example, Finding, Splits, left_out_by_file
from tasklm.tasks.members import joined
from tasklm.tasks.readers.splits import read_splits, resolved
from tasklm.tasks.several import Several, is_name
from tasklm.tasks.writing import Writes

_SHOWN = 3  # examples of a finding
RECIPE = "recipe.toml"
CHECK = "examples in two tasks"
Key = tuple[int, ...]  # of an example's texts, in any order


@dataclass(frozen=True)
class Source:
    """Where a task of several comes from."""

    name: str
    data: Data  # with its kind and the files of its splits
    recipe: Recipe  # whose [kind] and metric count


@dataclass
class JoinedTasks:
    """Several tasks, read and audited."""

    task: Several
    splits: Splits
    findings: list[Finding] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)


def sources_of(recipe: Recipe) -> list[Source]:
    """The tasks that several.tasks names: data as for data.train, or a recipe of its own."""
    sources: dict[str, Source] = {}
    for entry in recipe.several.tasks:
        name, path = named_path(entry)
        if name in sources:
            problem = f"two tasks are called {name!r}; name one of them: OTHER={path}"
            raise RecipeError([f"several.tasks: {problem}"])
        sources[name] = Source(name, *_read_source(path, recipe))
    if len(sources) < 2:
        problem = "name two tasks or more; for one, give its file as data.train"
        raise RecipeError([f"several.tasks: {problem}"])
    return list(sources.values())


def named_path(entry: str) -> tuple[str, Path]:
    """The name and path of a task, from NAME=PATH or PATH."""
    name, rest = named_value(entry)
    path = Path(rest)
    if not name:
        named_by = path
        if path.name == RECIPE or path.stem == "train" or path.name.startswith("train."):
            named_by = path.parent
        name = named_by.name.split(".")[0] if named_by.is_file() else named_by.name
    if not is_name(name):
        problem = f"{name!r} cannot be the name of a task; give another: NAME={path}"
        raise RecipeError([f"several.tasks: {problem}"])
    return name, path


def _read_source(path: Path, recipe: Recipe) -> tuple[Data, Recipe]:
    """The data of a task and the recipe that it is read by."""
    if path.suffix == ".toml":
        own = load(path)
        data = dataclasses.replace(own.data, leaks=recipe.data.leaks)
        return resolved(data), own
    data = Data(
        train=str(path),
        leaks=recipe.data.leaks,
        dev_share=recipe.data.dev_share,
        text_column=recipe.data.text_column,
        label_column=recipe.data.label_column,
    )
    return resolved(data), recipe


def columns_of(recipe: Recipe) -> dict[str, Data]:
    """The columns of each task's rows; those that only its files tell, if these are still there."""
    columns = {}
    for entry in recipe.several.tasks:
        name, path = named_path(entry)
        try:
            columns[name] = _read_source(path, recipe)[0]
        except DataError:  # a model is used without its files, too
            columns[name] = recipe.data
    return columns


def _settings(source: Source) -> Kind:
    """Markers must be named: with them a task takes turns with others and has no linear part."""
    kind = source.recipe.kind
    return dataclasses.replace(kind, marks=kind.marks or ())


def read_several(recipe: Recipe, audited: bool = True) -> JoinedTasks:
    """The tasks of several.tasks as one, with what the audit finds unless it is not wanted."""
    sources = sources_of(recipe)
    splits = {source.name: read_splits(source.data) for source in sources}
    leaks = cross_leaks(splits)
    findings: list[Finding] = []
    if recipe.data.leaks == "drop":
        _drop(splits, leaks)
    else:
        findings += _leak_findings(leaks, recipe.data.leaks)
    tasks: dict[str, Task] = {}
    for source in sources:
        own, kind = splits[source.name], TASKS.get(source.data.kind)
        if issubclass(kind, Writes):
            problem = f"{source.name} is of kind {source.data.kind}, which has a decoder of its own"
            raise RecipeError([f"several.tasks: {problem}; train it by itself"])
        tasks[source.name] = kind.from_examples(own.train, _settings(source))
        if audited:
            findings += [_of(source.name, one) for one in audit_splits(own, source.data)]
    metrics = metrics_of(recipe.evaluate.metric, tasks, sources)
    task = Several(tasks, metrics, _places(splits))
    whole = _joined(splits)
    if not audited:
        return JoinedTasks(task, whole, sources=sources)
    if not findings or all(one.check != CHECK for one in findings):
        findings.append(Finding("ok", CHECK, "no training text of a task is scored by another."))
    return JoinedTasks(task, whole, [*task.audit(whole), *findings], sources)


def _of(name: str, finding: Finding) -> Finding:
    """A finding on one of the tasks."""
    brief = f"{name}: {finding.brief}" if finding.brief else ""
    return dataclasses.replace(finding, check=f"{name}: {finding.check}", brief=brief)


def metrics_of(wanted: str, tasks: Mapping[str, Task], sources: Sequence[Source]) -> dict[str, str]:
    """The metric of each task: from 'accuracy,cola=matthews', its own recipe, or the default.

    A metric without a name is for the tasks that have it.
    """
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    common = [part for part in parts if "=" not in part and part != "auto"]
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    if strange := sorted(named.keys() - tasks.keys()):
        choices = f"{nearest(strange[0], list(tasks))}; tasks: {', '.join(tasks)}"
        raise RecipeError([f"evaluate.metric: there is no task {strange[0]!r}{choices}"])
    own = {source.name: source.recipe.evaluate.metric for source in sources}
    metrics = {}
    for name, task in tasks.items():
        usual = [one for one in common if one in task.metrics]
        given = named.get(name) or (own[name] if own[name] in task.metrics else "")
        try:
            metrics[name] = task.metric(given or (usual or list(task.metrics))[0]).name
        except RecipeError as error:
            raise RecipeError([f"{name}: {problem}" for problem in error.problems]) from None
    unknown = [one for one in common if not any(one in task.metrics for task in tasks.values())]
    if unknown:
        raise RecipeError([f"evaluate.metric: no task has the metric {unknown[0]!r}"])
    return metrics


def _places(splits: Mapping[str, Splits]) -> dict[str, float]:
    """The words of a training sentence on average, where examples are lists of words."""
    places = {}
    for name, own in splits.items():
        sizes = [len(example.label) for example in own.train if isinstance(example.label, list)]
        tagged = sizes and own.train[0].words
        places[name] = max(1.0, sum(sizes) / len(sizes)) if tagged else 1.0
    return places


def _joined(splits: Mapping[str, Splits]) -> Splits:
    whole = Splits([], [], [])
    for name, own in splits.items():
        whole.train += joined(name, own.train)
        whole.dev += joined(name, own.dev)
        whole.test += joined(name, own.test)
        whole.notes += [f"{name}, {note}" for note in own.notes]
        whole.leaks += own.leaks
    return whole


@dataclass(frozen=True)
class Leak:
    """Training examples of one task whose texts a split of another has."""

    trained: str
    scored: str
    split: str
    examples: list[tuple[Example, Example]]  # of train, and of the split

    @property
    def where(self) -> str:
        """The split in words."""
        return f"{self.split} of {self.scored}"


def example_key(example: Example) -> Key:
    """The same for texts of the same letters and digits, in any order.

    Elsewhere a pair may stand the other way round, and signs may be set off by spaces.
    """
    return tuple(sorted(text_key("".join(words(text)) or text) for text in example.texts))


def cross_leaks(splits: Mapping[str, Splits]) -> list[Leak]:
    """Where one task is trained on what another is scored on."""
    trained = {
        name: {example_key(example): example for example in own.train}
        for name, own in splits.items()
    }
    leaks = []
    for scored, own in splits.items():
        for split, examples in (("dev", own.dev), ("test", own.test)):
            keys = [(example_key(example), example) for example in examples]
            for name, known in trained.items():
                if name == scored:
                    continue
                both = [(known[key], example) for key, example in keys if key in known]
                if both:
                    leaks.append(Leak(name, scored, split, both))
    return leaks


def _leak_findings(leaks: Sequence[Leak], policy: str) -> list[Finding]:
    findings = []
    for leak in leaks:
        count = f"{len(leak.examples):,} examples in {leak.where}"
        drop = f"--data.leaks drop leaves them out of train of {leak.trained}"
        level, way_out = "warning", f"Scores of {leak.scored} are too high; {drop}."
        if policy == "refuse":
            level, way_out = "error", f'{drop}; "keep" accepts scores that are too high.'
        shown_examples = tuple(
            f"{two.file}, line {two.line} is also in {one.file}, line {one.line}"
            for one, two in leak.examples[:_SHOWN]
        )
        message = f"{count} are in train of {leak.trained}. {way_out}"
        brief = f"{count} are in train of {leak.trained}: --data.leaks drop fixes it"
        findings.append(Finding(level, CHECK, message, shown_examples, brief))
    return findings


def _drop(splits: dict[str, Splits], leaks: Sequence[Leak]) -> None:
    """Leaves out of train what another task is scored on; notes say how much."""
    for name, own in splits.items():
        mine = [leak for leak in leaks if leak.trained == name]
        scored = {example_key(one) for leak in mine for one, _ in leak.examples}
        left = [example for example in own.train if example_key(example) not in scored]
        if not left:
            first = own.train[0]
            raise DataError(
                f"every training example of {name} is in dev or test of another task",
                file=first.file,
                line=first.line,
                remedy="Split the data again, without overlap, or leave out one of the tasks.",
            )
        if len(left) < len(own.train):
            where = ", ".join(leak.where for leak in mine)
            count = f"{len(own.train) - len(left):,} examples"
            own.notes.append(f"train: {count} left out because they also occur in {where}")
        own.leaks += left_out_by_file(own.train, left)
        own.train = left
