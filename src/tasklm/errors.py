"""One family of errors, written for the person who runs tasklm: what is wrong, where, and the way
out.
"""

from __future__ import annotations

from pathlib import Path

# characters of a problem: a text quoted from the input may be of any length
MOST_TEXT = 600
MOST_PROBLEMS = 50  # listed for a recipe


def shortened(problem: str) -> str:
    """The problem, with its middle cut out if it is very long."""
    return (
        problem if len(problem) <= MOST_TEXT else f"{problem[: MOST_TEXT - 100]} … {problem[-90:]}"
    )


class TaskLMError(Exception):
    """Base of every error that tasklm raises on purpose; the command line prints it without a
    traceback.
    """


class RecipeError(TaskLMError):
    """The recipe or the command line is wrong; lists all problems at once."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = [shortened(problem) for problem in problems]
        count = len(problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        more = [f"… and {count - MOST_PROBLEMS} more"] if count > MOST_PROBLEMS else []
        super().__init__(
            f"{head} in the recipe:\n"
            + "\n".join(f"  - {one}" for one in [*self.problems[:MOST_PROBLEMS], *more])
        )


class DataError(TaskLMError):
    """Something is wrong with an input file; names the file, the line (if there is one) and the
    remedy.
    """

    def __init__(
        self, problem: str, *, file: str | Path | None = None, line: int | None = None, remedy: str
    ) -> None:
        problem = shortened(problem)
        self.problem, self.file, self.line, self.remedy = problem, file, line, remedy
        where = (
            "" if file is None else f"{file}" + ("" if line is None else f", line {line}") + ": "
        )
        super().__init__(f"{where}{problem}. {remedy}")


class RunError(TaskLMError):
    """The run folder cannot be used: locked, unwritable, full, or damaged."""


class DamagedError(RunError):
    """A file differs from what was written; `artefact` is the folder to rebuild, if it is part of
    one.
    """

    def __init__(self, file: Path, problem: str, remedy: str, artefact: Path | None = None) -> None:
        self.file, self.problem, self.remedy, self.artefact = file, problem, remedy, artefact
        super().__init__(f"{file} is damaged ({problem}). {remedy}")

    def __reduce__(self) -> tuple[type[DamagedError], tuple[Path, str, str, Path | None]]:
        # it may come from another process
        return type(self), (self.file, self.problem, self.remedy, self.artefact)


class TrainingError(TaskLMError):
    """Training cannot continue, for example because the loss is not a number."""
