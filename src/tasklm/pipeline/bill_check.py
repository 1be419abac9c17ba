"""Verifying a bill of text: whether the files that it names are still those that were read, and
whether the run is still what was made of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasklm.bill.record import CACHE, Bill, read_bill
from tasklm.console.progress import Bar
from tasklm.errors import RunError
from tasklm.pipeline.file_check import check_files
from tasklm.recipe.toml import cache_folder
from tasklm.run_folder import ENSEMBLE, MODEL, described_by, find_run, recipe_of
from tasklm.storage.checksums import content_of
from tasklm.storage.files import ARTEFACT
from tasklm.storage.safe_reading import is_there, open_regular
from tasklm.tracking import SILENT, Tracker

MISSING, CHANGED = "it is missing", "its content has changed"


@dataclass(frozen=True)
class Named:
    """A file that a bill names, and what for."""

    path: str
    sha256: str
    role: str


@dataclass(frozen=True)
class Problem:
    """A file or artefact that is not as the bill says."""

    path: str
    role: str
    problem: str


@dataclass
class Verification:
    """The result: what was read again, what differs, and what could not be looked at."""

    files: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Problem] = field(default_factory=list)


def verify_bill(where: str | Path, tracker: Tracker = SILENT) -> Verification:
    """Hashes all files that the bill of a run names, and compares the run with its bill."""
    folder = Path(where)
    bill, run = read_bill(folder), find_run(folder)
    if run is None:
        raise RunError(
            f"{folder} has a bill with the names of files alone. Give the run that it comes from."
        )
    result = Verification()
    named = list(dict.fromkeys(named_files(bill)))
    size = sum(Path(one.path).stat().st_size for one in named if is_there(Path(one.path)))
    with tracker.progress("hashing the files of the bill", size) as bar:
        hash_files(named, result, bar)
    _check_run(described_by(run), bill, result, tracker)
    return result


def named_files(bill: Bill, before: str = "") -> Iterator[Named]:
    """Yields the files of a bill, and of the bills of teachers and starts."""
    for file in bill.corpus:
        if not file.skipped:
            yield Named(file.path, file.sha256, f"{before}corpus")
    for data in bill.labelled:
        yield from (Named(one["path"], one["sha256"], f"{before}examples") for one in data.files)
    yield from (Named(one["path"], one["sha256"], f"{before}{one['role']}") for one in bill.others)
    origins = {**{one["title"]: one for one in bill.teachers}}
    if bill.start is not None:
        origins[bill.start["title"]] = bill.start
    for title, origin in origins.items():
        for name, sha256 in origin["files"].items():
            yield Named(str(Path(origin["folder"]) / name), sha256, f"{before}{title}")
    for title, earlier in bill.earlier():
        yield from named_files(earlier, f"{before}{title}, ")


def hash_files(named: Iterable[Named], result: Verification, bar: Bar) -> None:
    """Hashes files, and notes those that are not as a bill says."""
    for one in named:
        _check(one, result, bar)


def _check(one: Named, result: Verification, bar: Bar) -> None:
    if "://" in one.path:
        why = "it is on a cluster, and is not read here"
        result.unchecked.append(Problem(one.path, one.role, why))
        return
    path = Path(one.path)
    try:
        sha256 = _sha256(path, result, bar)
    except FileNotFoundError:
        result.problems.append(Problem(one.path, one.role, MISSING))
        return
    except OSError as error:
        result.problems.append(Problem(one.path, one.role, f"cannot be read ({error.strerror})"))
        return
    result.files += 1
    if sha256 != one.sha256:
        result.problems.append(Problem(one.path, one.role, CHANGED))


def _sha256(path: Path, result: Verification, bar: Bar) -> str:
    hasher = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            hasher.update(block)
            result.bytes += len(block)
            bar.advance(len(block))
    return hasher.hexdigest()


def _check_run(run: Path, bill: Bill, result: Verification, tracker: Tracker) -> None:
    """Compares the model and the artefacts of a run, and of its corpus, with the bill."""
    for damage in check_files(run, tracker).damaged:
        result.problems.append(Problem(damage.file, "run", damage.problem))
    _check_model(run / MODEL, bill.model, result)
    if "ensemble" in bill.model:
        _check_model(run / ENSEMBLE, bill.model["ensemble"], result)
    cache = cache_folder(recipe_of(run), run)
    for name, content in bill.artefacts.items():
        above, _, own = name.partition("/")
        folder = cache / own if above == CACHE else run / name
        if not (folder / ARTEFACT).exists():
            result.unchecked.append(Problem(str(folder), "run", "it is no longer kept"))
        elif content_of(folder) != content:
            problem = "it was built again, from other inputs, since the bill was written"
            result.problems.append(Problem(str(folder), "run", problem))


def _check_model(folder: Path, model: dict[str, Any], result: Verification) -> None:
    """Compares the files of a model with their hashes."""
    for name, sha256 in model["files"].items():
        path = folder / name
        if not path.is_file():
            result.problems.append(Problem(str(path), "model", MISSING))
        elif hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            result.problems.append(Problem(str(path), "model", CHANGED))
