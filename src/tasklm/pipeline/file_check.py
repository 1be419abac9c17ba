"""Scrubbing: reads every file of a run, a model, an export or a cache that has a checksum, and
reports damaged ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tasklm.artifacts import set_aside
from tasklm.bill.network import RECORD as NETWORK
from tasklm.bill.record import BILL
from tasklm.coverage.calibration import FILE as COVERAGE
from tasklm.errors import DamagedError, RecipeError, RunError
from tasklm.recipe.toml import cache_folder
from tasklm.run_folder import CLOCK, ENSEMBLE, MODEL, SCORES, is_run, recipe_of
from tasklm.storage.checksums import Sums, problems_of, sums_in
from tasklm.storage.files import ARTEFACT, read_json, run_above
from tasklm.tracking import SILENT, Tracker

# of artefacts, models, exports and checkpoints
RECORDS = (ARTEFACT, "config.json", "export.json", "state.json")
# files of a run, or of a model, that contain their own checksum
SINGLE = (SCORES, CLOCK, NETWORK, BILL, COVERAGE, f"{MODEL}/{COVERAGE}", f"{ENSEMBLE}/{COVERAGE}")


@dataclass(frozen=True)
class Damage:
    """A file that differs from what was written."""

    file: str
    problem: str
    remedy: str


@dataclass
class Scrub:
    """The result of a scrub: what was read, and what is damaged."""

    files: int = 0
    bytes: int = 0
    damaged: list[Damage] = field(default_factory=list)
    # folders that an earlier version wrote
    without_checksums: list[str] = field(default_factory=list)


def check_files(folder: str | Path, tracker: Tracker = SILENT) -> Scrub:
    """Compares the files of a run with their checksums, or those of a model, an export or a cache.

    The files of a run are its artefacts and checkpoints, and the corpus and index that it uses. A
    damaged artefact is marked, so that the next command that needs it rebuilds it.
    """
    where = Path(folder)
    if not where.is_dir():
        raise RunError(
            f"there is no folder {where}. "
            f"Give the folder of a run, such as runs/first, or of a model."
        )
    records = [*_records_in(where), *_records_in_cache(where)]
    if not records:
        raise RunError(
            f"{where} contains neither a run nor a model. "
            f"Give the folder of a run, such as runs/first, or of a model."
        )
    scrub = Scrub()
    with tracker.progress("reading", len(records)) as bar:
        for record in records:
            _look_at(record, scrub)
            bar.advance(1, f"{scrub.bytes / 1e9:.1f} GB")
    for path in (where / name for name in SINGLE):
        if path.exists():
            scrub.files += 1
            with _noted(scrub):
                read_json(path)
    return scrub


def _records_in(folder: Path) -> list[Path]:
    """The records in a folder and below; for a model in a run, the artefact's record lists all its
    files.
    """
    paths = sorted(
        path for path in folder.rglob("*.json") if path.name in RECORDS and not _is_described(path)
    )
    return [
        path for path in paths if path.name == ARTEFACT or not (path.parent / ARTEFACT).exists()
    ]


def _is_described(path: Path) -> bool:
    """Whether a config.json is not a record: it belongs to a language model, listed in its
    artefact's record.
    """
    if path.name != "config.json":
        return False
    with suppress(DamagedError):
        values = read_json(path)
        return not isinstance(values, dict) or "task" not in values
    return False


def _records_in_cache(run: Path) -> Iterator[Path]:
    """The records of the corpus that a run reads, and of what is built from it for all runs."""
    used = run / "decontaminated" / ARTEFACT
    if not used.exists() or not is_run(run):
        return
    with suppress(DamagedError, RecipeError):
        names = set(read_json(used).get("uses") or {})
        for path in sorted(cache_folder(recipe_of(run), run).glob(f"*/{ARTEFACT}")):
            if path.parent.name in names or _is_made_from(path, names):
                yield path


def _is_made_from(record: Path, names: set[str]) -> bool:
    """Whether a cached artefact was built from one of these; an unreadable record counts as yes."""
    try:
        return bool(names & set(read_json(record).get("uses") or {}))
    except DamagedError:
        return True


def _look_at(record: Path, scrub: Scrub) -> None:
    sums: Sums | None = None
    scrub.files += 1
    with _noted(scrub):
        sums = sums_in(record)
        if sums is None:
            scrub.without_checksums.append(str(record.parent))
    problems = problems_of(record.parent, sums or {})
    scrub.damaged += [_damage(problem.error()) for problem in problems]
    scrub.files += len(sums or {})
    scrub.bytes += sum(int(one["size"]) for one in (sums or {}).values())
    in_a_run = run_above(record) is not None or not (record.parent / "config.json").exists()
    if problems and record.name == ARTEFACT and in_a_run:
        with suppress(RunError):  # a read-only folder: the remedy says what to do
            set_aside(record.parent, f"{problems[0].file.name}: {problems[0].text}")


@contextmanager
def _noted(scrub: Scrub) -> Iterator[None]:
    """Records a damaged file and continues."""
    try:
        yield
    except DamagedError as error:
        scrub.damaged.append(_damage(error))


def _damage(error: DamagedError) -> Damage:
    return Damage(str(error.file), error.problem, error.remedy)
