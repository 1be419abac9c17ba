"""The verb that serves a model over HTTP."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tasklm.cli.images import create_image_app, is_image_folder, open_image_engine
from tasklm.console.terminal import say
from tasklm.errors import DataError, RunError, TaskLMError
from tasklm.recipe.schema import MOST_THREADS
from tasklm.run_folder import MODEL, find_run, is_run, recipe_of
from tasklm.serve.connections import MOST, MOST_OF_ONE, Room, room_for
from tasklm.storage.scratch import Scratch

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.serve.application import Settings
    from tasklm.serve.engines import Engine as Opened
    from tasklm.serve.explainer import Explainer
    from tasklm.serve.guard import Guard, Lifecycle
    from tasklm.serve.predictor import Columns, Predictor

screen = Console(stderr=True)
SHORTEST_TOKEN = 16  # characters
ModelFolder = Annotated[
    Path,
    typer.Argument(help="Folder `model` of a run, the run itself, `ensemble`, or an ONNX export."),
]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all interfaces.")]
Port = Annotated[int, typer.Option(help="Port; 0: any free one.", min=0, max=65_535)]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the access token that requests must carry.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Host name to accept, such as a proxy's. May be repeated."),
]
Engine = Annotated[
    str,
    typer.Option(help="auto, torch or onnx; auto: onnx if it is installed and supports the task."),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker threads; by default one per core.", min=1, max=MOST_THREADS),
]
Threads = Annotated[
    int,
    typer.Option(help="Threads per worker for matrix products.", min=1, max=MOST_THREADS),
]
Explains = Annotated[
    bool,
    typer.Option(
        "--explain/--no-explain",
        help="Explain predictions by training examples, if the run has them.",
    ),
]
MostInputs = Annotated[int, typer.Option(help="Maximum inputs per request.", min=1)]
MostCharacters = Annotated[int, typer.Option(help="Maximum characters per input.", min=1)]
MostWaiting = Annotated[
    int,
    typer.Option(help="Queue limit; further requests get 503.", min=1),
]
MostConnections = Annotated[
    int,
    typer.Option(help="Maximum connections per address; further ones get 503.", min=1, max=MOST),
]
ExplainSeconds = Annotated[
    float,
    typer.Option(help="Time limit for an explanation, in seconds; slower ones get 503.", min=0.1),
]
CollectMs = Annotated[
    float,
    typer.Option(help="Milliseconds to wait for more requests to fill a batch.", min=0.0),
]


def serve(
    model: ModelFolder,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    engine: Engine = "auto",
    workers: Workers = None,
    threads: Threads = 1,
    explains: Explains = True,
    most_inputs: MostInputs = 128,
    most_characters: MostCharacters = 20_000,
    most_waiting: MostWaiting = 1024,
    most_connections: MostConnections = MOST_OF_ONE,
    explain_seconds: ExplainSeconds = 30.0,
    collect_ms: CollectMs = 2.0,
) -> None:
    """Serve a model over HTTP.

    Offers a page to try the model, POST /predict and /explain, /metrics and /openapi.json
    (docs/how-to/serving.md).

    Example: tasklm serve runs/first/model --port 8000
    """
    _check_packages()
    from tasklm.serve.application import Settings
    from tasklm.serve.guard import Lifecycle
    from tasklm.serve.limits import Limits
    from tasklm.serve.server import END_SECONDS, LOCAL_NAMES, address_of, bind, is_local, run

    token = None if token_file is None else _token(token_file)
    folder = model / MODEL if is_run(model) else model
    count = workers or len(os.sched_getaffinity(0))
    limits = Limits(
        inputs=most_inputs,
        characters=most_characters,
        waiting=most_waiting,
        explain_seconds=explain_seconds,
    )
    with bind(host, port) as listener, Scratch() as scratch:
        opened = _opened(folder, engine, threads, scratch)
        _say(
            f"{opened.predictor.task.kind} by {opened.name} "
            f"({opened.why}); workers × threads: {count} × {threads}"
        )
        if token is None and not is_local(host):
            _warn_of_everybody()
        hosts: tuple[str, ...] = ()
        if allow_host or (token is None and is_local(host)):
            hosts = (host, *LOCAL_NAMES, *(allow_host or ()))
        settings, lifecycle = Settings(limits, count, collect_ms / 1000, token, hosts), Lifecycle()
        explained = folder if explains else None
        app = _app(opened.predictor, explained, settings, lifecycle)
        listening = f"listening on {address_of(listener)} (Ctrl-C: finish open requests, then stop)"
        room, end_seconds = _room(most_connections), max(END_SECONDS, explain_seconds)
        answered = run(app, listener, lifecycle, lambda: _say(listening), room, end_seconds)
    _say_end(answered)


def _opened(folder: Path, engine: str, threads: int, scratch: Path) -> Opened:
    """The model of a folder, of text or of images, on the chosen engine."""
    from tasklm.serve.engines import open_engine

    if is_image_folder(folder):
        return open_image_engine(folder, engine, threads, scratch)
    return open_engine(folder, engine, threads, _columns(folder), scratch)


def _app(
    predictor: Predictor, explained: Path | None, settings: Settings, lifecycle: Lifecycle
) -> Guard:
    """The application that serves a model; `explained`: its folder, if it shall explain."""
    from tasklm.images.model import ImagePredictor
    from tasklm.serve.service import MOST_TOGETHER, create_app

    if isinstance(predictor, ImagePredictor):
        return create_image_app(predictor, settings, lifecycle)
    explainer = None if explained is None else _explainer(explained)
    if predictor.answering.device == "cuda":
        settings = replace(settings, alike=MOST_TOGETHER)
    return create_app(predictor, explainer, settings, lifecycle)


def _say_end(answered: bool) -> None:
    if answered:
        _say("stopped; all accepted requests were answered")
    else:
        _say("stopped; some accepted requests were not answered")


def _warn_of_everybody() -> None:
    problem = "anyone who can reach this machine can use the model"
    _say(f"warning: {problem}; --token-file FILE requires a token", style="bold yellow")


def _check_packages() -> None:
    try:
        import fastapi
        import httptools
        import prometheus_client
        import uvicorn
    except ModuleNotFoundError as error:
        raise RunError(
            f"tasklm serve needs the package {error.name}. Install it: pip install 'tasklm[serve]'"
        ) from None
    _ = fastapi, httptools, prometheus_client, uvicorn


def _room(most_connections: int) -> Room:
    """Sets the limit of connections; warns if it is lower than usual."""
    room = room_for(most_connections)
    if room.in_all < MOST:
        problem = (
            f"warning: limited to {room.in_all} connections because this process may not open "
            "more files"
        )
        _say(f"{problem}; raise the limit (ulimit -n)", style="bold yellow")
    return room


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the token cannot be read ({error})",
            file=file,
            remedy="Give a text file that holds the token.",
        ) from None
    if (
        len(token) < SHORTEST_TOKEN
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        problem = (
            f"the token must have at least {SHORTEST_TOKEN} letters, digits or symbols, and no "
            "spaces"
        )
        raise DataError(problem, file=file, remedy="Create one: openssl rand -hex 32")
    return token


def _columns(folder: Path) -> Columns:
    """The column names of the training data, if the run is available."""
    from tasklm.serve.columns import columns_for

    run = find_run(folder)
    return columns_for(None if run is None else recipe_of(run))


def _explainer(folder: Path) -> Explainer | None:
    """The explainer of the model's predictions; None, with the reason printed, if there is none."""
    from tasklm.serve.explainer import Explainer
    from tasklm.serve.finished_run import run_of

    try:
        if (run_of(folder) / MODEL).resolve() != folder.resolve():
            raise RunError(f"only the folder 'model' of a run can be explained, not {folder}")
        explainer = Explainer(folder)
        if explainer.examples.task.together > 1:
            raise RunError(
                f"examples of kind {explainer.examples.task.kind} are several rows each, which "
                "cannot be compared"
            )
        return explainer
    except TaskLMError as error:
        _say(f"no explanations: {error}")
        return None


def _say(text: str, style: str = "") -> None:
    say(screen, text, style=style)
