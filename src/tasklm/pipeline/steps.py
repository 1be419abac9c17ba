"""What each arrow of the flow does, as an artefact of the run folder: built once, skipped when
done, continued when cut off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tasklm.artifacts import Artefacts
from tasklm.budget.rules import USUAL_SEEDS, Plan
from tasklm.console.progress import Bar
from tasklm.corpus.decontaminate import Contamination, contaminated
from tasklm.corpus.spark.files import list_files
from tasklm.corpus.spark.session import Spark
from tasklm.corpus.spark.store import (
    SparkStore,
    build_spark_store,
    contaminated_on_spark,
    spark_corpus_key,
)
from tasklm.corpus.store import PassageStore, kept_store
from tasklm.encoders.shapes import SIZES, encoder_of, shape_of
from tasklm.errors import DataError, RecipeError
from tasklm.models.task_model import encoded_with
from tasklm.pipeline.context import (
    CorpusData,
    Run,
    TaskData,
    Tokenised,
    Training,
    sections,
    training_settings,
    without_seeds,
)
from tasklm.pipeline.linear_part import wide_part
from tasklm.pipeline.planning import MEASURING, few_steps_warning, stage2_seconds, stage_plan
from tasklm.pipeline.summaries import stage1_text, stage2_text
from tasklm.recipe.model_sections import Train
from tasklm.registry import nearest
from tasklm.run_folder import Seed, seeds_of, stage1_name
from tasklm.select.base import read_selection_texts, selection_size
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import damaged, digest, file_digest, read_json, write_json, write_record
from tasklm.tasks.audit import audit_corpus, audit_splits
from tasklm.tasks.base import TASKS
from tasklm.tasks.readers.splits import read_splits
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary, vocabulary_size
from tasklm.train.stages import Ingredients, Stage1Plan, Stage2Plan, run_stage1, run_stage2
from tasklm.train.start import starting_weights

SCORING_PASSES, SCORING_STEPS = (
    30,
    (200, 2000),
)  # passes over the task that train a scoring model; steps, at least and at most
SCORING_SHARE = 0.1  # of a budget in minutes


def read_task(run: Run) -> TaskData:
    """The labelled data with its audit."""
    data = run.recipe.data
    if not data.train:
        raise DataError("there is no training file", remedy="Give one: tasklm fit TRAIN --corpus …")
    splits = read_splits(data)
    task = TASKS.get(data.kind).from_examples(splits.train, run.recipe.kind)
    files = [_content(Path(name)) for name in (data.train, data.dev, data.test) if name]
    how = [
        data.text_column,
        data.label_column,
        data.options_column,
        data.dev_share,
        data.leaks,
        data.kind,
        *sections(run.recipe, "kind"),
    ]
    metric = run.recipe.evaluate.metric
    metric = task.metrics[0] if metric == "auto" else task.metric(metric).name
    return TaskData(
        task,
        splits,
        [*task.audit(splits), *audit_splits(splits, data)],
        digest([files, how]),
        metric,
    )


def _content(path: Path) -> str:
    if path.is_dir():
        return digest(
            [
                (str(file.relative_to(path)), file_digest(file))
                for file in sorted(path.rglob("*"))
                if file.is_file()
            ]
        )
    return file_digest(path)


def prepare_corpus(run: Run, task: TaskData) -> CorpusData | None:
    """The passages of the corpus, deduplicated, with those that hold dev or test text marked."""
    data, tracker = run.recipe.data, run.tracker
    if not data.corpus:
        return None
    store: PassageStore | SparkStore
    if run.recipe.select.engine == "spark":
        store, key, name = _spark_store(run)
    else:
        store, key, name = kept_store(
            data.corpus, data.corpus_column, data.passage_words, run.cache, tracker
        )
    held_out = {split: task.texts(split) for split in ("dev", "test") if task.texts(split)}
    banned_key = digest([key, held_out, data.contamination_words])

    def decontaminate(part: Path) -> None:
        look = contaminated_on_spark if isinstance(store, SparkStore) else contaminated
        found = look(store, held_out, data.contamination_words, tracker)  # type: ignore[arg-type]
        np.save(part / "banned.npy", found.banned)
        write_json(
            part / "found.json",
            {"examples": found.examples, "short": found.short, "unchecked": found.unchecked},
        )

    part = run.artefacts.build("decontaminated", banned_key, decontaminate, uses=[store.folder])
    contamination = _contamination(part, len(store))
    findings = audit_corpus(store, task.splits, contamination)
    return CorpusData(
        store, contamination, findings, digest([key, banned_key]), name, (store.folder, part)
    )


def _contamination(folder: Path, passages: int) -> Contamination:
    """Which passages hold text of dev or test, as the artefact has it."""
    banned = load_array(folder / "banned.npy", np.bool_)
    if len(banned) != passages:
        raise damaged(
            folder / "banned.npy", f"it is of {len(banned):,} passages, and there are {passages:,}"
        )
    with damage_is_clear(folder / "found.json"):
        return Contamination(banned, **read_json(folder / "found.json"))


def _spark_store(run: Run) -> tuple[SparkStore, str, str]:
    """The passages of a corpus that stays on a cluster, their key and the
    name of their artefact.
    """
    data, settings = run.recipe.data, run.recipe.select
    spark = Spark(settings.master, settings.spark)
    files = list_files(data.corpus, spark)
    key = spark_corpus_key(files, data.corpus_column, data.passage_words)
    name = f"spark-corpus-{key}"
    how = (files, data.corpus_column, data.passage_words, spark, run.tracker)
    return (
        SparkStore(run.cache.build(name, key, lambda part: build_spark_store(part, *how)), spark),
        key,
        name,
    )


def tokenize(
    run: Run, task: TaskData, selected: Path | None, selected_key: str, name: str = "tokens"
) -> Tokenised:
    """The vocabulary, trained on the selected and the task text, and the selected text as tokens,
    as the artefact `name`.
    """
    settings = run.recipe.tokens
    file = file_digest(Path(settings.file)) if settings.kind == "file" and settings.file else ""
    key = digest([task.key, selected_key, file, *sections(run.recipe, "tokens")])

    def build(folder: Path) -> None:
        if settings.kind == "file":
            vocabulary = Vocabulary.load(Path(settings.file))
        else:
            size = settings.vocabulary or vocabulary_size(
                sum(len(text.split()) for batch in _texts(task, selected) for text in batch)
            )
            with run.tracker.progress("learning the vocabulary"):
                vocabulary = train_vocabulary(_texts(task, selected), settings, size)
        vocabulary.save(folder / "tokenizer.json")
        if selected is not None:
            with run.tracker.progress("tokenize", selection_size(selected)) as bar:
                write_shards(folder, _counted(read_selection_texts(selected), bar), vocabulary)

    folder = run.artefacts.build(
        name, key, build, uses=[] if selected is None else [selected.parent]
    )
    shards = Shards.open(folder) if selected is not None else None
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


def ingredients(run: Run, task: TaskData, tokens: Tokenised, plan: Plan) -> Ingredients:
    """What both training stages are made from."""
    recipe, length = run.recipe, run.recipe.tokens.rows
    start = recipe.train.start
    shape = (
        starting_weights(Path(start)).shape_for(length)
        if start
        else shape_of(recipe.model, plan.size, len(tokens.vocabulary), length)
    )

    part = wide_part(run, task)

    external = tokens.external if recipe.uses_corpus else None
    return Ingredients(
        encoder_of(recipe.model, plan.size),
        shape,
        task.task,
        tokens.vocabulary,
        EncodedExamples.of(task.task, task.splits.train, tokens.vocabulary, length, part.train),
        encoded_with(part.wide, task.task, task.splits.dev, tokens.vocabulary, length),
        external,
        length,
        run.machine,
        part.wide,
    )


def train(
    run: Run, task: TaskData, parts: Ingredients, tokens: Tokenised, plan: Plan
) -> list[Training]:
    """The trainings of stage 1; the number of steps is decided once, when the first one starts.

    The others take as many steps as the first took, whatever time they need, so that they differ by
    their seeds alone.
    """
    start = run.recipe.train.start
    started_from = starting_weights(Path(start)).digest() if start else ""
    trainings: list[Training] = []
    for number in range(1, run.recipe.train.seeds + 1):
        settings = training_settings(run.recipe.train, number)
        done = None if number == 1 else _as_trained(trainings[0].folder)
        made_of = [
            *sections(run.recipe, "model"),
            without_seeds(settings),
            *sections(run.recipe, "budget"),
        ]
        key = digest(
            [
                tokens.key,
                plan.size,
                plan.batch,
                started_from,
                *made_of,
                *([] if done is None else [dataclasses.asdict(done)]),
            ]
        )
        title = "stage 1" if number == 1 else f"stage 1, training {number}"

        def build(
            folder: Path,
            settings: Train = settings,
            done: Stage1Plan | None = done,
            title: str = title,
        ) -> None:
            run_stage1(
                folder,
                parts,
                settings,
                done or _stage1_plan(run, task, parts, plan, folder),
                run.tracker,
                title,
            )
            if run.machine.ranks.first:
                run.tracker.say(stage1_text(read_json(folder / "summary.json")), title)

        folder = run.artefacts.build(
            stage1_name(number), key, build, uses=[tokens.folder], together=True
        )
        trainings.append(Training(number, folder, key))
    return trainings


def _stage1_plan(
    run: Run, task: TaskData, parts: Ingredients, plan: Plan, folder: Path
) -> Stage1Plan:
    """What the first training of stage 1 decides when it starts, and keeps in its folder."""
    held = sum(len(part) for name, part in task.splits.named().items() if name != "train")
    if run.machine.ranks.first and not (folder / "plan.json").exists():
        with run.machine.ranks.by_itself(), run.tracker.progress(MEASURING):
            write_record(folder / "plan.json", stage_plan(run, parts, plan, held))
    run.machine.ranks.wait()
    with damage_is_clear(folder / "plan.json"):
        decided = Stage1Plan(**read_json(folder / "plan.json")["stage1"])
    if warning := few_steps_warning(run.recipe, decided.steps, decided.batch):
        run.tracker.warn(warning)
    return decided


def _as_trained(stage1: Path) -> Stage1Plan:
    """The numbers that a finished training of stage 1 came to."""
    with damage_is_clear(stage1 / "summary.json"):
        summary = read_json(stage1 / "summary.json")
        return Stage1Plan(summary["steps"], summary["rho1"], summary["batch"], seconds_allowed=None)


def scoring_run(run: Run, plan: Plan) -> tuple[Run, Plan]:
    """The run and plan by which the scoring model of influence selection is trained: MLM and task,
    on the task's data alone.

    Both losses count alike (ISS, algorithm 1). It is as the model itself, but for what [select]
    says of it.
    """
    settings, model = run.recipe.select, {}
    if settings.influence_model != "auto":
        if run.recipe.train.start:
            raise RecipeError(
                [
                    (
                        "select.influence_model: with train.start the "
                        "scoring model starts from there too; leave it out"
                    )
                ]
            )
        if settings.influence_model not in SIZES:
            near = nearest(settings.influence_model, list(SIZES))
            raise RecipeError(
                [
                    (
                        f"select.influence_model = "
                        f"{settings.influence_model!r}: choose from auto, {', '.join(SIZES)}{near}"
                    )
                ]
            )
        model = {
            "size": settings.influence_model,
            **dict.fromkeys(("layers", "width", "heads", "feedforward", "embedding")),
        }
        plan = dataclasses.replace(plan, size=settings.influence_model)
    recipe = run.recipe.changed(
        model=model, train={"objective": "mlm", "rho1": 0, "rho2": 1.0, "average": 0.0}
    )
    return dataclasses.replace(run, recipe=recipe), plan


def train_scoring_model(
    run: Run, parts: Ingredients, tokens: Tokenised, plan: Plan
) -> tuple[Path, str]:
    """The folder of the scoring model of a `scoring_run` and its key."""
    asked, start = run.recipe.select.influence_steps, run.recipe.train.start
    passes = SCORING_PASSES * -(-len(parts.train) * parts.task.together // plan.batch)
    steps = asked or max(SCORING_STEPS[0], min(SCORING_STEPS[1], passes))
    seconds = None if asked or plan.seconds is None else SCORING_SHARE * plan.seconds
    started_from = starting_weights(Path(start)).digest() if start else ""
    settings = dataclasses.replace(
        run.recipe.train, steps=None, seeds=1
    )  # those of stage 1 do not matter here
    made_of = [without_seeds(settings), *sections(run.recipe, "model")]
    key = digest([tokens.key, plan.size, plan.batch, steps, seconds, started_from, *made_of])

    def build(folder: Path) -> None:
        run_stage1(
            folder,
            parts,
            settings,
            Stage1Plan(steps, 0, plan.batch, seconds),
            run.tracker,
            "scoring model",
        )

    return run.artefacts.build(
        "scoring-model", key, build, uses=[tokens.folder], together=True
    ), key


def finetune(
    run: Run,
    task: TaskData,
    parts: Ingredients,
    trainings: Sequence[Training],
    plan: Plan,
    after_seed: Callable[[list[Seed]], None] | None = None,
) -> list[Seed]:
    """The fine-tuned models: finetune.seeds of each training of stage 1.

    `after_seed` is handed those that are done while others are still to come.
    """
    recipe = run.recipe
    decided = trainings[0].folder / "plan.json"
    with damage_is_clear(decided):
        planned = read_json(decided)  # may be of a run with other numbers, or of the version before
        epochs = recipe.finetune.epochs or int(planned["epochs"])
        tunings = recipe.finetune.seeds or int(planned.get("seeds", USUAL_SEEDS))
        ending = float(planned.get("ending", 0.0))
    settings = dataclasses.replace(
        recipe.finetune, seeds=1
    )  # another number of seeds redoes none of them
    seeds = seeds_of(run.folder, len(trainings), tunings)
    wide = [] if parts.wide is None else [wide_part(run, task).key]
    trained: list[Seed] = []  # seeds that were not there yet
    for number, seed in enumerate(seeds):
        training = trainings[seed.stage1 - 1]
        key = digest(
            [training.key, epochs, task.metric, seed.stage2, dataclasses.asdict(settings), *wide]
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
