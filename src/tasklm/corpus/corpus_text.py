"""Which files are a corpus and how they are read: the recipe's files without those left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.corpus.licences import (
    NOT_STATED,
    RowRule,
    given_licence,
    licence_beside,
    licence_matches,
    licence_pattern,
    names_of,
    path_matches,
    require_entries,
)
from tasklm.corpus.sources import PLAIN, find_files
from tasklm.corpus.tables import kind_of
from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Data
from tasklm.registry import nearest
from tasklm.storage.safe_reading import home_path, is_there, resolved_path

_MOST_COMPARED = 1000  # files that are searched for a mistyped name


@dataclass(frozen=True)
class FileLeftOut:
    """A file that is no part of a corpus: its size, its licence, and the pattern that names it."""

    path: str
    bytes: int
    licence: str
    pattern: str


@dataclass(frozen=True)
class CorpusText:
    """How a corpus is read: which files, which columns, and the length of passages in words."""

    files: tuple[Any, ...]  # paths, or the files that a cluster reads
    column: str = ""
    passage_words: int = Data.passage_words
    licence_column: str = ""
    rules: tuple[RowRule, ...] = ()  # of each file, where rows are left out
    left_out: tuple[FileLeftOut, ...] = ()

    @property
    def settings(self) -> list[Any]:
        """What else than the files decides the passages, for a key."""
        rules = [dataclasses.asdict(rule) for rule in self.rules]
        return [self.column, self.passage_words, self.licence_column, *rules]

    def rule(self, number: int) -> RowRule:
        """Which rows of a file are left out."""
        return self.rules[number] if self.rules else RowRule()


def local_text(data: Data, paths: Sequence[str] | None = None) -> CorpusText:
    """The corpus of a recipe on this machine, or other files read like it."""
    files = find_files(data.corpus if paths is None else paths)
    return corpus_text(data, files, [(str(path), path.stat().st_size) for path in files])


def corpus_text(data: Data, files: Sequence[Any], named: Sequence[tuple[str, int]]) -> CorpusText:
    """The corpus without what data.without names; `named`: path and size of each file."""
    require_entries(data.licences)
    text = CorpusText(tuple(files), data.corpus_column, data.passage_words, data.licence_column)
    if not data.without:
        return text
    by_licence = tuple(filter(None, map(licence_pattern, data.without)))
    sources = {one: _paths(one) for one in data.without if not licence_pattern(one)}
    unused = dict(sources)
    rest: list[Any] = []
    rules: list[RowRule] = []
    left_out: list[FileLeftOut] = []
    for file, (path, size) in zip(files, named, strict=True):
        names = names_of(path)
        fitting = [one for one, paths in sources.items() if _name_any(paths, names)]
        for pattern in fitting:
            unused.pop(pattern, None)
        rule, whole = _rule(path, data, by_licence)
        if whole:
            own = [one for one in by_licence if licence_matches(one, rule.otherwise)]
            fitting += [f"licence:{one}" for one in own]
        if fitting:
            left_out.append(FileLeftOut(names[0], size, rule.otherwise, fitting[0]))
        else:
            rest.append(file)
            rules.append(RowRule() if whole else rule)
    _refuse_unused(list(unused), named)
    if not rest:
        raise RecipeError(["data.without leaves nothing of the corpus; give other text, or none"])
    used = tuple(rules) if by_licence else ()
    return dataclasses.replace(text, files=tuple(rest), rules=used, left_out=tuple(left_out))


def licence_of(path: str, stated: str, data: Data) -> tuple[str, str]:
    """The licence of a part of a file, whose rows state one or none (""), and who says so."""
    names = names_of(path)
    licence, glob = given_licence(names, data.licences)
    if licence:
        return licence, f"--licence {glob}"
    if stated:
        return stated, "its column"
    if "://" in path:
        return NOT_STATED, ""
    beside, name = licence_beside(Path(path))
    return (beside, f"file {name}") if beside else (NOT_STATED, "")


def _rule(path: str, data: Data, by_licence: tuple[str, ...]) -> tuple[RowRule, bool]:
    """What leaves out rows of a file, and whether it has one licence as a whole: the given one, or
    that of a text without rows.
    """
    if not by_licence:
        return RowRule(), False
    licence, _ = licence_of(path, "", data)
    given, _ = given_licence(names_of(path), data.licences)
    return RowRule(by_licence, licence), bool(given) or kind_of(Path(path)) in PLAIN


def _paths(pattern: str) -> tuple[str, ...]:
    """A pattern, and the absolute path where it is that of a file or folder."""
    path = home_path(pattern)
    return (pattern, str(resolved_path(path))) if is_there(path) else (pattern,)


def _name_any(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Whether any of the patterns matches any of the names of a file."""
    return any(path_matches(pattern, name) for pattern in patterns for name in names)


def _refuse_unused(patterns: Sequence[str], named: Sequence[tuple[str, int]]) -> None:
    """Raises RecipeError for patterns that name no file of the corpus."""
    choices = [Path(path).name for path, _ in named[:_MOST_COMPARED]]
    problems = [
        f"data.without: no file of the corpus is called {pattern!r}{nearest(pattern, choices)}"
        for pattern in patterns
    ]
    if problems:
        raise RecipeError(problems)
