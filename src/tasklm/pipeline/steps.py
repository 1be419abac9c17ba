"""The arrows from selected text to trained models, each an artefact of the run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from tasklm.artifacts import Artefacts
from tasklm.budget.rules import USUAL_SEEDS, Plan
from tasklm.budget.scope import LINEAR
from tasklm.console.progress import Bar
from tasklm.encoders.shapes import SIZES, encoder_of, shape_of
from tasklm.errors import RecipeError
from tasklm.models.answering import encoded_with
from tasklm.objectives.base import OBJECTIVES, HeldOutObjective
from tasklm.pipeline.context import (
    Run,
    TaskData,
    Tokenised,
    Training,
    sections,
    training_settings,
    without_seeds,
)
from tasklm.pipeline.linear_part import FittedPart, wide_part
from tasklm.pipeline.planning import MEASURING
from tasklm.pipeline.raw_text import NO_RAW_TEXT, RawTexts, encoded_raw_text
from tasklm.pipeline.stage_planning import short_time_warning, stage2_seconds, stage_plan
from tasklm.pipeline.summaries import stage1_text, stage2_text
from tasklm.pipeline.taught_text import NO_TEXT, TaughtText
from tasklm.pipeline.teachers import Taught, taught
from tasklm.recipe.model_sections import Train
from tasklm.recipe.parsing import values_for_key
from tasklm.recipe.schema import Recipe
from tasklm.registry import nearest
from tasklm.run_folder import SUMMARY, Seed, seeds_of, stage1_name
from tasklm.select.base import read_selection_texts, selection_size
from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import digest, read_json, write_record
from tasklm.tasks.writing import writes
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.held_out import held_out_count, held_out_passages
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary, vocabulary_size
from tasklm.train.context import TrainingContext
from tasklm.train.stage_runs import Stage1Plan, Stage2Plan, run_stage1, run_stage2
from tasklm.train.start import starting_weights

SCORING_PASSES = 30  # over the task, that train a scoring model …
FEWEST_SCORING_STEPS, MOST_SCORING_STEPS = 200, 2000  # … within these bounds
SCORING_SHARE = 0.1  # of a budget in minutes


def tokenize(
    run: Run, task: TaskData, selected: Path | None, selected_key: str, name: str = "tokens"
) -> Tokenised:
    """The vocabulary of the selected and the task's text, and the selected text as tokens."""
    settings, file = run.recipe.tokens, ""
    if settings.kind == "file" and settings.file:
        file = run.inputs.content(Path(settings.file))
    key = digest([task.key, selected_key, file, *sections(run.recipe, "tokens")])

    def build(folder: Path) -> None:
        if settings.kind == "file":
            vocabulary = Vocabulary.load(Path(settings.file))
        else:
            texts = chain.from_iterable(_texts(task, selected))
            size = settings.vocabulary or vocabulary_size(sum(len(text.split()) for text in texts))
            with run.tracker.progress("learning the vocabulary"):
                exact = writes(task.task)
                vocabulary = train_vocabulary(_texts(task, selected), settings, size, exact)
        vocabulary.save(folder / "tokenizer.json")
        if selected is not None:
            with run.tracker.progress("tokenize", selection_size(selected)) as bar:
                write_shards(folder, _counted(read_selection_texts(selected), bar), vocabulary)

    sources = [] if selected is None else [selected.parent]
    folder = run.artefacts.build(name, key, build, uses=sources)
    shards = None if selected is None else Shards.open(folder)
    with damage_is_clear(folder / "tokenizer.json"):
        return Tokenised(Vocabulary.load(folder / "tokenizer.json"), shards, key, folder)


def _texts(task: TaskData, selected: Path | None) -> Iterator[Sequence[str]]:
    yield task.texts("train")
    if selected is not None:
        yield from read_selection_texts(selected)


def _counted(batches: Iterator[list[str]], bar: Bar) -> Iterator[list[str]]:
    for batch in batches:
        yield batch
        bar.advance(len(batch))


def training_context(
    run: Run,
    task: TaskData,
    tokens: Tokenised,
    plan: Plan,
    text: TaughtText = NO_TEXT,
    raw: RawTexts = NO_RAW_TEXT,
) -> TrainingContext:
    """The inputs of both training stages; for the second `text` is what teachers labelled, and
    `raw` has no labels.
    """
    recipe, length = run.recipe, run.recipe.tokens.rows
    if recipe.train.start:
        shape = starting_weights(Path(recipe.train.start)).shape_for(length)
    else:
        shape = shape_of(recipe.model, plan.size, len(tokens.vocabulary), length)
    part, taught_by = wide_part(run, task), taught(run, task)
    lessons = None
    if text.outputs is not None:
        lessons = _with_text(task, tokens, length, part, taught_by, text)
    return TrainingContext(
        encoder_of(recipe.model, plan.size),
        shape,
        task.task,
        tokens.vocabulary,
        EncodedExamples.of(
            task.task,
            task.splits.train,
            tokens.vocabulary,
            length,
            part.train,
            taught_by.outputs,
        ),
        encoded_with(part.wide, task.task, task.splits.dev, tokens.vocabulary, length),
        tokens.external if recipe.uses_corpus else None,
        length,
        run.machine,
        part.wide,
        recipe.distill.labels,
        recipe.several.power,
        lessons,
        text.key,
        encoded_raw_text(run, task, tokens, raw),
        raw.key,
        _held_out(recipe, tokens),
        recipe.tokens.external_length,
    )


def _held_out(recipe: Recipe, tokens: Tokenised) -> np.ndarray | Sequence[int]:
    """The passages of the selected text that stage 1 never reads."""
    settings = recipe.train
    if tokens.external is None or not recipe.uses_corpus:
        return ()
    if not issubclass(OBJECTIVES.get(settings.objective), HeldOutObjective):
        if settings.held_out:
            problem = f"the loss of {settings.objective} depends on what replaces its tokens"
            way = "choose train.objective = mlm, permutation or bilm, or leave it out"
            raise RecipeError([f"train.held_out = {settings.held_out}: {problem}; {way}"])
        return ()
    count = held_out_count(settings.held_out, len(tokens.external))
    return held_out_passages(tokens.external, count) if count else ()


def _with_text(
    task: TaskData,
    tokens: Tokenised,
    length: int,
    part: FittedPart,
    taught_by: Taught,
    text: TaughtText,
) -> EncodedExamples:
    """The training examples, and text that teachers labelled."""
    assert taught_by.outputs is not None and text.outputs is not None
    wide = None
    if part.wide is not None and part.train is not None:
        wide = np.concatenate([part.train, part.wide.outputs(text.examples)])
    return EncodedExamples.of(
        task.task,
        [*task.splits.train, *text.examples],
        tokens.vocabulary,
        length,
        wide,
        np.concatenate([taught_by.outputs, text.outputs]),
    )


def train(
    run: Run, task: TaskData, parts: TrainingContext, tokens: Tokenised, plan: Plan
) -> list[Training]:
    """The trainings of stage 1; the number of steps is decided once, when the first one starts.

    The others take as many steps as the first, whatever time they need, so that they differ only in
    their seeds.
    """
    trainings: list[Training] = []
    for number in range(1, run.recipe.train.seeds + 1):
        settings = training_settings(run.recipe.train, number)
        done = _as_trained(trainings[0].folder) if trainings else None
        key = digest(
            [
                tokens.key,
                plan.size,
                plan.batch,
                _start_digest(run.recipe),
                *sections(run.recipe, "model"),
                without_seeds(settings),
                *sections(run.recipe, "budget"),
                *([plan.reach] if plan.reach == LINEAR else []),
                *([] if done is None else [dataclasses.asdict(done)]),
                *([run.recipe.several.power] if run.recipe.several.tasks else []),
            ]
        )
        title = "stage 1" if number == 1 else f"stage 1, training {number}"

        def build(
            folder: Path,
            settings: Train = settings,
            done: Stage1Plan | None = done,
            title: str = title,
        ) -> None:
            stage1 = done or _stage1_plan(run, task, parts, plan, folder)
            if not stage1.steps and not _tunes(trainings[0].folder if trainings else folder):
                # no step will follow, and counts would be for nothing
                settings = dataclasses.replace(settings, embeddings="random", attention="random")
            run_stage1(folder, parts, settings, stage1, run.tracker, title)
            if run.machine.ranks.first and stage1.steps:
                run.tracker.say(stage1_text(read_json(folder / SUMMARY)), title)

        folder = run.artefacts.build(
            stage1_name(number), key, build, uses=[tokens.folder], together=True
        )
        trainings.append(Training(number, folder, key))
    return trainings


def _start_digest(recipe: Recipe) -> str:
    """A hash of the weights that training starts from; empty for random ones."""
    start = recipe.train.start
    return starting_weights(Path(start)).digest() if start else ""


def _stage1_plan(
    run: Run, task: TaskData, parts: TrainingContext, plan: Plan, folder: Path
) -> Stage1Plan:
    """The decisions of the first training of stage 1 at its start, kept in its folder."""
    held_out = sum(len(part) for part in task.held_out.values())
    if run.machine.ranks.first and not (folder / "plan.json").exists():
        with run.machine.ranks.by_itself(), run.tracker.progress(MEASURING):
            write_record(folder / "plan.json", stage_plan(run, parts, plan, held_out))
    run.machine.ranks.wait()
    with damage_is_clear(folder / "plan.json"):
        decided = read_json(folder / "plan.json")
        stage1 = Stage1Plan(**decided["stage1"])
        warning = short_time_warning(run.recipe, decided, plan.reach)
    if warning:
        run.tracker.warn(warning)
    return stage1


def _tunes(stage1: Path) -> bool:
    """Whether the plan of a training of stage 1 has epochs of fine-tuning."""
    with damage_is_clear(stage1 / "plan.json"):
        return bool(read_json(stage1 / "plan.json")["epochs"])


def _as_trained(stage1: Path) -> Stage1Plan:
    """The results of a finished training of stage 1."""
    with damage_is_clear(stage1 / SUMMARY):
        summary = read_json(stage1 / SUMMARY)
        return Stage1Plan(summary["steps"], summary["rho1"], summary["batch"], seconds_allowed=None)


def scoring_run(run: Run, plan: Plan) -> tuple[Run, Plan]:
    """The run and plan by which the scoring model of influence selection is trained.

    It learns MLM and the task on the task's data only, with equal weights of both losses (ISS,
    algorithm 1). It is like the model itself, except for the settings in [select].
    """
    size, model = run.recipe.select.influence_model, {}
    if size != "auto":
        _require_scoring_size(run.recipe)
        numbers = ("layers", "width", "heads", "feedforward", "embedding")
        model = {"size": size, **dict.fromkeys(numbers)}
        plan = dataclasses.replace(plan, size=size)
    recipe = run.recipe.changed(
        model=model,
        train={
            "objective": "mlm",
            "rho1": 0,
            "rho2": 1.0,
            "average": 0.0,
            "internal_pass": "two",
            "anneal": 0.0,
        },
    )
    return dataclasses.replace(run, recipe=recipe), plan


def _require_scoring_size(recipe: Recipe) -> None:
    """Refuses an unknown size of the scoring model, or any size if it starts from given weights."""
    size = recipe.select.influence_model
    if recipe.train.start:
        problem = "with train.start the scoring model starts from there too; leave it out"
        raise RecipeError([f"select.influence_model: {problem}"])
    if size not in SIZES:
        choices = f"choose from auto, {', '.join(SIZES)}{nearest(size, list(SIZES))}"
        raise RecipeError([f"select.influence_model = {size!r}: {choices}"])


def train_scoring_model(
    run: Run, parts: TrainingContext, tokens: Tokenised, plan: Plan
) -> tuple[Path, str]:
    """The folder of the scoring model of a `scoring_run` and its key."""
    steps, seconds = run.recipe.select.influence_steps, None
    if steps is None:
        passes = SCORING_PASSES * -(-len(parts.train) * parts.task.together // plan.batch)
        steps = max(FEWEST_SCORING_STEPS, min(MOST_SCORING_STEPS, passes))
        if plan.seconds is not None:
            seconds = SCORING_SHARE * plan.seconds
    # those of stage 1 do not matter here
    settings = dataclasses.replace(run.recipe.train, steps=None, seeds=1)
    key = digest(
        [
            tokens.key,
            plan.size,
            plan.batch,
            steps,
            seconds,
            _start_digest(run.recipe),
            without_seeds(settings),
            *sections(run.recipe, "model"),
        ]
    )

    def build(folder: Path) -> None:
        stage1 = Stage1Plan(steps, 0, plan.batch, seconds)
        run_stage1(folder, parts, settings, stage1, run.tracker, "scoring model")

    folder = run.artefacts.build("scoring-model", key, build, uses=[tokens.folder], together=True)
    return folder, key


def _require_stage1(stage1: Path) -> None:
    """Refuses to do without fine-tuning where stage 1 took no step either."""
    if not _as_trained(stage1).steps:
        way = "raise the budget or train.steps, or give 1 or more epochs"
        raise RecipeError([f"finetune.epochs = 0 keeps stage 1, which has no step: {way}"])


def finetune(
    run: Run,
    task: TaskData,
    parts: TrainingContext,
    trainings: Sequence[Training],
    plan: Plan,
    after_seed: Callable[[list[Seed]], None] | None = None,
) -> list[Seed]:
    """The fine-tuned models: finetune.seeds of each training of stage 1.

    `after_seed` receives the finished ones while others are still to come.
    """
    recipe = run.recipe
    decided = trainings[0].folder / "plan.json"
    with damage_is_clear(decided):
        planned = read_json(decided)  # may come from a run with other numbers, or an older one
        given = recipe.finetune.epochs
        epochs = int(planned["epochs"]) if given is None else given
        tunings = recipe.finetune.seeds or int(planned.get("seeds", USUAL_SEEDS))
        ending = float(planned.get("ending", 0.0))
    if not epochs and parts.wide is None:
        _require_stage1(trainings[0].folder)
    # a different number of seeds repeats none of them
    settings = dataclasses.replace(recipe.finetune, seeds=1)
    seeds = seeds_of(run.folder, len(trainings), tunings)
    wide = [] if parts.wide is None else [wide_part(run, task).key]
    teachers = [taught(run, task).key, recipe.distill.labels] if parts.taught else []
    if parts.lessons_key:
        teachers.append(parts.lessons_key)
    before = [*wide, *teachers, *([parts.raw_key] if parts.raw_key else [])]
    trained: list[Seed] = []  # newly trained seeds
    for number, seed in enumerate(seeds):
        training = trainings[seed.stage1 - 1]
        key = digest(
            [training.key, epochs, task.metric, seed.stage2, values_for_key(settings), *before]
        )

        def build(folder: Path, seed: Seed = seed, seeds_left: int = len(seeds) - number) -> None:
            seconds = stage2_seconds(run, plan, ending, seeds_left)
            stage2 = Stage2Plan(epochs, task.metric, recipe.train.checkpoint_seconds, seconds)
            run_stage2(folder, parts, settings, stage2, seed, run.tracker)
            trained.append(seed)

        group = Artefacts(seed.folder.parent, run.machine.ranks, tell=run.tracker.warn)
        group.build(seed.folder.name, key, build, uses=[training.folder], together=True)
        if after_seed is not None and number + 1 < len(seeds):
            after_seed(seeds[: number + 1])
    if trained and run.machine.ranks.first:
        run.tracker.say(stage2_text([seed.summary() for seed in seeds], task.metric), "stage 2")
    return seeds
