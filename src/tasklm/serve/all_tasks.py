"""Every task of a model on the same inputs: which of them take an input, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from tasklm.errors import DataError
from tasklm.serve.inputs import Input, example_from, example_of, given_by
from tasklm.serve.predictor import AT_ONCE, Predictor
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Example
from tasklm.tasks.several import ALL, member_of, members_of

Examples = dict[str, Example]  # of one input, by the names of the tasks that take it


class AllTasks:
    """All tasks of a predictor; raises RecipeError if it has one."""

    def __init__(self, predictor: Predictor) -> None:
        if not members_of(predictor.task):
            member_of(predictor.task, ALL)
        self.predictor = predictor
        self.tasks = {member.name: member.task for member in members_of(predictor.task)}
        self.data = {name: predictor.columns.get(name, predictor.data) for name in self.tasks}

    def examples(self, given: Iterable[Input]) -> Iterator[Examples]:
        """The examples of inputs that a program passes in."""
        return map(self.example, given)

    def example(self, given: Input) -> Examples:
        """The examples of an input; raises the first task's DataError if none takes it."""
        return self._taken(lambda name: example_from(given, self.tasks[name], self.data[name]))

    def examples_of(self, what: str, stdin: BinaryIO) -> Iterator[Examples]:
        """Yields the examples of standard input for "-", of a file if there is one, else of a
        text.
        """
        yield from given_by(
            what,
            stdin,
            of_text=lambda text: self._taken(
                lambda name: example_of(text, self.tasks[name], self.data[name])
            ),
            of_line=lambda line: self._taken(lambda name: self.tasks[name].example_of(line)),
            of_file=self._rows,
        )

    def answers(self, examples: Iterable[Examples]) -> Iterator[dict[str, Any]]:
        """Yields the text of each input and the answers of its tasks, a block at a time."""
        source, predictor = iter(examples), self.predictor
        while block := list(islice(source, AT_ONCE)):
            for one, tasks in zip(block, predictor.answers_of_all(block), strict=True):
                yield {"text": next(iter(one.values())).text, "tasks": tasks}

    def _taken(self, read: Callable[[str], Example]) -> Examples:
        """The example of each task that takes an input; the first one's error if none does."""
        examples: Examples = {}
        errors = []
        for name in self.tasks:
            try:
                examples[name] = read(name)
            except DataError as error:
                errors.append(error)
        if not examples:
            raise errors[0]
        return examples

    def _rows(self, path: Path) -> Iterator[Examples]:
        """Yields the examples of each row of a table that any task can read."""
        rows: dict[int, Examples] = {}
        errors = []
        for name, task in self.tasks.items():
            kind, data = TASKS.get(task.kind), self.data[name]
            try:
                examples = kind.read(path, data, labelled=False)[0]
            except DataError as error:
                errors.append(error)
                continue
            for example in examples:
                rows.setdefault(example.line, {})[name] = example
        if not rows:
            raise errors[0]
        for line in sorted(rows):
            yield rows[line]
