"""The verbs, thin: read the command line, call the package, show the result."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tasklm.cli.check import scrub
from tasklm.cli.explain import check_labels, explain
from tasklm.cli.export import export
from tasklm.cli.last_resort import Verbs, guarded, traceback_in
from tasklm.cli.report import compare
from tasklm.cli.results import show_findings, show_next, show_scores, show_step_done
from tasklm.cli.score import rerank, score
from tasklm.cli.search import explain_selection, search
from tasklm.cli.serve import serve
from tasklm.cli.watch import Watch, watch, watched
from tasklm.console.terminal import say
from tasklm.errors import RecipeError
from tasklm.storage.json_lines import json_line
from tasklm.tracking import Tracker

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
screen = Console(stderr=True)
EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}

Train = Annotated[
    str,
    typer.Argument(
        help="Labelled file: CSV, TSV, JSONL, Parquet (.gz, .zst), or a folder per label."
    ),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option("--corpus", help="Raw text: file, folder or glob. May be repeated."),
]
Dev = Annotated[str | None, typer.Option(help="Labelled file that chooses the model.")]
Test = Annotated[str | None, typer.Option(help="Labelled file that is scored once, at the end.")]
Out = Annotated[Path, typer.Option(help="Run folder; the same command continues what is there.")]
RecipeFile = Annotated[Path | None, typer.Option("--recipe", help="Recipe to start from.")]
TextColumn = Annotated[str | None, typer.Option(help="Column with the text.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column with the label.")]
Minutes = Annotated[float | None, typer.Option(help="Wall time for the whole run.")]
Flops = Annotated[float | None, typer.Option(help="Training FLOPs, in place of minutes.")]
Memory = Annotated[str | None, typer.Option(help="Memory that selection may take, such as 2GB.")]
Engine = Annotated[
    str | None, typer.Option(help="Where passages are scored: local, spark or elastic.")
]
Master = Annotated[
    str | None,
    typer.Option(help="Spark's master, with --engine spark: local[2], spark://host:7077, yarn …"),
]
Compare = Annotated[
    str | None,
    typer.Option(
        help="Ablations to train beside the model: task-only, random or both, with a comma."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show all of the run's log.txt.")]
RunFolder = Annotated[Path, typer.Argument(help="Run folder.")]


def overrides_of(extra: list[str], **named: Any) -> dict[str, Any]:
    """Returns dotted keys → values from `--section.key value` words and from named options that
    were given.
    """
    found: dict[str, Any] = {
        key.replace("__", "."): value for key, value in named.items() if value is not None
    }
    problems, words = [], list(extra)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            problems.append(
                f"do not know what to do with {word!r}; options look like --section.key value"
            )
            continue
        name, equals, value = word[2:].partition("=")
        if not equals and (not words or words[0].startswith("--")):
            problems.append(f"--{name} needs a value")
            continue
        found[name.replace("-", "_")] = value if equals else words.pop(0)
    if problems:
        raise RecipeError(problems)
    return found


def data_options(
    train: str,
    corpus: list[str] | None,
    dev: str | None,
    test: str | None,
    text_column: str | None,
    label_column: str | None,
) -> dict[str, Any]:
    """The options that say where the data is, under the names that `overrides_of` takes."""
    files = {"data__train": train, "data__corpus": corpus, "data__dev": dev, "data__test": test}
    return {**files, "data__text_column": text_column, "data__label_column": label_column}


def _recipe(path: Path | None, overrides: dict[str, Any]) -> Any:
    from tasklm.recipe.toml import load

    return load(path, overrides)


def _tracker(verbose: bool) -> Tracker:
    """What tells the person how a run goes; of several processes, which `torchrun` starts, one
    speaks.
    """
    return Tracker(screen if os.environ.get("RANK", "0") == "0" else None, verbose=verbose)


def _fit(
    recipe: Any,
    out: Path,
    as_json: bool,
    tracker: Tracker,
    until: str | None = None,
    watching: bool = False,
) -> None:
    """Does everything in a new folder or in one of a run, or, in a folder that has a recipe, what
    is asked for with `until`.
    """
    with tracker.progress("starting"):  # importing torch takes a while
        from tasklm.device.ranks import first_of_all
        from tasklm.pipeline.flow import fit as run_pipeline
        from tasklm.storage.files import require_own

    if until is None:
        require_own(out)
    try:
        with traceback_in(out), watched(out, watching and first_of_all()):
            scores = run_pipeline(recipe, out, tracker, until or "report")
    except KeyboardInterrupt:  # here, since typer ends the process without a word
        say(screen, "the same command goes on from here", "stopped", "yellow")
        raise typer.Exit(130) from None
    if not first_of_all():  # of several processes one speaks
        return
    if scores is not None:
        show_scores(scores, recipe, out, as_json, tracker.verbose, until in (None, "report"))
    elif until is not None:
        show_step_done(screen, until, out)


@app.command(context_settings=EXTRA)
def fit(
    context: typer.Context,
    train: Train,
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
    watching: Watch = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Do everything: check, select, tokenize, train, fine-tune, score, report. Any recipe key is an
    option: --section.key value.

    Example: tasklm fit train.csv --test test.csv --corpus texts/ --out runs/first --minutes 20
    --select.k 500
    """
    data = data_options(train, corpus, dev, test, text_column, label_column)
    how = {"select__memory": memory, "select__engine": engine, "select__master": master}
    overrides = overrides_of(
        context.args,
        **data,
        **how,
        budget__minutes=minutes,
        budget__flops=flops,
        evaluate__compare=compare,
    )
    _fit(_recipe(recipe, overrides), out, as_json, _tracker(verbose), watching=watching)


@app.command(context_settings=EXTRA)
def run(
    context: typer.Context,
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML).")],
    out: Annotated[
        Path | None, typer.Option(help="Run folder; by default runs/ and the recipe's name.")
    ] = None,
    watching: Watch = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Do everything from a recipe.

    Example: tasklm run recipes/demo.toml --out runs/demo
    """
    out = out or Path("runs") / recipe.stem
    _fit(
        _recipe(recipe, overrides_of(context.args)),
        out,
        as_json,
        _tracker(verbose),
        watching=watching,
    )


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
    """Write a commented recipe with the detected columns, kind of task, metric and sizes.

    Example: tasklm init train.csv --corpus texts/ --to recipe.toml
    """
    from tasklm.pipeline.starter import starting_recipe

    overrides = overrides_of(
        context.args, **data_options(train, corpus, dev, test, text_column, label_column)
    )
    for note in starting_recipe(_recipe(None, overrides), to):
        say(screen, note)
    say(screen, str(to), "wrote")
    show_next(Console(), ["tasklm", "run", str(to)])


@app.command(context_settings=EXTRA)
def check(
    context: typer.Context,
    train: Train,
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
                "List the training examples of a finished run "
                "(in place of TRAIN) whose labels may be wrong."
            ),
        ),
    ] = False,
    files: Annotated[
        bool,
        typer.Option(
            "--files", help="Look for damaged files in a run or a model (in place of TRAIN)."
        ),
    ] = False,
    top: Annotated[int, typer.Option(help="With --influence: examples to show.", min=1)] = 20,
    as_json: Json = False,
) -> None:
    """Audit the data before any training; exits with 1 when there are errors.

    After it, --influence finds labels that may be wrong, and --files damaged files.

    Example: tasklm check train.csv --test test.csv --corpus texts/

    Example: tasklm check runs/first --influence --top 50
    """
    if influence or files:
        if any((context.args, corpus, dev, test, recipe, text_column, label_column)):
            raise RecipeError(
                [
                    (
                        "check --influence and --files read the run "
                        "itself; the only other options are --top and --json"
                    )
                ]
            )
        scrub(Path(train), as_json) if files else check_labels(Path(train), top, as_json)
        return
    from dataclasses import asdict

    from tasklm.pipeline.flow import check as audit
    from tasklm.storage.files import require_own

    require_own(out)
    overrides = overrides_of(
        context.args, **data_options(train, corpus, dev, test, text_column, label_column)
    )
    with traceback_in(out):
        findings = audit(_recipe(recipe, overrides), out, Tracker(screen))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
    else:
        show_findings(findings)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)
    if not as_json:
        options = [
            ("--dev", dev),
            ("--test", test),
            *(("--corpus", one) for one in corpus or ()),
            ("--recipe", recipe),
        ]
        show_next(
            Console(),
            _fit_words(
                train,
                [*options, ("--text-column", text_column), ("--label-column", label_column)],
                context.args,
            ),
        )


def _fit_words(train: str, options: list[tuple[str, Any]], extra: list[str]) -> list[str]:
    """The words of a `fit` with the same data."""
    words = ["tasklm", "fit", train]
    for name, value in options:
        words += [name, str(value)] if value is not None else []
    return [*words, *extra]


def _until(name: str, options: list[str], folder: Path, as_json: bool, verbose: bool) -> None:
    recipe = folder / "recipe.toml"
    if not recipe.exists():
        raise RecipeError(
            [
                (
                    f"{folder} is not a run folder (no "
                    f"recipe.toml); start one with: tasklm fit … --out {folder}"
                )
            ]
        )
    _fit(_recipe(recipe, overrides_of(options)), folder, as_json, _tracker(verbose), until=name)


def _step(name: str, what: str) -> None:
    def step(
        context: typer.Context, folder: RunFolder, verbose: Verbose = False, as_json: Json = False
    ) -> None:
        _until(name, context.args, folder, as_json, verbose)

    step.__doc__ = f"{what}\n\n    Example: tasklm {name} runs/first\n    "
    app.command(name=name, context_settings=EXTRA)(step)


@app.command(name="select", context_settings=EXTRA)
def select_passages(
    context: typer.Context,
    folder: RunFolder,
    explain: Annotated[
        str | None,
        typer.Option(help="Show why the passage with this id was selected, in place of selecting."),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Select the passages that matter for the task (after reading and cleaning, if that is not
    done).

    Example: tasklm select runs/first --explain 0f3a…
    """
    if explain is None:
        _until("select", context.args, folder, as_json, verbose)
    else:
        explain_selection(folder, explain, as_json)


_step(
    "tokenize",
    (
        "Train the vocabulary and turn the selected "
        "text into tokens, with what comes before if needed."
    ),
)
_step("train", "Stage 1: joint training, with what comes before if needed.")
_step("finetune", "Stage 2: fine-tuning, with what comes before if needed.")
_step("evaluate", "Score the model and the baselines, with what comes before if needed.")


@app.command(context_settings=EXTRA)
def report(
    words: Annotated[
        list[str], typer.Argument(help="Run folder; several are compared.", metavar="FOLDER...")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Page that compares several runs; by default runs-compared.html."),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Write report.html of a run, with what comes before if needed; or compare several finished
    runs in one page.

    Example: tasklm report runs/first

    Example: tasklm report runs/first runs/second --out compared.html
    """
    first = next(
        (number for number, word in enumerate(words) if word.startswith("--")), len(words)
    )  # options of the recipe come last
    folders = [Path(word) for word in words[:first]]
    if len(folders) == 1 and out is None:
        _until("report", words[first:], folders[0], as_json, verbose)
    elif len(folders) < 2 or first < len(words):
        raise RecipeError(
            [
                (
                    "report takes one run folder and options of "
                    "the recipe, or several run folders and --out"
                )
            ]
        )
    else:
        compare(folders, out or Path("runs-compared.html"), as_json)


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(help="Folder `model` of a run, `ensemble`, or an ONNX export.")
    ],
    what: Annotated[
        str,
        typer.Argument(
            help=(
                "A text, a file (CSV, TSV, JSONL, Parquet, "
                "or plain text by the line), or - for stdin."
            )
        ),
    ] = "-",
    text_column: TextColumn = None,
) -> None:
    """Predict labels and probabilities, one JSON object per line.

    Example: tasklm predict runs/first/model "a text to classify"
    """
    from tasklm.recipe.data_sections import Data
    from tasklm.serve.inputs import examples_of
    from tasklm.serve.predictor import Predictor

    predictor = Predictor(model, data=Data(text_column=text_column or ""))
    for example, answer in predictor.stream(
        examples_of(what, predictor.task, predictor.data, sys.stdin.buffer)
    ):
        typer.echo(json_line({"text": example.text, **answer}))


app.command()(search)
app.command()(explain)
app.command()(export)
app.command()(score)
app.command()(rerank)
app.command()(serve)
app.command()(watch)


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    data: Annotated[Path, typer.Option(help="Where the data set is written.")] = Path(
        "runs/demo-data"
    ),
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Build the embedded data set, run the whole flow on it with its comparisons, and print the
    score table.

    Example: tasklm demo
    """
    from tasklm.demo.recipe import demo_recipe

    tracker = _tracker(verbose)
    _fit(demo_recipe(data, tracker), out, as_json, tracker)


def main() -> None:
    """Runs the command line; errors are told in words, without a traceback."""
    guarded(app, screen)


if __name__ == "__main__":
    main()
