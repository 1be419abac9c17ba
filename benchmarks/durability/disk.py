"""A disk that forgets what was not synced.

It follows a process by its fsyncs, cuts the power, and makes what may be left. What is known to be
on the disk is the content of a file, and the names in a folder, when it was synced last. After a
cut

- a file that was written since then has its old content, is empty, zeros, cut, half zeros, or
  luckily as it was written;
- names that a folder got, lost or changed since then have changed or not: those that belong
  together (a rename) in one way.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path


class Disk:
    """What is on the disk of a process, kept in the folder `memory` so that another process can
    read it after a cut."""

    def __init__(self, place: Path, memory: Path) -> None:
        self.place, self.memory = place, memory
        self._open_folders: list[int] = []  # a folder that is deleted must not hand on its number

    def follow(self, cut_at: int, wait: float) -> None:
        """In the process itself: notes what is synced; with fsync number `cut_at` the power is cut.

        `wait` less than 0: before it has happened; else so many seconds after it.
        """
        for name in ("files", "folders", "links"):
            (self.memory / name).mkdir(parents=True, exist_ok=True)
        for path in (self.place, *self.place.rglob("*")):  # what was there when the machine started
            self._note(path)
        fsync, count = os.fsync, 0
        one_at_a_time = threading.Lock()

        def noted(number: int) -> None:
            nonlocal count
            with one_at_a_time:
                count += 1
                if count == cut_at and wait < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                fsync(number)
                self._note(Path(f"/proc/self/fd/{number}").readlink())
                (self.memory / "count").write_text(str(count))
                if count == cut_at:
                    threading.Thread(target=_cut_after, args=(wait,), daemon=True).start()

        os.fsync = noted

    @property
    def syncs(self) -> int:
        """How many fsyncs there were."""
        return int((self.memory / "count").read_text())

    def _note(self, path: Path) -> None:
        if not path.is_relative_to(self.place):
            return
        number = path.stat().st_ino
        if path.is_dir():
            self._open_folders.append(os.open(path, os.O_RDONLY))
            self._note_names(path, number)
        else:
            self._link(path, number)
            self._put(self.memory / "files" / str(number), path.read_bytes())

    def _note_names(self, folder: Path, number: int) -> None:
        names = {}
        for entry in folder.iterdir():
            names[entry.name] = entry.lstat().st_ino
            if not entry.is_dir():
                self._link(entry, names[entry.name])
        self._put(self.memory / "folders" / str(number), json.dumps(names).encode())

    def _link(self, path: Path, number: int) -> None:
        """Gives a file another name, so that its number is not given to another one and what is
        deleted may come back."""
        link = self.memory / "links" / str(number)
        if not link.exists():
            os.link(path, link)

    def _put(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_bytes(content)
        temporary.replace(path)

    def image(self, target: Path, draw: random.Random) -> None:
        """Makes what may be left on the disk after the cut, in a new folder."""
        folders: dict[int, Path] = {}
        for path in (self.place, *self.place.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                folders[path.stat().st_ino] = path
        self._image_of(self.place.stat().st_ino, target, folders, draw)

    def _image_of(
        self, number: int, target: Path, folders: dict[int, Path], draw: random.Random
    ) -> None:
        target.mkdir()
        known = self.memory / "folders" / str(number)
        before: dict[str, int] = json.loads(known.read_text()) if known.exists() else {}
        now = (
            {entry.name: entry.lstat().st_ino for entry in folders[number].iterdir()}
            if number in folders
            else {}
        )
        for name, entry in mixed(before, now, draw).items():
            if entry not in folders and not self._is_folder(entry):
                self._file_of(entry, folders.get(number, Path("/none")) / name, target / name, draw)
            else:
                self._image_of(entry, target / name, folders, draw)

    def _is_folder(self, number: int) -> bool:
        return (self.memory / "folders" / str(number)).exists()

    def _file_of(self, number: int, path: Path, target: Path, draw: random.Random) -> None:
        link, synced = self.memory / "links" / str(number), self.memory / "files" / str(number)
        written = link.read_bytes() if link.exists() else path.read_bytes()
        if synced.exists() and synced.read_bytes() == written:
            target.write_bytes(written)
            return
        half = draw.randrange(len(written) + 1)
        states: list[Callable[[], bytes]] = [
            lambda: b"",
            lambda: bytes(len(written)),
            lambda: written[:half],
            lambda: written[:half] + bytes(len(written) - half),
            lambda: written,
            lambda: synced.read_bytes() if synced.exists() else b"",
        ]
        target.write_bytes(draw.choice(states)())


def _cut_after(wait: float) -> None:
    time.sleep(wait)
    os.kill(os.getpid(), signal.SIGKILL)


def mixed(before: dict[str, int], now: dict[str, int], draw: random.Random) -> dict[str, int]:
    """The names of a folder after a cut.

    Of those that belong together (a name that got another file, a file that got another name) all
    are as before or all as now.
    """
    group: dict[object, object] = {}

    def root(one: object) -> object:
        while group.setdefault(one, one) != one:
            one = group[one]
        return one

    pairs = [*before.items(), *now.items()]
    for name, number in pairs:
        group[root(("name", name))] = root(("file", number))
    choices = {
        one: draw.choice((before, now))
        for one in sorted({root(("name", name)) for name, _ in pairs}, key=str)
    }
    names = {}
    for name, _ in pairs:
        chosen = choices[root(("name", name))]
        if name in chosen:
            names[name] = chosen[name]
    return names


def cut_power(place: Path, memory: Path, draw: random.Random) -> None:
    """Replaces a folder by what may be left of it after the power was cut, and forgets what was
    known of it."""
    image = place.with_name(f"{place.name}-image")
    shutil.rmtree(image, ignore_errors=True)
    Disk(place, memory).image(image, draw)
    shutil.rmtree(place)
    image.rename(place)
    shutil.rmtree(memory)
