"""Text without labels for stage 2, shaped like the inputs of the task.

It comes from three places: training examples whose labels are hidden (data.share), a file
(data.unlabelled), and the selected passages, cut into sentences, or into pieces as long as the
task's texts. What shares a run of words with dev or test is left out, as among the passages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.decontaminate import HeldOutRuns
from tasklm.corpus.passages import sentences, split_passages
from tasklm.corpus.words import count_words
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.errors import DataError, RecipeError
from tasklm.models.task_model import new_encoder
from tasklm.pipeline.context import Run, TaskData, Tokenised
from tasklm.pipeline.linear_part import wide_part
from tasklm.pipeline.raw_sources import are_sentences, sources_alone
from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.raw_text import CROSS_VIEW, FILE, HIDDEN, PASSAGES, SOURCES
from tasklm.select.base import read_selection_texts
from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import digest, file_digest, read_json, write_json
from tasklm.students.base import Classroom, student_class, with_lasts
from tasklm.tasks.base import Task
from tasklm.tasks.baselines.wide_parts import AnyWide
from tasklm.tasks.examples import Example
from tasklm.tasks.several import members_of
from tasklm.tasks.writing import writes
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.context import TrainingContext

NAME = "raw-text"  # the artefact
SELECTED_TEXT = "selected text"  # the file of an example that is a piece of a selected passage
TEXTS = "texts.json"
FEWEST_WORDS, MOST_WORDS = 3, 100  # of a sentence
SHORTEST_TEXT = 8  # words of a piece of a passage, at least


@dataclass(frozen=True)
class RawTexts:
    """Examples without labels, where they come from, and their key."""

    examples: Sequence[Example] = ()
    sources: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True)
class Given:
    """Where the text without labels of a run comes from."""

    hidden: Sequence[Example] = ()  # examples of train whose labels are hidden
    file: str = ""
    passages: Path | None = None


NO_RAW_TEXT = RawTexts()


def check_student(run: Run, task: TaskData) -> None:
    """Raises RecipeError, early, for a student that there is not or that the task cannot have."""
    settings = run.recipe.finetune
    if not settings.has_student:
        return
    student_class(settings.unlabelled, task.task.consistency())
    _check_keys(settings)
    if settings.freeze:
        problem = "unlabelled text trains the encoder, which finetune.freeze keeps fixed"
        raise RecipeError([f"finetune.unlabelled: {problem}; leave one of the two out"])


def _check_keys(settings: Finetune) -> None:
    """Raises RecipeError for sources that there are not, and keys of another student."""
    problems = [
        f"finetune.unlabelled_from: {name!r} is not a source; choose from {', '.join(SOURCES)}"
        for name in settings.unlabelled_from
        if name not in SOURCES
    ]
    if settings.unlabelled != CROSS_VIEW:
        for name in ("views", "unlabelled_tasks"):
            if getattr(settings, name) != getattr(Finetune(), name):
                problem = f"{settings.unlabelled} has no modules; leave it out"
                problems.append(
                    f"finetune.{name} goes with finetune.unlabelled = cross-view: {problem}"
                )
    if problems:
        raise RecipeError(problems)


def require_student(run: Run, parts: TrainingContext) -> None:
    """Raises RecipeError, before stage 1, if the student of stage 2 cannot be made."""
    settings = run.recipe.finetune
    if parts.raw is None:
        return
    room = Classroom(parts.task.consistency(), parts.vocabulary, settings)
    with shapes_alone():
        student = student_class(settings.unlabelled, room.consistency)
        student(room, new_encoder(parts.encoder, parts.shape))


def raw_text(run: Run, task: TaskData, selected: Path | None) -> RawTexts:
    """The text without labels of a run; nothing where its stage 2 reads none."""
    data, settings = run.recipe.data, run.recipe.finetune
    if not settings.has_student:
        return NO_RAW_TEXT
    given = _given(run, task, selected)
    if not any((given.passages, given.file, given.hidden)):
        return _without_text(run, task, selected)
    passages, most = given.passages, settings.unlabelled_texts

    def build(folder: Path) -> None:
        with run.tracker.progress("collecting unlabelled text"):
            own = chain(_not_held_out(run, task, given), _of_passages(task, passages))
            distinct = {example.text: example for example in own if example.text.strip()}
            texts = [
                {
                    "texts": example.texts,
                    "words": example.words,
                    "task": example.task,
                    "file": example.file,
                    "line": example.line,
                }
                for example in islice(distinct.values(), most)
            ]
        write_json(folder / TEXTS, texts)

    file = run.inputs.content(Path(given.file)) if given.file else ""
    origin = "" if passages is None else file_digest(passages)
    hidden = digest([example.text for example in given.hidden])
    key = digest(
        [NAME, "with places", task.key, file, origin, hidden, most, data.contamination_words]
    )
    uses = [] if passages is None else [passages.parent]
    folder = run.artefacts.build(NAME, key, build, uses=uses)
    with damage_is_clear(folder / TEXTS):
        examples = [_example(one) for one in read_json(folder / TEXTS)]
    if not examples:
        raise DataError(
            "all unlabelled text is empty, or occurs in dev or test",
            remedy="Give other text: --data.unlabelled, or --corpus.",
        )
    named = {"hidden labels": given.hidden, "file": given.file, "passages": passages}
    sources = tuple(name for name, there in named.items() if there)
    run.tracker.say(f"{len(examples):,} texts without labels ({', '.join(sources)})", "raw text")
    return RawTexts(examples, sources, key)


def _given(run: Run, task: TaskData, selected: Path | None) -> Given:
    """The text there is, of the sources that finetune.unlabelled_from names."""
    wanted = run.recipe.finetune.unlabelled_from or SOURCES
    given = Given()
    if HIDDEN in wanted:
        given = dataclasses.replace(given, hidden=task.hidden)
    if FILE in wanted:
        given = dataclasses.replace(given, file=run.recipe.data.unlabelled)
    if PASSAGES in wanted and selected is not None and _may_be_passages(task):
        given = dataclasses.replace(given, passages=selected)
    return given


def _example(one: dict[str, Any]) -> Example:
    return Example(
        tuple(one["texts"]),
        None,
        one["file"],
        one["line"],
        tuple(one["words"]),
        task=one["task"],
    )


def _without_text(run: Run, task: TaskData, selected: Path | None) -> RawTexts:
    """Nothing, where a budget or an ablation leaves the corpus out; otherwise an error."""
    if selected is None and run.recipe.data.corpus:
        run.tracker.say("no unlabelled text: no text is selected", "raw text")
        return NO_RAW_TEXT
    problem = "there is no unlabelled text; give --corpus, --data.unlabelled or --data.share"
    sources = run.recipe.finetune.unlabelled_from
    if sources:
        problem = f"there is no text of finetune.unlabelled_from ({', '.join(sources)})"
        problem += "; give --corpus, --data.unlabelled or --data.share, or name other sources"
    elif selected is not None:
        problem = "a passage is one text, but the task's examples have several"
        problem += "; give --data.unlabelled or --data.share"
    raise RecipeError([f"finetune.unlabelled = {run.recipe.finetune.unlabelled}: {problem}"])


def _may_be_passages(task: TaskData) -> bool:
    """Whether inputs of the task are single texts, as passages are."""
    return writes(task.task) or all(len(example.texts) == 1 for example in task.splits.train[:1000])


def _reader(task: Task) -> tuple[Task, str]:
    """The task that reads texts, and its name among several: the first that learns from them."""
    for member in members_of(task):
        if not hasattr(member.task, "labels_alone"):
            return member.task, member.name
    return task, ""


def _not_held_out(run: Run, task: TaskData, given: Given) -> Iterator[Example]:
    """Examples with hidden labels and those of the file, without what dev and test contain."""
    data = run.recipe.data
    examples = [_input_alone(task.task, example) for example in given.hidden]
    if given.file:
        reader, name = _reader(task.task)
        read, _ = reader.read(Path(given.file), data, labelled=False)
        examples += [dataclasses.replace(one, label=None, task=name) for one in read]
    held_out = {split: task.texts(split) for split in ("dev", "test") if task.texts(split)}
    table = HeldOutRuns(held_out, data.contamination_words).table
    places, _ = table.find([example.text for example in examples])
    for example, place in zip(examples, places.tolist(), strict=True):
        if place < 0:
            yield example


def _input_alone(task: Task, example: Example) -> Example:
    """An example as it is to be answered: of pairs of source and target the source."""
    if not writes(task):
        return example
    return dataclasses.replace(
        task.example_of(example.texts[0]), file=example.file, line=example.line
    )


def _of_passages(task: TaskData, selected: Path | None) -> Iterator[Example]:
    """The selected passages, best first, as examples."""
    if selected is None:
        return
    reader, name = _reader(task.task)
    passages = chain.from_iterable(read_selection_texts(selected))
    train, pairs = task.splits.train, writes(task.task)
    if task.task.consistency().of_words or (pairs and are_sentences(train)):
        pieces = _sentences(passages)
    else:
        pieces = as_long_as([_input_alone(task.task, example) for example in train], passages)
    if pairs:
        pieces = sources_alone(train, pieces)
    for number, piece in pieces:
        example = dataclasses.replace(reader.example_of(piece), task=name)
        yield dataclasses.replace(example, file=SELECTED_TEXT, line=number)


def _sentences(passages: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, passage in enumerate(passages, 1):
        for sentence in sentences(passage):
            if FEWEST_WORDS <= count_words(sentence) < MOST_WORDS:
                yield number, sentence.strip()


def as_long_as(examples: Sequence[Example], passages: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Passages cut into pieces as long as examples mostly are, between sentences where possible,
    each with the number of its passage, from 1.
    """
    usual = median(count_words(example.text) for example in examples)
    for number, passage in enumerate(passages, 1):
        for piece in split_passages(passage, max(SHORTEST_TEXT, int(usual))):
            yield number, piece


def encoded_raw_text(
    run: Run, task: TaskData, tokens: Tokenised, raw: RawTexts
) -> EncodedExamples | None:
    """The text as stage 2 reads it, with what the wide part says of it; None for no text."""
    if not raw.examples:
        return None
    length, wide = run.recipe.tokens.rows, wide_part(run, task).wide
    outputs = None
    if wide is not None:
        outputs = _wide_outputs(wide, task.task, raw.examples)
    encoded = EncodedExamples.of(task.task, raw.examples, tokens.vocabulary, length, outputs)
    with_lasts(encoded.units)
    return EncodedExamples(raw.examples, encoded.units, tokens.vocabulary, length)


def _wide_outputs(wide: AnyWide, task: Task, examples: Sequence[Example]) -> NDArray[np.float32]:
    """What the wide part says of text; of several tasks, what each says of all of it."""
    if not (members := members_of(task)):
        return wide.outputs(examples)
    learning = [member for member in members if not hasattr(member.task, "labels_alone")]
    outputs = [
        wide.outputs([dataclasses.replace(one, task=member.name) for one in examples])
        for member in learning
    ]
    total: NDArray[np.float32] = np.sum(outputs, axis=0, dtype=np.float32)
    return total
