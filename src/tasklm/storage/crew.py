"""The processes that share one run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Crew(Protocol):
    """The processes that share one run; the first does everything that must happen once."""

    @property
    def first(self) -> bool:
        """Whether this process is the first."""
        ...

    def wait(self) -> None:
        """Waits until all processes have reached this point."""
        ...

    def by_itself(self) -> AbstractContextManager[None]:
        """A context in which this process acts as if it were alone."""
        ...


class OneProcess:
    """A crew of one."""

    first = True

    def wait(self) -> None:
        """At once."""

    def by_itself(self) -> AbstractContextManager[None]:
        """A context that changes nothing."""
        return nullcontext()
