"""Tables and figures of papers from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tasklm.studying.flow import run
from tasklm.studying.order import Order
from tasklm.studying.results import Outcome
from tasklm.studying.study import Study, load_study
from tasklm.studying.study import studies as names
from tasklm.tracking import Tracker


def studies() -> list[Study]:
    """The studies that come with the package."""
    return [load_study(name) for name in names()]


class StudySettings(TypedDict, total=False):
    """Further arguments of `study`."""

    out: str | Path
    tasks: Sequence[str]
    at_once: int
    settings: Mapping[str, Any]


def study(
    name: str | Path,
    *,
    data: str | Path,
    corpus: str | Path | Sequence[str | Path] = (),
    scale: str = "minutes",
    **more: Unpack[StudySettings],
) -> Outcome:
    """Reruns a table or figure of a paper; the result has our scores beside the published ones, and
    which claims hold.

    `name` is one of `studies()`, or a TOML file; `data` has a folder of splits for each task.
    `tasks` are names, or NAME=FOLDER. `at_once` (1) is how many runs train at the same time.
    `settings` are recipe keys for all runs by dotted name. The same call continues in the folder
    `out` (runs/NAME).
    """
    loaded = load_study(str(name))
    texts = [corpus] if isinstance(corpus, str | Path) else corpus
    order = Order(
        data=Path(data),
        corpus=tuple(str(text) for text in texts),
        out=Path(more.get("out", Path("runs") / loaded.name)),
        scale=scale,
        tasks=tuple(more.get("tasks", ())),
        overrides=dict(more.get("settings") or {}),
        at_once=more.get("at_once", 1),
    )
    (outcome,) = run([loaded], order, Tracker()).values()
    return outcome
