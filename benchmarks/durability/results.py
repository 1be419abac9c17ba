"""What must be the same after a run was cut off or damaged and the same command given again: all
but times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# of one process, or with times in them
LOGS = (
    "events.jsonl",
    "log.txt",
    "progress.json",
    "clock.json",
    "network.json",
    "report.html",
    ".lock",
)
# keys of JSON files that differ with the time that something took
TIMES = ("seconds", "crc32", "files", "time")
PROCESSES = ("network",)  # keys of a bill that differ with the processes that worked on a run


def results_of(place: Path) -> dict[str, Any]:
    """The content of each file below a folder, times and logs left out, by its name."""
    files = sorted(
        path
        for path in place.rglob("*")
        if path.is_file() and path.name not in LOGS and path.suffix != ".lock"
    )
    return {str(path.relative_to(place)): _content(path) for path in files}


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of the files that are not the same, or not there."""
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def _content(path: Path) -> Any:
    content = path.read_bytes()
    if path.name in ("artefact.json", "summary.json", "scores.json", "bill.json"):
        try:
            return _without_times(json.loads(content))
        except ValueError:
            return content
    return content


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        own = {name: one for name, one in value.items() if name not in (*TIMES, *PROCESSES)}
        return {name: _without_times(one) for name, one in own.items()}
    if isinstance(value, list):
        return [_without_times(one) for one in value]
    return value
