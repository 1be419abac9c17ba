"""The licences of text: as the user states them, as a column of a table does, or as a file beside
the text does; and the patterns that name sources and licences.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tasklm.errors import DataError, RecipeError
from tasklm.storage.safe_reading import read_bytes, resolved_path

NOT_STATED = "not stated"
COLUMNS = (
    "licence",
    "license",
    "licences",
    "licenses",
    "spdx",
    "spdx_license",
    "license_spdx",
    "licence_name",
    "license_name",
    "licence_type",
    "license_type",
)
BESIDE = ("LICENSE", "LICENCE", "LICENSE.txt", "LICENCE.txt", "LICENSE.md", "LICENCE.md")
BY_LICENCE = ("licence:", "license:")  # before a pattern that names licences, not sources
LONGEST = 100  # characters of a licence's name
MOST_OF_A_FILE = 1000  # licences that one table may state
_MOST_BYTES = 1 << 20  # of a file that states a licence
_SPDX = re.compile(r"SPDX-License-Identifier:\s*(\S.*?)\s*(?:\*/|-->|$)", re.MULTILINE)


@dataclass(frozen=True)
class RowRule:
    """Which rows of a table are left out for their licences."""

    patterns: tuple[str, ...] = ()
    otherwise: str = NOT_STATED  # the licence of a row that states none

    def leaves_out(self, licence: str) -> bool:
        """Whether a row with this licence, or with none (""), is left out."""
        return any(licence_matches(pattern, licence or self.otherwise) for pattern in self.patterns)


@dataclass
class RowLicences:
    """What the rows of a table say of their licences, while it is read."""

    wanted: str = ""  # the column; empty: found by its name; none may be there
    rule: RowRule = RowRule()
    column: str = ""  # the one that is read
    known: dict[str, bool] = field(default_factory=dict)  # licence → whether its rows are left out

    def find(self, path: Path, names: Sequence[str], text_column: str) -> str:
        """The column that states licences, "" if there is none."""
        if self.wanted and self.wanted not in names:
            raise DataError(
                f"there is no column {self.wanted!r} with licences",
                file=path,
                line=1,
                remedy="Name another one with --data.licence_column, or leave the file out.",
            )
        by_lower = {name.lower(): name for name in reversed(names) if name != text_column}
        usual = (by_lower[name] for name in COLUMNS if name in by_lower)
        self.column = self.wanted or next(usual, "")
        return self.column

    def leaves_out(self, licence: str, path: Path, line: int) -> bool:
        """Whether a row is left out; a column with too many licences is refused."""
        if licence not in self.known:
            if len(self.known) == MOST_OF_A_FILE:
                raise DataError(
                    f"column {self.column!r} has more than {MOST_OF_A_FILE:,} different values: "
                    "these are no licences",
                    file=path,
                    line=line,
                    remedy="Name the column with licences with --data.licence_column, or state "
                    f"the file's licence: --licence '{path.name}=CC0-1.0'.",
                )
            self.known[licence] = self.rule.leaves_out(licence)
        return self.known[licence]


def as_licence(value: Any) -> str:
    """A cell as the name of a licence; "" where it states none."""
    if isinstance(value, list):
        return _name(", ".join(str(one) for one in value))
    return "" if value is None or value != value else _name(str(value))


def _name(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def licence_beside(path: Path) -> tuple[str, str]:
    """The licence in a file beside a text, and that file's name; both empty if there is none.

    NAME.license is for one file, LICENSE or LICENCE for all files of its folder. The licence is
    its SPDX identifier, or else the first lines.
    """
    for name in (f"{path.name}.license", *BESIDE):
        beside = path.with_name(name)
        if beside.is_file() and beside != path:
            try:
                text = read_bytes(beside, _MOST_BYTES).decode("utf-8", "replace")
            except OSError as error:
                raise DataError(
                    f"the licence cannot be read ({error.strerror})",
                    file=beside,
                    remedy="Make it readable, or move it away.",
                ) from None
            return _licence_in(text), name
    return "", ""


def _licence_in(text: str) -> str:
    if match := _SPDX.search(text):
        return _name(match[1])
    first = re.split(r"\n\s*\n", text.strip())[0]
    return _name(first.lstrip("#= \t"))


def given_licence(names: Sequence[str], entries: Sequence[str]) -> tuple[str, str]:
    """The licence that the last fitting GLOB=LICENCE gives to a source, and that glob; both empty
    if none fits.
    """
    licence, glob = "", ""
    for entry in entries:
        pattern, _, stated = entry.rpartition("=")
        if any(path_matches(pattern, name) for name in names):
            licence, glob = _name(stated), pattern
    return licence, glob


def require_entries(entries: Sequence[str]) -> None:
    """Raises RecipeError for what is not GLOB=LICENCE."""
    wrong = [entry for entry in entries if not all(map(str.strip, entry.rpartition("=")))]
    if wrong:
        raise RecipeError(
            [
                f"data.licences: {entry!r} is not GLOB=LICENCE, as 'wiki/*=CC0-1.0'"
                for entry in wrong
            ]
        )


def names_of(path: str) -> tuple[str, ...]:
    """What a pattern may match of a file: its absolute path, as named and with links resolved; of
    a file elsewhere, its address.
    """
    if "://" in path:
        return (path,)
    absolute = os.path.abspath(path)  # noqa: PTH100  (Path.absolute leaves ".." in)
    return tuple(
        dict.fromkeys((absolute, str(place_of(Path(path))), str(resolved_path(Path(path)))))
    )


def place_of(path: Path) -> Path:
    """The absolute path of a file, with the links to its folder resolved."""
    return resolved_path(path.parent) / path.name


def path_matches(pattern: str, name: str) -> bool:
    """Whether a pattern names a file: its path, the end of it from a slash on, or a folder above.

    * and ? match slashes, too.
    """
    plain = pattern.rstrip("/").removeprefix("./")
    if not plain:
        return False
    if name == plain or name.startswith(f"{plain}/"):
        return True
    return any(fnmatchcase(name, one) for one in _from_a_slash(plain))


def _from_a_slash(pattern: str) -> list[str]:
    if pattern.startswith("/"):
        return [pattern, f"{pattern}/*"]
    return [pattern, f"{pattern}/*", f"*/{pattern}", f"*/{pattern}/*"]


def licence_pattern(pattern: str) -> str:
    """The pattern of licences that an entry is; "" for one of sources."""
    for before in BY_LICENCE:
        if pattern.lower().startswith(before):
            return pattern[len(before) :].strip()
    return ""


def licence_matches(pattern: str, licence: str) -> bool:
    """Whether a pattern names a licence, in small or capital letters."""
    return fnmatchcase(licence.lower(), pattern.lower())
