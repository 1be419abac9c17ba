"""Updates of a model that is the linear one alone: refit, answers, model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasklm.errors import RecipeError
from tasklm.run_folder import UPDATE
from tasklm.storage.files import digest, read_json, write_json
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.baselines.fitted_files import save_counted
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.baselines.wide_parts import read_wide
from tasklm.tasks.examples import Example
from tasklm.updating.before_after import AFTER, BEFORE, SPLITS, Answers
from tasklm.updating.linear_part import REFIT, refit, save_linear, scale_of
from tasklm.updating.reading import is_from
from tasklm.updating.work import Learned, Work

ANSWERS, MODEL = "answers", "model"
TUNED = "task.json"  # the task with thresholds from dev
NO_TEXT = (
    "new text does not change this model: it is the linear model of words alone, which learns from "
    "labelled examples"
)


class LinearLearner:
    """The linear model of words is fitted again, to all examples."""

    def learn(self, work: Work) -> Learned:
        """Builds refit, answers and model."""
        if work.request.corpus:
            _explain_text(work)

        fitted: list[Wide] = []

        def fit(folder: Path) -> None:
            with work.tracker.progress("fitting the linear model again"):
                wide = refit(work.base, work.grounds)
                wide.save(folder)
                save_counted(folder, wide)
                fitted.append(wide.as_saved())

        refit_folder = work.artefacts.build(REFIT, digest([REFIT, work.data]), fit)
        wide = fitted[-1] if fitted else read_wide(refit_folder)
        assert isinstance(wide, Wide)

        def answer(folder: Path) -> None:
            with work.tracker.progress("answering dev and test"):
                _answer(folder, work, wide)

        key = digest([ANSWERS, work.data])
        answers = work.artefacts.build(ANSWERS, key, answer, uses=[refit_folder])

        def save(folder: Path) -> None:
            about = {**work.base.saved.config["about"], UPDATE: work.number}
            about["dev"] = read_json(answers / "dev.json")["dev"]
            save_linear(folder, work.base.saved, _tuned(work, answers), wide, about)

        model = work.artefacts.build(MODEL, digest([MODEL, work.data]), save, uses=[answers])
        return Learned(model, answers)


def _explain_text(work: Work) -> None:
    """Says what new text does to a linear model, or refuses an update of text alone."""
    if not work.request.train:
        raise RecipeError([f"--corpus: {NO_TEXT}; give --train MORE"])
    work.note(NO_TEXT)


def _tuned(work: Work, answers: Path) -> Task:
    return type(work.grounds.task).from_dict(read_json(answers / TUNED))


def _answer(folder: Path, work: Work, wide: Wide) -> None:
    """Writes what both models answer on dev and test, and the dev score."""
    grounds, scale = work.grounds, scale_of(work.base.saved)
    parts = {name: grounds.splits.named().get(name, []) for name in SPLITS}
    task = grounds.task
    dev = parts["dev"]
    wide.remember(dev)  # its outputs are asked for twice
    task = task.tuned(dev, *wide.units_with(task, dev, scale * wide.outputs(dev)))
    write_json(folder / TUNED, task.to_dict())
    for split, examples in parts.items():
        if examples:
            outputs = scale * wide.outputs(examples)
            after = task.answers(examples, *wide.units_with(task, examples, outputs))
            write_json(folder / f"{AFTER}-{split}.json", after, synced=False)
            before = before_answers(work, split, examples)
            write_json(folder / f"{BEFORE}-{split}.json", before, synced=False)
    write_json(folder / "dev.json", {"dev": Answers(folder, grounds).score(AFTER, "dev")})


def before_answers(work: Work, split: str, examples: Sequence[Example]) -> list[Answer]:
    """What the model before answers; read where the run has it already."""
    known = kept_answers(work, split, examples)
    rest = examples[len(known) :]
    if not rest:
        return known
    wide, task = work.base.wide, work.base.task
    assert wide is not None
    outputs = scale_of(work.base.saved) * wide.outputs(rest)
    return [*known, *task.answers(rest, *wide.units_with(task, rest, outputs))]


def kept_answers(work: Work, split: str, examples: Sequence[Example]) -> list[Answer]:
    """The answers of the model before that its run keeps, if they are those of the first of these
    examples; else none.
    """
    base, request = work.base, work.request
    about = base.saved.config["about"]
    path = base.folder / "predictions" / f"{split}-{about.get('seed')}.json"
    if base.saved.is_linear:  # all seeds have it
        path = base.folder / "predictions" / f"{split}-1.json"
    elif about.get("stage1") != 1 or about.get("averaged"):
        return []
    if base.number:
        path = base.folder / ANSWERS / f"{AFTER}-{split}.json"
    if not path.exists():
        return []
    answers: list[Answer] = read_json(path)
    given = [one for one in (request.train, request.dev, request.test) if one]
    earlier = [not any(is_from(one, path) for path in given) for one in examples]
    if sum(earlier) != len(answers) or not all(earlier[: len(answers)]):
        return []
    return answers
