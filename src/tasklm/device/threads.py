"""The number of threads that share the work of a process."""

from __future__ import annotations

import os

from tasklm.recipe.schema import Hardware


def threads_of(settings: Hardware) -> int:
    """The threads that are set, or else this process's share of the cores it may use."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return settings.threads or max(1, len(os.sched_getaffinity(0)) // processes)
