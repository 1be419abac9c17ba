"""The wide part of a run's model: for the network, as a baseline, and as the first model of a run.

It is fitted to the task's words first. If there is a corpus, one that also reads word vectors of
its text is fitted next, and replaces the first if it is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasklm.budget import rules
from tasklm.budget.scope import TEXT
from tasklm.corpus.words import count_words
from tasklm.encoders.shapes import shape_of
from tasklm.evaluate.scores import metric_name
from tasklm.forecasting.forecast import Expected, added, first_look
from tasklm.forecasting.gains import form_of, recorded_gains
from tasklm.forecasting.lines import first_line
from tasklm.forecasting.samples import shares_texts
from tasklm.models.task_model import ModelDescription, TaskModel, new_encoder, save_models
from tasklm.pipeline.context import CorpusData, Run, TaskData
from tasklm.recipe.model_sections import Model, Tokens
from tasklm.run_folder import SCORES
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import digest, read_json
from tasklm.tasks.base import Label, Task, score
from tasklm.tasks.baselines.featuriser import evenly
from tasklm.tasks.baselines.fitted_files import OUTPUTS, save_fitted
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tasks.baselines.wide_fitting import FittedWide
from tasklm.tasks.baselines.wide_parts import AnyWide, WideParts, read_wide
from tasklm.tasks.examples import Example
from tasklm.tasks.several import members_of, turns_of
from tasklm.tokens.tokenizer import train_vocabulary
from tasklm.train.init.word_vectors import word_vectors
from tasklm.train.stages import silenced

FORMAT = 3  # raise it when the fitted wide part changes
SMALLEST = Model(encoder="bert", size="tiny", layers=1, width=8, heads=1, feedforward=8)
BLOCK = 64  # passages that are read together
SMALLEST_TYPES, SMALLEST_TEXTS = 300, 20  # of the vocabulary, and of the texts to learn it from
QUICK_WORDS = 200_000  # of the examples for a quick first model
MANY_WORDS = 3 * QUICK_WORDS  # with fewer words, all examples are fitted at once
FEWEST_OF_TASK = 200  # examples of one of several tasks for it


@dataclass(frozen=True)
class FittedPart:
    """A wide part and its out-of-fold outputs for train, (units, outputs).

    Both are None if the kind of task has none, or its texts contain nothing to learn from.
    """

    wide: AnyWide | None = None
    train: NDArray[np.float32] | None = None
    key: str = ""


def fitted_wide(run: Run, task: TaskData) -> FittedPart:
    """The wide part of a task; an ablation uses that of its run."""
    if task.wide is None:
        task.wide = _fitted(run, task)
    part: FittedPart = task.wide
    return part


def wide_part(run: Run, task: TaskData) -> FittedPart:
    """The wide part of a network: that of task and corpus, if the network reads text too."""
    if not run.recipe.finetune.wide:
        return FittedPart()
    if run.recipe.uses_corpus and task.wide_of_text is not None:
        of_text: FittedPart = task.wide_of_text
        return of_text
    return fitted_wide(run, task)


def _fitted(run: Run, task: TaskData) -> FittedPart:

    def build(folder: Path) -> None:
        with run.tracker.progress("fitting a linear model of words"):
            train, dev = task.splits.train, task.splits.dev
            _save(folder, task.task.fit_wide(train, dev, task.metric), train)

    key = key_of_words(task)
    return _read(run.artefacts.build("wide", key, build), key, task)


def key_of_words(task: TaskData) -> str:
    """The key of a task's linear model of words."""
    return digest(["wide", FORMAT, task.key, task.metric])


def _save(folder: Path, fitted: FittedWide | None, train: Sequence[Example]) -> None:
    if fitted is not None:
        save_fitted(folder, fitted.wide, fitted.train, train)


def _read(folder: Path, key: str, task: TaskData) -> FittedPart:
    """The part in a folder; an empty one if nothing was fitted."""
    if not (folder / "wide.json").exists():
        return FittedPart()
    with damage_is_clear(folder / "wide.json"):
        wide = read_wide(folder)
        train = load_array(folder / OUTPUTS, np.float32, dimensions=2)
    for examples in task.held_out.values():
        wide.remember(examples)
    return FittedPart(wide, train, key)


def first_model(run: Run, task: TaskData) -> bool:
    """Puts the linear model into model/ if a run has no model yet; says so, and whether it did.

    With many examples, one fitted to some of them comes first, which takes seconds. Where tasks
    take turns, it is no model of all of them.
    """
    if turns_of(task.task):
        run.tracker.say(_line_of_turns(task.task, fitted_wide(run, task)), "linear part")
        return False
    if not run.artefacts.path("model").exists():
        _quick_model(run, task)
    part, present = fitted_wide(run, task), _linear_model(run)
    if part.wide is None or (run.artefacts.path("model").exists() and "quick" not in present):
        return False
    if present and _dev_score(task, part) <= present["dev"]:
        return False
    _say_first(run, task, keep_linear(run, task, part, {}), "a linear model of words")
    return True


def _line_of_turns(task: Task, part: FittedPart) -> str:
    """Which of several tasks have a linear part, where some take turns."""
    members = members_of(task)
    having = []
    if isinstance(part.wide, WideParts):
        having = [name for name, own in part.wide.parts.items() if own is not None]
    bare = ", ".join(member.name for member in members if member.name not in having)
    if not having:
        return f"no task has a linear part: {bare}"
    return f"of {', '.join(having)}; {bare} have none, as tasks with a head of their own"


def _quick_model(run: Run, task: TaskData) -> None:
    """Builds model/ from a linear model of some training examples, if all would take long."""
    some = _quick_examples(task.splits.train)
    if len(some) == len(task.splits.train):
        return

    def build(folder: Path) -> None:
        with run.tracker.progress(f"fitting a linear model to {len(some):,} examples"):
            dev = _quick_examples(task.splits.dev)
            _save(folder, task.task.fit_wide(some, dev, task.metric), some)

    key = digest(["quick", FORMAT, task.key, task.metric])
    part = _read(run.artefacts.build("wide-quick", key, build), key, task)
    if part.wide is not None:
        reached = keep_linear(run, task, part, {"quick": True})
        _say_first(run, task, reached, f"a linear model of {len(some):,} examples")


def _quick_examples(examples: Sequence[Example]) -> list[Example]:
    """Some examples, spread evenly, and one of each class that these lack; all if there are few.

    Every one of several tasks has some.
    """
    size = sum(count_words(example.text) for example in examples)
    if size <= MANY_WORDS:
        return list(examples)
    tasks: dict[str, list[Example]] = {}
    for example in examples:
        tasks.setdefault(example.task, []).append(example)
    chosen: list[Example] = []
    for name, own in tasks.items():
        least = FEWEST_OF_TASK if name else 1
        some = evenly(own, max(least, len(own) * QUICK_WORDS // size))
        classes = {_class_of(one): one for one in own}
        missing = classes.keys() - {"", *map(_class_of, some)}
        chosen += [*some, *(classes[label] for label in sorted(missing))]
    return chosen


def _class_of(example: Example) -> str:
    """The class of an example, of one task or of one of several; empty where labels are none."""
    label = example.label[1] if example.task and example.label else example.label
    return label if isinstance(label, str) else ""


def _say_first(run: Run, task: TaskData, reached: float, what: str) -> None:
    score_now = f"dev {metric_name(task.metric)} {100 * reached:.1f}"
    text = f"model/ now has {what}: {score_now}; a model that is better on dev will replace it"
    run.tracker.say(text, "model")


def forecast_text(run: Run, task: TaskData) -> str:
    """The expected test score in one line, from the linear model's predictions."""
    part = fitted_wide(run, task)
    assert part.wide is not None and part.train is not None
    dev, train = task.splits.dev, task.splits.train
    _, own, labels = _scored(task, dev, part.wide.outputs(dev), part.wide)
    metric = own.metric(task.metric)
    splits = [metric.statistics([example.label for example in dev], labels)]
    if not shares_texts(
        train, dev
    ):  # otherwise held-out examples have near copies in the other folds
        labels = _scored(task, train, part.train, part.wide, own)[2]
        splits.insert(0, metric.statistics([example.label for example in train], labels))
    outlook = first_look(metric, splits, len(task.splits.test) or len(dev))
    linear = Expected.of(100 * outlook.score, 100 * outlook.errors)
    settings = run.recipe.budget
    minutes = settings.minutes or rules.DEFAULT_MINUTES
    other = settings.flops is not None or run.recipe.train.steps is not None
    reads = run.recipe.data.corpus and run.recipe.select.engine == "local"
    if not reads or run.scope.reach != TEXT or other or minutes < 1:
        return first_line(task.metric, linear)  # no such run is recorded
    machine = "cpu" if run.machine.device.type == "cpu" else "gpu"
    gain = recorded_gains().expected(machine, minutes, form_of(train))
    return first_line(task.metric, linear, minutes, added(outlook.score, outlook.errors, gain))


def better_model(run: Run, task: TaskData, corpus: CorpusData) -> None:
    """Fits a linear model that also reads word vectors of the corpus, if the recipe and the minutes
    allow it.

    It replaces the first one if it is better on dev and, out of fold, on train: dev alone may be
    too small to tell.
    """
    settings = run.recipe
    most = rules.words_for_vectors(settings.budget.minutes)
    wanted = settings.finetune.wide and settings.finetune.word_vectors and settings.uses_corpus
    if not wanted or not most or corpus.store.local is None:
        return
    first = fitted_wide(run, task)
    if first.wide is None or not task.task.reads_vectors or not _single_texts(task):
        return

    def build(folder: Path) -> None:
        seconds = run.artefacts.seconds("wide")
        if (
            settings.budget.minutes is not None
            and seconds > rules.VECTORS_SHARE * 60 * settings.budget.minutes
        ):
            run.tracker.detail("no word vectors: the linear model alone already took long")
            return
        vectors = _vectors_of(run, task, corpus, most)
        if vectors is None:
            return
        with run.tracker.progress("fitting a linear model of words and word vectors"):
            fitted = task.task.fit_wide(task.splits.train, task.splits.dev, task.metric, vectors)
        if fitted is not None and _is_better(task, FittedPart(fitted.wide, fitted.train), first):
            _save(folder, fitted, task.splits.train)

    key = digest(["word vectors", FORMAT, first.key, corpus.key, most])
    folder = run.artefacts.build("wide-text", key, build, uses=list(corpus.folders))
    part = _read(folder, key, task)
    if part.wide is None:
        return
    task.wide_of_text = part
    if _linear_model(run):
        reached = keep_linear(run, task, part, {})
        score_now = f"dev {metric_name(task.metric)} {100 * reached:.1f}"
        run.tracker.say(f"with word vectors of the corpus: {score_now}", "model")


def _single_texts(task: TaskData) -> bool:
    """Whether examples are one text each: word vectors did not help with pairs (RTE, MRPC, STS-B,
    SICK).
    """
    return all(len(example.texts) == 1 for example in task.splits.train[:1])


def _vectors_of(run: Run, task: TaskData, corpus: CorpusData, most: int) -> WordVectors | None:
    """Word vectors of the task's texts and of passages spread evenly over the corpus."""
    with run.tracker.progress("counting word co-occurrences", most) as bar:

        def batches() -> Iterator[list[str]]:
            yield task.texts("train")
            for texts, words in _spread(corpus, most):
                yield texts
                bar.advance(words)

        return word_vectors(batches())


def _spread(corpus: CorpusData, most: int) -> Iterator[tuple[list[str], float]]:
    """Blocks of passages without text of dev or test, and their approximate numbers of words."""
    store = corpus.store.local
    assert store is not None
    for start, stop, words in _blocks(corpus, most):
        banned = corpus.contamination.banned[start:stop]
        texts = store.texts(start, stop)
        yield [text for text, out in zip(texts, banned, strict=True) if not out], words


def _blocks(corpus: CorpusData, most: int) -> Iterator[tuple[int, int, float]]:
    """Blocks of passages spread evenly over the corpus, that have about `most` words in all: where
    each begins and ends, and its words.
    """
    passages = len(corpus.store)
    blocks = math.ceil(passages / BLOCK)
    words = corpus.store.counts["words"] / max(1, blocks)
    for block in evenly(range(blocks), max(1, int(most / max(1.0, words)))):
        yield block * BLOCK, min(passages, (block + 1) * BLOCK), words


def vector_passages(run: Run, task: TaskData, corpus: CorpusData) -> NDArray[np.int64]:
    """The passages that the word vectors of the wide part come from; none where it has none."""
    if task.wide_of_text is None or wide_part(run, task) is not task.wide_of_text:
        return np.zeros(0, np.int64)
    most = rules.words_for_vectors(run.recipe.budget.minutes)
    spread = [np.arange(start, stop) for start, stop, _ in _blocks(corpus, most)]
    passages = np.concatenate(spread)
    return passages[~corpus.contamination.banned[passages]]


def _is_better(task: TaskData, part: FittedPart, first: FittedPart) -> bool:
    """Whether a wide part scores higher than the first one on dev, and out of fold on train."""
    return all(
        after > before
        for after, before in zip(_reached(task, part), _reached(task, first), strict=True)
    )


def _reached(task: TaskData, part: FittedPart) -> tuple[float, float]:
    """The scores of a wide part on dev, and out of fold on train."""
    assert part.wide is not None and part.train is not None
    return _dev_score(task, part), _scored(task, task.splits.train, part.train, part.wide)[0]


def _dev_score(task: TaskData, part: FittedPart) -> float:
    assert part.wide is not None
    dev = task.splits.dev
    return _scored(task, dev, part.wide.outputs(dev), part.wide)[0]


def _scored(
    task: TaskData,
    examples: Sequence[Example],
    outputs: NDArray[np.float32],
    wide: AnyWide,
    tuned: Task | None = None,
) -> tuple[float, Task, list[Label]]:
    """The score of outputs on labelled examples, the task tuned on these (or others), such as its
    thresholds, and the labels.
    """
    units, values = wide.units_with(task.task, examples, outputs)
    own = tuned or task.task.tuned(examples, units, values)
    labels = [own.label_of(answer) for answer in own.answers(examples, units, values)]
    return (
        score(own.metric(task.metric), [example.label for example in examples], labels),
        own,
        labels,
    )


def _linear_model(run: Run) -> dict[str, Any]:
    """The description of a linear model that is alone in model/; empty if there is another, or a
    finished run's.
    """
    config = run.artefacts.path("model") / "config.json"
    if not config.exists() or (run.folder / SCORES).exists():
        return {}
    with damage_is_clear(config):
        about: dict[str, Any] = read_json(config)["about"]
    return about if about.get("linear") else {}


def keep_linear(run: Run, task: TaskData, part: FittedPart, about: Mapping[str, Any]) -> float:
    """Builds model/ from the linear model and the smallest possible, silent network; returns its
    dev score.
    """
    wide, dev = part.wide, task.splits.dev
    assert wide is not None
    reached, own, _ = _scored(task, dev, wide.outputs(dev), wide)
    length = run.recipe.tokens.rows

    def build(folder: Path) -> None:
        vocabulary = train_vocabulary(
            [task.texts("train")[:SMALLEST_TEXTS]], Tokens(), SMALLEST_TYPES
        )
        shape = shape_of(SMALLEST, SMALLEST.size, len(vocabulary), length)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same folder whatever was drawn before
            encoder = new_encoder(SMALLEST.encoder, shape)
            head = silenced(own.head(shape.width, 0.0, encoder.normed_heads))
        model = TaskModel(encoder, head, True)
        values = {"metric": task.metric, "dev": reached, "linear": True, **about}
        description = ModelDescription(SMALLEST.encoder, shape, own, vocabulary, length)
        save_models(folder, description, [model], values, wide)

    run.artefacts.build("model", digest(["linear", length, part.key, dict(about)]), build)
    return reached
