"""The contestants that a user names: tfidf, run=FOLDER, or any name for a downloaded model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasklm.contestants.base import CONTESTANTS, Contestant
from tasklm.errors import RecipeError, TaskLMError
from tasklm.recipe.parsing import named_value
from tasklm.registry import nearest
from tasklm.run_folder import ENSEMBLE, MODEL

USUAL = ("majority", "tfidf", "hashed", "static", "tasklm")
OURS = "tasklm"
DOWNLOADED = {"frozen": "frozen", "tuned": "fine-tuned"}  # what is made of a downloaded model
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Entry:
    """A contestant with the folder that the user gave it, and its name in the table."""

    title: str
    name: str  # of the contestant
    source: str = ""

    @property
    def folder(self) -> str:
        """The name of its artefact."""
        return re.sub(r"[^\w.-]+", "-", self.title)

    @property
    def path(self) -> Path | None:
        """The user's folder, if there is one."""
        return Path(self.source) if self.source else None

    @property
    def contestant(self) -> type[Contestant]:
        """The class that does the work."""
        return CONTESTANTS.get(self.name)


def entries_of(words: Sequence[str]) -> list[Entry]:
    """The contestants of some words; raises RecipeError with all that is wrong with them."""
    entries: list[Entry] = []
    problems: list[str] = []
    for word in filter(None, map(str.strip, words)):
        try:
            entries += _entries(word)
        except RecipeError as error:
            problems += error.problems
        except TaskLMError as error:
            problems.append(f"--with {word}: {error}")
    titles = [entry.folder for entry in entries]
    repeated = sorted({entry.title for entry in entries if titles.count(entry.folder) > 1})
    if repeated:
        problems.append(f"--with: {', '.join(repeated)} is named twice; give each another name")
    if not entries and not problems:
        problems.append(f"--with: name contestants, such as {','.join(USUAL)}")
    if problems:
        raise RecipeError(problems)
    return entries


def _entries(word: str) -> list[Entry]:
    name, rest = named_value(word)
    if not name:
        return [_without_folder(rest)]
    if not _NAME.fullmatch(name):
        raise RecipeError([f"--with {word}: a name has letters, digits, dots and hyphens alone"])
    source = Path(rest).expanduser()
    own = None
    if name in CONTESTANTS.names():
        own = CONTESTANTS.get(name)
    if own is not None and not own.takes_folder:
        raise RecipeError([f"--with {word}: {name} takes no folder; write {name} alone"])
    if not source.is_dir():
        raise RecipeError(
            [f"--with {word}: there is no folder {rest!r}; nothing is downloaded, so give a folder"]
        )
    absolute = str(source.absolute())
    if own is not None:
        own.check(source)
        return [Entry(f"{name} {_last_name(source)}", name, absolute)]
    for kind in DOWNLOADED:
        CONTESTANTS.get(kind).check(source)
    return [Entry(f"{name} {use}", kind, absolute) for kind, use in DOWNLOADED.items()]


def _without_folder(word: str) -> Entry:
    names = CONTESTANTS.names()
    if word not in names:
        alone = [name for name in names if not CONTESTANTS.get(name).takes_folder]
        choices = f"{', '.join(alone)}, run=FOLDER, onnx=FOLDER"
        problem = f"there is no contestant {word!r}{nearest(word, names)}; choose from {choices}"
        way_out = f"or give the folder of a downloaded model: {word or 'NAME'}=FOLDER"
        raise RecipeError([f"--with {word}: {problem}, {way_out} (nothing is downloaded)"])
    if CONTESTANTS.get(word).takes_folder:
        raise RecipeError([f"--with {word}: it needs a folder: {word}=FOLDER"])
    return Entry(word, word)


def _last_name(source: Path) -> str:
    """The name of a run or of a folder, for a title."""
    whole = source.absolute()
    if whole.name in (MODEL, ENSEMBLE):
        whole = whole.parent
    return whole.name or "/"
