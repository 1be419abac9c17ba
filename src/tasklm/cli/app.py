"""The verbs, thin: read the command line, call the package, show the result."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tasklm.cli.bill import bill
from tasklm.cli.check import audit, scrub
from tasklm.cli.compare import compare_contestants
from tasklm.cli.distill import distill
from tasklm.cli.explain import check_labels, explain
from tasklm.cli.export import export
from tasklm.cli.forecast import DEFAULT_SECONDS, show_forecast
from tasklm.cli.images import refuse_image_recipe, starter_of
from tasklm.cli.label_next import label_next
from tasklm.cli.last_resort import Verbs, guarded
from tasklm.cli.options import (
    EXTRA,
    Compare,
    Corpus,
    Dev,
    Engine,
    Flops,
    Json,
    LabelColumn,
    Licence,
    Master,
    Memory,
    Minutes,
    Out,
    RecipeFile,
    RunFolder,
    Tasks,
    Test,
    TextColumn,
    Train,
    Verbose,
    Without,
    data_options,
    files_and_options,
    overrides_of,
)
from tasklm.cli.predict import predict
from tasklm.cli.report import compare
from tasklm.cli.results import show_next
from tasklm.cli.running import load_recipe, new_tracker, run_flow, run_until
from tasklm.cli.score import rerank, score
from tasklm.cli.search import explain_selection, search
from tasklm.cli.serve import serve
from tasklm.cli.study import study
from tasklm.cli.update import update_run
from tasklm.cli.watch import Watch, watch
from tasklm.console.terminal import say
from tasklm.errors import RecipeError

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
screen = Console(stderr=True)


@app.command(context_settings=EXTRA)
def fit(
    train: Tasks,
    corpus: Corpus = None,
    dev: Dev = None,
    test: Test = None,
    out: Out = Path("runs/model"),
    minutes: Minutes = None,
    flops: Flops = None,
    compare: Compare = None,
    memory: Memory = None,
    engine: Engine = None,
    master: Master = None,
    recipe: RecipeFile = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    without: Without = None,
    licence: Licence = None,
    watching: Watch = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Train a model from a labelled file: the whole flow.

    Checks, selects, tokenizes, trains, fine-tunes, scores and writes a report. Several files or
    folders of splits train one model of several tasks. Any recipe key is an option: --section.key
    value.

    Example: tasklm fit train.csv --test test.csv --corpus texts/ --out runs/first --minutes 20
    --select.k 500
    """
    files, options = files_and_options(train)
    data = data_options(files, corpus, dev, test, text_column, label_column)
    selection = {"select__memory": memory, "select__engine": engine, "select__master": master}
    overrides = overrides_of(
        options,
        **data,
        **selection,
        budget__minutes=minutes,
        budget__flops=flops,
        evaluate__compare=compare,
        data__without=without,
        data__licences=licence,
    )
    run_flow(load_recipe(recipe, overrides), out, as_json, new_tracker(verbose), watching=watching)


@app.command(context_settings=EXTRA)
def run(
    context: typer.Context,
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML).")],
    out: Annotated[
        Path | None, typer.Option(help="Run folder; by default runs/ and the recipe's name.")
    ] = None,
    without: Without = None,
    licence: Licence = None,
    watching: Watch = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Train a model from a recipe: the whole flow.

    Any recipe key is an option: --section.key value.

    Example: tasklm run recipe.toml --out runs/first
    """
    out = out or Path("runs") / recipe.stem
    named = {"data__without": without, "data__licences": licence}
    changed = load_recipe(recipe, overrides_of(context.args, **named))
    run_flow(changed, out, as_json, new_tracker(verbose), watching=watching)


app.command(context_settings=EXTRA)(distill)


@app.command(context_settings=EXTRA)
def init(
    context: typer.Context,
    train: Train,
    corpus: Corpus = None,
    dev: Dev = None,
    test: Test = None,
    to: Annotated[Path, typer.Option(help="Recipe to write.")] = Path("recipe.toml"),
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
) -> None:
    """Write a commented recipe for your data.

    Columns, kind of task, metric and sizes are detected.

    Example: tasklm init train.csv --corpus texts/ --to recipe.toml
    """
    overrides = overrides_of(
        context.args, **data_options(train, corpus, dev, test, text_column, label_column)
    )
    recipe = load_recipe(None, overrides)
    for note in starter_of(recipe)(recipe, to):
        say(screen, note)
    say(screen, str(to), "wrote")
    show_next(Console(), ["tasklm", "run", str(to)])


@app.command(context_settings=EXTRA)
def check(
    train: Tasks,
    corpus: Corpus = None,
    dev: Dev = None,
    test: Test = None,
    out: Out = Path("runs/check"),
    recipe: RecipeFile = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    influence: Annotated[
        bool,
        typer.Option(
            "--influence",
            help=(
                "List probably mislabelled training examples of a finished run (given instead of "
                "TRAIN)."
            ),
        ),
    ] = False,
    files: Annotated[
        bool,
        typer.Option(
            "--files", help="List damaged files of a run or a model (given instead of TRAIN)."
        ),
    ] = False,
    top: Annotated[
        int, typer.Option(help="With --influence: number of examples to show.", min=1)
    ] = 20,
    as_json: Json = False,
) -> None:
    """Audit the data before training.

    Exits with 1 if there are errors. For a finished run, --influence lists examples that are
    probably mislabelled, and --files lists damaged files.

    Example: tasklm check train.csv --test test.csv --corpus texts/

    Example: tasklm check runs/first --influence --top 50
    """
    paths, options = files_and_options(train)
    if influence or files:
        if any((options, paths[1:], corpus, dev, test, recipe, text_column, label_column)):
            problem = "check --influence and --files take their data from the run"
            raise RecipeError([f"{problem}; the only other options are --top and --json"])
        if files:
            scrub(Path(paths[0]), as_json)
        else:
            check_labels(Path(paths[0]), top, as_json)
        return
    overrides = overrides_of(
        options, **data_options(paths, corpus, dev, test, text_column, label_column)
    )
    audit(load_recipe(recipe, overrides), out, as_json)
    if not as_json:
        named = {"--dev": dev, "--test": test, "--recipe": recipe}
        columns = {"--text-column": text_column, "--label-column": label_column}
        words = _fit_words(paths, corpus or [], {**named, **columns})
        show_next(Console(), [*words, *options])


@app.command(context_settings=EXTRA)
def forecast(
    context: typer.Context,
    train: Train,
    corpus: Corpus = None,
    dev: Dev = None,
    test: Annotated[str | None, typer.Option(help="Test file; its labels are not used.")] = None,
    recipe: RecipeFile = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    seconds: Annotated[
        float, typer.Option(help="Approximate time for fitting; at most 120.")
    ] = DEFAULT_SECONDS,
    as_json: Json = False,
) -> None:
    """Forecast the test score before training.

    Shows what to expect from a linear model, after 5, 20 and 60 minutes, and with twice the labels.

    Example: tasklm forecast train.csv --corpus texts/
    """
    overrides = overrides_of(
        context.args, **data_options(train, corpus, dev, test, text_column, label_column)
    )
    loaded = load_recipe(recipe, overrides)
    refuse_image_recipe(loaded, "forecast", "its linear model reads words")
    show_forecast(loaded, seconds, as_json)


def _fit_words(train: list[str], corpus: list[str], options: dict[str, Any]) -> list[str]:
    """The arguments of a `fit` with the same data."""
    words = ["tasklm", "fit", *train]
    for path in corpus:
        words += ["--corpus", path]
    for name, value in options.items():
        if value is not None:
            words += [name, str(value)]
    return words


def _step(name: str, what: str) -> None:
    def step(
        context: typer.Context, folder: RunFolder, verbose: Verbose = False, as_json: Json = False
    ) -> None:
        run_until(name, context.args, folder, as_json, verbose)

    before = "Runs the preceding steps if needed."
    step.__doc__ = f"{what}\n\n    {before}\n\n    Example: tasklm {name} runs/first\n    "
    app.command(name=name, context_settings=EXTRA)(step)


@app.command(name="select", context_settings=EXTRA)
def select_passages(
    context: typer.Context,
    folder: RunFolder,
    explain: Annotated[
        str | None,
        typer.Option(help="Show why the passage with this id was selected, instead of selecting."),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Select the passages that matter for the task.

    Runs the preceding steps if needed.

    Example: tasklm select runs/first --explain 0f3a…
    """
    if explain is None:
        run_until("select", context.args, folder, as_json, verbose)
    else:
        explain_selection(folder, explain, as_json)


_step("tokenize", "Train the vocabulary and tokenize the selected text.")
_step("train", "Run stage 1: joint training.")
_step("finetune", "Run stage 2: fine-tuning.")
_step("evaluate", "Score the model and the baselines.")


@app.command(context_settings=EXTRA)
def report(
    words: Annotated[
        list[str], typer.Argument(help="Run folder, or several to compare.", metavar="FOLDER...")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Comparison page of several runs; by default runs-compared.html."),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Write the report of a run, or compare several runs.

    Runs the preceding steps if needed. Several finished runs are compared on one page.

    Example: tasklm report runs/first

    Example: tasklm report runs/first runs/second --out compared.html
    """
    # recipe options come last
    folders = [Path(word) for word in takewhile(lambda word: not word.startswith("--"), words)]
    options = words[len(folders) :]
    if len(folders) == 1 and out is None:
        run_until("report", options, folders[0], as_json, verbose)
    elif len(folders) < 2 or options:
        problem = "report takes one run folder and recipe options"
        raise RecipeError([f"{problem}, or several run folders and --out"])
    else:
        compare(folders, out or Path("runs-compared.html"), as_json)


app.command()(predict)
app.command()(search)
app.command()(explain)
app.command()(bill)
app.command()(label_next)
app.command()(export)
app.command()(score)
app.command()(rerank)
app.command()(serve)
app.command()(watch)
app.command("update", context_settings=EXTRA)(update_run)
app.command("compare", context_settings=EXTRA)(compare_contestants)
app.command(context_settings=EXTRA)(study)


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    data: Annotated[Path, typer.Option(help="Folder for the data set.")] = Path("runs/demo-data"),
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run the whole flow on the built-in data set.

    Example: tasklm demo
    """
    from tasklm.demo.recipe import demo_recipe

    tracker = new_tracker(verbose)
    run_flow(demo_recipe(data, tracker), out, as_json, tracker)


def main() -> None:
    """Runs the command line; errors end in a message, without a traceback."""
    guarded(app, screen)


if __name__ == "__main__":
    main()
