"""Name → class, for the plug-in folders and for user code.

A registry is bound to a package folder: asking for a name imports the file of that name, which
registers itself. Listing the folder therefore lists the features. User code registers its own names
the same way.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from typing import Generic, TypeVar

from tasklm.errors import RecipeError

T = TypeVar("T")
# longest word for which a similar one is searched: the time grows with the square of its length
LONGEST_WORD = 200


def nearest(word: str, choices: list[str]) -> str:
    """' (did you mean …?)' for the choice most like `word`, or an empty string."""
    if len(word) > LONGEST_WORD:
        return ""
    matches = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


class Registry(Generic[T]):
    """Maps names to the classes or functions of one plug-in folder."""

    def __init__(self, what: str, package: str) -> None:
        self.what, self.package = what, package
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that registers a class or function under `name`."""

        def file_under_name(entry: T) -> T:
            if name in self._entries and self._entries[name] is not entry:
                raise ValueError(f"two {self.what}s are called {name!r}")
            self._entries[name] = entry
            return entry

        return file_under_name

    def get(self, name: str) -> T:
        """The entry called `name`; the error for an unknown name lists the known ones."""
        if name not in self._entries:
            self._import_file(name)
        if name not in self._entries:
            self._import_folder()
        if name not in self._entries:
            names = self.names()
            problem = f"there is no {self.what} called {name!r}{nearest(name, names)}"
            raise RecipeError([f"{problem}; choose from {', '.join(names)}"])
        return self._entries[name]

    def names(self) -> list[str]:
        """Every known name, sorted."""
        self._import_folder()
        return sorted(self._entries)

    def _import_file(self, name: str) -> None:
        """Imports only the file of that name, if there is one: other files may have dependencies it
        does not need.
        """
        if name in self._files():
            importlib.import_module(f"{self.package}.{name}")

    def _import_folder(self) -> None:
        for name in self._files():
            importlib.import_module(f"{self.package}.{name}")

    def _files(self) -> list[str]:
        folder = importlib.import_module(self.package)
        return [module.name for module in pkgutil.iter_modules(folder.__path__)]
