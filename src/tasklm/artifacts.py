"""Artefacts: folders with a hash of their inputs, built once and rebuilt when damaged.

An artefact is built under the name `NAME.partial` together with the key of its inputs and is
renamed when complete and synced to disk, so a half-written one never looks finished, even after a
power cut. A partial folder with the same key is handed back to the builder, which continues it;
with another key it is deleted.

Its record, artefact.json, lists its files with checksums, and the contents of the artefacts it was
built from. At each use file sizes and smaller files are compared; all files are read before another
artefact is built from it. A damaged one counts as not built, as one with changed inputs does.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tasklm.errors import DamagedError, RunError
from tasklm.storage.checksums import (
    READ_ANYWAY,
    content_of,
    files_in,
    is_sealed,
    problems_of,
    require_whole,
    seal,
)
from tasklm.storage.crew import Crew, OneProcess
from tasklm.storage.files import (
    ARTEFACT,
    PARTIAL,
    full_disk_is_clear,
    make_folder,
    publish,
    read_json,
    remove,
    sweep,
    sync,
    write_json,
    write_record,
)
from tasklm.storage.locks import alone
from tasklm.storage.pool import Twin

DAMAGED = "damaged.json"  # in a finished artefact: rebuild it
STALE = 7 * 24 * 3600.0  # seconds after which an abandoned partial one in a shared folder goes
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Wanted:
    """What is to be built: see `Artefacts.build`."""

    name: str
    key: str
    builder: Callable[[Path], None]
    uses: Sequence[Path]
    together: bool

    def about(self) -> dict[str, Any]:
        """What it is built from, as now."""
        return {"key": self.key, "uses": _contents(self.uses)}


class Artefacts:
    """A folder of artefacts built once per key.

    `waiting`: given for a folder shared with other runs; called with a message when this run waits
    for another to finish an artefact. `tell`: called with a message when a damaged artefact is
    rebuilt. `pool`: a folder of finished artefacts that runs share by links.
    """

    def __init__(
        self,
        folder: Path,
        crew: Crew | None = None,
        waiting: Callable[[str], None] | None = None,
        tell: Callable[[str], None] | None = None,
        pool: Path | None = None,
    ) -> None:
        self.pool = pool
        self.folder, self.crew, self.waiting = make_folder(folder), crew or OneProcess(), waiting
        self.tell = tell or waiting or (lambda message: None)
        self.builds = 0  # how often this process had to build one

    def path(self, name: str) -> Path:
        """Where the finished artefact called `name` is or will be."""
        return self.folder / name

    def key(self, name: str) -> str | None:
        """The key of the finished artefact; None when there is none, or a damaged one."""
        record = _record(self.path(name) / ARTEFACT)
        return (
            None if record is None or (self.path(name) / DAMAGED).exists() else str(record["key"])
        )

    def seconds(self, name: str) -> float:
        """How long the finished artefact took to build, interruptions left out."""
        record = _record(self.path(name) / ARTEFACT)
        return 0.0 if record is None else float(record["seconds"])

    def build(
        self,
        name: str,
        key: str,
        builder: Callable[[Path], None],
        *,
        uses: Sequence[Path] = (),
        together: bool = False,
    ) -> Path:
        """The artefact's folder, built by `builder(partial_folder)` unless it is there with
        the same key.

        `uses` are the artefacts that the builder reads: they must be intact and unchanged since it
        was built. With several processes the first builds and the others wait; or all build it
        `together`, and the first creates and finishes its folder.
        """
        if self.crew.first:
            self.is_damaged(name)
            self._finish(name, key, uses)
        self.crew.wait()  # until the first has checked its files
        done = self._is_done(name, key, uses)
        self.builds += not done
        self.crew.wait()  # until all have checked whether it exists
        if not done and self.crew.first:
            with self._alone(name):
                if not self._is_done(
                    name, key, uses
                ):  # another run may have built it in the meantime
                    self._make(_Wanted(name, key, builder, uses, together))
        elif not done and together:
            self.crew.wait()  # until the folder exists
            builder(self.folder / f"{name}.partial")
        elif self.crew.first:
            self._tidy(name)
        self.crew.wait()
        return self.path(name)

    def replace(self, name: str, builder: Callable[[Path], None]) -> None:
        """Puts another content into a finished artefact, under the key that it has."""
        remove(self.folder / f"{name}.partial")
        self._build(_Wanted(name, str(self.key(name)), builder, (), together=False))

    def is_damaged(self, name: str) -> bool:
        """Whether a finished artefact is damaged, as far as a quick check can tell; if so it will
        be rebuilt.
        """
        folder = self.path(name)
        record = _record(folder / ARTEFACT)
        if record is None or (folder / DAMAGED).exists():
            damaged = (folder / ARTEFACT).exists()
            if damaged:
                self.tell(f"{folder} is damaged; rebuilding it")
            return damaged
        problem = next(iter(problems_of(folder, record.get("files") or {}, most=READ_ANYWAY)), None)
        if problem is not None:
            set_aside(folder, f"{problem.file.name}: {problem.text}")
            self.tell(f"{problem.file} is damaged ({problem.text}); rebuilding {name}")
        return problem is not None

    def sweep(self) -> None:
        """Deletes what killed processes left behind, except partial artefacts, which are continued.

        In a shared folder, a partial artefact that no run is building and none has continued for a
        week is deleted too.
        """
        sweep(self.folder)
        for path in list(self.folder.glob(".*.old")):
            with self._lock(path.name.removeprefix(".").removesuffix(".old"), wait=False) as free:
                if free:
                    remove(path)
        for path in list(self.folder.glob("*.partial")) if self.waiting is not None else []:
            with self._lock(path.name.removesuffix(".partial"), wait=False) as free:
                if free and time.time() - _last_change(path) > STALE:
                    remove(path)

    def _is_done(self, name: str, key: str, uses: Sequence[Path]) -> bool:
        if self.key(name) != key:
            return False
        record = _record(self.path(name) / ARTEFACT)
        return record is not None and _same(record, _contents(uses))

    def _finish(self, name: str, key: str, uses: Sequence[Path]) -> None:
        """Renames an artefact that was complete when the machine stopped."""
        final, partial = self.path(name), self.folder / f"{name}.partial"
        record = _record(partial / ARTEFACT)
        if (
            record is None
            or record["key"] != key
            or self._is_done(name, key, uses)
            or not _same(record, _contents(uses))
        ):
            return
        with self._lock(name, wait=False) as free, full_disk_is_clear(partial):
            if (
                free
                and is_sealed(partial / ARTEFACT)
                and (not final.exists() or (final / ARTEFACT).exists())
            ):
                _put(partial, final)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Keeps other runs from building the same artefact in a shared folder."""
        with self._lock(name, wait=True):
            yield

    @contextmanager
    def _lock(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Whether no other run is building an artefact; the system releases the lock when a process
        ends.
        """
        if self.waiting is None:  # the lock of the run folder is enough
            yield True
            return
        waiting = self.waiting

        def tell() -> None:
            waiting(f"waiting for another run to build {self.path(name)}")

        with alone(self.folder / f".{name}.lock", tell if wait else None) as free:
            yield free

    def _tidy(self, name: str) -> None:
        """Deletes the remains of another build of a finished artefact."""
        left = [
            path
            for path in (self.folder / f"{name}.partial", self.folder / f".{name}.old")
            if path.exists()
        ]
        if left:
            with self._lock(name, wait=False) as free:
                for path in left if free else []:
                    remove(path)

    def _make(self, wanted: _Wanted) -> None:
        """Builds an artefact, or links to that of another run."""
        final = self.path(wanted.name)
        if final.exists() and not (final / ARTEFACT).exists():
            raise RunError(
                f"{final} is in the way and is not part of a run. "
                f"Move it away, or choose another folder with --out."
            )
        if self.pool is None:
            self._build(wanted)
            return
        twin = Twin.of(self.pool, wanted.name, wanted.about(), self.tell)
        with twin.held():
            if (final / DAMAGED).exists():
                twin.drop()
            if twin.link_to(self._partial(wanted.name)):
                _put(self._partial(wanted.name), final)
            else:
                self._build(wanted)
                twin.keep(final)

    def _partial(self, name: str) -> Path:
        return self.folder / f"{name}.partial"

    def _build(self, wanted: _Wanted) -> None:
        partial = self._partial(wanted.name)
        for folder in wanted.uses:
            require_whole(folder)
        about = wanted.about()
        with full_disk_is_clear(partial):
            before = _partial(partial)
            if partial.exists() and (
                before["key"] != wanted.key or not _same(before, about["uses"])
            ):
                shutil.rmtree(partial)
            make_folder(partial)
            sweep(partial)
            (partial / ARTEFACT).unlink(missing_ok=True)
            write_record(partial / PARTIAL, {**about, "seconds": _partial(partial)["seconds"]})
            seconds = self._fill(partial, about, wanted)
            files = files_in(partial, leave_out=(ARTEFACT, PARTIAL))
            seal(partial / ARTEFACT, {**about, "seconds": round(seconds, 3)}, files)
            _put(partial, self.path(wanted.name))

    def _fill(self, partial: Path, about: dict[str, Any], wanted: _Wanted) -> float:
        """Runs the builder; the seconds it took, earlier interrupted processes included."""
        started = time.monotonic()
        try:
            if wanted.together:
                self.crew.wait()
                wanted.builder(partial)
            else:
                with self.crew.by_itself():
                    wanted.builder(partial)
        finally:
            seconds = float(_partial(partial)["seconds"]) + time.monotonic() - started
            # on a full disk the pending error already says so; only this part's clock is lost
            with suppress(RunError):
                if partial.exists():
                    write_record(partial / PARTIAL, {**about, "seconds": round(seconds, 3)})
        return seconds


def rebuilding(
    work: Callable[[], Result],
    within: Sequence[Path],
    tell: Callable[[str], None],
    *,
    several: bool = False,
) -> Result:
    """Runs `work`; if it meets a damaged artefact, marks that one and starts the work again.

    `within` are the folders whose artefacts may be rebuilt. Damage that returns after a rebuild is
    an error: the disk may be failing. With several processes, each is at a different point, so the
    command must be repeated.
    """
    before: set[Path] = set()
    while True:
        try:
            return work()
        except DamagedError as error:
            folder = error.artefact
            own = folder is not None and any(
                folder.absolute().is_relative_to(one.absolute()) for one in within
            )
            if folder is None or not own or folder in before:
                raise
            before.add(folder)
            set_aside(folder, f"{error.file.name}: {error.problem}")
            if several:
                raise
            tell(
                f"{error.file} is damaged ({error.problem}); rebuilding "
                f"{folder.name.removesuffix('.partial')}"
            )


def set_aside(folder: Path, problem: str) -> None:
    """Marks a finished artefact for rebuilding; it stays until that is done. A partial one starts
    over.
    """
    if folder.name.endswith(".partial"):
        remove(folder)
    else:
        write_json(folder / DAMAGED, {"problem": problem})


def _record(path: Path) -> dict[str, Any] | None:
    """The values of artefact.json; None if it is missing or damaged."""
    try:
        values = read_json(path) if path.exists() else None
    except DamagedError:
        return None
    whole = (
        isinstance(values, dict)
        and isinstance(values.get("key"), str)
        and isinstance(values.get("seconds"), int | float)
    )
    return values if whole else None


def _partial(partial: Path) -> dict[str, Any]:
    """The key of a partial artefact and the seconds spent on it; None if its record is damaged."""
    return _record(partial / PARTIAL) or {"key": None, "seconds": 0.0}


def _contents(uses: Sequence[Path]) -> dict[str, str]:
    return {folder.name: content_of(folder) for folder in uses}


def _same(record: dict[str, Any], contents: dict[str, str]) -> bool:
    """Whether an artefact was built from these contents, as far as both are known: earlier versions
    did not record them.
    """
    before = record.get("uses") or {}
    return all(
        not content or before.get(name, "") in ("", content) for name, content in contents.items()
    )


def _put(partial: Path, final: Path) -> None:
    """Makes a complete artefact final. An older one is removed as a whole: half of one, after a
    kill, would not be recognised as ours.
    """
    (partial / PARTIAL).unlink(missing_ok=True)
    sync(partial)
    old = final.with_name(f".{final.name}.old")
    remove(old)
    if final.exists():
        final.replace(old)
    publish(partial, final)
    remove(old)


def _last_change(folder: Path) -> float:
    return max(
        (path.stat().st_mtime for path in (folder, folder / PARTIAL) if path.exists()), default=0.0
    )
